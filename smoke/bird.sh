#!/usr/bin/env bash
# BIRD feeds the router a full table, by BGP and the kernel:
#
#   source s0 ── r0 router r1 ── a0 a: BIRD, half of the table
#                (BIRD)    r2 ── b0 b: BIRD, the other half
#
# Nothing of BIRD is patched or told of the router: it puts its routes into the kernel.
# After every change the router must have the kernel's routes, all of them, within two
# seconds (by routes.py first and last, by `fib diff kernel` in between), and packets are
# sent and looked at where they come out (follow.py).
. "$(dirname "$0")/crossing.sh"

prefixes 1
cat >"$work/router.conf" <<'CONF'
router id 10.0.0.1;
log stderr { warning, error, fatal, bug };
protocol device { scan time 10; }
protocol kernel { scan time 60; ipv4 { import none; export all; }; }
protocol bgp from_a { local 10.0.1.1 as 65000; neighbor 10.0.1.2 as 65001; ipv4 { import all; export none; }; }
protocol bgp from_b { local 10.0.2.1 as 65000; neighbor 10.0.2.2 as 65002; ipv4 { import all; export none; }; }
CONF
birdc() { within "$1" birdc -s "$work/$1.ctl" "${@:2}"; }
configure
start_router
start=$(now)
bird_in router
bird=$launched
halves
# The kernel's count is quick to ask; the router's must follow.
full() { [ "$(birdc router show route count | awk '/of.*routes for/ {print $1; exit}')" -ge "$total" ]; }
wait_for 120 full || fail "BIRD has not all routes: $(birdc router show route count)"
echo "   BIRD has $total routes after $(since "$start") s"
settled() { [ "$(have)" -ge "$total" ]; }
last=$(now)
wait_for 120 settled || fail "the router has $(have) of $total routes"
echo "   the router has them $(since "$last") s later"
rest
same
agrees
check both

echo "a session is reset: half of the table goes and comes"
birdc router disable from_a >/dev/null
half() { [ "$(have)" -le $((total * 6 / 10)) ]; }
wait_for 60 half || fail "the routes of a stay: $(have)"
rest
agrees
check b
birdc router enable from_a >/dev/null
wait_for 120 settled || fail "the routes of a do not come back: $(have)"
rest
agrees
check both

echo "BIRD is killed and started again: the kernel keeps its routes, and so does the router"
kill -KILL "$bird"
wait "$bird" 2>/dev/null || true
agrees
check both
bird_in router
wait_for 120 full || fail "BIRD does not come back"
rest
agrees
check both

echo "the router is killed: the kernel forwards; started again it has a full table"
kill -KILL "$router"
wait "$router" 2>/dev/null || true
check both
start=$(now)
start_router
echo "   forwarding $(since "$start") s after its start"
same
agrees
check both
show fib
show feeds
show audit
show -j audit | json 'assert d[0]["checks"] > 0 and d[0]["mismatches"] == 0, d' || fail "the auditor"

stop_router
