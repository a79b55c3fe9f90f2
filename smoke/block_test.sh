#!/usr/bin/env bash
# A gate drops packets of blocked sources, and of no others:
#
#   client c0 ── g0 gate g1 ── t0 grantor      10.1.0.x, fd01::x │ 10.2.0.x, fd02::x
#                                              protected: 192.0.2.0/24, 2001:db8:2::/48
#
# Packets of listed sources, of both families, never come out nor reach the gate's workers; those on the
# allow-list do; another list takes the place of the first, and a bad one does not; a real list of
# hundreds of thousands of prefixes; then the same by the workers alone (block_packets.py). Then lists in front of the
# gate, as a router has them: files that change, flow specifications by GoBGP, bans, other lists by a reload; the policy's
# allow-list is before them.
. "$(dirname "$0")/lib/gate_topology.sh"
. "$(dirname "$0")/lib/gobgp.sh"
data=${FINGERPOST_DATA:-$here/../shared/data}

within gate ip addr add fd01::1/64 dev g0
within gate ip addr add fd02::1/64 dev g1
within grantor ip addr add fd02::2/64 dev t0
within gate ip route add 192.0.2.0/24 via 10.2.0.2
within gate ip -6 route add 2001:db8:2::/48 via fd02::2
within gate ip neigh replace 10.2.0.2 lladdr 02:00:00:00:02:02 dev g1
within gate ip -6 neigh replace fd02::2 lladdr 02:00:00:00:02:02 dev g1
within gate ip neigh replace 10.1.0.2 lladdr 02:00:00:00:01:02 dev g0

guard() { # NAME EARLY_PREFIXES [LINE_OF_BLOCK...]
    cat >"$work/$1.toml" <<CONFIG
$(sides 1gbit)
[flow_table]
entries = 4096
xdp_blocked_prefixes = $2
[admission]
enabled = false
$(both_families)
[allow]
prefixes = ["203.0.113.128/25", "2001:db8:9:1::/64"]
[block]
prefixes = ["2001:db8:9::/48"]
file = "block.txt"
$(printf '%s\n' "${@:3}")
[control]
socket = "$work/sock"
CONFIG
    printf '%s\n' "# unwanted sources" "203.0.113.0/24 a word for people" "198.51.100.7 ; SBL256894" 203.0.113.200/32 >"$work/block.txt"
    guarded "$1" within client "$python" "$here/smoke/block_packets.py" "$prefix" "$program" "$work" "$1" "$2" "$data"
    json 'p, dropped = d["gate"]["packets"], d["counters"]["dropped"]
assert p["blocked"] == dropped["blocked"] > 0, (p, dropped)' <"$work/$1.json"
}

guard kernel 1048576
guard workers 0
# Less than the list has: some end here, some there.
guard both 2
mkdir "$work/cache"
echo 198.51.100.0/30 >"$work/feed"
start_gobgp gate
gobgp global rib -a ipv4-flowspec add match source 198.51.100.64/26 then discard
guard front 1048576 'lists = ["feed"]' 'flowspec = "65001@127.0.0.1:1179"' "bans = \"$work/bans\"" "cache = \"$work/cache\""
has_line "^2001:db8:7::/64$" <"$work/bans" || fail "the bans are not kept: $(cat "$work/bans")"
# A gate's check refuses these.
refused() { # MESSAGE LINE_OF_BLOCK
    sed "/^lists = /d;s/^bans = .*/$2/" "$work/front.toml" >"$work/wrong.toml"
    refuse 1 "$1" within gate "$program" gate check -c "$work/wrong.toml"
}
refused "block.interfaces: not available on a gate" 'interfaces = ["g1"]'
refused 'block.lists: "http://" has no valid host' 'lists = ["http:\/\/"]'
refused 'block.flowspec: an AS and an address are needed, as 65001@127.0.0.1:1179' 'flowspec = "127.0.0.1"'
refused "block: no list of sources to drop" 'poll = "1h"'
refused "block: reading the list $work/none: " 'lists = ["none"]'
echo 10.2.0.0/24 >"$work/own"
refused "own would be held: 10.2.0.0/24 contains 10.2.0.1, an address of g1" 'lists = ["own"]'
