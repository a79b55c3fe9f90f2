#!/usr/bin/env bash
# VLAN devices: packets from and to hosts behind 802.1Q and 802.1ad devices over the router's ports, and
# what these hosts observe, with the kernel alone and with the router.
#
#   source s0.100, s0.200.30, s0 ── r0 router r1 ── a0.300 a      11.0.0.1, 2001:db8::1
#
# in a VM: it needs VLAN devices
. "$(dirname "$0")/lib/router_topology.sh"

for end in "source s0" "a a0" "b b0"; do
    read -r name interface <<<"$end"
    own_checksums "$name" "$interface"
    own_tags "$name" "$interface"
done
for name in router a; do within "$name" sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0; done
sysctl -qw net.ipv4.route.error_cost=0

# `vlan NAMESPACE DEVICE LOWER PROTOCOL ID NETWORK HOST [MAC]`: a VLAN device with addresses.
vlan() {
    local mac=${8:+address $8}
    # shellcheck disable=SC2086
    within "$1" ip link add link "$3" name "$2" $mac type vlan protocol "$4" id "$5"
    within "$1" ip link set "$2" up
    [ "$6" = - ] && return
    within "$1" ip addr add "10.1.$6.$7/24" dev "$2"
    within "$1" ip addr add "fd01:$6::$7/64" dev "$2" nodad
}
vlan router r0.100 r0 802.1Q 100 100 1
vlan router customer r0 802.1ad 200 - -
vlan router inner customer 802.1Q 30 30 1 02:00:00:00:09:30
vlan router r1.300 r1 802.1Q 300 44 1
vlan source s0.100 s0 802.1Q 100 100 2
vlan source outer s0 802.1ad 200 - -
vlan source s0.30 outer 802.1Q 30 30 2
vlan a a0.300 a0 802.1Q 300 44 2
# Priorities of packets by those of their tags: the inner device decides.
within source ip link set s0.100 type vlan egress 0:3 6:2
within source ip link set outer type vlan egress 0:5
within source ip link set s0.30 type vlan egress 0:4
within router ip link set r0.100 type vlan ingress 3:6 2:15
within router ip link set customer type vlan ingress 5:6
within router ip link set inner type vlan ingress 4:2
within router ip link set r1.300 mtu 1400 type vlan egress 0:3 2:1 6:5 15:7
within a ip addr add 11.0.0.1/32 dev lo
within a ip -6 addr add 2001:db8::1/128 dev lo
within a ip route add default via 10.1.44.1
within a ip -6 route add default via fd01:44::1
routes() {
    within router ip route replace 11.0.0.0/8 via 10.1.44.2
    within router ip -6 route replace 2001:db8::/32 via fd01:44::2
}
routes

state=off
sent() { show -j counters | json 'print(d[0]["sent"])'; }
ping_from() { within source ping -c 5 -i 0.02 -W 2 -I "$1" "$2" >"$work/ping.log"; }
# `forwards FROM ADDRESS`: five pings are answered; with the router on, the router itself has sent them,
# except for the first to an unknown neighbor.
forwards() {
    local before=0
    [ "$state" = off ] || before=$(sent)
    ping_from "$1" "$2" || fail "router $state: $1 to $2: $(cat "$work/ping.log")"
    [ "$state" = off ] || [ $(($(sent) - before)) -ge 8 ] ||
        fail "$1 to $2: the kernel forwards, the router has sent $(($(sent) - before)) of 10: $(show interfaces)"
}
# Prints the tags by which a receives packets from this interface: with two TOS, and of IPv6.
tags_from() {
    local packet
    launch a tcpdump -i a0 -e -n -l -Q in "vlan 300" >"$work/dump" 2>"$work/dump.log"
    wait_for 15 grep -q "listening on" "$work/dump.log" || fail "tcpdump: $(cat "$work/dump.log")"
    for packet in "11.0.0.1 -Q 0" "11.0.0.1 -Q 16" 2001:db8::1; do
        # shellcheck disable=SC2086
        within source ping -c 1 -W 5 -I "$1" $packet >/dev/null || fail "router $state: $packet is not answered"
    done
    wait_for 5 eval '[ "$(grep -c "echo request" "$work/dump")" = 3 ]' || fail "a receives: $(cat "$work/dump")"
    kill "$launched"
    grep "echo request" "$work/dump" | grep -o 'vlan 300, p [0-9]'
}
# Prints what the host in `source` observes of the path by a gateway: hops, path MTU, and these tags.
seen() {
    observed_path "$1"
    tags_from "$1"
}
# `go_by DEVICE GATEWAY GATEWAY6`: the source reaches a by this device and these gateways.
go_by() {
    within source ip route replace 11.0.0.0/8 via "$2" dev "$1"
    within source ip -6 route replace 2001:db8::/32 via "$3" dev "$1"
}
each() {
    local side from gateway gateway6
    for side in "s0 10.0.0.1 fd00:0::1" "s0.100 10.1.100.1 fd01:100::1" "s0.30 10.1.30.1 fd01:30::1"; do
        read -r from gateway gateway6 <<<"$side"
        go_by "$from" "$gateway" "$gateway6"
        forwards "$from" 11.0.0.1
        forwards "$from" 2001:db8::1
        seen "$from" | sed "s/^/$from: /"
    done
    # IPv4 packets, too, keep the priority of their tag. The router reads the setting once a second.
    within router sysctl -qw net.ipv4.ip_forward_update_priority=0
    go_by s0.100 10.1.100.1 fd01:100::1
    [ "$state" = off ] || sleep 2.5
    tags_from s0.100 | sed "s/^/s0.100, its priority kept: /"
    within router sysctl -qw net.ipv4.ip_forward_update_priority=1
    go_by "$from" "$gateway" "$gateway6"
}
# VLAN 1, which many switches treat as untagged, from port to port: the kernel's selftest router_vid_1.sh. Its
# devices are removed afterwards.
vlan_1() {
    local end name device before=0
    vlan source s0.1 s0 802.1Q 1 1 2
    vlan a a0.1 a0 802.1Q 1 2 2
    vlan router r0.1 r0 802.1Q 1 1 1
    vlan router r1.1 r1 802.1Q 1 2 1
    within source ip route add 10.1.2.0/24 via 10.1.1.1
    within source ip -6 route add fd01:2::/64 via fd01:1::1
    within a ip route add 10.1.1.0/24 via 10.1.2.1
    within a ip -6 route add fd01:1::/64 via fd01:2::1
    if [ "$state" = on ]; then
        wait_for 10 eval 'vlans | has_line -E "(^| )r1\.1( |$)"' || fail "no r1.1: $(show interfaces)"
        before=$(sent)
    fi
    for end in 10.1.2.2 fd01:2::2; do
        ping_from s0.1 "$end" && grep -q ' 5 received' "$work/ping.log" ||
            fail "router $state: VLAN 1, $end: $(cat "$work/ping.log")"
    done
    # The kernel sends the first packets to unknown neighbors.
    [ "$state" = off ] || [ $(($(sent) - before)) -ge 16 ] ||
        fail "VLAN 1: the router has sent $(($(sent) - before)) of 20: $(show interfaces)"
    for end in "router r0.1" "router r1.1" "source s0.1" "a a0.1"; do
        read -r name device <<<"$end"
        within "$name" ip link del "$device"
    done
    echo "   VLAN 1, router $state: 5 of 5 packets of each family are answered"
}

each >"$work/kernel"
grep -q "mtu = 1400" "$work/kernel" || fail "the kernel alone: $(cat "$work/kernel")"
for tag in "s0: vlan 300, p 3" "s0.100: vlan 300, p 5" "s0.30: vlan 300, p 1" "kept: vlan 300, p 7"; do
    grep -q "$tag" "$work/kernel" || fail "the kernel alone: no $tag: $(cat "$work/kernel")"
done
sed 's/^/   the kernel alone: /' "$work/kernel"
vlan_1

# Cards, one of which is the router's, as a veth has no hardware that removes tags.
modprobe e1000e
for end in "router c0 1" "b k0 2"; do
    read -r name interface number <<<"$end"
    ip -o link | has_line "52:54:00:00:0c:0$number" || fail "no card $number: $(ip -o link)"
    card=$(ip -o link | awk -F': ' -v mac="52:54:00:00:0c:0$number" 'index($0, mac) { print $2 }')
    ip link set "$card" netns "$prefix$name" name "$interface"
    within "$name" ip link set "$interface" up
    vlan "$name" "$interface.500" "$interface" 802.1Q 500 50 "$number"
done
within source ip route add 10.1.50.0/24 via 10.0.0.1
within b ip route add 10.0.0.0/24 via 10.1.50.1
removes_tags() { within router ethtool -k c0 | has_line '^rx-vlan-offload: on'; }
removes_tags || fail "the card removes no tags: $(within router ethtool -k c0)"
wait_for 20 ping_from s0 10.1.50.2 || fail "no path by the cards: $(cat "$work/ping.log")"

interfaces='{ name = "r0" }, { name = "r1" }, { name = "r2" }, { name = "c0" }'
configure "" "$interfaces"
start_router
state=on
vlans() {
    show -j interfaces | json 'print(*[v["name"] for i in d if i["name"] != "c0" for v in i.get("vlans", []) if "problem" not in v])'
}
have_vlans() { [ "$(vlans)" = "$1" ]; }
wait_for 5 have_vlans "r0.100 customer inner r1.300" || fail "VLAN devices: $(vlans): $(show interfaces)"
each >"$work/router"
diff "$work/kernel" "$work/router" || fail "the hosts observe another router"
echo "   the router: the same, and it has forwarded the packets"
vlan_1

echo "a card leaves the tags in while it is the router's"
! removes_tags || fail "$(within router ethtool -k c0)"
forwards s0 10.1.50.2

echo "devices that are removed, created, renamed and set down at run time"
within router ip link del r0.100
wait_for 5 have_vlans "customer inner r1.300" || fail "$(show interfaces)"
forwards s0.30 11.0.0.1
vlan router transit r0 802.1Q 100 100 1
wait_for 5 have_vlans "transit customer inner r1.300" || fail "$(show interfaces)"
within source ip route replace 11.0.0.0/8 via 10.1.100.1 dev s0.100
forwards s0.100 11.0.0.1
within router ip link set customer down
wait_for 5 have_vlans "transit r1.300" || fail "$(show interfaces)"
within router ip link set customer up
within router ip link set inner up
wait_for 5 have_vlans "transit customer inner r1.300" || fail "$(show interfaces)"
within source ip route replace 11.0.0.0/8 via 10.1.30.1 dev s0.30
forwards s0.30 11.0.0.1

echo "a queue with a rate of a device, and of one that does not exist"
queue() { # DEVICE OVER BANDWIDTH [LINE]
    printf '[[egress_queue]]\ninterface = "%s"\nover = ["%s"]\nbandwidth = "%s"\n%s\n' "$1" "$2" "$3" "${4:-}"
}
# `limits DEVICE QUEUES`: with these queues pings take as long as 200 kbit/s allow, and wait in that of DEVICE.
limits() {
    local slowest packets dropped of='[c for q in d if q["interface"] == "'"$1"'" for c in q["classes"]][2]'
    configure "$2" "$interfaces"
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
within router ip link set transit type vlan ingress 3:16
left() { show interfaces | has_line "vlan transit left to Linux: its ingress-qos-map has priority 16, above 15"; }
wait_for 5 left || fail "$(show interfaces)"
within source ip route replace 11.0.0.0/8 via 10.1.100.1 dev s0.100
ping_from s0.100 11.0.0.1 || fail "the kernel does not forward: $(cat "$work/ping.log")"
stop_router
removes_tags || fail "the card does not remove tags again: $(within router ethtool -k c0)"
