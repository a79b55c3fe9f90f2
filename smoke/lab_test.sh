#!/usr/bin/env bash
# The lab's short form: a server under ten times its link of forged SYNs, with the gate off and
# on, when one of its gates fails, too. The results of its clients must differ as they should, by margins for a busy
# machine; the test computes the figures again. Then it ends the lab early in every way, and kills a part of it: no process may be left in
# its namespaces.
# runs alone: its processes load every core, and it compares rates
. "$(dirname "$0")/lib/namespaces.sh"

status=0
"$program" lab ddos --quick --failover shared --html "$work/lab.html" -j >"$work/lab.json" 2>"$work/lab.log" || status=$?
[ "$status" -le 1 ] || fail "lab ddos --quick ended with $status"
"$python" "$here/smoke/lab_figures.py" "$work/lab.json" || fail "of $(cat "$work/lab.json")"
"$python" "$here/smoke/lab_page.py" "$work/lab.html"

# The processes in namespaces of the lab.
members() {
    { find /proc -path '/proc/[0-9]*/task/[0-9]*/ns/net' -printf '%l %p\n' 2>/dev/null || true; } |
        grep -F -f "$work/spaces" || true
}
spaces() {
    find "/proc/$1" -path "/proc/$1/task/[0-9]*/ns/net" -printf '%l\n' 2>/dev/null |
        sort -u | grep -vF "$(readlink /proc/self/ns/net)"
}
parts() { pgrep -P "$lab" -f -- "$1"; }
start() {
    "$program" lab ddos --quick --gate on --only syn >"$work/$1.out" 2>"$work/$1.log" &
    lab=$!
    wait_for 60 parts '^/proc/[0-9]*/exe gate -c' || fail "no gate is started"
    sleep 1
    spaces "$lab" >"$work/spaces"
    [ "$(wc -l <"$work/spaces")" -eq 8 ] || fail "not eight namespaces: $(cat "$work/spaces")"
    [ "$(members | wc -l)" -gt 8 ] || fail "they are empty: the test is blind"
}
empty() { [ -z "$(members)" ]; }
for signal in INT TERM KILL; do
    start "$signal"
    kill "-$signal" "$lab"
    status=0
    wait "$lab" 2>/dev/null || status=$?
    if [ "$signal" = KILL ]; then
        [ "$status" -eq 137 ] || fail "SIGKILL gave $status"
    else
        [ "$status" -le 1 ] || fail "SIG$signal gave $status"
        grep -q interrupted "$work/$signal.log" || fail "SIG$signal is not reported"
    fi
    wait_for 20 empty || fail "left by SIG$signal: $(members)"
    echo "   SIG$signal leaves nothing"
done

start part
kill -KILL "$(parts '^/proc/[0-9]*/exe gate -c' | head -n 1)"
status=0
wait "$lab" || status=$?
[ "$status" -eq 1 ] || fail "a gate is killed, and the lab ends with $status"
grep -q 'gate-[ab] has ended, signal: 9' "$work/part.log" || fail "it does not say why: $(cat "$work/part.log")"
wait_for 20 empty || fail "left when a part dies: $(members)"
echo "   nor does the death of a part"
