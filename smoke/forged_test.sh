#!/usr/bin/env bash
# A client has a connection through a gate and a grantor, and an attacker forges packets with its source
# address: of other protocols, with arbitrary ports and flags, fragments, unsolicited answers.
#
#   client c0 ── f0 gate g0 ── t0 grantor s0 ── v0 server      10.1.0.x │ 10.2.0.x │ 192.0.2.x
#
# With each policy that comes with the grantor, and grants of one second that are renewed all the time, the
# connection continues. Then a policy declines everything except TCP to port 80, renewals included, for ten
# minutes: the gate rejects such a decision about a granted flow, and counts it (forged_connection.py).
. "$(dirname "$0")/lib/protected_topology.sh"

for number in 11 12 13 14 15 16; do
    within client ip addr add "10.1.0.$number/24" dev c0
done
umask 077
secret_key grantor.key 2b
"$program" program build web -o "$work/web.o" >"$work/build.log"
: >"$work/allow.txt"
echo "203.0.113.0/24" >"$work/deny.txt"
echo "203.0.113.0/24 0" >"$work/rates.txt"
echo "10.1.0.0/16 64496" >"$work/asn.txt"
echo "192.0.2.0/24 80" >"$work/services.txt"
for name in lists rates reputation aimd handshake; do
    "$program" grantor policy "$name" |
        sed 's/, renewal = 5, step = 5//; s/expire = \(30\|60\|120\|300\)\b/expire = 1, renewal = 0.3, step = 0.1/' >"$work/$name.lua"
    grep -q 'expire = 1, renewal = 0.3' "$work/$name.lua" || fail "$name: no grant to shorten"
done
cat >"$work/odd.lua" <<'POLICY'
function decide(p)
    if p.protocol ~= 6 or p.dst_port ~= 80 then return decline(600) end
    return grant { rate = 1024, expire = 3, renewal = 0.2, step = 0.1 }
end
POLICY
cp "$work/lists.lua" "$work/policy.lua"
{
    cat <<CONFIG
$(grantor_config '"t0", "s0"' 10.9.1.100 10.2.0.1 7 grantor.key)
[control]
socket = "$work/grantor.sock"
CONFIG
    for name in allow deny rates asn services; do
        printf '[[list]]\nname = "%s"\nfile = "%s.txt"\n' "$name" "$name"
    done
} >"$work/grantor.toml"
cat >"$work/gate.toml" <<CONFIG
$(gate_config)
[[program]]
number = 3
file = "web.o"
CONFIG
start_grantor
start_gate
own_checksums server v0
own_checksums client c0
launch server "$python" "$here/smoke/lib/echo.py"
server=$launched
number=11
# Prints the state of the flow while it has one.
state() {
    "$program" flow explain "10.1.0.$number" 192.0.2.7 -j --socket "$work/gate.sock" | json 'print(d["state"])' || true
}
for name in lists rates reputation aimd handshake odd; do
    cp "$work/$name.lua" "$work/policy.lua"
    "$program" reload --socket "$work/grantor.sock" >"$work/reload.log" || fail "reload: $(cat "$work/reload.log")"
    launch client "$python" "$here/smoke/forged_connection.py" "10.1.0.$number" >"$work/connect.out"
    client=$launched states=
    while kill -0 "$client" 2>/dev/null; do
        states+=" $(state)"
        sleep 0.2
    done
    wait "$client" || fail "$name: $(cat "$work/connect.out")"
    # At last it may have expired.
    [[ "$states" =~ granted|program && ! "$states" =~ declined ]] || fail "$name: the flow is$states"
    echo "   $name: $(cat "$work/connect.out")"
    number=$((number + 1))
done
"$program" show gate -j --socket "$work/gate.sock" | json 'assert d[0]["decisions"]["unproven"] > 0, d[0]["decisions"]'
kill "$server"
wait "$server" || true
kill -INT "$gate" "$grantor"
wait "$gate" || fail "the gate ended with $?"
wait "$grantor" || fail "the grantor ended with $?"
json 'assert d["counters"]["balanced"], d' <"$work/gate.json"
json 'assert d["counters"]["balanced"] and d["grantor"]["policy"]["failed"] == 0, d' <"$work/grantor.json"
