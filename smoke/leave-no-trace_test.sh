#!/usr/bin/env bash
# Whichever way the router ends (SIGINT, SIGTERM, SIGKILL), nothing of it stays:
# no XDP program on an interface, nothing pinned, and the kernel answers as it did.
. "$(dirname "$0")/lib/namespaces.sh"

namespace source
namespace router
join source s0 02:00:00:00:01:02 router r0 02:00:00:00:01:01
within source ip addr add 10.0.0.2/24 dev s0
within router ip addr add 10.0.0.1/24 dev r0
cat >"$work/router.toml" <<'CONFIG'
[[interface]]
name = "r0"

[[nexthop]]
name = "back"
interface = "r0"
mac = "02:00:00:00:01:02"

[[route]]
prefix = "11.0.0.0/8"
nexthop = "back"

[control]
socket = ""
CONFIG

# The links and programs that the router's process holds, by its descriptors.
held() {
    ls -l "/proc/$1/fd" | grep -c 'bpf' || true
}

no_program() {
    [ -z "$(programs router)" ]
}

for signal in INT TERM KILL; do
    launch router "$program" forward -c "$work/router.toml" -j >"$work/report.json" 2>"$work/router.log"
    router=$launched
    wait_for 10 grep -q 'forwarding by' "$work/router.log" || fail "the router does not start"
    [ "$(programs router)" = r0 ] || fail "no program on r0 while the router runs"
    [ "$(held "$router")" -gt 0 ] || fail "the router holds no BPF objects: the test is blind"
    [ -z "$(ls /sys/fs/bpf 2>/dev/null)" ] || fail "something is pinned under /sys/fs/bpf"
    # SIGHUP is a reload, and leaves the router as it is.
    kill -HUP "$router"
    wait_for 5 grep -q 'reloaded: nothing to change' "$work/router.log" || fail "SIGHUP does not reload"
    [ "$(programs router)" = r0 ] || fail "no program on r0 after a reload"
    kill "-$signal" "$router"
    status=0
    wait "$router" 2>/dev/null || status=$?
    case $signal in
    KILL) [ "$status" -eq 137 ] || fail "SIGKILL: status $status" ;;
    *)
        [ "$status" -eq 0 ] || fail "SIG$signal: status $status"
        json 'sys.exit(0 if d["balanced"] else "the counters do not add up")' <"$work/report.json"
        ;;
    esac
    # The kernel takes a dead process's links away a moment later.
    wait_for 5 no_program || fail "SIG$signal leaves a program on: $(programs router)"
    ip -n "${prefix}source" neigh flush dev s0
    within source ping -c 1 -W 2 -q 10.0.0.1 >"$work/ping.log" || fail "SIG$signal: the kernel does not answer"
    echo "   ok   SIG$signal"
done

# The same interface can be taken at once again, and by two in turn but not together.
launch router "$program" forward -c "$work/router.toml" >"$work/first.out" 2>"$work/router.log"
router=$launched
wait_for 10 grep -q 'forwarding by' "$work/router.log" || fail "the router does not start again"
refuse 1 'r0' within router timeout 20 "$program" forward -c "$work/router.toml"
[ "$(programs router)" = r0 ] || fail "a second router took the first one's program away"
kill -INT "$router"
wait "$router" || fail "the first router was hurt by the second"
