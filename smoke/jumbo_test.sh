#!/usr/bin/env bash
# Interfaces with an MTU of 9000 bytes: the router forwards packets of all lengths, in several buffers where
# one is too short; source observes the same as with the kernel alone.
#
#   source s0 ── r0 router r1 ── a0 a       MTU 9000
#                          r2 ── b0 b       MTU 1500
. "$(dirname "$0")/lib/router_topology.sh"

for end in "source s0" "router r0" "router r1" "a a0"; do
    read -r name interface <<<"$end"
    within "$name" ip link set "$interface" mtu 9000
done
hosts_own_checksums
for name in router a b; do within "$name" sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0; done
default_routes

# Prints which packets of these lengths, with headers, arrive and are answered without a fragment.
observed_lengths() {
    local address length lengths header
    for address in 10.0.1.2 fd00:1::2 10.0.2.2 fd00:2::2; do
        header=28
        [ "$address" = "${address#*:}" ] || header=48
        lengths="84 1500 1501 3000 3500 3700 3826 3827 5000 9000"
        # A second packet that is too long would not leave source.
        [[ $address != 10.0.2.2 && $address != fd00:2::2 ]] || lengths="84 1500 9000"
        for length in $lengths; do
            # Status 1: no answer.
            { within source ping -c 1 -W 2 -M "do" -s $((length - header)) "$address" 2>/dev/null || [ "$?" = 1 ]; } |
                sed -n "s/^.*\(packets transmitted.*received\).*/$address $length: \1/p; s/^From \([^ ]*\).*\([Mm][Tt][Uu] *= *[0-9]*\).*/   \1 \2/p"
        done
    done
    within source ip route flush cache
    within source ip -6 route flush cache
}
observed_lengths >"$work/kernel"
[ "$(grep -c " 1 received" "$work/kernel")" = 24 ] || fail "the kernel alone: $(cat "$work/kernel")"

# Prints how many packets r0 and r1 have taken, and how many were too long for them.
counted() { show -j interfaces | "$python" -c '
import json, sys
for port in json.load(sys.stdin)[:2]: print(port["steered"]["taken"], port["steered"]["too_long"], end=" ")'; }

# Observes the lengths, and fails unless the router has taken all of their packets.
observed_through_router() {
    local before after
    read -ra before <<<"$(counted)"
    observed_lengths >"$work/router"
    read -ra after <<<"$(counted)"
    diff "$work/kernel" "$work/router" || fail "$1: source observes another router"
    echo "   $1: $((after[0] - before[0])) and $((after[2] - before[2])) packets taken"
    [ $((after[0] - before[0])) -ge 26 ] && [ $((after[2] - before[2])) -ge 20 ] &&
        [ "${after[1]} ${after[3]}" = "${before[1]} ${before[3]}" ] || fail "$1: $(show interfaces)"
}

for mode in auto generic; do
    configure "" "{ name = \"r0\", mode = \"$mode\" }, { name = \"r1\", mode = \"$mode\" }, { name = \"r2\" }"
    start_router
    observed_through_router "mode $mode"
    stop_router
done

echo "the MTU grows while the router works"
for interface in r0 r1; do within router ip link set "$interface" mtu 1500; done
configure
start_router
for interface in r0 r1; do within router ip link set "$interface" mtu 9000; done
# Until then the kernel forwards what is too long, and source cannot observe a difference.
restarted() { grep -q "restarted the workers" "$work/fingerpost.log"; }
wait_for 20 restarted || fail "no workers for the greater MTU: $(cat "$work/fingerpost.log")"
observed_through_router "an MTU that grew"
stop_router
