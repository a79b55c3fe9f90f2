#!/usr/bin/env bash
# A gate that asks TCP for an answer to a cookie, under a flood that sends each forged SYN twice:
# what the second packet cannot stop, first without cookies and then with.
#
#   client c0 ── g0 gate g1 ── t0 grantor      10.1.0.x, fd01::x │ 10.2.0.x, fd02::x
#                                              protected: 192.0.2.0/24, 2001:db8:2::/48
#
# Clients are the kernel's own TCP; answers are judged by scapy (cookie_traffic.py).
. "$(dirname "$0")/lib/gate_topology.sh"

within gate ip addr add fd01::1/64 dev g0
within gate ip addr add fd02::1/64 dev g1
for address in 2 $(seq 10 19); do
    within client ip addr add "10.1.0.$address/24" dev c0
done
within client ip addr add fd01::2/64 dev c0
within grantor ip addr add fd02::2/64 dev t0
within gate ip route add 192.0.2.0/24 via 10.2.0.2
within gate ip -6 route add 2001:db8:2::/48 via fd02::2
within client ip route add 192.0.2.0/24 via 10.1.0.1
# The kernel does not have to resolve forged sources: the MAC addresses of both ends are known.
within gate ip neigh replace 10.1.0.2 lladdr 02:00:00:00:01:02 dev g0
within gate ip neigh replace 10.2.0.2 lladdr 02:00:00:00:02:02 dev g1
within gate ip -6 neigh replace fd02::2 lladdr 02:00:00:00:02:02 dev g1
within client ip neigh replace 10.1.0.1 lladdr 02:00:00:00:01:01 dev c0

guard() {
    cat >"$work/$1.toml" <<CONFIG
$(sides 100mbit)
[flow_table]
entries = 2048
[admission]
address_validation = "$1"
syn_cookie_rate = 5000
$(both_families)
[decisions]
v1_sources = ["10.2.0.2"]
[control]
socket = "$work/sock"
CONFIG
    guarded "$1" within client "$python" "$here/smoke/cookie_traffic.py" "$prefix" "$program" "$work" "$1"
    json 'c, p = d["counters"], d["gate"]["packets"]
assert (c["dropped"]["syn_cookie"], c["dropped"]["cookie_reset"]) == (p["syn_cookie"], p["cookie_reset"]), p
assert c.get("originated", 0) == d["gate"]["link"]["cookies_sent"], c' <"$work/$1.json"
}

guard second-packet
guard syn-cookie
