#!/usr/bin/env bash
# VLAN devices: packets from and to hosts behind 802.1Q and 802.1ad devices over the router's ports, and
# what these hosts observe, with the kernel alone and with the router.
#
#   source s0.100, s0.200.30, s0 ── r0 router r1 ── a0.300 a      11.0.0.1, 2001:db8::1
#
# in a VM: it needs VLAN devices
. "$(dirname "$0")/lib/vlan_topology.sh"

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
wait_for 5 have_vlans "r0.100 customer inner r1.300" || fail "VLAN devices: $(vlans): $(show interfaces)"
each >"$work/router"
diff "$work/kernel" "$work/router" || fail "the hosts observe another router"
echo "   the router: the same, and it has forwarded the packets"
vlan_1

echo "traces of tagged frames"
trace() { "$program" trace --socket "$work/sock" -j "$@" ipproto udp sport 9 dport 9 | json '[t] = d
lookup = t.get("destination") or {}
print(t["interface"], t.get("device"), lookup.get("dev"), *(e["interface"] + " " + e["verdict"] for e in t["ends"]))'; }
for steps in "r0.100: r0 r0.100 r1.300 r1 sent" "inner: r0 inner r1.300 r1 sent" "r0: r0 None r1.300 r1 sent"; do
    traced=$(trace -i "${steps%%:*}" from 10.0.0.2 to 11.0.0.1) || fail "no trace of ${steps%%:*}"
    [ "$traced" = "${steps#*: }" ] || fail "trace: $traced, not $steps"
done
# A whole frame with the tag of r0.100, which has the MAC address of r0.
tagged=$(within router cat /sys/class/net/r0/address)
tagged="$tagged 020000000102 8100 0064 0800 4500 0014 0000 0000 4011 65d7 0a000002 0b000001"
traced=$("$program" trace --socket "$work/sock" -j -i r0 --hex "$tagged" | json '[t] = d
print(t["device"], t["parse"], t["destination"]["dev"])') || fail "no trace of a tagged frame"
[ "$traced" = "r0.100 ipv4 r1.300" ] || fail "trace of a tagged frame: $traced"
echo "   each has its device, its lookup and the end of a packet"

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

stop_router
removes_tags || fail "the card does not remove tags again: $(within router ethtool -k c0)"
