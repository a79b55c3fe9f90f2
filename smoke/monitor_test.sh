#!/usr/bin/env bash
# `monitor` prints events when they happen; a client that does not read delays nothing, and receives the number
# of events that it lost.
. "$(dirname "$0")/lib/router_topology.sh"

configure
start_router

(exec "$program" monitor --socket "$work/sock" -j) >"$work/events" &
listener=$!
(exec "$program" monitor --socket "$work/sock") >"$work/words" 2>/dev/null &
other=$!
begun() { [ -s "$work/events" ]; }
wait_for 5 begun || fail "the monitor does not begin"
sleep 0.3
# Each change is a commit of its own.
step() {
    within router ip "$@"
    sleep 0.2
}
step route add 11.0.0.0/8 via 10.0.1.2
step route replace 11.0.0.0/8 via 10.0.2.2
step route replace blackhole 11.0.0.0/8
step route del 11.0.0.0/8
step neigh add 10.0.1.77 lladdr 02:00:00:00:00:77 dev r1
step neigh replace 10.0.1.77 lladdr 02:00:00:00:00:78 dev r1
step neigh del 10.0.1.77 dev r1
step link set r2 down
step link set r2 up
up() { tail -n 20 "$work/events" | grep '"name":"r2"' | tail -n 1 | has_line '"up":true'; }
wait_for 5 up || fail "no event says that r2 is up: $(tail -n 3 "$work/events")"
logged() { grep -q "^fingerpost: $1\$" "$work/fingerpost.log"; }
wait_for 5 logged 'warning: link r2: down' || fail "the log has no r2 down: $(cat "$work/fingerpost.log")"
wait_for 5 logged 'link r2: up' || fail "the log has no r2 up: $(cat "$work/fingerpost.log")"
kill "$listener" "$other"
wait "$listener" "$other" 2>/dev/null || true
"$python" "$here/smoke/monitor_events.py" "$work/events" small
grep -q '^added 11.0.0.0/8 via 10.0.1.2 dev r1 generation' "$work/words" || fail "in words: $(cat "$work/words")"
grep -q '^changed blackhole 11.0.0.0/8 generation' "$work/words" || fail "in words: $(cat "$work/words")"

echo "a client that reads nothing for some seconds"
count=60000
"$python" -c "
for n in range($count):
    print(f'route add {60 + (n >> 16)}.{n >> 8 & 255}.{n & 255}.0/24 via 10.0.1.2')" >"$work/batch"
"$program" monitor --socket "$work/sock" -j | {
    read -r first
    echo "$first"
    touch "$work/reading"
    until [ -e "$work/go" ]; do sleep 0.1; done
    cat
} >"$work/slow" &
wait_for 5 test -e "$work/reading" || fail "the monitor does not begin"
within router ip -batch "$work/batch"
start=$(now)
there() { [ "$(have)" -ge "$count" ]; }
wait_for 10 there || fail "the router has $(have) of $count routes: it waits for the client that does not read"
"$program" fib diff kernel --socket "$work/sock" 2>/dev/null || fail "the router differs from the kernel"
echo "   the router had them $(since "$start") s after the kernel"
touch "$work/go"
lost() { grep -q '"event":"lost"' "$work/slow"; }
wait_for 10 lost || fail "no event counts the lost ones"
sleep 1
stop_router
wait
"$python" "$here/smoke/monitor_events.py" "$work/slow" slow "$count"
