#!/usr/bin/env bash
# The router fragments IPv4 packets over the next link's MTU: what arrives of random packets is what arrives through
# the kernel alone, byte for byte and in order.
#
#   source s0 ── r0 router r1 ── a0 a       the link of a has an MTU of 1400 bytes,
#                          r2 ── b0 b       that of b 68 bytes, the least of IPv4
#
# FINGERPOST_PACKETS: the number of packets to each of a and b; FINGERPOST_SEED: the first seed.
. "$(dirname "$0")/lib/router_topology.sh"

packets=${FINGERPOST_PACKETS:-1500} seed=${FINGERPOST_SEED:-1}
narrow 1400
within router ip link set r2 mtu 68
within b ip link set b0 mtu 68
hosts_own_checksums
within router ip route add 11.0.0.0/8 via 10.0.1.2
within router ip route add 12.0.0.0/8 via 10.0.2.2

# Prints what arrives at a and b of the packets that source sends.
pass() {
    local host to more server
    for host in "a 11.0.0.1 0" "b 12.0.0.1 1"; do
        read -r host to more <<<"$host"
        launch "$host" "$python" "$here/smoke/fragments_packets.py" receive "${host}0" >"$work/arrived" 2>"$work/receiver"
        server=$launched
        wait_for 10 grep -q ready "$work/receiver" || fail "$host does not receive: $(cat "$work/receiver")"
        within source "$python" "$here/smoke/fragments_packets.py" send "$((seed + more))" "$packets" "$to" || fail "source cannot send"
        wait "$server" || fail "$host: $(cat "$work/receiver")"
        sed "s/^/$host /" "$work/arrived"
    done
}

pass >"$work/kernel"
parts=$(awk '$3 > 1 { n++ } END { print n + 0 }' "$work/kernel")
[ "$parts" -gt "$packets" ] || fail "the kernel alone has divided $parts packets"
for mode in auto generic; do
    # Linux would take the packets with options.
    configure $'[punt]\noptions = 0' "{ name = \"r0\", mode = \"$mode\" }, { name = \"r1\", mode = \"$mode\" }, { name = \"r2\", mode = \"$mode\" }"
    start_router
    pass >"$work/router"
    diff "$work/kernel" "$work/router" >"$work/difference" || fail "fragments differ: $(cut -c1-300 <(head -6 "$work/difference"))"
    counted=$(show -j counters | json "print(d[0]['fragmented'], d[0]['punted'].get('oversize', 0))")
    [ "${counted% *}" = "$parts" ] || fail "$counted, not $parts packets were fragmented"
    echo "   mode $mode: $(wc -l <"$work/router") packets arrive as through the kernel, $parts of them in fragments"
    stop_router
done
