#!/usr/bin/env bash
# The installed program takes over from a running gate under a flood, again and again: no packet passes ungated, no
# granted flow is silent for a second, no TCP connection ends, no flow is forgotten, and no counter of the gate starts again.
#
#   client c0 ── f0 gate g0 ── t0 grantor s0 ── v0 server      10.1.0.x │ 10.2.0.x │ 192.0.2.x
#
#   FINGERPOST_UPGRADES    how often; default 5
#
# The kernel of the gate forwards, so that a packet that the gate does not take would reach the grantor outside a tunnel.
# runs alone: a silence has a limit
. "$(dirname "$0")/lib/protected_topology.sh"

upgrades=${FINGERPOST_UPGRADES:-5}
heartbeat=$here/smoke/lib/heartbeat.py
within gate sysctl -qw net.ipv4.ip_forward=1
sources=()
for number in $(seq 10 17); do
    within client ip addr add "10.1.0.$number/24" dev c0
    within gate ip neigh replace "10.1.0.$number" lladdr 02:00:00:00:01:02 dev f0
    sources+=("10.1.0.$number")
done
within gate ip neigh replace 10.1.0.2 lladdr 02:00:00:00:01:02 dev f0
within gate ip neigh replace 10.2.0.2 lladdr 02:00:00:00:02:02 dev g0
within grantor sysctl -qw net.ipv4.ip_forward=1

umask 077
secret_key grantor.key 2b
cat >"$work/policy.lua" <<'LUA'
function decide(p)
    if p:src_prefix(24, 64) == "10.1.0.0/24" then return grant { rate = 1000, expire = 300 } end
    return decline { expire = 600, proven = true }
end
LUA
{
    grantor_config '"t0", "s0"' 10.9.1.100 10.2.0.1 7 grantor.key
    printf '[control]\nsocket = "%s"\n' "$work/grantor.sock"
} >"$work/grantor.toml"
gate_config >"$work/gate.toml"
sed -i 's/^entries = .*/entries = 65536/' "$work/gate.toml"
installed=$work/fingerpost
install() {
    cp "$program" "$installed.new"
    mv "$installed.new" "$installed"
}
install
start_grantor
launch gate "$installed" gate -c "$work/gate.toml" -j >"$work/gate.json" 2>"$work/gate.log"
gate=$launched
wait_for 20 grep -q 'guarding after' "$work/gate.log" || fail "the gate does not start"

show() { "$program" show --socket "$work/gate.sock" "$@"; }
granted() { show -j flows | json 'print(sum(f["state"] == "granted" for f in d))'; }
launch server "$python" "$heartbeat" receive "$work/received"
wait_for 10 grep -q ready "$work/received" || fail "the receiver does not start"
launch server "$python" "$here/smoke/lib/echo.py"
launch client "$python" "$heartbeat" send "${sources[@]}"
all_granted() { [ "$(granted)" -ge 8 ]; }
wait_for 20 all_granted || fail "not all are granted: $(show flows)"
# Packets for the protected prefix that are not in a tunnel, on the gate's side of the grantor.
launch grantor tcpdump -i t0 -n -Q in -w "$work/ungated.pcap" 'dst net 192.0.2.0/24' 2>"$work/tcpdump.log"
tcpdump=$launched
wait_for 10 grep -q 'listening on' "$work/tcpdump.log" || fail "tcpdump does not start"
launch client "$python" "$here/smoke/upgrade_flood.py" c0
launch client "$python" "$here/smoke/upgrade_connection.py" >"$work/connection"
connection=$launched
wait_for 10 grep -q connected "$work/connection" || fail "no TCP connection to the server"
flooded() { [ "$(show -j gate | json 'print(d[0]["table"]["flows"])')" -gt 1000 ]; }
wait_for 20 flooded || fail "the flood does not arrive: $(show gate)"

# The counters of the gate's decisions, of its table and of the rules of its policy.
counts() {
    show -j gate | json 'g = d[0]
rule, = [rule for rule in g["policies"] if rule["policy"] == "192.0.2.0/24"]
print(g["packets"]["received"], g["packets"]["granted"], g["table"]["inserted"], g["decisions"]["decided"], rule["packets"]["granted"])'
}
least=$(counts)
begin=$(monotonic)
for number in $(seq "$upgrades"); do
    [ $((number % 2)) = 0 ] && install
    before=$gate
    "$installed" upgrade --socket "$work/gate.sock" >"$work/said" || fail "upgrade $number: $(tail -3 "$work/gate.log")"
    cat "$work/said" >>"$work/pauses"
    gate=$(sed -n 's/^process \([0-9]*\) has taken over;.*/\1/p' "$work/said")
    wait_for 20 eval "! kill -0 $before 2>/dev/null" || fail "process $before does not end"
    all_granted || fail "upgrade $number: flows are forgotten: $(show flows | head -20)"
    now=$(counts)
    "$python" -c 'import sys; a, b = (text.split() for text in sys.argv[1:]); assert len(a) == len(b) == 5 and all(int(x) <= int(y) for x, y in zip(a, b)), (a, b)' \
        "$least" "$now" || fail "upgrade $number: counters start again"
    least=$now
done
sleep 1
until=$(monotonic)
awk '{ if ($10 > most) most = $10 } END { print "   " NR " upgrades; no worker ran for at most", most, "ms" }' "$work/pauses"
"$python" "$heartbeat" gaps "$work/received" "$begin" "$until" 8 >"$work/gaps"
json "print(f'   granted flows: at most {d[-1]:.2f} s of silence'); assert d[-1] < 1, d" <"$work/gaps"
kill -INT "$connection"
wait "$connection" || fail "the TCP connection ended: $(cat "$work/connection")"
sed 's/^/   /' "$work/connection"
kill -INT "$tcpdump"
wait "$tcpdump" || true
ungated=$(tcpdump -n -r "$work/ungated.pcap" 2>/dev/null | wc -l)
[ "$ungated" = 0 ] || fail "$ungated packets passed ungated: $(tcpdump -n -r "$work/ungated.pcap" -c 5 2>&1)"
show -j counters | json 'c = d[0]; print("  ", c["received"], "packets received by the gate")'

echo "the program has not changed: the configuration is reloaded instead"
"$installed" upgrade --socket "$work/gate.sock" >"$work/said"
gate=$(sed -n 's/^process \([0-9]*\) has taken over;.*/\1/p' "$work/said")
gate_policy 198.51.100.0/24 drop >>"$work/gate.toml"
"$installed" upgrade --or-reload --socket "$work/gate.sock" >"$work/said"
has_line '2 prefixes' <"$work/said" || fail "not reloaded: $(cat "$work/said")"
refuse 1 'a grantor does not hand over yet' "$program" upgrade --socket "$work/grantor.sock"

kill -INT "$gate" "$grantor"
wait_for 10 eval "! kill -0 $gate 2>/dev/null" || fail "process $gate does not end"
wait "$grantor" || fail "the grantor ended with $?"
json 'assert d["counters"]["balanced"], d' <"$work/gate.json"
[ -z "$(programs gate)" ] || fail "a program is left on: $(programs gate)"
