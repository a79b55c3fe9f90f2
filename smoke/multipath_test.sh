#!/usr/bin/env bash
# A route with two next hops: the fields of a packet that select one are those of the kernel alone, for each
# `fib_multipath_hash_policy` and for each field of `fib_multipath_hash_fields`, also changed while the router runs.
#
#   source s0 ── r0 router r1 ── a0 a      11.0.0.0/8 and 2001:db8::/32 by both
#                          r2 ── b0 b
. "$(dirname "$0")/lib/router_topology.sh"

within router ip route add 11.0.0.0/8 nexthop via 10.0.1.2 nexthop via 10.0.2.2
within router ip -6 route add 2001:db8::/32 nexthop via fd00:1::2 nexthop via fd00:2::2
# They drop what is not their own.
for name in source a b; do within "$name" sysctl -qw net.ipv4.ip_forward=0; done

find_fields() { "$python" "$here/smoke/multipath_packets.py" "$prefix" "$work/fields" "$@" || fail "the fields"; }
echo "the kernel alone"
find_fields
configure
start_router
cat >"$work/sent" <<SENT
"$program" show -j counters --socket "$work/sock" | "$python" -c 'import json, sys; print(json.load(sys.stdin)[0]["sent"])'
SENT
echo "the router"
find_fields sh "$work/sent"
stop_router
