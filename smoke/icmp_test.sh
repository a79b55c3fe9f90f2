#!/usr/bin/env bash
# The router sends ICMP errors itself: byte for byte those of the kernel alone, and traceroute, tracepath, mtr
# and TCP observe the same path, also under a flood of packets whose TTL expires.
#
#   source s0 ── r0 router r1 ── a0 a       the link of a has an MTU of 1400 bytes
#                          r2 ── b0 b
. "$(dirname "$0")/lib/router_topology.sh"

narrow 1400
hosts_own_checksums
default_routes
within a ip addr add 11.0.0.1/32 dev lo
within a ip -6 addr add 2001:db8::1/128 dev lo
within router ip route add 11.0.0.0/8 via 10.0.1.2
within router ip -6 route add 2001:db8::/48 via fd00:1::2
at=0
for kind in unreachable prohibit blackhole; do
    within router ip route add "$kind" "20.$at.0.0/16"
    within router ip -6 route add "$kind" "2001:db8:2$at::/48"
    at=$((at + 1))
done
# Further addresses of source, by whose routes the router has other addresses.
within router ip addr add 192.0.2.200/32 dev lo
within router ip addr add 10.0.0.201/24 dev r0
within router ip addr add 10.9.0.1/24 dev r0
within router ip -6 addr add fd09::1/64 dev r0
within router ip -6 addr add 2001:db8:a::1/64 dev r0
within router ip route add 10.77.0.0/16 via 10.0.0.2
within router ip route add 10.78.0.0/16 via 10.0.0.2 src 192.0.2.200
within router ip route add 10.66.0.0/16 via 10.0.0.2
within router ip -6 route add fd77::/64 via fd00::2
within router ip -6 route add 2001:db8:77::/64 via fd00::2
for address in 10.0.0.3/24 10.9.0.2/24; do within source ip addr add "$address" dev s0; done
for address in fd09::2/64 2001:db8:a::2/64; do within source ip -6 addr add "$address" dev s0 nodad; done
sleep 2 # duplicate address detection of the router
unlimited="net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0 net.ipv4.icmp_msgs_per_sec=100000 net.ipv4.icmp_msgs_burst=1000"
limited="net.ipv4.icmp_ratelimit=1000 net.ipv6.icmp.ratelimit=1000 net.ipv4.icmp_msgs_per_sec=1000 net.ipv4.icmp_msgs_burst=50"

counter() { show -j counters | json "print(d[0]['$1'].get('$2', 0))"; }
ask() { within source "$python" "$here/smoke/icmp_packets.py" ask "${@:2}" >"$1" || fail "source cannot ask"; }
# Prints the output of tools in source about the path, without times.
observed() {
    local address family
    for address in 11.0.0.1 2001:db8::1; do
        family=-4
        [ "$address" = "${address#*:}" ] || family=-6
        for how in "" -I -T; do
            echo "traceroute $family $how $(within source traceroute "$family" -n -q 3 -w 3 -m 4 $how "$address" | sed 's/ [0-9.]* ms//g')"
        done
        echo "mtr $(within source mtr "$family" -n -c 2 -i 0.2 -m 4 -r "$address" | awk '/\|--/ { print $2, $3, $4 }')"
        echo "tracepath $(within source tracepath "$family" -n -m 4 "$address" | sed 's/ *[0-9.]*ms//')"
        within source ip route flush cache
        within source ip -6 route flush cache
    done
}

within router sysctl -qw $unlimited
echo "errors of the kernel alone"
ask "$work/kernel"
observed >"$work/kernel.tools"
within router sysctl -qw net.ipv4.icmp_errors_use_inbound_ifaddr=1
ask "$work/kernel.inbound" quick
within router sysctl -qw net.ipv4.icmp_errors_use_inbound_ifaddr=0
[ "$(grep -c ': 1 ' "$work/kernel")" -ge 35 ] || fail "the kernel alone: $(cut -c1-60 "$work/kernel")"

for mode in auto generic; do
    configure "" "{ name = \"r0\", mode = \"$mode\" }, { name = \"r1\", mode = \"$mode\" }, { name = \"r2\" }"
    start_router
    quick=$([ "$mode" = auto ] || echo quick)
    ask "$work/router" $quick
    diff <(if [ "$quick" ]; then grep -v "no neighbor" "$work/kernel"; else cat "$work/kernel"; fi) "$work/router" >"$work/difference" || fail "errors differ: $(cut -c1-300 "$work/difference")"
    sent=$(show -j counters | json "print(sum(n for kind, n in d[0]['icmp_errors'].items() if kind != 'rate_limited'))")
    punted=$(show -j counters | json "print(sum(d[0]['punted'].get(kind, 0) for kind in ('expired', 'unreachable', 'oversize')))")
    [ "$sent" -ge 35 ] && [ "$punted" -le 2 ] || fail "$sent errors of the router, $punted punted: $(show counters)"
    if [ "$mode" = auto ]; then
        observed >"$work/router.tools"
        diff "$work/kernel.tools" "$work/router.tools" || fail "traceroute, mtr or tracepath differ"
        echo "   traceroute, mtr and tracepath print the same"
    fi
    echo "   mode $mode: $(grep -c . "$work/router") packets: $(grep -c ': 1 ' "$work/router") errors, equal; $sent sent by the router"
    stop_router
done

echo "icmp_errors_use_inbound_ifaddr"
within router sysctl -qw net.ipv4.icmp_errors_use_inbound_ifaddr=1
configure
start_router
ask "$work/router" quick
diff "$work/kernel.inbound" "$work/router" >"$work/difference" || fail "errors differ: $(cut -c1-300 "$work/difference")"
diff <(grep -v "no neighbor" "$work/kernel") "$work/kernel.inbound" >/dev/null && fail "the setting makes no difference to the kernel"
stop_router
within router sysctl -qw net.ipv4.icmp_errors_use_inbound_ifaddr=0

echo "a flood of packets whose TTL expires"
within router sysctl -qw $limited
configure
start_router
launch source "$python" "$here/smoke/icmp_packets.py" flood 8 >"$work/flood"
flood=$launched
sleep 1
for _ in 1 2 3; do
    # One probe after the other: a moment without a processor loses one of three.
    within source traceroute -n -N 1 -q 3 -w 1 -m 2 11.0.0.1 >"$work/trace.log" 2>&1
    grep -q '^ 1  .*10.0.0.1 ' "$work/trace.log" || fail "traceroute under a flood: $(cat "$work/trace.log")"
    sleep 1
done
wait "$flood" || fail "the flood"
[ "$(counter icmp_errors rate_limited)" -gt 10000 ] && [ "$(counter punted expired)" = 0 ] ||
    fail "the limits: $(show -j counters)"
echo "   $(cat "$work/flood") a second: traceroute sees the router, $(counter icmp_errors rate_limited) errors were not sent"
stop_router
