#!/usr/bin/env bash
# A running router follows commands: it observes and is promoted, one interface at a time, applies other
# configurations by the socket and by SIGHUP, and refuses invalid ones, while packets pass; and it has dropped the
# rights that it does not need.
#
#   source s0 ── r0 router r1 ── a0 a      203.0.113.0/24 and 2001:db8::/32 by a
. "$(dirname "$0")/lib/router_topology.sh"


steered() { show -j interfaces | json "print([entry for entry in d if entry['name'] == '$1'][0]['steered'].get('$2', 0))"; }
observed() { show -j interfaces | json "print([entry for entry in d if entry['name'] == '$1'][0]['observe'])"; }
received() { show -j counters | json 'print(d[0]["received"])'; }
grows() {
    local before
    before=$("$@")
    wait_for 10 eval "[ \"\$($*)\" -gt $before ]" || fail "$* stays at $before"
}
stays() {
    local before
    before=$("$@")
    sleep 0.5
    [ "$("$@")" = "$before" ] || fail "$* grows"
}

configure "" '{ name = "r0", observe = true }, { name = "r1", observe = true }'
start_router
fly

echo "observing: the kernel forwards, and what the router would take is counted"
grows steered r0 observed
[ "$(received)" = 0 ] || fail "packets are taken"
echo "promoted, one interface at a time"
"$program" promote r0 --socket "$work/sock"
[ "$(observed r0) $(observed r1)" = "False True" ] || fail "not what is observed"
grows received
stays steered r0 observed
"$program" demote r0 --socket "$work/sock" -j | json 'assert d["done"]'
grows steered r0 observed
stays received
"$program" promote r0 --socket "$work/sock" >/dev/null
if "$program" promote r9 --socket "$work/sock" 2>"$work/said"; then fail "r9 is promoted"; fi
grep -q 'r9: no interface of this router (r0, r1)' "$work/said" || fail "$(cat "$work/said")"

echo "reloaded by the socket: an interface more"
configure
"$program" reload --socket "$work/sock" | tee "$work/said"
grep -q 'added r2; changed r1; .*workers replaced' "$work/said" || fail "not what was to be done"
grows received
echo "a configuration that is not sound leaves everything as it is"
cp "$work/router.toml" "$work/good.toml"
for bad in 'interface = [{ name = "r0" ' 'interface = [{ name = "r0" }, { name = "r0" }]' 'interface = [{ name = "r7" }]'; do
    echo "$bad" >"$work/router.toml"
    if "$program" reload --socket "$work/sock" 2>"$work/said"; then fail "accepted: $bad"; fi
    [ -s "$work/said" ] || fail "no reason is given"
    grows received
done
echo "reloaded by SIGHUP: an interface less, another engine"
sed 's/, { name = "r2" }//' "$work/good.toml" >"$work/router.toml"
printf '[fib]\nengine = "D18R"\n' >>"$work/router.toml"
kill -HUP "$router"
wait_for 10 grep -q 'reloaded: removed r2; workers replaced' "$work/fingerpost.log" || fail "$(cat "$work/fingerpost.log")"
grows received
show -j fib | json 'assert d[0]["engine"] == "D18R", d'
within router ip -d link show r2 | has_line xdp && fail "r2 is not given back"

echo "a second router on the same interfaces is refused"
sed "s|$work/sock|$work/other|" "$work/router.toml" >"$work/other.toml"
if within router "$program" run -c "$work/other.toml" 2>"$work/said"; then fail "a second router starts"; fi
grows received

echo "rights: five for the process, one for workers, none for the auditor and the threads of the socket"
pid=$(pgrep -f "run -c $work/router.toml" | while read -r it; do [ "$(readlink "/proc/$it/exe")" = "$(readlink -f "$program")" ] && echo "$it"; done | sed -n 1p)
# CAP_NET_ADMIN 12, CAP_NET_RAW 13, CAP_IPC_LOCK 14, CAP_PERFMON 38, CAP_BPF 39.
most=$(((1 << 12) | (1 << 13) | (1 << 14) | (1 << 38) | (1 << 39)))
for task in "/proc/$pid/task/"*; do
    name=$(cat "$task/comm")
    may=$((0x$(awk '/^CapPrm/ {print $2}' "$task/status")))
    case $name in
        worker-*) want=$((1 << 39)) ;;
        control-socket | control-client | auditor) want=0 ;;
        *) want=$most ;;
    esac
    [ "$may" = "$want" ] || fail "$name may $may, not $want"
    [ "$(awk '/^NoNewPrivs/ {print $2}' "$task/status")" = 1 ] || fail "$name can gain rights"
done

flown
stop_router
