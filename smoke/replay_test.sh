#!/usr/bin/env bash
# A quarter of an hour of a collector's BGP updates, of twenty peers, replayed as fast as
# BIRD takes them, on top of a table; then the peers go:
#
#   source s0 ── r0 router r1 ── a0 a: BIRD, half of the table, and twenty speakers
#                (BIRD)    r2 ── b0 b: BIRD, the other half
#
# The router must have the kernel's routes within two seconds of the end, and of every
# packet to an address whose route does not change, sent all the time, none may be lost.
# runs alone: a BGP daemon with twenty-two peers loads every core, and no packet may be lost
. "$(dirname "$0")/lib/router_topology.sh"

updates=${FINGERPOST_DATA:-$here/../shared/data}/updates-20260222.1530-routeviews-bgp4mp_et.mrt.bz2
[ -f "$updates" ] || fail "the updates are not here: $updates (see FINGERPOST_DATA)"
prefixes 10

for number in $(seq 10 40); do
    within a ip addr add "10.0.1.$number/24" dev a0
done

mkfifo "$work/hold"
"$python" "$here/smoke/replay_speakers.py" "${prefix}a" "$work/peers.conf" "$updates" 10.0.1.1 <"$work/hold" >"$work/said" 2>"$work/speakers.log" &
speakers=$!
exec 8>"$work/hold"
wait_for 60 test -s "$work/peers.conf" || fail "no peers"
sleep 0.5
cat >"$work/router.conf" <<CONF
router id 10.0.0.1;
log stderr { error, fatal, bug };
protocol device { scan time 10; }
protocol kernel { scan time 60; learn off; ipv4 { import none; export all; }; }
protocol bgp from_a { local 10.0.1.1 as 65000; neighbor 10.0.1.2 as 65001; ipv4 { import all; export none; }; }
protocol bgp from_b { local 10.0.2.1 as 65000; neighbor 10.0.2.2 as 65002; ipv4 { import all; export none; }; }
include "$work/peers.conf";
CONF

configure
start_router
bird_in router
halves
settled() { [ "$(have)" -ge "$total" ]; }
wait_for 60 settled || fail "the router has $(have) of $total routes"
rest
table=$(have)

fly
before=$(changes)
start=$(now)
touch "$work/peers.conf.go"
wait_for 120 test -s "$work/said" || fail "the speakers do not come to an end"
sed 's/^/   /' "$work/said"
# Quiet for a second: BIRD has worked it off.
rest
echo "   $(($(changes) - before)) changes in $(since "$start") s, $(($(have) - table)) routes more"
[ "$(have)" -gt "$table" ] || fail "the updates brought no routes"
agrees
same

echo "the peers go"
kill "$speakers"
wait "$speakers" 2>/dev/null || true
# The speakers have been neighbors since, with host routes.
gone() { [ "$(have)" -le "$((table + 40))" ]; }
wait_for 60 gone || fail "their routes stay: $(have), not $table"
rest
agrees
same

flown
show feeds
stop_router
