#!/usr/bin/env bash
# A gate with a small table under floods of forged sources.
#
#   client c0 ── g0 gate g1 ── t0 grantor      10.1.0.x │ 10.2.0.x, protected: 192.0.2.0/24
#
# Floods are raw frames, patient clients use the kernel's TCP; admission_traffic.py is the grantor and has
# the checks. The request channel is 5 Mbit/s.
# runs alone: it measures the rates of a link to within 2 %
. "$(dirname "$0")/lib/gate_topology.sh"

for address in 2 3 4 5; do
    within client ip addr add "10.1.0.$address/24" dev c0
done
within gate ip route add 192.0.2.0/24 via 10.2.0.2
within client ip route add 192.0.2.0/24 via 10.1.0.1
# The kernel does not have to resolve forged sources: the MAC addresses of both ends are known.
within gate ip neigh replace 10.1.0.2 lladdr 02:00:00:00:01:02 dev g0
within gate ip neigh replace 10.2.0.2 lladdr 02:00:00:00:02:02 dev g1
within client ip neigh replace 10.1.0.1 lladdr 02:00:00:00:01:01 dev c0

printf '%s\n' 203.0.113.0/24 >"$work/allow.txt"
cat >"$work/gate.toml" <<CONFIG
$(sides 100mbit)
[flow_table]
entries = 4096
$(gate_site '{ address = "10.2.0.2" }')
[[policy]]
prefix = "192.0.2.64/26"
grantors = "site"
limit = "4mbit"
per_destination_limit = "2mbit"
[allow]
file = "allow.txt"
[decisions]
v1_sources = ["10.2.0.2"]
[control]
socket = "$work/sock"
CONFIG

start_gate
within client "$python" "$here/smoke/admission_traffic.py" "$prefix" "$program" "$work" "$gate"
# Without a page, too, the log has the attacks.
for line in 'an attack has begun: ' 'the attack has ended '; do
    wait_for 20 grep -q "$line" "$work/gate.log" || fail "not in the log: $line"
done
kill -INT "$gate"
status=0
wait "$gate" || status=$?
[ "$status" -eq 0 ] || fail "the gate ended with $status"
"$python" "$here/smoke/lib/gate_report.py" <"$work/gate.json"
