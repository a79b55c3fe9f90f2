#!/usr/bin/env bash
# The cases of the kernel's selftests for forwarding (tools/testing/selftests/net), as tests of our own: what the
# hosts observe is the same with the kernel alone and with the router, and the router has sent the packets itself.
# docs/kernel-selftests.md lists the cases, and those that are left out.
. "$(dirname "$0")/lib/selftests.sh"

# `forward COUNT SOURCE DESTINATION [MAC]`: the hosts where packets arrive that do; `refused`: that do not.
forward() { packets forward "$prefix" "$work/others" "$1" "$@"; }
refused() { packets forward "$prefix" "$work/others" 5 0 "$@"; }
link_local_destination() {
    within router ip neigh replace 169.254.1.1 lladdr 00:11:22:33:44:55 dev r1
    within router ip route add 169.254.1.0/24 dev r1
    follow
    forward 5 10.0.0.2 169.254.1.1
    within router ip route del 169.254.1.0/24 dev r1
    within router ip neigh del 169.254.1.1 dev r1
}
router_cases() {
    try router.sh ping_ipv4 8 pings 10.0.1.2
    try router.sh ping_ipv6 8 pings fd00:1::2
    try router.sh sip_in_class_e 5 forward 5 240.0.0.1 10.0.1.2
    try router.sh ipv4_sip_equal_dip 5 forward 5 10.0.1.2 10.0.1.2
    try router.sh ipv6_sip_equal_dip 5 forward 5 fd00:1::2 fd00:1::2
    # The kernel forwards packets to link-local addresses, also with the router on.
    try router.sh ipv4_dip_link_local 0 link_local_destination
    try ours "multicast source, IPv4" 0 refused 225.1.2.3 10.0.1.2
    try ours "multicast source, IPv6" 0 refused ff0e::3 fd00:1::2
    try ours "multicast source and group, IPv4" 0 refused 225.1.2.3 225.1.2.4
}

# Connected networks whose routes are nexthop objects of IPv6 without a gateway.
nexthop_networks() {
    within source ip addr add 192.0.2.2/24 dev s0
    within source ip -6 addr add 2001:db8:11::2/64 dev s0
    within a ip addr add 198.51.100.2/24 dev a0
    within a ip -6 addr add 2001:db8:12::2/64 dev a0
    within router ip addr add 192.0.2.1/24 dev r0 noprefixroute
    within router ip -6 addr add 2001:db8:11::1/64 dev r0 noprefixroute
    within router ip addr add 198.51.100.1/24 dev r1 noprefixroute
    within router ip -6 addr add 2001:db8:12::1/64 dev r1 noprefixroute
    within router ip -6 nexthop add id 101 dev r0
    within router ip -6 nexthop add id 102 dev r1
    within router ip route add 192.0.2.0/24 nhid 101
    within router ip -6 route add 2001:db8:11::/64 nhid 101
    within router ip route add 198.51.100.0/24 nhid 102
    within router ip -6 route add 2001:db8:12::/64 nhid 102
    follow
}
no_nexthop_networks() {
    within router ip nexthop flush >/dev/null 2>&1
    within router ip addr del 192.0.2.1/24 dev r0
    within router ip -6 addr del 2001:db8:11::1/64 dev r0
    within router ip addr del 198.51.100.1/24 dev r1
    within router ip -6 addr del 2001:db8:12::1/64 dev r1
    within source ip addr del 192.0.2.2/24 dev s0
    within source ip -6 addr del 2001:db8:11::2/64 dev s0
    within a ip addr del 198.51.100.2/24 dev a0
    within a ip -6 addr del 2001:db8:12::2/64 dev a0
}
nexthop_cases() {
    nexthop_networks
    try router_nh.sh ping_ipv4 8 pings -I 192.0.2.2 198.51.100.2
    try router_nh.sh ping_ipv6 8 pings -I 2001:db8:11::2 2001:db8:12::2
    no_nexthop_networks
}

# A route over both neighbors, with gateways of the link.
plain_group() { # WEIGHT WEIGHT
    within router ip route replace 203.0.113.0/24 nexthop via 169.254.2.22 dev r1 weight "$1" \
        nexthop via 169.254.3.23 dev r2 weight "$2"
    within router ip -6 route replace 2001:db8:2::/64 nexthop via fe80:2::22 dev r1 weight "$1" \
        nexthop via fe80:3::23 dev r2 weight "$2"
    follow
}
flows() { packets flows "$prefix" "$work/others" "$@"; }
# `weighted_cases SCRIPT GROUP CASE4 [CASE6]`: flows of IPv4, and of IPv6, by weights that `GROUP WEIGHT WEIGHT` sets.
weighted_cases() {
    local weights first second
    for weights in "1 1" "2 1" "11 45"; do
        read -r first second <<<"$weights"
        "$2" "$first" "$second"
        try "$1" "$3 $first:$second" 8192 flows 203.0.113.1 "$first" "$second"
        [ $# -lt 4 ] || try "$1" "$4 $first:$second" 8192 flows 2001:db8:2::1 "$first" "$second"
    done
}
plain_multipath_cases() {
    plain_group 1 1
    try router_multipath.sh ping_ipv4 8 pings 203.0.113.1
    try router_multipath.sh ping_ipv6 8 pings 2001:db8:2::1
    weighted_cases router_multipath.sh plain_group multipath4_test multipath6_l4_test
    within router ip route del 203.0.113.0/24
    within router ip -6 route del 2001:db8:2::/64
}

blackholes() { # FAMILY ROUTE GROUP DESTINATION
    local nexthop
    within router ip "$1" nexthop add id 1001 blackhole
    within router ip nexthop add id 1002 group 1001
    for nexthop in 1001 1002; do
        within router ip "$1" route replace "$2" nhid "$nexthop"
        follow
        echo -n "$(silent_pings "$4"), "
    done
    within router ip "$1" route replace "$2" nhid "$3"
    follow
    silent_pings "$4"
    within router ip nexthop del id 1002
    within router ip nexthop del id 1001
}
object_group() { # WEIGHT WEIGHT
    within router ip nexthop replace id 103 group "101,$1/102,$2"
    within router ip nexthop replace id 106 group "104,$1/105,$2"
    follow
}
object_multipath_cases() {
    within router ip nexthop add id 101 via 169.254.2.22 dev r1
    within router ip nexthop add id 102 via 169.254.3.23 dev r2
    within router ip nexthop add id 103 group 101/102
    within router ip route add 203.0.113.0/24 nhid 103
    within router ip nexthop add id 104 via fe80:2::22 dev r1
    within router ip nexthop add id 105 via fe80:3::23 dev r2
    within router ip nexthop add id 106 group 104/105
    within router ip -6 route add 2001:db8:2::/64 nhid 106
    follow
    try router_mpath_nh.sh ping_ipv4 8 pings 203.0.113.1
    try router_mpath_nh.sh ping_ipv6 8 pings 2001:db8:2::1
    weighted_cases router_mpath_nh.sh object_group multipath4_test multipath6_test
    within router ip nexthop replace id 101 via fe80:2::22 dev r1
    within router ip nexthop replace id 102 via fe80:3::23 dev r2
    weighted_cases router_mpath_nh.sh object_group "multipath4_test by IPv6 gateways"
    object_group 1 1
    try router_mpath_nh.sh ping_ipv4_blackhole 4 blackholes -4 203.0.113.0/24 103 203.0.113.1
    try router_mpath_nh.sh ping_ipv6_blackhole 4 blackholes -6 2001:db8:2::/64 106 2001:db8:2::1
    within router ip route del 203.0.113.0/24
    within router ip -6 route del 2001:db8:2::/64
    within router ip nexthop flush >/dev/null 2>&1
}

exceptions() { # DESTINATION-BEHIND-R1 DESTINATION-BEHIND-R2 [LOCK]
    initial_mtus
    echo "$(long_pings 1800 "$1"); $(long_pings 1800 "$2"); learned $(learned "$1"), $(learned "$2")"
    mtu r0 1300
    echo "; s0 1300: $(learned "$1"), $(learned "$2")"
    mtu r0 1700
    echo "; s0 1700: $(learned "$1"), $(learned "$2")"
    [ $# -gt 2 ] || return 0
    mtu r2 400
    echo "; $(long_pings 1400 "$2"): $(learned "$2")"
    mtu r3 500
    echo "; s1 500: $(learned "$2")"
    mtu r3 1500
    echo "; s1 1500: $(learned "$2")"
    echo "; $(long_pings 1400 "$2"): $(learned "$2")"
}
# The routes of source as nexthop objects.
nexthop_routes() {
    within source ip nexthop add id 41 via 10.0.0.1 dev s0
    within source ip nexthop add id 42 via 10.0.3.1 dev s1
    within source ip nexthop add id 61 via fd00:0::1 dev s0
    within source ip nexthop add id 62 via fd00:3::1 dev s1
    within source ip route replace default nhid 41
    within source ip route replace 10.0.2.2 nhid 42
    within source ip -6 route replace default nhid 61
    within source ip -6 route replace fd00:2::2 nhid 62
}
# By a table of source for a TOS, while the packets also have an ECN field.
dscp_exceptions() { # COMMAND: sends packets, with a TOS, to a destination
    initial_mtus
    "$1" 4 10.0.1.2
    "$1" 6 10.0.2.2
    echo "learned $(learned 10.0.1.2 tos 4), $(learned 10.0.2.2 tos 4)"
}
ping_with_tos() { echo "$(long_pings 1972 -Q "$1" "$2"); "; }
datagram_with_tos() { packets datagrams "$1" 1972 "$2"; }
cached() { within source ip -oneline "$1" route list cache | wc -l; }
list_and_flush() { # FAMILY DESTINATION-BEHIND-R2 DESTINATION...
    initial_mtus
    # A route is in the cache after a second lookup.
    packets datagrams 0 1800 "${@:2}"
    packets datagrams 0 1800 "${@:2}"
    echo -n "$(cached "$1") in the cache"
    forget
    echo ", then $(cached "$1")"
}
multipath_exceptions() {
    initial_mtus
    long_pings 1800 203.0.113.1
    echo "; learned $(learned 203.0.113.1 oif s0), $(learned 203.0.113.1 oif s1)"
}
route_mtu() { # DESTINATION: of packets that are longer than the route's MTU
    forget
    long_pings 1372 "$1"
    echo "; learned $(learned "$1")"
}
pmtu_cases() {
    local link addresses=(10.0.2.2) addresses6=(fd00:2::2) number objects lock
    for objects in "" ", nexthop objects"; do
        [ -z "$objects" ] || nexthop_routes
        try pmtu.sh "pmtu_ipv6_exception$objects" 8 joined exceptions fd00:1::2 fd00:2::2
        try pmtu.sh "pmtu_ipv4_exception$objects" 8 joined exceptions 10.0.1.2 10.0.2.2 lock
        for link in r0 r1 r2 r3; do mtu "$link" 1500; done
        restore
    done
    within source ip nexthop flush >/dev/null 2>&1
    restore

    within source ip route add default via 10.0.0.1 table 100
    within source ip route add 10.0.2.2 via 10.0.3.1 table 100
    within source ip rule add tos 4 lookup 100
    try pmtu.sh pmtu_ipv4_dscp_icmp_exception 8 joined dscp_exceptions ping_with_tos
    try pmtu.sh pmtu_ipv4_dscp_udp_exception 2 joined dscp_exceptions datagram_with_tos
    within source ip rule del tos 4 lookup 100
    within source ip route flush table 100

    for number in {100..199}; do
        addresses+=("10.0.1.$number")
        addresses6+=("fd00:1::$number")
        echo "addr add 10.0.1.$number/24 dev a0"
        echo "addr add fd00:1::$number/64 dev a0"
    done >"$work/addresses"
    within a ip -batch "$work/addresses"
    try pmtu.sh list_flush_ipv4_exception 101 joined list_and_flush -4 "${addresses[@]}"
    try pmtu.sh list_flush_ipv6_exception 101 joined list_and_flush -6 "${addresses6[@]}"
    sed 's/^addr add/addr del/' "$work/addresses" >"$work/no-addresses"
    within a ip -batch "$work/no-addresses"

    within router ip route add 203.0.113.0/24 via 10.0.2.2
    within source ip route add 203.0.113.1 nexthop via 10.0.0.1 nexthop via 10.0.3.1
    try pmtu.sh pmtu_ipv4_mp_exceptions 2 joined multipath_exceptions
    within source ip route del 203.0.113.1
    for link in r0 r1 r2 r3; do mtu "$link" 1500; done

    for lock in "" "lock "; do
        # shellcheck disable=SC2086
        within router ip route replace 203.0.113.0/24 via 10.0.1.2 mtu ${lock}1300
        # shellcheck disable=SC2086
        within router ip -6 route replace 2001:db8:2::/64 via fd00:1::2 mtu ${lock}1300
        try ours "ip route mtu ${lock}1300, IPv4" 2 joined route_mtu 203.0.113.1
        try ours "ip route mtu ${lock}1300, IPv6" 2 joined route_mtu 2001:db8:2::1
    done
    within router ip route del 203.0.113.0/24
    within router ip -6 route del 2001:db8:2::/64
    forget
}

path_from() { echo "from 1.0.1.3: $(hops -s 1.0.1.3 10.0.1.2); from 1.0.3.3: $(hops -s 1.0.3.3 10.0.1.2)"; }
traceroute_cases() {
    # A packet to b from source's address on s0 reaches the router from a: the answer has the address of r1.
    within source ip -6 route replace fd00:2::2 via fd00:4::1 dev s2 src fd00:0::2
    within a ip -6 route add fd00:0::/64 via fd00:4::2 dev a1
    try traceroute.sh "IPv6 traceroute" 2 hops -6 -s fd00:0::2 fd00:2::2
    within a ip -6 route del fd00:0::/64 via fd00:4::2 dev a1
    within source ip -6 route del fd00:2::2
    restore

    for number in 1.0.1.3 1.0.3.3; do within source ip addr add "$number/24" dev s0; done
    for number in 1.0.3.1 1.0.1.1; do within router ip addr add "$number/24" dev r0; done
    within router sysctl -qw net.ipv4.icmp_errors_use_inbound_ifaddr=1
    try traceroute.sh "IPv4 traceroute" 4 settled path_from
    within router sysctl -qw net.ipv4.icmp_errors_use_inbound_ifaddr=0
    for number in 1.0.1.3 1.0.3.3; do within source ip addr del "$number/24" dev s0; done
    for number in 1.0.3.1 1.0.1.1; do within router ip addr del "$number/24" dev r0; done
}

# A router without an IPv4 address: its errors come from 192.0.0.8 (RFC 7600).
icmp_cases() {
    local interface
    within source ip addr add 172.16.0.1/32 dev s0
    within source ip route add 172.16.0.0/16 via inet6 fd00:0::1 dev s0 src 172.16.0.1
    within a ip addr add 172.16.2.1/32 dev lo
    within a ip route add 172.16.0.0/24 via inet6 fd00:1::1 dev a0 src 172.16.2.1
    for interface in r0 r1 r2 r3; do within router ip -4 addr flush dev "$interface"; done
    within router ip route add 172.16.0.0/24 via inet6 fd00:0::2 dev r0
    within router ip route add 172.16.2.0/24 via inet6 fd00:1::2 dev r1
    # Without an address of its own, the router leaves the errors to the kernel.
    try icmp.sh "net unreachable" 0 joined long_pings 56 172.16.1.1
    try ours "Time Exceeded from 192.0.0.8" 2 hops -s 172.16.0.1 172.16.2.1
    mtu r1 1400
    try ours "Fragmentation Needed from 192.0.0.8" 2 joined long_pings 1472 172.16.2.1
    mtu r1 1500
    within router ip route del 172.16.0.0/24
    within router ip route del 172.16.2.0/24
    within source ip addr del 172.16.0.1/32 dev s0
    within a ip addr del 172.16.2.1/32 dev lo
    forget
    restore
}

all_cases() {
    restore
    router_cases
    nexthop_cases
    plain_multipath_cases
    object_multipath_cases
    traceroute_cases
    icmp_cases
    pmtu_cases
}
alone_and_with_router all_cases
