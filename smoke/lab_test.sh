#!/usr/bin/env bash
# The lab's short form: a server under ten times its link of forged SYNs, with the gate off and
# on. What its clients got must differ as it should, by margins for a machine that has other
# things to do; its sums are done again here. Then it is ended early in every way, and a part
# of it is killed: nobody may be left in any of its namespaces.
# runs alone: its processes load every core, and it compares rates
. "$(dirname "$0")/lib/namespaces.sh"

status=0
"$program" lab ddos --quick --html "$work/lab.html" -j >"$work/lab.json" 2>"$work/lab.log" || status=$?
[ "$status" -le 1 ] || fail "lab ddos --quick ended with $status"
json '
import math, statistics

off, on = d["rounds"]
assert [off["gate"], on["gate"]] == [False, True]
link, count = d["scale"]["link"], d["scale"]["seconds"] * 4
for one in off, on:
    figures = one["figures"]
    times = [client["connected"] or math.inf for client in one["new_clients"]]
    assert len(times) == count, len(times)
    in_time = sum(time <= 3 for time in times) / count
    assert abs(in_time - figures["in_time"]) < 1e-9, figures
    median = statistics.median_high(times)
    assert (figures["median"] or math.inf) == median, (figures, median)
    sent = 0.6 * link / 8 / 8
    goodput = sum(min(rate / sent, 1) for rate in one["under_attack"]) / 8
    assert abs(goodput - figures["goodput"]) < 1e-3, figures
    # Before the attack the streams have what they send.
    assert sum(one["baseline"]) > 0.8 * 8 * sent, one["baseline"]
    assert figures["factor"] > 4, figures
got = on["counters"]
assert got["received"] > 10_000 and got["granted"] > 100 and got["low_priority"] > 10_000, got
assert got["grants"] > 0 and off["counters"] is None, got
on, off = on["figures"], off["figures"]
assert on["in_time"] >= 0.75 and on["goodput"] > 0.6, on
assert off["goodput"] < 0.5, off
assert on["goodput"] > off["goodput"] + 0.3 and on["in_time"] > off["in_time"], (on, off)
print(f"   off: {off}\n   on:  {on}")
' <"$work/lab.json" || fail "of $(cat "$work/lab.json")"
"$python" - "$work/lab.html" <<'PAGE'
import sys
from html.parser import HTMLParser

open_, text = [], open(sys.argv[1], encoding="utf-8").read()
class Reader(HTMLParser):
    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "rect", "line", "path", "circle", "br"):
            open_.append(tag)
    def handle_endtag(self, tag):
        if tag not in ("rect", "line", "path", "circle"):
            assert open_.pop() == tag, tag
Reader().feed(text)
assert not open_, open_
assert text.count("<svg ") == 3 and text.count("class=\"course\"") == 2, text.count("<svg ")
assert "prefers-color-scheme: dark" in text and "<script" not in text and "NaN" not in text
PAGE

# Whoever is in a namespace of the lab's, processes of any kind.
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
    [ "$(members | wc -l)" -gt 8 ] || fail "nobody is in them: the test is blind"
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
        grep -q interrupted "$work/$signal.log" || fail "SIG$signal is not told of"
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
