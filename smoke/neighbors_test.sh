#!/usr/bin/env bash
# A neighbor changes its MAC and announces nothing: the router reports to the kernel that the neighbor is
# in use, so the kernel probes it, and packets reach the neighbor as soon as the kernel has its new MAC.
#
#   source s0 ── r0 router r2 ── b0 b      b sends no answers
. "$(dirname "$0")/lib/router_topology.sh"

own_checksums source s0
within source ip route add default via 10.0.0.1
within b ip route add default via 10.0.2.1
within b ip addr add 11.0.0.1/32 dev lo
within router ip route add 11.0.0.0/8 via 10.0.2.2
# The kernel's neighbor timers, at a tenth to a fifth of their defaults: REACHABLE for 1 to 3 s, DELAY
# for 1 s, then three probes.
for setting in base_reachable_time_ms=2000 delay_first_probe_time=1 retrans_time_ms=200 gc_stale_time=60; do
    within router sysctl -qw "net.ipv4.neigh.r2.$setting"
done

# Sends packets to an address continuously, and prints for how long none arrived after the MAC had changed.
outage() {
    local address=$1 mac=$2
    "$python" "$here/smoke/neighbors_outage.py" "$prefix" "$address" "$mac" || fail "packets to $address no longer arrive"
}

configure
start_router
within source ping -c 1 -W 2 -q 10.0.2.2 >/dev/null && within source ping -c 1 -W 2 -q 11.0.0.1 >/dev/null || fail "no route to b"
echo "a gateway"
outage 11.0.0.1 02:00:00:00:03:09
echo "a host on the link"
outage 10.0.2.2 02:00:00:00:03:0a
show -j counters | json 'assert d[0]["sent"] > 200, d' || fail "the router has not forwarded: $(show counters)"
stop_router
