#!/usr/bin/env bash
# in a VM: it needs multicast routing
# The kernel routes multicast packets, also with the router on: mc_mac_mismatch of the kernel's selftests
# (router.sh), a routed group in a frame to another multicast MAC address, as selftests_test.sh has the other cases.
. "$(dirname "$0")/lib/selftests.sh"

multicast_group() { # SOURCE GROUP
    launch router "$python" "$here/smoke/selftests_packets.py" multicast from=r0 to=r1 source=10.0.0.2 group=225.1.2.3 \
        source6=fd00::2 group6=ff0e::3 >"$work/multicast" 2>"$work/multicast.log"
    wait_for 20 grep -q ready "$work/multicast" || fail "no multicast routes: $(cat "$work/multicast.log")"
    packets forward "$prefix" "$work/others" 5 5 "$@" 01:02:03:04:05:06
    kill "$launched"
    wait "$launched" || true
}
all_cases() {
    restore
    try router.sh "mc_mac_mismatch IPv4" 0 multicast_group 10.0.0.2 225.1.2.3
    try router.sh "mc_mac_mismatch IPv6" 0 multicast_group fd00::2 ff0e::3
}
alone_and_with_router all_cases
[ "$(grep -c '5 of 5 arrive at a' "$work/results.off")" = 2 ] ||
    fail "the kernel alone does not route both groups: $(cat "$work/results.off")"
