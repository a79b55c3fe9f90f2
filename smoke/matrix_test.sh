#!/usr/bin/env bash
# The flow programs that come with this, compiled by clang, at a gate.
#
#   client c0 ── g0 gate g1 ── t0 grantor
#
# scapy sends a matrix of packets (matrix_packets.py), each of a flow of its own that a program decides of: with room
# in both limits, with none in the second one, and to go directly. A packet in the tunnel is unchanged; a direct packet is
# as scapy computes it, with new checksums; nothing else comes out.
. "$(dirname "$0")/lib/gate_topology.sh"

within gate ip addr add fd01::1/64 dev g0
within gate ip addr add fd02::1/64 dev g1
within grantor ip addr add fd02::2/64 dev t0
within gate ip neigh add 10.2.0.2 lladdr 02:00:00:00:02:02 dev g1
within gate ip neigh add fd02::2 lladdr 02:00:00:00:02:02 dev g1

umask 077
secret_key grantor.key 11
cat >"$work/gate.toml" <<CONFIG
$(sides 1gbit)
[flow_table]
entries = 4096
$(both_families)
[[sender]]
id = 7
keys = { 1 = "grantor.key" }
[control]
socket = "$work/sock"
CONFIG
"$program" program list >"$work/list"
[ "$(wc -l <"$work/list")" -eq 6 ] || fail "programs without a test: $(cat "$work/list")"
while read -r number name _; do
    "$program" program build "$name" -o "$work/$name.o" >"$work/build.log"
    printf '[[program]]\nnumber = %s\nfile = "%s.o"\n' "$number" "$name" >>"$work/gate.toml"
done <"$work/list"
guarded gate within gate "$python" "$here/smoke/matrix_packets.py" "$prefix" "$program" "$work"
json 'p = d["gate"]["packets"]; assert p["program_error"] == 0, p' <"$work/gate.json"
