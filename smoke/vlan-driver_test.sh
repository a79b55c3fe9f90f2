#!/usr/bin/env bash
# VLAN devices in the driver: packets between devices with no, one and two tags, forwarded by the steering program from
# Linux 6.3 on, which reports the features of devices; by the workers before.
#
#   source s0, s0.100, s0.31 over outer ── router ── a0, a0.7, a0.7.8 a, which answers by a0.300
#
# in a VM: it needs VLAN devices; VM_KERNEL names a later kernel
. "$(dirname "$0")/lib/vlan_topology.sh"
hosts_take_redirected
vlan router r0.31 customer 802.1Q 31 31 1
vlan source s0.31 outer 802.1Q 31 31 2
vlan router r1.7 r1 802.1ad 7 7 1
vlan router r1.7.8 r1.7 802.1Q 8 8 1
vlan a a0.7 a0 802.1ad 7 7 2
vlan a a0.7.8 a0.7 802.1Q 8 8 2

configure
start_router
release=$(uname -r)
least=0
most=0
if printf '6.3\n%s\n' "$release" | sort -VC; then
    least=36
    most=40
    wait_for 10 forwards_in_driver || fail "no forwarding in the driver: $(show interfaces)"
fi
passes() { within source ping -q -c "$1" -i 0.02 -W 2 "${@:3}" "$2" | has_line " 0% packet loss"; }
check() { # DEVICE GATEWAY DESTINATION
    local before count
    within source ip route replace "$3/32" via "$2" dev "$1"
    # The first packets resolve the neighbors.
    passes 3 "$3" || true
    before=$(forwarded_in_driver)
    passes 20 "$3" || fail "packets from $1 to $3 are lost: $(show interfaces)"
    count=$(($(forwarded_in_driver) - before))
    echo "   Linux $release, $1 to $3: $count of 40 in the driver"
    [ "$count" -ge "$least" ] && [ "$count" -le "$most" ] ||
        fail "$count in the driver, not $least to $most: $(show interfaces)"
}
for side in "s0 10.0.0.1" "s0.100 10.1.100.1" "s0.31 10.1.31.1"; do
    read -r device gateway <<<"$side"
    for destination in 10.0.1.2 10.1.7.2 10.1.8.2; do
        check "$device" "$gateway" "$destination"
    done
done
# The longest packet that r1.300, by which the answers come, lets through.
passes 3 10.1.8.2 -s 1372 -M "do" || fail "1400 bytes by two tags"
show -j audit | json 'assert d[0]["mismatches"] == 0, d'
stop_router
