#!/usr/bin/env bash
# Random packets, sound and damaged: what leaves the router, and what it answers, is what leaves through the kernel
# alone, byte for byte.
. "$(dirname "$0")/lib/random_packets.sh"

pass kernel
for mode in auto generic xdp; do
    configure "" "{ name = \"r0\", mode = \"$mode\" }, { name = \"r1\", mode = \"$mode\" }, { name = \"r2\", mode = \"$mode\" }"
    [ "$mode" != xdp ] || hosts_take_redirected
    start_router
    [ "$mode" != xdp ] || wait_for 5 forwards_in_driver || fail "no forwarding in the driver: $(show interfaces)"
    pass router
    compare
    [ "$(show -j counters | json 'print(d[0]["sent"])')" -gt $((packets / 3)) ] || fail "too few packets took the router: $(show counters)"
    [ "$mode" != xdp ] || echo "   $(forwarded_in_driver) packets were forwarded in the driver"
    echo "   mode $mode: $(arrived) frames of $packets packets are those of the kernel"
    stop_router
done
