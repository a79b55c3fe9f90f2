#!/usr/bin/env bash
# Two grantors of one set, and one of them killed with SIGKILL:
#
#   client c0 ── f0 gate g0 ── i0 inside i1 ── a0 grantor one     10.9.1.101
#                               │    └── i2 ── b0 grantor two     10.9.1.102
#                               └─ i3 ── v0 server               192.0.2.7
#
# Sixteen granted flows, a packet each 5 ms: the flows of the killed grantor move to the other one, and move
# back when it returns. No flow needs a new decision.
. "$(dirname "$0")/lib/namespaces.sh"

for name in client gate inside one two server; do
    namespace "$name"
done
join client c0 02:00:00:00:01:02 gate f0 02:00:00:00:01:01
join gate g0 02:00:00:00:02:01 inside i0 02:00:00:00:02:02
join inside i1 02:00:00:00:03:01 one a0 02:00:00:00:03:02
join inside i2 02:00:00:00:04:01 two b0 02:00:00:00:04:02
join inside i3 02:00:00:00:05:01 server v0 02:00:00:00:05:02
within client ip addr add 10.1.0.2/24 dev c0
within gate ip addr add 10.1.0.1/24 dev f0
within gate ip addr add 10.2.0.1/24 dev g0
within inside ip addr add 10.2.0.2/24 dev i0
within inside ip addr add 10.3.0.1/24 dev i1
within inside ip addr add 10.4.0.1/24 dev i2
within inside ip addr add 192.0.2.1/24 dev i3
within one ip addr add 10.3.0.2/24 dev a0
within two ip addr add 10.4.0.2/24 dev b0
within server ip addr add 192.0.2.7/24 dev v0
within inside sysctl -qw net.ipv4.ip_forward=1
within client ip route add default via 10.1.0.1
within gate ip route add default via 10.2.0.2
within one ip route add default via 10.3.0.1
within two ip route add default via 10.4.0.1
within server ip route add default via 192.0.2.1
within inside ip route add 10.1.0.0/24 via 10.2.0.1
within inside ip route add 10.9.1.101/32 via 10.3.0.2
within inside ip route add 10.9.1.102/32 via 10.4.0.2
for number in $(seq 10 25); do
    within client ip addr add "10.1.0.$number/24" dev c0
done

umask 077
secret_key one.key 2b
secret_key two.key 3c
grant_all
grantor_file() { # name, interface, tunnel end, id
    cat >"$work/$1.toml" <<CONFIG
$(grantor_config "\"$2\"" "$3" 10.2.0.1 "$4" "$1.key")
[control]
socket = "$work/$1.sock"
CONFIG
}
grantor_file one a0 10.9.1.101 1
grantor_file two b0 10.9.1.102 2
cat >"$work/gate.toml" <<CONFIG
$(gate_sides f0 g0 1gbit)
[flow_table]
entries = 4096
[[grantors]]
name = "site"
members = [{ address = "10.9.1.101", sender = 1 }, { address = "10.9.1.102", sender = 2 }]
hold_time = "700ms"
[[policy]]
prefix = "192.0.2.0/24"
grantors = "site"
[[sender]]
id = 1
keys = { 1 = "one.key" }
[[sender]]
id = 2
keys = { 1 = "two.key" }
[decisions]
sources = ["10.3.0.2", "10.4.0.2"]
[control]
socket = "$work/gate.sock"
CONFIG
sed 's/, sender = 2//' "$work/gate.toml" >"$work/bad.toml"
refuse 1 'needs the `sender` of each member' "$program" gate check -c "$work/bad.toml"

launch one "$program" grantor -c "$work/one.toml" >"$work/one.out" 2>"$work/one.log"
one=$launched
launch two "$program" grantor -c "$work/two.toml" >"$work/two.out" 2>"$work/two.log"
two=$launched
wait_for 20 grep -q 'granting' "$work/one.log" || fail "grantor one does not start"
wait_for 20 grep -q 'granting' "$work/two.log" || fail "grantor two does not start"
start_gate

launch server "$python" "$here/smoke/lib/heartbeat.py" receive "$work/received"
receiver=$launched
wait_for 10 grep -q ready "$work/received" || fail "the receiver does not start"
# shellcheck disable=SC2046
launch client "$python" "$here/smoke/lib/heartbeat.py" send $(printf '10.1.0.%s ' $(seq 10 25))
sender=$launched
granted() {
    "$program" show flows -j --socket "$work/gate.sock" |
        json 'assert sum(f["state"] == "granted" for f in d) == 16, d'
}
wait_for 20 granted 2>"$work/granted.log" || fail "not all are granted: $(cat "$work/granted.log")"

sleep 1
before=$(monotonic)
kill -KILL "$one"
wait "$one" 2>/dev/null || true
wait_for 20 grep -q 'grantor 10.9.1.101 of site is silent' "$work/gate.log" ||
    fail "the gate does not notice that grantor one is silent: $(cat "$work/gate.log")"
"$program" show gate -j --socket "$work/gate.sock" |
    json 'assert d[0]["silent"] == ["10.9.1.101"], d'
sleep 1
launch one "$program" grantor -c "$work/one.toml" >"$work/one.out" 2>"$work/one.log"
one=$launched
wait_for 20 grep -q 'grantor 10.9.1.101 of site gets its flows again' "$work/gate.log" ||
    fail "grantor one is not taken back: $(cat "$work/gate.log")"
sleep 1
after=$(monotonic)
kill "$sender"
wait "$sender" || true
"$program" show gate -j --socket "$work/gate.sock" | json 'assert d[0]["silent"] == [], d'
"$program" show flows -j --socket "$work/gate.sock" |
    json 'assert sum(f["state"] == "granted" for f in d) == 16, d'
kill "$receiver"
wait "$receiver" || true
"$python" "$here/smoke/lib/heartbeat.py" gaps "$work/received" "$before" "$after" 16 | json '
moved = [gap for gap in d if gap > 0.3]
assert moved and max(moved) < 5, f"{moved} s without packets"
print(f"   {len(moved)} flows moved and lost at most {max(moved):.2f} s; {16 - len(moved)} were not touched")'
kill -INT "$gate" "$one" "$two"
wait "$gate" || fail "the gate ended with $?"
wait "$one" || fail "grantor one ended with $?"
wait "$two" || fail "grantor two ended with $?"
json 'g = d["gate"]; assert d["counters"]["balanced"] and g["reloads"] == 0, d' <"$work/gate.json"
