#!/usr/bin/env bash
# Random packets, sound and damaged, between hosts behind VLAN devices: what leaves the router, and what it answers, is
# what leaves through the kernel alone, byte for byte.
#
# in a VM: it needs VLAN devices
packets=400
declare -A tags=([s0]="802.1Q 100" [a0]="802.1Q 300" [b0]="802.1ad 200 802.1Q 30")
. "$(dirname "$0")/lib/random_packets.sh"

pass kernel
configure "" '{ name = "r0.below" }, { name = "r1.below" }, { name = "r2.below" }'
start_router
pass router
compare
[ "$(show -j counters | json 'print(d[0]["sent"])')" -gt $((packets / 3)) ] || fail "too few packets took the router: $(show counters)"
echo "   $(arrived) frames of $packets packets are those of the kernel"
stop_router
