#!/usr/bin/env bash
# The page of a gate, of a router and of a grantor, in a headless Chromium (web_page.py): it shows what
# `show` shows, candidates and bundles among it, an attack from its beginning to its end, over a restart
# too, and that it has lost contact; a name that is
# HTML stays text; the browser has nothing to complain of; nothing but GET is answered, under
# no name but its own, and clients that are slow or broken exclude no other.
#
#   client c0 ── g0 gate g1 ── t0 grantor          10.1.0.x │ 10.2.0.x, protected: 192.0.2.0/24
#
# runs among idle: a browser, and seconds of history that are compared with the clock
#
# With WEB_PICTURES=FOLDER, pictures of the pages are left there.
. "$(dirname "$0")/lib/gate_topology.sh"

within client ip addr add 10.1.0.2/24 dev c0
within gate ip route add 192.0.2.0/24 via 10.2.0.2
within gate ip neigh add 10.2.0.2 lladdr 02:00:00:00:02:02 dev g1

cat >"$work/gate.toml" <<CONFIG
$(sides 2mbit)
request_queue = 16
[flow_table]
entries = 4096
$(gate_site '{ address = "10.2.0.2" }')
[[policy]]
prefix = "192.0.2.9/32"
action = "back"
exempt = true
[[policy]]
prefix = "192.0.2.66/32"
action = "drop"
[rules]
version = '<img src=x onerror="document.title=1"><b>one</b>'
candidate = "next.toml"
[control]
socket = "$work/sock"
[metrics]
listen = "127.0.0.1:9275"
allowed_hosts = ["gate.example"]
history_file = "$work/history"
CONFIG
cat >"$work/next.toml" <<CONFIG
$(gate_site '{ address = "10.2.0.2" }')
[[policy]]
prefix = "192.0.2.7/32"
action = "drop"
[rules]
version = '<b>two</b>'
CONFIG
cat >"$work/router.toml" <<CONFIG
interface = [{ name = "g0" }, { name = "g1" }]
[control]
socket = "$work/sock"
[metrics]
listen = "127.0.0.1:9275"
CONFIG

# looked_at ROLE NAMESPACE WORDS COMMAND...: starts something, which says these words, looks at its
# page, and sees it end well.
looked_at() {
    local role=$1 where=$2 words=$3 status=0
    shift 3
    launch "$where" "$program" "$@" -c "$work/$role.toml" -j >"$work/report.json" 2>"$work/$role.log"
    local process=$launched
    wait_for 20 grep -q "$words" "$work/$role.log" || fail "the $role does not start"
    within "$where" "$python" "$here/smoke/web_page.py" "$role" "$prefix" "$program" "$work" "$process"
    wait "$process" || status=$?
    [ "$status" -eq 0 ] || fail "the $role ended with $status"
}

looked_at gate gate 'guarding after' gate
looked_at router gate 'following the kernel after' run

# A grantor that a gate of ours asks; its policy comes in a bundle, with a candidate.
within gate ip route add 10.9.1.100/32 via 10.2.0.2
within grantor ip route add 192.0.2.0/24 via 10.2.0.1
umask 077
secret_key grantor.key 2b
"$program" bundle keygen "$work/site.key" >"$work/public"
sed -e 's/candidate = .*//; s/members = .*/members = [{ address = "10.9.1.100", sender = 7 }]/' \
    -e 's#/sock"#/gate.sock"#; /^\[metrics\]/,$d' "$work/gate.toml" >"$work/asks.toml"
gate_sender 7 grantor.key 10.2.0.2 >>"$work/asks.toml"
cat >"$work/grantor.toml" <<CONFIG
interfaces = ["t0"]
[tunnel]
addresses = ["10.9.1.100"]
gates = ["10.2.0.1", "10.2.0.99"]
[policy]
file = "local.lua"
fallback = "decline 1"
[decisions]
version = 2
id = 7
keys = { 1 = "grantor.key" }
[control]
socket = "$work/sock"
[metrics]
listen = "127.0.0.1:9275"
[distribution]
source = "$work/in"
public_keys = ["$(cat "$work/public")"]
store_dir = "$work/kept"
poll_interval = "1s"
trial_time = "2s"
max_trial_time = "2s"
max_failure_rate = 1000000
CONFIG
echo 'function decide(p) return decline(1) end' >"$work/local.lua"
mkdir "$work/in" "$work/site"
cat >"$work/site/grantor.toml" <<'CONFIG'
[policy]
file = "policy.lua"
candidate = "next.lua"
[[list]]
name = "deny"
file = "deny.txt"
CONFIG
echo 10.1.0.66 >"$work/site/deny.txt"
echo 'local deny = list "deny"
function decide(p)
    if p:src_in(deny) then return decline(60) end
    if p.src == "10.1.0.77" then error("<b>seventy-seven</b>") end
    return grant { rate = 1000, expire = 60 }
end' >"$work/site/policy.lua"
echo 'function decide(p) return grant { rate = 1000, expire = 60 } end' >"$work/site/next.lua"
launch gate "$program" gate -c "$work/asks.toml" >"$work/asks.out" 2>"$work/asks.log"
gate=$launched
wait_for 20 grep -q 'guarding after' "$work/asks.log" || fail "the gate does not start"
looked_at grantor grantor 'granting' grantor
kill -INT "$gate"
wait "$gate" || fail "the gate ended with $?"
