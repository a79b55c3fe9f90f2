#!/usr/bin/env bash
# FRR as it is installed feeds the router, through the kernel:
#
#   source s0 ── r0 router r1 ── a0 a: BIRD, half of a table
#                (FRR)     r2 ── b0 b: BIRD, the other half
. "$(dirname "$0")/lib/router_topology.sh"

prefixes 5
configure
start_router
halves
frr zebra
wait_for 10 test -S "$work/frr/zserv" || fail "zebra does not start"
start=$(now)
frr bgpd
settled() { [ "$(have)" -ge "$total" ]; }
wait_for 100 settled || fail "the router has $(have) of $total routes"
echo "   $total routes after $(since "$start") s"
rest
agrees
same
check both

echo "b's daemon ends: its half goes"
# shellcheck disable=SC2046
kill -KILL $(ip netns pids "${prefix}b")
half() { [ "$(have)" -le $((total * 6 / 10)) ]; }
within router ip link set r2 down
within router ip link set r2 up
wait_for 60 half || fail "the routes of b stay: $(have)"
rest
agrees
check a

echo "bgpd is killed: zebra takes its routes away; it comes back"
# shellcheck disable=SC2154
kill -KILL "$frr_bgpd"
wait "$frr_bgpd" 2>/dev/null || true
none() { [ "$(have)" -le 100 ]; }
wait_for 60 none || fail "its routes stay: $(have)"
rest
agrees
frr bgpd
half_there() { [ "$(have)" -ge $((total * 4 / 10)) ]; }
wait_for 60 half_there || fail "the routes of a do not come back: $(have)"
rest
agrees
same
check a
show feeds
stop_router
