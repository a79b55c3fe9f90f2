#!/usr/bin/env bash
# The page of a gate, and of a router, in a headless Chromium (web.py): it shows what `show`
# shows, an attack from its beginning to its end, and that it has lost contact; a name that is
# HTML stays text; the browser has nothing to complain of; nothing but GET is answered, and
# clients that are slow or broken keep nobody out.
#
#   client c0 ── g0 gate g1 ── t0 grantor          10.1.0.x │ 10.2.0.x, protected: 192.0.2.0/24
#
# With WEB_PICTURES=FOLDER, pictures of the pages are left there.
. "$(dirname "$0")/vantage.sh"

within client ip addr add 10.1.0.2/24 dev c0
within gate ip route add 192.0.2.0/24 via 10.2.0.2
within gate ip neigh add 10.2.0.2 lladdr 02:00:00:00:02:02 dev g1

cat >"$work/gate.toml" <<CONFIG
[front]
interface = "g0"
[back]
interface = "g1"
[link]
bandwidth = "2mbit"
requests = 16
[table]
entries = 4096
[[grantors]]
name = "site"
members = [{ address = "10.2.0.2" }]
[[policy]]
prefix = "192.0.2.0/24"
grantors = "site"
[[policy]]
prefix = "192.0.2.9/32"
action = "back"
exempt = true
[[policy]]
prefix = "192.0.2.66/32"
action = "drop"
[rules]
version = '<img src=x onerror="document.title=1"><b>one</b>'
[control]
socket = "$work/sock"
[metrics]
listen = "127.0.0.1:9275"
CONFIG
cat >"$work/router.toml" <<CONFIG
interface = [{ name = "g0" }, { name = "g1" }]
[control]
socket = "$work/sock"
[metrics]
listen = "127.0.0.1:9275"
CONFIG

# looked_at ROLE WORDS COMMAND...: starts something, which says these words, looks at its page,
# and sees it end well.
looked_at() {
    local role=$1 words=$2 status=0
    shift 2
    launch gate "$program" "$@" -c "$work/$role.toml" -j >"$work/report.json" 2>"$work/$role.log"
    local process=$launched
    wait_for 20 grep -q "$words" "$work/$role.log" || fail "the $role does not start"
    within gate "$python" "$here/smoke/web.py" "$role" "$prefix" "$program" "$work" "$process"
    wait "$process" || status=$?
    [ "$status" -eq 0 ] || fail "the $role ended with $status"
}

looked_at gate 'guarding after' gate
looked_at router 'following the kernel after' run
