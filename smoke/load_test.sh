#!/usr/bin/env bash
# A gate that is changed under load, and one whose link is flooded by what was granted.
#
#   client c0 ── g0 gate g1 ── t0 grantor      10.1.0.x │ 10.2.0.x, protected: 192.0.2.0/24
#
# Routes to the grantor, grantors, policy and a program change while granted packets come, and
# nothing is dropped. Then one destination is sent more than the link carries, and the
# others and the operational traffic keep theirs (load_traffic.py).
# runs alone: it measures the shares of a flooded link
. "$(dirname "$0")/lib/gate_topology.sh"

known_ends
within grantor ip addr add 10.2.0.3/24 dev t0
within gate ip neigh replace 10.2.0.3 lladdr 02:00:00:00:02:02 dev g1
within gate ip route add 10.9.1.0/24 via 10.2.0.2
within gate ip route add 192.0.2.0/24 via 10.2.0.2

"$program" program build grantedv2 -o "$work/program.o" >"$work/build.log"
cat >"$work/gate.toml" <<CONFIG
$(sides 20mbit)
[flow_table]
entries = 4096
$(gate_site '{ address = "10.9.1.1" }')
[[policy]]
prefix = "192.0.2.9/32"
action = "back"
exempt = true
[[program]]
number = 1
file = "program.o"
[decisions]
v1_sources = ["10.2.0.2"]
[control]
socket = "$work/sock"
CONFIG

start_gate
within client "$python" "$here/smoke/load_traffic.py" "$prefix" "$program" "$work" "$gate"
kill -INT "$gate"
status=0
wait "$gate" || status=$?
[ "$status" -eq 0 ] || fail "the gate ended with $status"
"$python" "$here/smoke/lib/gate_report.py" <"$work/gate.json"
