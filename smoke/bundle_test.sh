#!/usr/bin/env bash
# Policies distributed as signed bundles, to a gate (from a folder) and a grantor (by HTTP):
#
#   client c0 ── f0 gate g0 ── t0 grantor s0 ── v0 server    10.1.0.x │ 10.2.0.x │ 192.0.2.x
#
# Version 1 for all; version 2 for the canary only, then for all; forged and older ones are refused; a
# version 3 whose policy fails at run time is rolled back by itself; kill -9 at any moment leaves a
# whole state. A connection through both goes on all the while.
. "$(dirname "$0")/lib/protected_topology.sh"

for at in $(seq 50 99); do
    within client ip addr add "10.1.0.$at/24" dev c0
done

# The keys. openssl verifies the signatures too.
"$program" bundle keygen "$work/site.key" >"$work/site.public"
"$program" bundle keygen "$work/other.key" >/dev/null
cmp "$work/site.public" "$work/site.key.pub" || fail "keygen says another key than it writes"
[ "$(stat -c %a "$work/site.key")" = 600 ] || fail "others may read the secret key"
refuse 1 "file exists: name another one" "$program" bundle keygen "$work/site.key"
public=$(cat "$work/site.public")

# A name that is a canary of version 2 at a half, and one that is not, by the rule in the guide.
names() {
    "$python" "$here/smoke/bundle_checks.py" canaries
}
read -r canary other <<<"$(names)"

mkdir "$work/site" "$work/site/lists" "$work/in"
gate_site '{ address = "10.9.1.100", sender = 7 }' >"$work/site/gate.toml"
cat >"$work/site/grantor.toml" <<'GRANTOR'
[policy]
file = "policy.lua"
[[list]]
name = "deny"
file = "lists/deny.txt"
GRANTOR
good='local deny = list "deny"
function decide(p)
    if p:src_in(deny) then return decline(600) end
    return grant { rate = 1000, expire = 300 }
end'
echo "$good" >"$work/site/policy.lua"
echo "198.51.100.64/26" >"$work/site/lists/deny.txt"
pack() { # VERSION SHARE [KEY [OUTPUT]]
    "$program" bundle pack "$work/site" --version "$1" --canary "$2" --key "${3:-$work/site.key}" \
        -o "${4:-$work/in/site.bundle}" >>"$work/pack.log"
}

umask 077
secret_key grantor.key 2b
distribution() { # FILE SOURCE NAME
    cat <<DISTRIBUTION
[control]
socket = "$work/$1.sock"
[distribution]
source = "$2"
public_keys = ["$public"]
store_dir = "$work/keep-$1"
name = "$3"
poll_interval = "1s"
canary_delay = "60m"
trial_time = "3s"
max_trial_time = "3s"
DISTRIBUTION
}
echo 'function decide(p) return decline(1) end' >"$work/local.lua"
cat >"$work/grantor.toml" <<CONFIG
interfaces = ["t0", "s0"]
[tunnel]
addresses = ["10.9.1.100"]
gates = ["10.2.0.1"]
[policy]
file = "local.lua"
fallback = "decline 1"
[decisions]
version = 2
id = 7
keys = { 1 = "grantor.key" }
[metrics]
listen = "127.0.0.1:9273"
$(distribution grantor http://127.0.0.1:8000/site.bundle "$other")
CONFIG
cat >"$work/gate.toml" <<CONFIG
$(busy_machine)
$(gate_sides f0 g0 1gbit)
[flow_table]
entries = 4096
$(gate_policy 192.0.2.0/24 drop)
$(gate_sender 7 grantor.key 10.2.0.2)
$(distribution gate "$work/in" "$canary")
CONFIG

# pack refuses files that are valid nowhere; a member checks the rest before it applies a version.
mv "$work/site/lists/deny.txt" "$work/site/lists/.deny.txt"
refuse 1 "no part of a name may begin with a dot" "$program" bundle pack "$work/site" --version 1 --key "$work/site.key" -o "$work/x"
mv "$work/site/lists/.deny.txt" "$work/deny.txt"
refuse 1 "list.file: lists/deny.txt: not in the bundle" \
    "$program" bundle pack "$work/site" --version 1 --key "$work/site.key" -o "$work/x"
ln -s "$work/site.key" "$work/site/lists/deny.txt"
refuse 1 "not a regular file" "$program" bundle pack "$work/site" --version 1 --key "$work/site.key" -o "$work/x"
mv -f "$work/deny.txt" "$work/site/lists/deny.txt"
sed -i 's/sender = 7/sender = 8/' "$work/site/gate.toml"
pack 1 100% "$work/site.key" "$work/eight.bundle"
refuse 1 "bundle 1: gate.toml:3: grantors.members: no [[sender]] has the id 8" \
    "$program" gate check -c "$work/gate.toml" --bundle "$work/eight.bundle"
sed -i 's/sender = 8/sender = 7/' "$work/site/gate.toml"
pack 1 100%
"$program" gate check --offline -c "$work/gate.toml" --bundle "$work/in/site.bundle" | has_line 'with bundle 1' || fail "gate check"
"$program" grantor check --offline -c "$work/grantor.toml" --bundle "$work/in/site.bundle" | has_line '1 lists, with bundle 1' ||
    fail "grantor check"
"$program" bundle verify "$work/in/site.bundle" --public "$work/site.key.pub" >"$work/verify.log"
grep -q 'for gates and grantors, 4 files' "$work/verify.log" || fail "verify: $(cat "$work/verify.log")"
refuse 1 "which is not a trusted key" "$program" bundle verify "$work/in/site.bundle" --public "$work/other.key.pub"
refuse 1 "has version 1: pack a higher version" "$program" bundle pack "$work/site" --version 1 --key "$work/site.key" -o "$work/in/site.bundle"
"$python" "$here/smoke/bundle_checks.py" signature "$work/in/site.bundle" "$work"
"$program" bundle show -j "$work/in/site.bundle" >"$work/show.json"
"$python" "$here/smoke/bundle_checks.py" contents "$work/show.json" "$work/site"
echo "   packed, signed as openssl says, and judged by both"

launch grantor "$python" -m http.server -d "$work/in" --bind 127.0.0.1 8000 >"$work/http.log" 2>&1
start() { # gate|grantor
    : >"$work/$1.log"
    launch "$1" "$program" "$1" -c "$work/$1.toml" -j >"$work/$1.json" 2>>"$work/$1.log"
    local word=granting
    [ "$1" = gate ] && word='guarding after'
    wait_for 20 grep -q "$word" "$work/$1.log" || fail "the $1 does not start"
}
start grantor
grantor=$launched
start gate
gate=$launched
holds() { # gate|grantor CONDITION
    "$program" show distribution -j --socket "$work/$1.sock" | json "d = d[0]; assert $2, d"
}
await() { # SECONDS gate|grantor CONDITION
    wait_for "$1" holds "$2" "$3" || fail "$2: not $3: $("$program" show distribution -j --socket "$work/$2.sock")"
}
for role in gate grantor; do
    await 20 "$role" 'd["version"] == 1 and d["state"] == "confirmed"'
done
"$program" monitor -j --socket "$work/grantor.sock" >"$work/monitor.json" 2>"$work/monitor.log" &
monitor=$!

# A connection that is to go on, whatever happens.
own_checksums client c0
own_checksums server v0
launch server "$python" "$here/smoke/lib/echo.py"
wait_for 10 within server "$python" -c 'import socket; socket.create_connection(("192.0.2.7", 80), 1)' ||
    fail "the server does not start"
launch client "$python" "$here/smoke/bundle_clients.py" stream "$work" >"$work/stream.out" 2>"$work/stream.log"
stream=$launched
wait_for 10 test -e "$work/streaming" || fail "no connection through gate and grantor: $(cat "$work/stream.log")"

# Version 2 for a half of all, which the gate is of and the grantor is not; then for all.
echo "198.51.100.0/24" >>"$work/site/lists/deny.txt"
pack 2 50%
await 10 gate 'd["version"] == 2 and d["state"] == "canary"'
await 10 grantor 'd["version"] == 1 and d["state"] == "waiting" and d["offered"] == 2 and d["remaining_seconds"] > 3000'
await 10 gate 'd["version"] == 2 and d["state"] == "confirmed" and d["previous"] == [1]'
holds grantor 'd["version"] == 1'
"$program" bundle release "$work/in/site.bundle" --key "$work/site.key" >>"$work/pack.log"
await 10 grantor 'd["version"] == 2 and d["state"] == "confirmed"'
"$program" show grantor -j --socket "$work/grantor.sock" | json 'assert d[0]["lists"] == {"deny": 2}, d'
echo "   version 2 at the canary first, then everywhere"

# Forged, older, and the same version with something else in it.
cp "$work/in/site.bundle" "$work/two.bundle"
pack 9 100% "$work/other.key" "$work/forged.bundle"
cp "$work/forged.bundle" "$work/in/forged.bundle"
"$python" "$here/smoke/bundle_checks.py" damage "$work/two.bundle" "$work/in/damaged.bundle"
await 10 gate 'd["version"] == 2 and d["counts"]["bundles_refused"] >= 2'
wait_for 10 grep -q 'forged.bundle: signed with .*, which is not a trusted key' "$work/gate.log" || fail "the forged bundle is not in the log"
wait_for 10 grep -q 'damaged.bundle: the signature does not match' "$work/gate.log" || fail "the damaged bundle is not in the log"
rm "$work/in/forged.bundle" "$work/in/damaged.bundle"
replace() { cp "$1" "$work/in/.new" && mv "$work/in/.new" "$work/in/site.bundle"; }
replace "$work/forged.bundle"
await 10 grantor 'd["version"] == 2 and "not a trusted key" in (d["last_error"] or "")'
pack 1 100% "$work/site.key" "$work/one.bundle"
replace "$work/one.bundle"
await 10 grantor 'd["version"] == 2 and "version 1 is lower than 2" in (d["last_error"] or "")'
await 10 gate 'd["version"] == 2 and "version 1 is lower than 2" in (d["last_error"] or "")'
echo "-- another" >>"$work/site/policy.lua"
pack 2 100% "$work/site.key" "$work/twice.bundle"
replace "$work/twice.bundle"
await 10 grantor 'd["version"] == 2 and "other contents" in (d["last_error"] or "")'
replace "$work/two.bundle"
await 10 grantor 'd["version"] == 2 and "trouble" not in d'
echo "   forged, damaged, older and ambiguous ones refused"

# A name that nothing defines, a loop without an end and an unknown key are not packed, in any
# branch.
for bad in 'if p.dst_port == 4711 then return unknown.name end return pass()|undefined global `unknown`' \
    'if p.dst_port == 4711 then while true do end end return pass()|TCP SYN to port 4711' \
    'return grant { rate = 5, expires = 60 }|`grant` has no key `expires`'; do
    echo "function decide(p) ${bad%|*} end" >"$work/site/policy.lua"
    refuse 1 "${bad#*|}" "$program" bundle pack "$work/site" --version 3 --key "$work/site.key" -o "$work/x"
done

# A policy that fails for its clients, and not for the packets of the dry run, is rolled back.
"$program" show grantor -j --socket "$work/grantor.sock" >"$work/start.json"
echo 'function decide(p)
    if p:src_prefix(8, 8) == "10.0.0.0/8" then error("a client") end
    return pass()
end' >"$work/site/policy.lua"
pack 3 100%
await 10 grantor 'd["version"] == 3'
within client "$python" "$here/smoke/bundle_clients.py" request 9000
await 10 grantor 'd["version"] == 2 and d["state"] == "rolled_back" and "3" in d["refused"]'
holds grantor '"failures of scripts and programs a second" in d["reason"] and d["counts"]["rolled_back"] == 1'
wait_for 10 grep -q 'version 3 rolled back: .*; version 2 is in force' "$work/grantor.log" || fail "the rollback is not in the log"
"$program" show grantor -j --socket "$work/grantor.sock" >"$work/before.json"
sleep 1.2
within client "$python" "$here/smoke/bundle_clients.py" request 9001
sleep 0.5
"$program" show grantor -j --socket "$work/grantor.sock" >"$work/after.json"
"$python" "$here/smoke/bundle_checks.py" failures "$work/start.json" "$work/before.json" "$work/after.json"
within grantor "$python" "$here/smoke/lib/metrics.py" http://127.0.0.1:9273/metrics \
    "fingerpost_distribution_version 2.0" "fingerpost_distribution_floor 3.0" \
    'fingerpost_distribution_state{state="rolled_back"} 1.0' \
    'fingerpost_distribution_events_total{result="rolled_back"} 1'
# A shell has what it starts beside it ignore SIGINT.
kill -TERM "$monitor"
wait "$monitor" || true
"$python" "$here/smoke/bundle_checks.py" events "$work/monitor.json"
echo "   a policy that fails at run time rolled back by itself, seen by monitor and metrics"

# The state survives kill -9; commands roll a member back further, or make it apply the version again.
kill -KILL "$grantor"
wait "$grantor" || true
"$program" grantor check --offline -c "$work/grantor.toml" >"$work/check.log" || fail "check after kill -9"
grep -q 'with bundle 2' "$work/check.log" || fail "check after kill -9: $(cat "$work/check.log")"
start grantor
grantor=$launched
wait_for 10 grep -q 'version 2 is in force' "$work/grantor.log" || fail "the grantor begins with something else"
await 10 grantor 'd["version"] == 2 and d["state"] == "rolled_back" and d["floor"] == 3'
"$program" bundle rollback --socket "$work/gate.sock" >"$work/rollback.log"
grep -q 'version 3 rolled back, version 2 is in force' "$work/rollback.log" || fail "$(cat "$work/rollback.log")"
holds gate 'd["version"] == 2 and d["refused"]["3"] == "by hand"'
"$program" bundle retry --socket "$work/gate.sock" >"$work/retry.log"
await 10 gate 'd["version"] == 3'
echo "$good" >"$work/site/policy.lua"
pack 4 100%
for role in gate grantor; do
    await 15 "$role" 'd["version"] == 4 and d["state"] == "confirmed"'
done

# Killed at random moments while versions arrive: each start finds one of them, whole.
version=4
for at in $(seq 6); do
    version=$((version + 1))
    pack "$version" 100%
    sleep "0.$((RANDOM % 10))$((RANDOM % 10))"
    sleep "$((RANDOM % 2))"
    kill -KILL "$grantor"
    wait "$grantor" || true
    "$program" grantor check --offline -c "$work/grantor.toml" >"$work/check.log" || fail "after kill -9: $(cat "$work/check.log")"
    grep -q 'with bundle' "$work/check.log" || fail "after kill -9 no bundle is in force: $(cat "$work/check.log")"
    start grantor
    grantor=$launched
done
pack "$((version + 1))" 100%
await 20 grantor "d['version'] == $((version + 1)) and d['state'] == 'confirmed'"
ls -A "$work/keep-grantor" | has_line '\.new$' && fail "half-written files are left: $(ls "$work/keep-grantor")"
echo "   six times kill -9 while versions come: always a whole state"

# A grantor that is not there for a second costs its packets; else nothing is lost.
touch "$work/enough"
wait "$stream" || fail "the connection through both: $(cat "$work/stream.log")"
read -r count longest <"$work/stream.out"
[ "$count" -gt 500 ] || fail "only $count exchanges"
echo "   $count exchanges on one connection meanwhile; the longest took $longest s"
kill -INT "$gate" "$grantor"
wait "$gate" || fail "the gate ended with $?"
wait "$grantor" || fail "the grantor ended with $?"
for role in gate grantor; do
    json 'assert d["counters"]["balanced"], d["counters"]' <"$work/$role.json"
    [ -z "$(programs "$role")" ] || fail "a program is left on: $(programs "$role")"
done
