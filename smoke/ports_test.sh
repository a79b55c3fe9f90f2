#!/usr/bin/env bash
# Packets from each type of port to each other one, of both families and of 64, 1500 and 9000 bytes, with the kernel
# alone and with the router: each arrives once, and nothing but its MAC addresses and its TTL is changed.
#
#   source s0 ── r0 router                              a port
#        a a0 ── r1 router: r1.100, r1 (802.1ad) .30    a VLAN device, and one in a service VLAN
#  b a bond ════ r2, r3 router: bond0, bond0.100        a bond, and a VLAN device over it
#      red e0 ── r4 router: r4, r4.100                  a port and a VLAN device in a VRF
#
# in a VM: it needs VLAN devices, bonds and VRFs
. "$(dirname "$0")/lib/router_topology.sh"

namespace red
join b b1 02:00:00:00:04:02 router r3 02:00:00:00:04:01
join red e0 02:00:00:00:05:02 router r4 02:00:00:00:05:01
for end in "source s0" "a a0" "b b0" "b b1" "red e0" "router r0" "router r1" "router r2" "router r3" "router r4"; do
    read -r name interface <<<"$end"
    within "$name" ip link set "$interface" mtu 9216
    [ "$name" = router ] || {
        own_checksums "$name" "$interface"
        own_tags "$name" "$interface"
    }
done
for side in "router r2 r3" "b b0 b1"; do
    read -r name one two <<<"$side"
    within "$name" ip link add bond0 type bond mode balance-xor miimon 20 xmit_hash_policy layer3+4
    for member in "$one" "$two"; do
        within "$name" ip link set "$member" down
        within "$name" ip addr flush dev "$member"
        within "$name" ip link set "$member" master bond0
    done
    within "$name" ip link set bond0 up mtu 9216
    own_tags "$name" bond0 || true
done
# `vlan NAMESPACE LOWER DEVICE PROTOCOL ID`
vlan() {
    within "$1" ip link add link "$2" name "$3" type vlan protocol "$4" id "$5"
    within "$1" ip link set "$3" up
}
vlan router r1 r1.100 802.1Q 100
vlan router r1 customer 802.1ad 200
vlan router customer r1.30 802.1Q 30
vlan a a0 a0.100 802.1Q 100
vlan a a0 outer 802.1ad 200
vlan a outer a0.30 802.1Q 30
vlan router bond0 bond0.100 802.1Q 100
vlan b bond0 bond0.100 802.1Q 100
vlan router r4 r4.100 802.1Q 100
vlan red e0 e0.100 802.1Q 100
within router ip link add red type vrf table 10
within router ip link set red up
for device in r4 r4.100; do within router ip link set "$device" master red; done

# The ends: the router's device, the host's namespace and device, and the network between them.
ends="r0:source:s0:1 r1.100:a:a0.100:2 r1.30:a:a0.30:3 bond0:b:bond0:4 bond0.100:b:bond0.100:5"
red="r4:red:e0:6 r4.100:red:e0.100:7"
group() {
    local end ours name theirs network groups=()
    for end in "$@"; do
        IFS=: read -r ours name theirs network <<<"$end"
        groups+=("$prefix$name:$theirs:$(within router cat "/sys/class/net/$ours/address"):$network")
    done
    IFS=,
    echo "${groups[*]}"
}
for end in $ends $red; do
    IFS=: read -r ours name theirs network <<<"$end"
    within router ip link set "$ours" mtu 9000
    within "$name" ip link set "$theirs" mtu 9000
    within router ip addr add "10.2.$network.1/24" dev "$ours"
    within router ip -6 addr add "fd02:$network::1/64" dev "$ours" nodad
    within "$name" ip addr add "10.2.$network.2/24" dev "$theirs"
    within "$name" ip -6 addr add "fd02:$network::2/64" dev "$theirs" nodad
done
neighbors() {
    local end ours name network vrf
    for end in $ends $red; do
        IFS=: read -r ours name _ network <<<"$end"
        vrf=$([ "$name" = red ] && echo "ip vrf exec red" || true)
        # shellcheck disable=SC2086
        within router $vrf ping -c 1 -W 2 -q "10.2.$network.2" >/dev/null && within router $vrf ping -c 1 -W 2 -q "fd02:$network::2" >/dev/null ||
            fail "the host behind $ours does not answer"
    done
}
# shellcheck disable=SC2086
groups="$(group $ends) $(group $red)"
neighbors
# shellcheck disable=SC2086
"$python" "$here/smoke/ports_packets.py" $groups >"$work/kernel" || fail "the kernel alone: $(tail -5 "$work/kernel")"
echo "   the kernel alone: $(tail -1 "$work/kernel")"

configure "" '{ name = "r0" }, { name = "r1" }, { name = "r2" }, { name = "r3" }, { name = "r4" }'
start_router
served() {
    local device
    show interfaces >"$work/interfaces"
    for device in "vlan r1.100" "vlan customer" "vlan r1.30" "bond bond0" "vlan bond0.100" "vlan r4.100"; do
        grep -q "$device up" "$work/interfaces" || return 1
    done
}
wait_for 10 served || fail "a device is not the router's: $(cat "$work/interfaces")"
neighbors
sent() { show -j counters | json 'print(d[0]["sent"])'; }
before=$(sent)
# shellcheck disable=SC2086
"$python" "$here/smoke/ports_packets.py" $groups >"$work/router" || fail "$(tail -20 "$work/router"): $(show interfaces)"
echo "   the router: $(tail -1 "$work/router")"
# 22 pairs, two families; packets of 9000 bytes are left to Linux (docs/decisions/0046).
[ $(($(sent) - before)) -ge 88 ] || fail "the router has sent $(($(sent) - before)) of 88: $(show interfaces)"
stop_router
