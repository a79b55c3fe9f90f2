#!/usr/bin/env bash
# The demonstration, from outside: as root over veth and AF_XDP, without root through
# memory ports; its sums are done again here; and whatever ends it, Ctrl-C or SIGKILL,
# no namespace, thread, program or interface of it is left.
# runs alone: it compares the namespaces, kernel threads, mounts and links of the whole machine
. "$(dirname "$0")/lib/namespaces.sh"

# Everything of the machine's that a demonstration could leave behind.
traces() {
    # Processes come and go while we look.
    { find /proc -path '/proc/[0-9]*/task/[0-9]*/ns/net' -printf '%l\n' 2>/dev/null || true; } |
        sort -u | wc -l
    { cat /proc/[0-9]*/comm 2>/dev/null || true; } | grep -c '^napi/' || true
    ip -br link
    ip netns
    cut -d ' ' -f 2,3 /proc/mounts
}
clean() {
    # The kernel takes a namespace apart some time after its last user.
    traces >"$work/after"
    cmp -s "$work/before" "$work/after"
}
traces >"$work/before"

# As root, both families, ours and the kernel's sums.
"$program" demo --seconds 2 -j >"$work/root.json" 2>"$work/root.log" || fail "demo ended with $?"
wait_for 10 clean || fail "left behind: $(diff "$work/before" "$work/after")"
json '
(r,) = d["rounds"]
found = r["findings"]
arrived = sum(found.values()) - found["foreign"]
dropped = sum(r["dropped"].values())
assert r["mode"].startswith("AF_XDP"), r["mode"]
assert [t["routes"] > 250_000 for t in d["tables"]] == [True, True], d["tables"]
assert 0 < d["packets_v6"] < d["packets"]
assert found["right"] > 1000 and arrived == found["right"], found
assert r["received"] == r["sent"] + r["punted"] + dropped, r
assert r["sent"] == arrived + r["lost_after"], r
assert r["sent"] <= r["lookups"] <= r["received"], r
assert r["offered"] >= r["received"], r
assert r["balanced"] is True
' <"$work/root.json" || fail "the sums of $(cat "$work/root.json")"
grep -q 'fingerpost: 1 s, ' "$work/root.log" || fail "no progress: $(cat "$work/root.log")"

# In the driver: its sums as well.
"$program" demo --mode xdp --seconds 2 -j >"$work/xdp.json" 2>"$work/xdp.log" || fail "demo --mode xdp ended with $?"
wait_for 10 clean || fail "left behind: $(diff "$work/before" "$work/after")"
json '
(r,) = d["rounds"]
found = r["findings"]
assert (r["router"], r["mode"]) == ("fingerpost-xdp", "XDP, AF_XDP copy"), r
assert found["right"] > 1000 and sum(found.values()) - found["foreign"] == found["right"], found
assert r["received"] == r["sent"] + r["punted"] + sum(r["dropped"].values()), r
assert r["sent"] == found["right"] + r["lost_after"] and r["lookups"] < r["received"] / 10, r
assert r["offered"] >= r["received"] and r["balanced"] is True, r
' <"$work/xdp.json" || fail "the sums of $(cat "$work/xdp.json")"

# Without root: memory ports, and one line that says so.
chmod 755 "$work"
install -m 755 "$program" "$work/fingerpost"
unprivileged=(setpriv --reuid 65534 --regid 65534 --clear-groups)
"${unprivileged[@]}" "$work/fingerpost" demo --seconds 1 -j >"$work/user.json" 2>"$work/user.log" ||
    fail "demo without root ended with $?"
[ "$(grep -c 'not root' "$work/user.log")" = 1 ] || fail "says $(cat "$work/user.log")"
json '
(r,) = d["rounds"]
assert r["mode"] == "memory", r["mode"]
assert r["offered"] == r["received"] == r["sent"] == r["findings"]["right"] > 1000, r
' <"$work/user.json" || fail "the sums of $(cat "$work/user.json")"

# Root in name only.
refuse 1 CAP_SYS_ADMIN setpriv --bounding-set -sys_admin --inh-caps -sys_admin \
    "$program" demo --seconds 1
refuse 1 nowhere.txt "$program" demo --table nowhere.txt

# Ended early: a report after Ctrl-C, nothing after SIGKILL, and nothing stays.
for signal in INT TERM KILL; do
    "$program" demo --seconds 600 >"$work/$signal.out" 2>"$work/$signal.log" &
    demo=$!
    wait_for 60 grep -q 'fingerpost: 1 s, ' "$work/$signal.log" || fail "never began to send"
    kill "-$signal" "$demo"
    status=0
    wait "$demo" 2>/dev/null || status=$?
    if [ "$signal" = KILL ]; then
        [ "$status" -eq 137 ] || fail "SIGKILL gave $status"
    else
        [ "$status" -eq 0 ] || fail "SIG$signal gave $status: $(cat "$work/$signal.log")"
        grep -q '^right' "$work/$signal.out" || fail "no report after SIG$signal"
    fi
    wait_for 10 clean || fail "left by SIG$signal: $(diff "$work/before" "$work/after")"
done
