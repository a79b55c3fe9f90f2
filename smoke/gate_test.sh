#!/usr/bin/env bash
# The gate at a vantage point, on AF_XDP between two veth pairs, judged by scapy as client
# and as grantor:
#
#   client c0 ── g0 gate g1 ── t0 grantor          10.1.0.x, fd01::x │ 10.2.0.x, fd02::x
#                                                  protected: 192.0.2.0/24, 2001:db8:2::/48
#
# The packets that come out at the grantor, their DSCPs and inner bytes, the effect of decisions, refused
# messages, and every counter (gate_peers.py). Then a reload with another policy and with an invalid one, the end
# and a restart, and SIGKILL.
# runs alone: it measures gaps of milliseconds between packets
. "$(dirname "$0")/lib/gate_topology.sh"

within gate ip addr add fd01::1/64 dev g0
within gate ip addr add fd02::1/64 dev g1
within client ip addr add 10.1.0.2/24 dev c0
within client ip addr add fd01::2/64 dev c0
within grantor ip addr add 10.2.0.3/24 dev t0
within grantor ip addr add fd02::2/64 dev t0
# An expired TTL is the kernel's to answer, which it does where it forwards.
within gate sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
within gate ip route add 192.0.2.0/24 via 10.2.0.2
within gate ip -6 route add 2001:db8:2::/48 via fd02::2
within gate ip route add 172.16.0.0/12 via 10.1.0.2

umask 077
for name in declined grantedv2; do
    "$program" program build "$name" -o "$work/$name.o" >"$work/build.log"
done
secret_key grantor.key 11
cat >"$work/gate.toml" <<CONFIG
$(sides 1gbit)
[flow_table]
entries = 65536
state_file = "$work/flows"

$(both_families)
[[policy]]
prefix = "192.0.2.9/32"
action = "back"
exempt = true
[[policy]]
prefix = "192.0.2.66/32"
action = "drop"
[[policy]]
prefix = "172.16.0.0/12"
action = "front"

[[sender]]
id = 7
keys = { 1 = "grantor.key" }
[[program]]
number = 1
file = "declined.o"
[[program]]
number = 2
file = "grantedv2.o"
[decisions]
v1_sources = ["10.2.0.2"]
[rules]
version = "first"
[control]
socket = "$work/sock"
[metrics]
listen = "127.0.0.1:9274"
CONFIG

within gate "$program" gate check -c "$work/gate.toml" >"$work/check.log" 2>&1
grep -q '^valid: front g0, back g1, 5 prefixes, 2 grantor sets, 1 senders, version 1 on' \
    "$work/check.log" || fail "check: $(cat "$work/check.log")"
sed 's/^exempt.*//' "$work/gate.toml" >"$work/hole.toml"
refuse 1 "192.0.2.9/32 would lead past the protection of 192.0.2.0/24" \
    "$program" gate check -c "$work/hole.toml"
sed 's/^interface = "g1"/interface = "g7"/' "$work/gate.toml" >"$work/none.toml"
refuse 1 "g7: no such interface" within gate "$program" gate -c "$work/none.toml"
refuse 1 "g7: no such interface" within gate "$program" gate check -c "$work/none.toml"
"$program" gate check --offline -c "$work/none.toml" | has_line '^valid: front g0, back g7' || fail "check --offline"
[ -z "$(programs gate)" ] || fail "left behind on: $(programs gate)"

launch gate "$program" gate -c "$work/gate.toml" -j >"$work/report.json" 2>"$work/gate.log"
gate=$launched
wait_for 20 grep -q 'guarding after' "$work/gate.log" || fail "the gate does not start"
[ "$(programs gate)" = "g0 g1" ] || fail "programs on: $(programs gate)"

within gate "$python" "$here/smoke/gate_peers.py" "$prefix" "$program" "$work" "$gate"

kill -INT "$gate"
status=0
wait "$gate" || status=$?
[ "$status" -eq 0 ] || fail "the gate ended with $status"
[ -z "$(programs gate)" ] || fail "a program is left on: $(programs gate)"
[ ! -e "$work/sock" ] || fail "the socket is left"
grep -q 'flows saved' "$work/gate.log" || fail "no flows are kept"
"$python" "$here/smoke/gate_counters.py" "$work/expected.json" "$work/report.json"

launch gate "$program" gate -c "$work/gate.toml" >/dev/null 2>"$work/again.log"
gate=$launched
wait_for 20 grep -q 'guarding after' "$work/again.log" || fail "the gate does not start again"
"$program" flow explain 10.1.0.60 192.0.2.7 --socket "$work/sock" >"$work/kept.log" || fail "a flow is forgotten"
grep -q '^10.1.0.60 > 192.0.2.7 granted' "$work/kept.log" || fail "not as it was: $(cat "$work/kept.log")"
[ ! -e "$work/flows" ] || fail "the flows could be used a second time"
echo "   a restart forgets no flow"
kill -KILL "$gate"
wait "$gate" 2>/dev/null || true
wait_for 5 test -z "$(programs gate)" || fail "SIGKILL leaves a program on: $(programs gate)"
echo "   SIGKILL leaves nothing attached"
