#!/usr/bin/env bash
# The router fragments or answers packets that are too long for the next link, answers those without a route, and
# punts packets to the kernel, which sends redirects, by the routing rules of the interface that received them.
#
#   source s0 ── r0 router r1 ── a0 a      the link of a has an MTU of 1400 bytes
#                          r2 ── b0 b
. "$(dirname "$0")/lib/router_topology.sh"

narrow 1400
# The kernels compute the checksums of what they send, and limit no ICMP errors.
hosts_own_checksums
for name in router a; do
    within "$name" sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0
done
default_routes
for name in a b; do
    within "$name" ip addr add 11.0.0.1/32 dev lo
    within "$name" ip -6 addr add 2001:db8::1/128 dev lo
    within "$name" ip addr add 12.0.0.1/32 dev lo
done
within router ip route add 11.0.0.0/8 via 10.0.1.2
within router ip route add 12.0.0.0/8 via 10.0.2.2
within router ip -6 route add 2001:db8::/48 via fd00:1::2
within source ip addr add 10.0.0.3/24 dev s0
within router ip route add 13.0.0.0/8 via 10.0.0.3
link_local=$(within source ip -j -6 addr show dev s0 scope link | json 'print(next(a["local"] for i in d for a in i.get("addr_info", []) if a.get("scope") == "link" and "local" in a))')
within router ip -6 route add 2001:db8:13::/48 via "$link_local" dev r0

received() { within "$1" cat "/sys/class/net/${1}0/statistics/rx_packets"; }
counter() { show -j counters | json "print(d[0]['$1'].get('$2', 0))"; }
# Uploads more than a few windows from source by TCP. No route of source has a cached path MTU before.
upload() {
    within source ip route flush cache
    within source ip -6 route flush cache
    launch a "$python" -c '
import socket
s = socket.create_server(("::", 5001), family=socket.AF_INET6, dualstack_ipv6=True)
c, _ = s.accept()
n = 0
while part := c.recv(1 << 20): n += len(part)
print(n)' >"$work/uploaded"
    local server=$launched
    wait_for 5 eval '[ -n "$(within a ss -Hltn sport = 5001)" ]' || fail "a does not listen"
    within source timeout 20 "$python" -c "
import socket
s = socket.create_connection(('$1', 5001))
s.sendall(bytes(4 << 20))
s.close()" || fail "the upload to $1 does not end"
    wait "$server"
    [ "$(cat "$work/uploaded")" = $((4 << 20)) ] || fail "$1 has received $(cat "$work/uploaded") bytes"
}

for mode in auto generic; do
    echo "mode $mode: packets that are too long or have no route are answered"
    configure "" "{ name = \"r0\", mode = \"$mode\" }, { name = \"r1\", mode = \"$mode\" }, { name = \"r2\" }"
    start_router
    within source "$python" "$here/smoke/punts_packets.py" answers 1400 || fail "answers"
    [ "$(counter icmp_errors too_big)" -gt 0 ] && [ "$(counter icmp_errors unreachable)" -gt 0 ] || fail "not counted: $(show counters)"
    upload 11.0.0.1
    upload 2001:db8::1
    echo "   TCP finds the MTU"
    launch a timeout 10 "$python" -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 5002))
print(len(s.recv(4000)))' >"$work/datagram"
    server=$launched
    wait_for 5 eval '[ -n "$(within a ss -Hlun sport = 5002)" ]' || fail "a does not listen"
    # IP_MTU_DISCOVER = IP_PMTUDISC_DONT: Don't Fragment is clear.
    within source "$python" -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(0, 10, 0)
s.sendto(bytes(1472), ("11.0.0.1", 5002))'
    wait "$server" || fail "the datagram does not arrive"
    [ "$(cat "$work/datagram")" = 1472 ] && [ "$(show -j counters | json 'print(d[0].get("fragmented", 0))')" = 1 ] || fail "it was not fragmented"
    echo "   packets without Don't Fragment are fragmented"
    within source "$python" "$here/smoke/punts_packets.py" redirects "${prefix}source" || fail "redirects"
    for how in "-4 -I 11.0.0.1" "-4 11.0.0.1" "-6 -I 2001:db8::1" "-6 2001:db8::1"; do
        read -r -a words <<<"$how"
        within source traceroute -n -q 1 -w 3 -m 4 "${words[@]}" >"$work/trace.log" 2>&1
        [ "$(awk 'NR > 1 { print $2 }' "$work/trace.log" | tail -1)" = "${words[-1]}" ] && ! grep -qF '*' "$work/trace.log" ||
            fail "traceroute $how: $(cat "$work/trace.log")"
    done
    echo "   traceroute sees both hops"
    stop_router
done

# Packets from source to a network that only main has are counted as dropped or punted for this reason, and
# none of them reaches b; packets to a network of r0's table arrive.
confined() { # punted|dropped REASON
    local before counted
    within source ping -c 2 -i 0.1 -W 2 -q 11.0.0.1 >"$work/ping.log" || fail "11.0.0.1 is in the table: $(cat "$work/ping.log")"
    before=$(received b)
    counted=$(counter "$1" "$2")
    within source "$python" "$here/smoke/punts_packets.py" silent 12.0.0.1
    wait_for 5 eval "[ \"\$(counter $1 $2)\" -ge $((counted + 20)) ]" || fail "not $1 as $2: $(show counters)"
    within source ping -c 1 -W 2 -q 11.0.0.1 >/dev/null || fail "11.0.0.1 is gone"
    [ $(($(received b) - before)) -le 2 ] || fail "$(($(received b) - before)) packets have left r0's table for b"
    stop_router
}

echo "an interface with a table of its own reaches no network that only main has"
within router ip route add 11.0.0.0/8 via 10.0.1.2 table 100
within router ip rule add iif r0 lookup 100 priority 100
within router ip rule add iif r0 unreachable priority 101
within router ip rule add iif r1 lookup 100 priority 102
within router ip route add 10.0.0.0/24 dev r0 table 100
configure
start_router
confined punted host_route

echo "nor where the configuration names the table, and the kernel has no rule"
within router ip rule del priority 100
within router ip rule del priority 101
configure "" '{ name = "r0", table = 100 }, { name = "r1" }, { name = "r2" }'
start_router
confined dropped no_route
