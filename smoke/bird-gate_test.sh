#!/usr/bin/env bash
# A gate with a full table by BGP, as the router in bird_test.sh.
#
#   source s0 ── r0 gate r1 ── a0 a: BIRD, half of the table
#                (BIRD)  r2 ── b0 b: BIRD, the other half
#
# It has to have loaded the routes within a minute, follow a session that is reset, send packets where the
# kernel would (follow.py), by its own interfaces and by the host's, and refuse a hole in a protected prefix
# that is not named as one.
. "$(dirname "$0")/lib/router_topology.sh"

prefixes 1
two_sessions
bird_in router
halves
wait_for 120 full || fail "BIRD has not all routes: $(birdc router show route count)"
in_kernel() { [ "$(within router ip route | wc -l)" -ge "$total" ]; }
wait_for 120 in_kernel || fail "the kernel has not all routes"

gate_with() {
    cat >"$work/gate.toml" <<CONFIG
$(busy_machine)
$(gate_sides r0 r1 10gbit)
$(gate_site '{ address = "10.0.1.2" }')
$(gate_policy 192.0.2.128/25 front)
$1
$(gate_policy 10.0.1.2/32 drop)
$(gate_policy 0.0.0.0/0 front)
[control]
socket = "$work/sock"
CONFIG
}
gate_with ""
refuse 1 "192.0.2.128/25 would lead past the protection of 192.0.2.0/24" "$program" gate check -c "$work/gate.toml"
gate_with "exempt = true"
start=$(now)
launch router "$program" gate -c "$work/gate.toml" -j >"$work/gate.json" 2>"$work/gate.log"
gate=$launched
wait_for 60 grep -q 'guarding after' "$work/gate.log" || fail "the gate has not loaded its routes in a minute"
echo "   guarding $(since "$start") s after its start, with $(have) routes"
agrees
check both
reset_session
kill -INT "$gate"
wait "$gate" || fail "the gate ended with $?"
balanced <"$work/gate.json"
json 'assert d["counters"]["received"] > 0, d' <"$work/gate.json"
