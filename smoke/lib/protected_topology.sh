# Sourced by the tests of packets that reach a server through a gate and a grantor:
#
#   client c0 ── f0 gate g0 ── t0 grantor s0 ── v0 server      10.1.0.x │ 10.2.0.x │ 192.0.2.x
#
# The client is 10.1.0.2, the grantor 10.2.0.2 and 10.9.1.100, where tunnels end, and the server
# 192.0.2.7. Packets of the server return through the grantor's kernel and the gate.
#
#   gate_config   prints a gate's configuration: the grantor protects 192.0.2.0/24 and
#                 signs as sender 7; the control socket is $work/gate.sock
. "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"

for name in client gate grantor server; do
    namespace "$name"
done
join client c0 02:00:00:00:01:02 gate f0 02:00:00:00:01:01
join gate g0 02:00:00:00:02:01 grantor t0 02:00:00:00:02:02
join grantor s0 02:00:00:00:03:01 server v0 02:00:00:00:03:02
within client ip addr add 10.1.0.2/24 dev c0
within gate ip addr add 10.1.0.1/24 dev f0
within gate ip addr add 10.2.0.1/24 dev g0
within grantor ip addr add 10.2.0.2/24 dev t0
within grantor ip addr add 192.0.2.1/24 dev s0
within server ip addr add 192.0.2.7/24 dev v0
within client ip route add default via 10.1.0.1
within server ip route add default via 192.0.2.1
within grantor ip route add 10.1.0.0/24 via 10.2.0.1
within gate ip route add 10.9.1.100/32 via 10.2.0.2
within gate ip route add 192.0.2.0/24 via 10.2.0.2

gate_config() {
    cat <<CONFIG
$(busy_machine)
$(gate_sides f0 g0 1gbit)
[flow_table]
entries = 4096
$(gate_site '{ address = "10.9.1.100", sender = 7 }')
$(gate_sender 7 grantor.key 10.2.0.2)
[control]
socket = "$work/gate.sock"
CONFIG
}
