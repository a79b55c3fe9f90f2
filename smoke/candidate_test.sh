#!/usr/bin/env bash
# A candidate beside a gate's policy: packets go by the policy in force, and what the candidate
# would have decided of them is counted, packet by packet as scapy's sockets sent them (of so few
# each is a sample); shown by `show gate`, `flow explain` and metrics; with and without a page;
# changed and taken away by a reload, and refused whole where it is not sound.
#
#   client c0 ── g0 gate g1 ── t0 grantor          10.1.0.x │ 10.2.0.x, protected: 192.0.2.0/24
. "$(dirname "$0")/lib/gate_topology.sh"

within client ip addr add 10.1.0.2/24 dev c0
within gate ip route add 192.0.2.0/24 via 10.2.0.2
within gate ip route add 198.51.100.0/24 via 10.2.0.2
within gate ip neigh add 10.2.0.2 lladdr 02:00:00:00:02:02 dev g1
within gate ip neigh add 10.1.0.2 lladdr 02:00:00:00:01:02 dev g0

policy() {
    cat <<CONFIG
[[grantors]]
name = "site"
members = [{ address = "10.2.0.2" }]
[[grantors]]
name = "other"
members = [{ address = "10.2.0.3" }]
[[policy]]
prefix = "192.0.2.0/24"
grantors = "site"
CONFIG
}
gate() {
    cat <<CONFIG
$(sides 1gbit)
[flow_table]
entries = 4096
[[policy]]
prefix = "198.51.100.0/24"
action = "back"
[control]
socket = "$work/sock"
$1
$(policy)
[rules]
candidate = "next/gate.toml"
CONFIG
}
mkdir "$work/next"
next() {
    { policy && cat; } >"$work/next/gate.toml"
}
next <<CONFIG
[[policy]]
prefix = "192.0.2.128/25"
grantors = "other"
[[policy]]
prefix = "192.0.2.66/32"
action = "drop"
[[policy]]
prefix = "198.51.100.0/24"
action = "back"
[allow]
file = "allow.txt"
[rules]
version = "next"
CONFIG
echo 10.1.7.0/24 >"$work/next/allow.txt"
gate '[metrics]
listen = "127.0.0.1:9273"' >"$work/page.toml"
gate '' >"$work/plain.toml"

# Sends: destination, source, how many.
send() {
    "$python" "$here/smoke/candidate_packets.py" "$prefix" "$@"
}
status() { within gate "$program" show -j gate --socket "$work/sock"; }
# Waits until the candidate has decided about so many packets.
decided() {
    wait_for 10 eval "[ \$(status | json 'print(d[0][\"candidate\"][\"packets\"])') = $1 ]" ||
        fail "the candidate has not decided about $1 packets: $(status)"
}
seen() {
    send 192.0.2.1 10.1.0.9 5 192.0.2.66 10.1.0.9 3 192.0.2.200 10.1.0.9 4 192.0.2.1 10.1.7.1 2 \
        198.51.100.1 10.1.0.9 6 198.51.100.1 10.1.7.1 1 203.0.113.1 10.1.0.9 2
    decided 23
    status | json '
g, s = d[0], d[0]["candidate"]
# The policy in force decides: nothing is dropped by the candidate.
assert (g["packets"]["request"], g["packets"]["back"], g["packets"]["policy"], g["packets"]["allowed"]) == (14, 7, 0, 0), g
changes = {(entry["policy"], entry["candidate"]): (entry["samples"], entry["packets"]) for entry in s["changes"]}
assert changes == {("grantors site", "drop"): (3, 3), ("grantors site", "grantors other"): (4, 4), ("grantors site", "allowed"): (2, 2)}, s
assert (s["version"], s["prefixes"], s["samples"]) == ("next", 4, 23), s
flows = {(entry["source"], entry["destination"]): entry for entry in s["flows"]}
assert len(flows) == 3 and s["flows"][0]["source"] == "10.1.7.1", s
other = flows["10.1.0.9", "192.0.2.200"]
assert (other["packets"], other["policy"]["rule"], other["candidate"]["rule"]) == (4, "192.0.2.0/24", "192.0.2.128/25"), other
assert flows["10.1.7.1", "192.0.2.1"]["candidate"] == {"action": "allowed", "rule": "10.1.7.0/24"}, s'
    within gate "$program" show gate --socket "$work/sock" >"$work/gate.txt"
    grep -qx 'candidate next: 4 prefixes, 23 packets estimated by 23 samples' "$work/gate.txt" ||
        fail "show gate: $(cat "$work/gate.txt")"
    grep -qx '    grantors site -> grantors other: 4 packets' "$work/gate.txt" ||
        fail "show gate: $(cat "$work/gate.txt")"
    explain() { within gate "$program" flow explain "$@" --socket "$work/sock" || true; }
    explain 10.1.0.9 192.0.2.66 >"$work/flow.txt"
    grep -qx '    the candidate decides: drop by 192.0.2.66/32 (line 14)' "$work/flow.txt" ||
        fail "flow explain: $(cat "$work/flow.txt")"
    explain -j 10.1.0.9 192.0.2.1 | json 'assert d["candidate"]["action"] == "grantors site", d'
    echo "   every packet that a candidate decides otherwise counted, and none of them by it"
}
# Reloads with another candidate, an invalid one, and none.
changed() {
    local order=("$program" reload --socket "$work/sock")
    next <<<''
    within gate "${order[@]}" | has_line '1 candidate policy' || fail "the reload does not name the candidate"
    send 198.51.100.1 10.1.0.9 2 192.0.2.1 10.1.0.9 2
    decided 4
    status | json '
(change,) = d[0]["candidate"]["changes"]
assert (change["policy"], change["candidate"], change["packets"]) == ("back", "no route", 2), change'
    next <<<'[[policy]]
prefix = "192.0.2.9/32"
action = "front"'
    refuse 1 "next/gate.toml:8: policy: 192.0.2.9/32 would lead past" within gate "${order[@]}"
    status | json 'assert d[0]["reloads_refused"] == 1 and d[0]["candidate"]["packets"] == 4, d'
    sed -i '/candidate = /d' "$work/$1.toml"
    within gate "${order[@]}" >/dev/null
    status | json 'assert "candidate" not in d[0], d'
    echo "   a reload has another candidate, refuses one that is not sound, and takes it away"
}
measured() {
    seen
    within gate "$python" "$here/smoke/lib/metrics.py" http://127.0.0.1:9273/metrics \
        "fingerpost_gate_candidate_packets 23.0" \
        'fingerpost_gate_candidate_changes{policy="grantors site",candidate="drop"} 3.0'
    echo "   and in the metrics"
    changed page
    within gate "$python" "$here/smoke/lib/metrics.py" http://127.0.0.1:9273/metrics without=gate_candidate
}
plain() {
    seen
    changed plain
}
sed '1,/^grantors = "site"$/d' "$work/next/gate.toml" >"$work/first"
guarded page measured
next <"$work/first"
guarded plain plain
