#!/usr/bin/env bash
# Unusual packets at a gate: with an expired TTL, too big for the tunnel, in fragments, with VLAN tags, with
# options and extension headers, and malformed ones:
#
#   client c0 ── g0 gate g1 ── t0 grantor      10.1.0.x, fd01::x │ 10.2.0.x, fd02::x
#                                              protected: 192.0.2.0/24, 2001:db8:2::/48
#
# scapy computes what must come out, byte for byte, and which answers are right (edges_packets.py). Then the
# same with tunnels in UDP.
. "$(dirname "$0")/lib/gate_topology.sh"

within gate ip addr add fd01::1/64 dev g0
within gate ip addr add fd02::1/64 dev g1
within client ip addr add 10.1.0.2/24 dev c0
within client ip addr add fd01::2/64 dev c0
within grantor ip addr add fd02::2/64 dev t0
# An expired TTL is the kernel's to answer, which it does where it forwards.
within gate sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
within gate ip route add 192.0.2.0/24 via 10.2.0.2
within gate ip -6 route add 2001:db8:2::/48 via fd02::2
within gate ip neigh replace 10.1.0.2 lladdr 02:00:00:00:01:02 dev g0
within gate ip -6 neigh replace fd01::2 lladdr 02:00:00:00:01:02 dev g0
within gate ip neigh replace 10.2.0.2 lladdr 02:00:00:00:02:02 dev g1
within gate ip -6 neigh replace fd02::2 lladdr 02:00:00:00:02:02 dev g1

guard() {
    cat >"$work/$1.toml" <<CONFIG
$(sides 1gbit)
[flow_table]
entries = 65536
[tunnel]
icmp_rate = 20
$2
$(both_families)
[control]
socket = "$work/sock"
CONFIG
    guarded "$1" within client "$python" "$here/smoke/edges_packets.py" "$prefix" "$program" "$work" "$1"
}

guard direct ""
guard udp "udp_port = 6080"
