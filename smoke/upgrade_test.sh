#!/usr/bin/env bash
# The installed program takes over from a running router, again and again, while packets pass: none is lost, no counter
# goes back, and the control socket and the metrics answer. A program that fails before or while it takes over leaves
# the router as it was.
#
#   source s0 ── r0 router r1 ── a0 a      203.0.113.0/24 and 2001:db8::/32 by a
#
#   FINGERPOST_UPGRADES    how often; default 10
. "$(dirname "$0")/lib/router_topology.sh"

upgrades=${FINGERPOST_UPGRADES:-10}
installed=$work/fingerpost
install() {
    cp "$1" "$installed.new"
    chmod +x "$installed.new"
    mv "$installed.new" "$installed"
}
upgrade() { "$installed" upgrade --socket "$work/sock" "$@"; }
counts() { show -j counters | json 'print(d[0]["received"], d[0]["sent"])'; }
counted_by_rule() { show -j acl | json 'print(d[0]["rules"][0]["packets"])'; }

install "$program"
build=$program
program=$installed
configure "[image]
path = \"$work/tables.image\"
[metrics]
listen = \"127.0.0.1:9100\"
[[egress_queue]]
interface = \"r1\"
bandwidth = \"1gbit\"
[[access_list]]
name = \"edge\"
inbound = [\"r0\"]
default = \"permit\"
rules = [\"count ipproto 253\"]"
start_router
program=$build
# An image without the routes of the packets: a successor does not forward by it.
"$program" save --socket "$work/sock" >/dev/null
fly

echo "$upgrades upgrades while packets pass"
received=0 sent=0
for number in $(seq "$upgrades"); do
    [ $((number % 3)) = 0 ] && install "$build"
    before=$router
    upgrade >"$work/said" || fail "upgrade $number: $(tail -3 "$work/fingerpost.log")"
    router=$(sed -n 's/^process \([0-9]*\) has taken over;.*/\1/p' "$work/said")
    cat "$work/said" >>"$work/pauses"
    [ -n "$router" ] && [ "$router" != "$before" ] || fail "upgrade $number: $(cat "$work/said")"
    wait_for 20 eval "! kill -0 $before 2>/dev/null" || fail "process $before does not end"
    read -r now_received now_sent < <(counts)
    [ "$now_received" -ge "$received" ] && [ "$now_sent" -ge "$sent" ] ||
        fail "upgrade $number: counters went back: $received $sent, $now_received $now_sent"
    received=$now_received sent=$now_sent
done
[ "$sent" -gt 0 ] || fail "the router forwards nothing"
# Of each packet that was received; some more were pings.
[ "$(counted_by_rule)" -gt $((received * 9 / 10)) ] || fail "the rule has counted $(counted_by_rule) of $received packets"
awk '{ if ($10 > most) most = $10 } END { print "   no worker ran for at most", most, "ms" }' "$work/pauses"

has_line 'tables of the image ready' <"$work/fingerpost.log" && fail "a successor forwards by an image"

echo "programs that do not take over"
# `fails FAILURE REASON`: the router continues.
fails() {
    echo "$1" >"$work/failure"
    install "$here/smoke/upgrade_failing.py"
    if "$build" upgrade --socket "$work/sock" 2>"$work/said"; then fail "$1: it took over"; fi
    has_line "no upgrade, the running program continues: .*$2" <"$work/said" || fail "$1: $(cat "$work/said")"
    read -r now_received now_sent < <(counts)
    [ "$now_sent" -ge "$sent" ] || fail "$1: counters went back: $sent, $now_sent"
    sent=$now_sent
    wait_for 5 more_sent || fail "$1: the router forwards no more"
}
more_sent() { [ "$(counts | cut -d ' ' -f 2)" -gt "$sent" ]; }
fails start "it ended (exit status: 1)"
fails format "version 9.9 does not read format 1"
fails role "a gate cannot take over from a router"
fails ready "it ended; see its log"
fails silent "its workers did not run after 5 s"
fails bound "its workers did not run after 5 s"
printf 'no program' >"$work/text"
install "$work/text"
if "$build" upgrade --socket "$work/sock" 2>"$work/said"; then fail "a text took over"; fi
has_line "cannot start $installed" <"$work/said" || fail "$(cat "$work/said")"
install "$build"

echo "another configuration of an interface is refused, and applied by a reload"
cp "$work/router.toml" "$work/good.toml"
sed -i 's/, { name = "r2" }//' "$work/router.toml"
if upgrade 2>"$work/said"; then fail "an upgrade with other interfaces"; fi
has_line 'the running program has further interfaces' <"$work/said" || fail "$(cat "$work/said")"
[ "$(show -j interfaces | json 'print(len(d))')" = 3 ] || fail "$(show interfaces)"
cp "$work/good.toml" "$work/router.toml"

echo "the program has not changed: the configuration is reloaded instead"
upgrade >"$work/said"
router=$(sed -n 's/^process \([0-9]*\) has taken over;.*/\1/p' "$work/said")
printf '[fib]\nengine = "D18R"\n' >>"$work/router.toml"
upgrade --or-reload >"$work/said"
has_line 'workers replaced' <"$work/said" || fail "$(cat "$work/said")"
install "$build"
upgrade --or-reload -j | json 'assert "has taken over" in d["done"], d'
[ "$(show -j fib | json 'print(d[0]["engine"])')" = D18R ] || fail "$(show fib)"
flown
router=$(pgrep -f -n "run -c $work/router.toml")

echo "at its end the interfaces are the kernel's, and nothing is left"
kill -INT "$router"
wait_for 10 eval "! kill -0 $router 2>/dev/null" || fail "process $router does not end"
balanced <"$work/report.json"
[ ! -e "$work/sock" ] || fail "the socket is left"
[ -z "$(programs router)" ] || fail "a program is left on: $(programs router)"
within router ip link show fingerpost 2>/dev/null | has_line fingerpost && fail "the TAP device is left"
true
