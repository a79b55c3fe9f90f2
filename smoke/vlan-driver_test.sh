#!/usr/bin/env bash
# VLAN devices in the driver: packets between devices with no, one and two tags, forwarded by the steering program from
# Linux 6.3 on, which reports the features of devices; by the workers before.
#
#   source s0, s0.100 ── r0, r0.100 router r1, r1.7, r1.7.8 ── a0, a0.7, a0.7.8 a
#
# in a VM: 8021q is not in every kernel; VM_KERNEL names a later one
. "$(dirname "$0")/lib/router_topology.sh"
default_routes
hosts_own_checksums
hosts_take_redirected
for end in "source s0" "a a0"; do
    read -r name interface <<<"$end"
    own_tags "$name" "$interface"
done
vlan() { # NAMESPACE BELOW DEVICE PROTOCOL ID ADDRESS
    within "$1" ip link add link "$2" name "$3" type vlan proto "$4" id "$5"
    within "$1" ip link set "$3" up
    within "$1" ip addr add "$6/24" dev "$3"
}
vlan source s0 s0.100 802.1Q 100 10.5.0.2
vlan router r0 r0.100 802.1Q 100 10.5.0.1
vlan a a0 a0.7 802.1ad 7 10.6.0.2
vlan router r1 r1.7 802.1ad 7 10.6.0.1
vlan a a0.7 a0.7.8 802.1Q 8 10.7.0.2
vlan router r1.7 r1.7.8 802.1Q 8 10.7.0.1
within source ip route add 10.6.0.0/24 via 10.0.0.1
within source ip route add 10.7.0.0/24 via 10.5.0.1
within a ip route add 10.5.0.0/24 via 10.6.0.1

configure
start_router
release=$(uname -r)
least=0
if printf '6.3\n%s\n' "$release" | sort -VC; then
    least=36
    wait_for 10 forwards_in_driver || fail "no forwarding in the driver: $(show interfaces)"
fi
passes() { within source ping -q -c "$1" -i 0.02 -W 2 "${@:4}" -I "$2" "$3" | has_line " 0% packet loss"; }
check() { # SOURCE DESTINATION
    # The first packets resolve the neighbors.
    passes 3 "$1" "$2" || true
    before=$(forwarded_in_driver)
    passes 20 "$1" "$2" || fail "packets from $1 to $2 are lost: $(show interfaces)"
    count=$(($(forwarded_in_driver) - before))
    echo "   Linux $release, $1 to $2: $count of 40 in the driver"
    [ "$count" -ge "$least" ] || fail "not in the driver: $(show interfaces)"
    [ "$least" -gt 0 ] || [ "$count" -eq 0 ] || fail "in the driver before Linux 6.3: $(show interfaces)"
}
check 10.0.0.2 10.0.1.2
check 10.5.0.2 10.0.1.2
check 10.0.0.2 10.6.0.2
check 10.5.0.2 10.7.0.2
# The longest packet by two tags: a veth takes frames with one tag beyond its MTU.
passes 3 10.5.0.2 10.7.0.2 -s 1468 -M "do" || fail "1496 bytes by two tags"
show -j audit | json 'assert d[0]["mismatches"] == 0, d'
stop_router
