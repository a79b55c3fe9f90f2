#!/usr/bin/env bash
# From a message of the kernel's to what all workers forward by: single changes on top of a
# full table, under traffic. It measures and prints; that every change is seen is the test.
# runs alone: it measures latencies
. "$(dirname "$0")/lib/router_topology.sh"

prefixes "${1:-1}"
awk '{ print "route add " $1 " via 10.0.1.2" }' "$work/prefixes" >"$work/batch"
for name in a b; do
    within "$name" ip addr add 203.0.113.1/32 dev lo
    within "$name" ip link set lo up
done
within source ip route add default via 10.0.0.1
# Both neighbors are known, and stay so.
within router ip neighbor add 10.0.1.2 lladdr 02:00:00:00:02:02 dev r1 nud permanent
within router ip neighbor add 10.0.2.2 lladdr 02:00:00:00:03:02 dev r2 nud permanent
within router ip -force -batch "$work/batch" 2>/dev/null || true
configure
start_router
echo "   on top of $(have) routes"
"$python" "$here/smoke/visible_latency.py" "$prefix" 400 | sed 's/^/   /'
stop_router
