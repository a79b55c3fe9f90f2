#!/usr/bin/env bash
# A router whose threads are stopped: the kernel forwards packets 100 ms later and the watchdog is not fed;
# when the threads continue, the router forwards again. Before that the test sends TCP and UDP between two
# kernels that leave checksums to their devices, as is the default: the packets arrive complete.
#
#   client c0 ── r0 router r1 ── s0 server       10.1.0.x │ 10.2.0.x, ip_forward=1
# runs alone: it stops threads for a fraction of a second and expects the others to run
. "$(dirname "$0")/lib/namespaces.sh"

for name in client router server; do
    namespace "$name"
done
join client c0 02:00:00:00:01:02 router r0 02:00:00:00:01:01
join router r1 02:00:00:00:02:01 server s0 02:00:00:00:02:02
within client ip addr add 10.1.0.2/24 dev c0
within client ip addr add fd01::2/64 dev c0
within router ip addr add 10.1.0.1/24 dev r0
within router ip addr add fd01::1/64 dev r0
within router ip addr add 10.2.0.1/24 dev r1
within router ip addr add fd02::1/64 dev r1
within server ip addr add 10.2.0.2/24 dev s0
within server ip addr add fd02::2/64 dev s0
for family in -4 -6; do
    case $family in -4) one=10.1.0.1 two=10.2.0.1 ;; -6) one=fd01::1 two=fd02::1 ;; esac
    within client ip "$family" route add default via "$one"
    within server ip "$family" route add default via "$two"
done
within router sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1

cat >"$work/router.toml" <<CONFIG
interface = [{ name = "r0" }, { name = "r1" }]
[control]
socket = "$work/sock"
CONFIG

# The notification socket that systemd would have; the test counts the watchdog messages.
launch server "$python" "$here/smoke/stalled_threads.py" listen "$work/notify" "$work/signs"
wait_for 10 test -S "$work/notify" || fail "stalled.py does not listen"
launch router env NOTIFY_SOCKET="$work/notify" WATCHDOG_USEC=1000000 \
    "$program" run -c "$work/router.toml" -j >"$work/report.json" 2>"$work/router.log"
router=$launched
wait_for 20 grep -q READY=1 "$work/signs" || fail "the router does not start"

"$python" "$here/smoke/stalled_threads.py" test "$prefix" "$program" "$work" "$router"
kill -INT "$router"
wait "$router" || fail "the router ended with $?"
balanced <"$work/report.json"
