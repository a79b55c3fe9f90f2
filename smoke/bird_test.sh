#!/usr/bin/env bash
# BIRD feeds the router a full table, by BGP and the kernel:
#
# runs among idle: BIRD and the router load every core with a full table, which BIRD answers for in time
#
#   source s0 ── r0 router r1 ── a0 a: BIRD, half of the table
#                (BIRD)    r2 ── b0 b: BIRD, the other half
#
# BIRD is not patched and has no configuration about the router: it puts its routes into the kernel.
# After every change the router must have the kernel's routes, all of them, within two
# seconds (by compare_routes.py first and last, by `fib diff kernel` in between), and packets are
# sent and looked at where they come out (follow.py).
. "$(dirname "$0")/lib/router_topology.sh"

prefixes 1
two_sessions
configure
start_router
start=$(now)
bird_in router
bird=$launched
halves
wait_for 120 full || fail "BIRD has not all routes: $(birdc router show route count)"
echo "   BIRD has $total routes after $(since "$start") s"
last=$(now)
wait_for 120 settled || fail "the router has $(have) of $total routes"
echo "   the router has them $(since "$last") s later"
rest
same
agrees
check both

echo "a session is reset: half of the table goes and comes"
reset_session

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
