#!/usr/bin/env bash
# A fleet on three servers of NATS JetStream: members that are real agents, and a grantor.
#
#   operator ── fleet rollout, status, … ──► nats-server ×3 ◄── 40 members of fingerpost-bench, a grantor
#
# A version reaches all members by stages, with the leader killed meanwhile; a bad version stops at the
# canaries; forged bundles and states are refused and reported; without servers all members stay.
. "$(dirname "$0")/lib/namespaces.sh"

members=40
umask 077
namespace site
namespace gate
join site t0 02:00:00:00:02:02 gate g0 02:00:00:00:02:01
within site ip addr add 10.2.0.2/24 dev t0

url=nats://127.0.0.1:4221,127.0.0.1:4222,127.0.0.1:4223/lab
fleet() { within site "$program" fleet "$@"; }
declare -a server
start_server() { # NUMBER
    cat >"$work/nats-$1.conf" <<NATS
listen: "127.0.0.1:422$1"
http: "127.0.0.1:822$1"
server_name: n$1
jetstream { store_dir: "$work/nats-$1" }
cluster { name: lab, listen: "127.0.0.1:622$1"
  routes: ["nats://127.0.0.1:6221", "nats://127.0.0.1:6222", "nats://127.0.0.1:6223"] }
NATS
    launch site nats-server -c "$work/nats-$1.conf" >>"$work/nats-$1.log" 2>&1
    server[$1]=$launched
}
refuse 1 "is nats-server running there" within site "$program" fleet status "$url" --members /dev/null
for number in 1 2 3; do start_server "$number"; done
wait_for 90 fleet create "$url" --replicas 3 || fail "no fleet: $(tail -n 5 "$work"/nats-*.log)"
refuse 1 "is there this fleet?" within site "$program" fleet pause "${url%lab}other"

# The operator's key, and that of someone else.
"$program" bundle keygen "$work/site.key" >/dev/null
"$program" bundle keygen "$work/other.key" >/dev/null
"$program" bundle keygen "$work/grantor-member.key" >"$work/grantor-member.public"
pack() { # VERSION [KEY]: a policy that names its version, for all members
    mkdir -p "$work/site-$1"
    printf '[policy]\nfile = "policy.lua"\n' >"$work/site-$1/grantor.toml"
    printf 'function decide(p) return decline(%d) end\n' "$1" >"$work/site-$1/policy.lua"
    "$program" bundle pack "$work/site-$1" --version "$1" --key "${2:-$work/site.key}" -o "$work/$1.bundle" >>"$work/pack.log"
}

# The last of them signs with a key that the list does not have.
launch site "$FINGERPOST_BENCH" fleet "$url" --members "$members" --forged 1 --attacked 11 --public "$work/site.key.pub" \
    --folder "$work/members" >"$work/members.log" 2>&1
bench=$launched
wait_for 30 grep -q ready "$work/members.log" || fail "no members: $(cat "$work/members.log")"

# A grantor, whose process has dropped its privileges, is a member, too.
secret_key grantor.key 2b
echo 'function decide(p) return decline(1) end' >"$work/policy.lua"
cat >"$work/grantor.toml" <<CONFIG
$(grantor_config '"t0"' 10.9.1.100 10.2.0.1 7 grantor.key)
[control]
socket = "$work/grantor.sock"
[distribution]
source = "$url"
member_key = "grantor-member.key"
public_keys = ["$(cat "$work/site.key.pub")"]
store_dir = "$work/keep-grantor"
name = "grantor"
trial_time = "1s"
max_trial_time = "1s"
CONFIG
launch site "$program" grantor -c "$work/grantor.toml" -j >"$work/grantor.json" 2>"$work/grantor.log"
grantor=$launched
wait_for 20 grep -q granting "$work/grantor.log" || fail "the grantor does not start: $(cat "$work/grantor.log")"
sed '/^m0 /d' "$work/members/members" >"$work/list"
echo "grantor $(cat "$work/grantor-member.public")" >>"$work/list"
all=$members # 39 of the process, and the grantor

status() { # CONDITION on the JSON, d
    fleet status "$url" --members "$work/list" -j >"$work/status.json" 2>"$work/status.log" || true
    json "assert $1, d" <"$work/status.json"
}
# How many of the listed members are in a version, by their own reports.
at() { echo "sum(m['distribution'] is not None and m['distribution'].get('version') == $1 for m in d['members'])"; }
rollout() { # VERSION OPTION...
    fleet rollout "$url" "$work/$1.bundle" --key "$work/site.key" --members "$work/list" "${@:2}"
}
wait_for 30 status "all(not m['silent'] for m in d['members'])" || fail "silent members: $(cat "$work/status.json" "$work/status.log")"
status "len(d['members']) == $all and [r['name'] for r in d['refused']] == ['m0']" || fail "the state of m0 is not refused"
refuse_status=0
fleet status "$url" --members "$work/members/members" >"$work/status.txt" || refuse_status=$?
[ "$refuse_status" -eq 1 ] || fail "refused states, and status ends with $refuse_status"
grep -q '^refused: m0: forged: signed with' "$work/status.txt" || fail "no forged state: $(cat "$work/status.txt")"
grep -q '^refused: grantor: not in the list of members' "$work/status.txt" || fail "no unknown member: $(cat "$work/status.txt")"
echo "   $all members report; a forged state and an unknown member are refused"

# m0 to m10 report an attack, and m0's is refused: the sums are of ten, whatever they have published again.
code=0
fleet attacks "$url" --members "$work/list" -j >"$work/attacks.json" || code=$?
[ "$code" -eq 1 ] || fail "a refused state, and attacks ends with $code"
json '
sums = sum(1000 + n for n in range(1, 11)), sum(2000 + n for n in range(1, 11))
assert (d["dropped_rate"], d["received_rate"], d["gates_under_attack"]) == (*sums, 10), d
assert d["dropped"] == {"declined": sums[0]}, d
got = {of["destination"]: of["dropped_rate"] for of in d["destinations"]}
assert got == {f"192.0.2.{i}": sum(1000 + n for n in range(1, 11) if n % 4 == i) for i in range(4)}, got
' <"$work/attacks.json" || fail "attacks: $(cat "$work/attacks.json")"
fleet attacks "$url" --members "$work/list" >"$work/attacks.txt" || true
grep -q '10 gates under attack since .* 20055 packets/s, of which 10055 are dropped' "$work/attacks.txt" ||
    fail "attacks: $(cat "$work/attacks.txt")"
echo "   an attack on ten gates is added up once"

pack 1
rollout 1 --stages 100% >"$work/rollout.log" 2>&1 || fail "version 1: $(cat "$work/rollout.log")"
grep -q 'version 1: complete' "$work/rollout.log" || fail "$(cat "$work/rollout.log")"
refuse 1 "rolled out already" within site "$program" fleet rollout "$url" "$work/1.bundle" --key "$work/site.key" --members "$work/list"
refuse 1 "must ascend" within site "$program" fleet rollout "$url" "$work/1.bundle" --key "$work/site.key" --members "$work/list" --stages 50%,20%

refuse_label=0
pack 8
rollout 8 --stages egde,100% >"$work/rollout.log" 2>&1 || refuse_label=$?
[ "$refuse_label" -eq 1 ] || fail "a label without members ends with $refuse_label"
grep -q 'stopped at stage label egde: no member reports label egde' "$work/rollout.log" || fail "$(cat "$work/rollout.log")"

# By stages, paused before the last one, while the leader of the streams is killed.
pack 2
: >"$work/rollout.log"
rollout 2 --stages 10%,100% >"$work/rollout.log" 2>&1 &
rollout=$!
wait_for 20 grep -q 'stage 10 %' "$work/rollout.log" || fail "no stage: $(cat "$work/rollout.log")"
fleet pause "$url" >/dev/null || fail "no pause"
wait_for 30 grep -q 'paused before stage 100 %' "$work/rollout.log" || fail "not paused: $(cat "$work/rollout.log")"
status "0 < $(at 2) < $all and $(at 1) + $(at 2) == $all" || fail "the canaries are not a part: $(cat "$work/status.json")"
leader() { # prints the number of the leader of the streams
    local number
    for number in 1 2 3; do
        within site "$python" -c 'import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())' \
            "http://127.0.0.1:822$number/jsz?streams=1" 2>/dev/null |
            json 'print(next((s["cluster"]["leader"] for a in d["account_details"] for s in a["stream_detail"] if s["name"] == "KV_lab-control"), ""))' 2>/dev/null && return
    done
}
first=$(leader)
[[ "$first" == n[123] ]] || fail "no leader: $first"
kill -KILL "${server[${first#n}]}"
wait_for 60 fleet resume "$url" || fail "nothing resumes without $first"
resumed=$(monotonic)
wait "$rollout" || fail "version 2: $(cat "$work/rollout.log")"
wait_for 10 status "$(at 2) == $all" || fail "not all: $(cat "$work/status.json")"
echo "   without $first all members have version 2 after $("$python" -c "print(round($(monotonic) - $resumed, 1))") s"
start_server "${first#n}"

# A version whose members fail stops at the canaries; the others keep the one they have.
pack 3
touch "$work/site-3/fails"
"$program" bundle pack "$work/site-3" --version 4 --key "$work/site.key" -o "$work/4.bundle" >>"$work/pack.log"
code=0
rollout 4 --stages 10%,100% >"$work/rollout.log" 2>&1 || code=$?
[ "$code" -eq 1 ] || fail "a bad version ends with $code: $(cat "$work/rollout.log")"
grep -q 'version 4 stopped at stage 10 %: m[0-9]*: ' "$work/rollout.log" || fail "no reason: $(cat "$work/rollout.log")"
wait_for 20 status "$(at 2) == $all and d['rollout']['state'] == 'stopped'" || fail "not all have version 2: $(cat "$work/status.json")"
fleet rollback "$url" --key "$work/site.key" >"$work/rollback.log" || fail "no rollback"
grep -q 'version 5: the files of version 2' "$work/rollback.log" || fail "$(cat "$work/rollback.log")"
wait_for 20 status "$(at 5) == $all" || fail "no version 5: $(cat "$work/status.json")"
echo "   a bad version stops at the canaries; a rollback reaches all"

# A bundle of another signer: every member refuses it and says so.
pack 6 "$work/other.key"
refuse 1 "not a trusted key" within site "$program" fleet rollout "$url" "$work/6.bundle" --key "$work/site.key" --members "$work/list"
code=0
fleet rollout "$url" "$work/6.bundle" --key "$work/other.key" --members "$work/list" --stages 100% --stage-timeout 3 \
    >"$work/rollout.log" 2>&1 || code=$?
[ "$code" -eq 1 ] || fail "a forged version ends with $code: $(cat "$work/rollout.log")"
wait_for 20 status "sum('which is not a trusted key' in (m['distribution'].get('last_error') or '') for m in d['members']) == $all" ||
    fail "not refused by all: $(cat "$work/status.json")"
status "$(at 5) == $all" || fail "a forged version is in force"

# Blocked prefixes: every gate drops them, or says why not; the grantor has none.
block() { fleet "$1" "$url" --key "$work/site.key" "${@:2}"; }
block block 198.51.100.0/24 2001:db8::/32 10.0.0.0/8 >"$work/block.log" || fail "no block"
block block 203.0.113.9 --for 3600 -j | json "assert d['sequence'] == 2 and len(d['prefixes']) == 4, d"
blocked() { json "assert d == {$1}, d" <"$work/members/blocked.json"; }
three="'198.51.100.0/24': $members, '2001:db8::/32': $members, '203.0.113.9/32': $members"
wait_for 20 blocked "$three" || fail "not blocked: $(cat "$work/members/blocked.json")"
wait_for 20 status "sum((m['distribution'].get('blocked') or {}).get('applied') == 3 for m in d['members']) == $((all - 1))" ||
    fail "not reported: $(cat "$work/status.json")"
status "all('an address of this gate' in (m['distribution'].get('blocked') or {'refused': {'10.0.0.0/8': 'an address of this gate'}})['refused']['10.0.0.0/8'] for m in d['members'])" ||
    fail "the refusal is not reported: $(cat "$work/status.json")"
block unblock 198.51.100.0/24 10.0.0.0/8 >"$work/block.log" || fail "no unblock"
refuse 1 "198.51.100.0/24 is not blocked by the fleet" within site "$program" fleet unblock "$url" 198.51.100.0/24 --key "$work/site.key"
refuse 1 "which is not a trusted key" within site "$program" fleet block "$url" 192.0.2.0/24 --key "$work/other.key"
wait_for 20 blocked "${three#*, }" || fail "still blocked: $(cat "$work/members/blocked.json")"
echo "   blocked prefixes are dropped by every gate, or refused with the reason"

# Without servers nothing changes, and the members come back by themselves.
for number in 1 2 3; do kill -KILL "${server[$number]}"; done
sleep 5
kill -0 "$bench" "$grantor" || fail "a member has ended"
json "assert d == {'5': $members}, d" <"$work/members/versions.json"
blocked "${three#*, }" || fail "blocks have ended: $(cat "$work/members/blocked.json")"
"$program" show distribution -j --socket "$work/grantor.sock" |
    json "d = d[0]; assert d['version'] == 5 and d['state'] == 'confirmed' and 'nats://' in d['last_error'], d"
for number in 1 2 3; do start_server "$number"; done
pack 7
wait_for 90 status "all(not m['silent'] for m in d['members'])" || fail "silent: $(cat "$work/status.log" "$work/status.json")"
rollout 7 --stages edge,100% >"$work/rollout.log" 2>&1 || fail "version 7: $(cat "$work/rollout.log")"
# m0, m1, m2 and m3 have the label; the list has not m0.
grep -q 'stage label edge, 3 of' "$work/rollout.log" || fail "no label: $(cat "$work/rollout.log")"
status "$(at 7) == $all" || fail "not all: $(cat "$work/status.json")"
fleet remove "$url" m0 >/dev/null || fail "m0 is not removed"
echo "   without servers all stay with version 5; they return and have version 7"

# For the first hour: one command starts a server with a fleet.
launch site "$program" fleet serve --listen 127.0.0.1:4300 --store "$work/first" >"$work/serve.log" 2>&1
serve=$launched
wait_for 20 grep -q 'nats://127.0.0.1:4300/site: ready' "$work/serve.log" || fail "serve: $(cat "$work/serve.log")"
refuse 1 "a server listens there already" within site "$program" fleet serve --listen 127.0.0.1:4300 --store "$work/second"
fleet status nats://127.0.0.1:4300/site --members "$work/list" >"$work/status.txt" || fail "no status"
grep -q 'no version yet' "$work/status.txt" || fail "$(cat "$work/status.txt")"
refuse 1 "no members: add a line" within site "$program" fleet rollout nats://127.0.0.1:4300/site "$work/1.bundle" \
    --key "$work/site.key" --members /dev/null
refuse 1 "no member gone has reported" within site "$program" fleet remove nats://127.0.0.1:4300/site gone
kill -INT "$serve"
wait "$serve" || fail "serve ends with $?"
within site "$python" -c 'import socket; socket.create_connection(("127.0.0.1", 4300), 1)' 2>/dev/null && fail "nats-server is left"
echo "   fleet serve starts and ends a server"
