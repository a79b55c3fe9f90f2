#!/usr/bin/env bash
# The grantor, on AF_XDP between two veth pairs. First scapy is the gate and hears version 1:
#
#   gate g0 ── t0 grantor s0 ── v0 server      10.2.0.x │ 192.0.2.x, tunnels end at 10.9.1.100
#
# The packets that come out of the tunnel, the decisions about them, byte by byte, ECN, a policy that never
# ends, other lists and an invalid policy at run time (grantor_peers.py). Then our gate, version 2, and a client
# behind it, whose first connection is answered through both.
. "$(dirname "$0")/lib/protected_topology.sh"

cat >"$work/policy.lua" <<'POLICY'
local deny, known = list "deny", list "known"
function decide(p)
    -- Not as a number, by which the dry run would find the loop.
    if p.dst_port == tonumber("666") then while true do end end
    if p:src_in(deny) then return decline(600) end
    if p.renewal then return grant { rate = 2000 } end
    return grant { rate = p:src_in(known) or 100, expire = 60, renewal = 50, step = 1 }
end
POLICY
echo "198.51.100.64/26" >"$work/deny.txt"
echo "198.51.100.0/28 777" >"$work/known.txt"
cat >"$work/v1.toml" <<CONFIG
interfaces = ["t0", "s0"]
$(busy_machine)
[tunnel]
addresses = ["10.9.1.100"]
gates = ["10.2.0.1"]
udp_port = 6080
[policy]
file = "policy.lua"
fallback = "decline 5"
fragments = "decline 77"
[[list]]
name = "deny"
file = "deny.txt"
[[list]]
name = "known"
file = "known.txt"
[decisions]
version = 1
[control]
socket = "$work/sock"
CONFIG
within grantor "$program" grantor check -c "$work/v1.toml" >"$work/check.log" 2>&1
grep -q '^valid: 2 interfaces, 1 tunnel ends, 1 gates, 2 lists' "$work/check.log" ||
    fail "check: $(cat "$work/check.log")"
sed 's/name = "known"/name = "friends"/' "$work/v1.toml" >"$work/bad.toml"
refuse 1 "there is no list named \`known\`" "$program" grantor check -c "$work/bad.toml"
sed 's/tonumber("666")/666/' "$work/policy.lua" >"$work/bad.lua"
sed 's/policy.lua/bad.lua/' "$work/v1.toml" >"$work/bad.toml"
refuse 1 "a made-up packet, TCP SYN to port 666 over IPv4: takes more than 100000 instructions" \
    "$program" grantor check -c "$work/bad.toml"
refuse 1 "TCP SYN to port 666" within grantor "$program" grantor -c "$work/bad.toml"

start_grantor v1 grantor
within gate "$python" "$here/smoke/grantor_peers.py" "$prefix" "$work" "$grantor"
kill -INT "$grantor"
status=0
wait "$grantor" || status=$?
[ "$status" -eq 0 ] || fail "the grantor ended with $status"
[ -z "$(programs grantor)" ] || fail "a program is left on: $(programs grantor)"
"$python" "$here/smoke/grantor_counters.py" "$work/expected.json" "$work/grantor.json"

# Version 2, by a gate of ours, in UDP.
umask 077
secret_key grantor.key 2b
echo 'function decide(p) return decline(60) end' >"$work/next.lua"
sed -e 's/^version = 1/version = 2\nid = 7\nkeys = { 1 = "grantor.key" }/' \
    -e 's/^file = "policy.lua"/&\ncandidate = "next.lua"\nrecord_file = "requests.pcap"/' \
    "$work/v1.toml" >"$work/v2.toml"

# A gate in Python that seals, and a forger that knows everything but the key.
start_grantor v2 sealed
within gate "$python" "$here/smoke/grantor_sealed.py" "$prefix" "$here/crates/gate/tests/golden" "$work"
kill -INT "$grantor"
wait "$grantor" || fail "the grantor ended with $?"
"$python" "$here/smoke/grantor_dropped.py" "$work/expected.json" "$work/sealed.json"
cat >"$work/gate.toml" <<CONFIG
$(gate_config)
[tunnel]
udp_port = 6080
CONFIG
start_grantor v2
start_gate
own_checksums client c0
own_checksums server v0
launch server "$python" "$here/smoke/lib/echo.py"
server=$launched
wait_for 10 within server "$python" -c 'import socket; socket.create_connection(("192.0.2.7", 80), 1)' ||
    fail "the server does not start"
within client "$python" "$here/smoke/grantor_client.py"
# The same forgeries by the front of the gate: none comes to the server, and each is counted.
within client "$python" "$here/smoke/grantor_sealed.py" "$prefix" "$here/crates/gate/tests/golden" "$work" front
"$program" show gate -j --socket "$work/gate.sock" | json 'p = d[0]["packets"]; assert p["forged"] == 80, p'
"$program" flow explain 10.1.0.2 192.0.2.7 -j --socket "$work/gate.sock" |
    json 'assert d["state"] == "granted", d'
# A candidate beside the policy is only compared; what asked is kept to try others on.
# It shows some times a second what has come of it.
compared() {
    "$program" show grantor -j --socket "$work/sock" | json 's = d[0]["candidate"]; f, = s["flows"]
assert s["changes"] == {"granted_declined": s["requests"]} and s["failed"] == 0, s
assert (f["source"], f["policy"], f["candidate"]) == ("10.1.0.2", "granted 100 KiB/s for 60 s", "declined for 60 s"), f'
}
wait_for 10 compared 2>"$work/compared.log" || fail "the candidate: $(tail -1 "$work/compared.log")"
echo 'function decide(p) return unknown.name end' >"$work/next.lua"
refuse 1 'the candidate: policy:1: undefined global `unknown`' "$program" reload --socket "$work/sock"
echo 'function decide(p) if p.src == "10.1.0.2" then error("a client") end end' >"$work/next.lua"
"$program" reload --socket "$work/sock" >"$work/reload.log" || fail "reload: $(cat "$work/reload.log")"
grep -q '1 candidate policy' "$work/reload.log" || fail "reload: $(cat "$work/reload.log")"
echo 'function decide(' >"$work/next.lua"
refuse 1 'the candidate: ' "$program" reload --socket "$work/sock"
"$program" show grantor -j --socket "$work/sock" |
    json 'assert (d[0]["reloads"], d[0]["reloads_refused"]) == (1, 2), d'
kill -INT "$gate" "$grantor"
kill "$server"
wait "$server" || true
wait "$gate" || fail "the gate ended with $?"
wait "$grantor" || fail "the grantor ended with $?"
json 'p = d["grantor"]["decisions"]; assert p["acks_received"] >= 1 and p["abandoned"] == 0, p; assert d["counters"]["balanced"]' <"$work/v2.json"
echo "   version 2: decisions acknowledged, none given up"

echo 'function decide(p) if p.dst_port == 80 then return decline(5) end end' >"$work/next.lua"
"$program" policy test "$work/next.lua" -c "$work/v1.toml" --recorded 2>"$work/test.log" && fail "no request was recorded"
grep -q 'requests are not recorded' "$work/test.log" || fail "$(cat "$work/test.log")"
sed -i '/^candidate/d' "$work/v2.toml"
"$program" policy test "$work/next.lua" -c "$work/v2.toml" --recorded -j |
    json 'assert d["packets"] == d["requests"] >= 1 and d["unread"] == 0, d
assert d["changes"] == {"granted_declined": d["requests"]} and d["changed"] == 1, d
assert d["changed_flows"][0]["candidate"] == "declined for 5 s", d'
# The same packets to anybody else: tcpdump reads the record too.
tcpdump -nr "$work/requests.pcap" 2>"$work/tcpdump.log" | has_line '10.2.0.1 > 0.0.0.0: IP 10.1.0.2.[0-9]* > 192.0.2.7.80: ' ||
    fail "tcpdump reads: $(tcpdump -nr "$work/requests.pcap" 2>&1 | head -3)"
echo "198.51.100.64/26" >"$work/deny.txt"
# A capture that saw no gate: each policy gets one. scapy makes a second of a patient client and
# of a hundred that come once.
"$python" "$here/smoke/grantor_capture.py" "$work/seen.pcap"
"$program" policy test "$work/next.lua" -c "$work/v2.toml" --pcap "$work/seen.pcap" -j |
    json 'assert (d["packets"], d["flows"], d["unread"]) == (200, 101, 0), d
# The policy denies the sources from .64 to .99, which are on its list.
assert d["policy"]["packets"] == 164 and d["policy"]["requests"] == 101, d
assert d["candidate"]["packets"] == 0 and d["candidate"]["requests"] == 101, d
first = d["changed_flows"][0]
assert first["source"] == "10.1.0.2" and first["policy"].endswith("; 100 of 100 packets pass"), first
assert first["candidate"] == "declined for 5 s; 0 of 100 packets pass" and d["changed"] == 101, d'
echo "   a candidate is compared at work, on what was recorded, and on a capture"
