#!/usr/bin/env bash
# The page of a gate, and of a router, in a headless Chromium (web.py): it shows what `show`
# shows, an attack from its beginning to its end, and that it has lost contact; a name that is
# HTML stays text; the browser has nothing to complain of; nothing but GET is answered, and
# clients that are slow or broken keep nobody out.
#
#   client c0 ── g0 gate g1 ── t0 grantor          10.1.0.x │ 10.2.0.x, protected: 192.0.2.0/24
#
# With WEB_PICTURES=FOLDER, pictures of the pages are left there.
. "$(dirname "$0")/place.sh"

for name in client gate grantor; do
    namespace "$name"
done
join client c0 02:00:00:00:01:02 gate g0 02:00:00:00:01:01
join grantor t0 02:00:00:00:02:02 gate g1 02:00:00:00:02:01
within gate ip addr add 10.1.0.1/24 dev g0
within gate ip addr add 10.2.0.1/24 dev g1
within client ip addr add 10.1.0.2/24 dev c0
within grantor ip addr add 10.2.0.2/24 dev t0
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

launch gate "$program" gate -c "$work/gate.toml" -j >"$work/report.json" 2>"$work/gate.log"
gate=$launched
wait_for 20 grep -q 'guarding after' "$work/gate.log" || fail "the gate does not start"
within gate "$python" "$here/smoke/web.py" gate "$prefix" "$program" "$work" "$gate"
status=0
wait "$gate" || status=$?
[ "$status" -eq 0 ] || fail "the gate ended with $status"

launch gate "$program" run -c "$work/router.toml" -j >"$work/report.json" 2>"$work/router.log"
router=$launched
wait_for 20 grep -q 'following the kernel after' "$work/router.log" || fail "the router does not start"
within gate "$python" "$here/smoke/web.py" router "$prefix" "$program" "$work" "$router"
status=0
wait "$router" || status=$?
[ "$status" -eq 0 ] || fail "the router ended with $status"
