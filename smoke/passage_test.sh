#!/usr/bin/env bash
# Frames of every kind that a stranger can send to the front of a gate whose kernel forwards packets: none
# reaches a protected host undecided, also while the front changes.
#
#   client c0 ══ g0 gate g1 ══ t0 grantor      10.1.0.x fd01:: │ 10.2.0.x fd02::, ip_forward=1
#
# scapy draws the frames, from the same seed each time: protocols, tags, fragments, options, extension headers,
# tunnels, addresses of the gate, of the grantor and of protected hosts, damage. First without the gate: the
# kernel forwards many of them to protected hosts, which proves that the frames would pass. Then with the gate;
# then with the gate while its front gets another MAC, another MTU and another name.
. "$(dirname "$0")/lib/gate_topology.sh"

known_ends
within gate sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
within gate ip addr add fd01::1/64 dev g0
within gate ip addr add fd02::1/64 dev g1
within grantor ip addr add fd02::2/64 dev t0
within gate ip neigh replace fd01::2 lladdr 02:00:00:00:01:02 dev g0
within gate ip neigh replace fd02::2 lladdr 02:00:00:00:02:02 dev g1
within gate ip route add 192.0.2.0/24 via 10.2.0.2
within gate ip route add 2001:db8:2::/48 via fd02::2
within gate ip route add default via 10.1.0.2
within gate ip -6 route add default via fd01::2
# The grantor's kernel is to answer nothing.
within grantor sysctl -qw net.ipv4.conf.all.arp_ignore=8

cat >"$work/gate.toml" <<CONFIG
$(sides 10gbit)
[flow_table]
entries = 65536
$(both_families)
[control]
socket = "$work/sock"
CONFIG

passage() { within client "$python" "$here/smoke/passage_frames.py" "$prefix" "$program" "$work" "$@"; }

echo "-- the kernel alone"
passage off
echo "-- the gate"
guarded gate passage on
echo "-- the gate, and changes of its front"
changing() {
    passage changes &
    local sender=$!
    while kill -0 "$sender" 2>/dev/null; do
        within gate ip link set g0 address 02:00:00:00:01:31
        sleep 0.2
        within gate ip link set g0 mtu 1280
        sleep 0.2
        within gate ip link set g0 down
        within gate ip link set g0 name g9
        within gate ip link set g9 up
        sleep 0.2
        within gate ip link set g9 down
        within gate ip link set g9 name g0
        within gate ip link set g0 up
        within gate ip link set g0 mtu 1500
        within gate ip link set g0 address 02:00:00:00:01:01
        sleep 0.4
    done
    wait "$sender"
}
guarded gate changing
