#!/usr/bin/env bash
# Bits a second of TCP through a path with a smaller MTU, and the path MTU that its sender learns: through the kernel
# alone, and through the router, in turns.
#
#   source s0 ── r0 router r1 ── a0 a       the link of a has an MTU of 1400 bytes; a offers the segments of 1500
#
#   bash bench/tcp.sh
#   FINGERPOST     the program; default target/release/fingerpost
#   ROUNDS         turns of each; default 7
#   SECONDS_EACH   seconds of a connection; default 4
#
# Needs root, and a machine that is otherwise idle. Possible bias: a veth passes segments of up to 64 KB to the kernel,
# which forwards them whole. A card that receives packets from a network has no such segments, unless it merges
# packets (GRO), so offloads are off here. Sender, receiver, the kernel's forwarding and the router share the
# processors of one machine.
. "$(dirname "$0")/../smoke/lib/router_topology.sh"

rounds=${ROUNDS:-7} seconds=${SECONDS_EACH:-4}
narrow 1400
hosts_own_checksums
for end in "source s0" "a a0" "router r0" "router r1"; do
    read -r name interface <<<"$end"
    within "$name" ethtool -K "$interface" tso off gso off gro off >/dev/null
done
within source ip route add 10.0.1.0/24 via 10.0.0.1
within source ip -6 route add fd00:1::/64 via fd00::1
# Otherwise a would offer segments that fit its link.
within a ip route add 10.0.0.0/24 via 10.0.1.1 advmss 1460
within a ip -6 route add fd00::/64 via fd00:1::1 advmss 1440
launch a iperf3 -s >/dev/null 2>&1
wait_for 10 eval '[ -n "$(within a ss -Hltn sport = 5201)" ]' || fail "iperf3 does not listen"

# Prints the megabits a second of a connection, its retransmitted segments and the path MTU.
measure() { # ADDRESS
    within source ip route flush cache
    within source ip -6 route flush cache
    within source iperf3 -J -c "$1" -t "$seconds" >"$work/iperf" || fail "iperf3: $(cat "$work/iperf")"
    local mtu
    mtu=$(within source ip route get "$1" | grep -o 'mtu [0-9]*') || fail "no path MTU: $(within source ip route get "$1")"
    json "print(f\"{d['end']['sum_received']['bits_per_second'] / 1e6:.0f} {d['end']['sum_sent']['retransmits']} $mtu\")" <"$work/iperf"
}

configure
for round in $(seq "$rounds"); do
    for path in kernel router; do
        [ "$path" = kernel ] || start_router
        for address in 10.0.1.2 fd00:1::2; do
            before=$([ "$path" = kernel ] || show -j counters | json 'print(d[0]["sent"])')
            result=$(measure "$address")
            if [ "$path" = router ]; then
                sent=$(($(show -j counters | json 'print(d[0]["sent"])') - before))
                [ "$sent" -gt 1000 ] || fail "the router has sent $sent packets"
            fi
            echo "$path $address $result" | tee -a "$work/results"
        done
        [ "$path" = kernel ] || stop_router >/dev/null
    done
done
"$python" "$here/bench/tcp_summary.py" "$work/results"
