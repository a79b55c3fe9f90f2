#!/usr/bin/env bash
# VLAN devices of which something changes while the router runs: queues with a rate, a VRF, and a setting for which Linux
# forwards their packets.
#
# in a VM: it needs VLAN devices
. "$(dirname "$0")/lib/vlan_topology.sh"

configure
start_router
state=on
wait_for 5 have_vlans "r0.100 customer inner r1.300" || fail "VLAN devices: $(vlans): $(show interfaces)"
go_by s0.30 10.1.30.1 fd01:30::1
forwards s0.30 11.0.0.1

echo "a queue with a rate of a device, and of one that does not exist"
queue() { # DEVICE OVER BANDWIDTH [LINE]
    printf '[[egress_queue]]\ninterface = "%s"\nover = ["%s"]\nbandwidth = "%s"\n%s\n' "$1" "$2" "$3" "${4:-}"
}
# `limits DEVICE QUEUES`: with these queues pings take as long as 200 kbit/s allow, and wait in that of DEVICE.
limits() {
    local slowest packets dropped of='[c for q in d if q["interface"] == "'"$1"'" for c in q["classes"]][2]'
    configure "$2"
    "$program" reload --socket "$work/sock" || fail "the reload fails"
    # 334 kbit in 0.2 s.
    within source ping -c 40 -i 0.005 -s 1000 -W 5 -I s0.30 11.0.0.1 >"$work/ping.log" || fail "$(cat "$work/ping.log")"
    # Ping ends two of its longest times after the last answer; some packets wait longer.
    wait_for 10 eval "show -j egress-queues | json 'assert ($of)[\"waiting\"] == 0'" || fail "packets wait: $(show egress-queues)"
    slowest=$(sed -n 's|^rtt .* = [^/]*/[^/]*/\([0-9]*\).*|\1|p' "$work/ping.log")
    read -r packets dropped <<<"$(show -j egress-queues | json "c = $of; print(c['packets'], c['dropped_delay'])")"
    echo "   $1: $packets packets sent, $dropped dropped, the slowest answered after $slowest ms"
    [ $((packets + dropped)) -ge 40 ] && [ "$slowest" -gt 200 ] || fail "$(cat "$work/ping.log") $(show egress-queues)"
}
limits r1.300 "$(queue r1.300 r1 200kbit)
$(queue r1.999 r1 1mbit)"
show egress-queues | has_line "r1.999 over r1 (no port): bandwidth 1mbit" || fail "$(show egress-queues)"
echo "a device whose packets wait in the queue of the one below it, and one within the rate of that"
limits customer "$(queue customer r0 200kbit)"
limits inner "$(queue customer r0 200kbit)
$(queue inner r0 1mbit 'within = "customer"')"
show egress-queues | has_line "inner over r0 within customer: bandwidth 1mbit" || fail "$(show egress-queues)"

echo "devices in a VRF that is made at run time: its table is followed"
within router ip link add blue type vrf table 77
within router ip link set blue up
vlan router r0.400 r0 802.1Q 400 61 1
vlan router r1.401 r1 802.1Q 401 62 1
for device in r0.400 r1.401; do within router ip link set "$device" master blue; done
vlan source s0.400 s0 802.1Q 400 61 2
vlan a a0.401 a0 802.1Q 401 62 2
within source ip route add 10.1.62.0/24 via 10.1.61.1
within a ip route add 10.1.61.0/24 via 10.1.62.1
have_table() { [ "$(show interfaces | grep -cE "vlan (r0.400|r1.401) up .* table 77 ")" = 2 ]; }
wait_for 10 have_table || fail "$(show interfaces)"
grep -q "workers replaced" "$work/fingerpost.log" || fail "$(cat "$work/fingerpost.log")"
forwards s0.400 10.1.62.2
forwards s0.30 11.0.0.1
within router ip route add vrf blue 12.0.0.0/8 via 10.1.62.2
within a ip addr add 12.0.0.1/32 dev lo
within source ip route add 12.0.0.0/8 via 10.1.61.1
forwards s0.400 12.0.0.1

echo "a device that is left to Linux: its packets are forwarded by the kernel"
within router ip link set r0.100 type vlan ingress 3:16
left() { show interfaces | has_line "vlan r0.100 left to Linux: its ingress-qos-map has priority 16, above 15"; }
wait_for 5 left || fail "$(show interfaces)"
within source ip route replace 11.0.0.0/8 via 10.1.100.1 dev s0.100
ping_from s0.100 11.0.0.1 || fail "the kernel does not forward: $(cat "$work/ping.log")"
stop_router
