#!/usr/bin/env bash
# A gate of one worker on interfaces of four queues, on a machine whose kernel forwards packets: no packet
# reaches the protected host undecided, on any queue.
#
#   client c0 ══ g0 gate g1 ══ t0 grantor      10.1.0.x │ 10.2.0.x, four queues each, ip_forward=1
#
# First the gate serves all four. Then the test adds queues while the gate runs: packets of these queues
# are dropped and counted as `unserved`. The last case repeats this with `fail_open`: the kernel forwards
# the packets, which proves that the test sees packets that pass the gate. Two of these cases use generic
# mode: a veth in native mode runs no XDP program on queues that are added after the program, until the gate
# has noticed and put the program on it again (`native`).
queues=4
. "$(dirname "$0")/lib/gate_topology.sh"

known_ends
within gate sysctl -qw net.ipv4.ip_forward=1
within gate ip route add 192.0.2.0/24 via 10.2.0.2

configure() {
    cat >"$work/$1.toml" <<CONFIG
$(busy_machine)
$(gate_sides g0 g1 1gbit "$2")
[flow_table]
entries = 4096
$(gate_site '{ address = "10.2.0.2" }')
[control]
socket = "$work/sock"
CONFIG
}

client() { within client "$python" "$here/smoke/queues_packets.py" "$prefix" "$program" "$work" "$@"; }

for name in all added native open; do
    case $name in
        all) configure all '' ;;
        added) configure added 'mode = "generic"' ;;
        native) configure native '' ;;
        open) configure open $'mode = "generic"\nfail_open = true' ;;
    esac
    [ "$name" = all ] || client channels 2
    echo "-- $name"
    guarded "$name" client "$name"
done
for queue in 0 1 2 3; do
    grep -q "g0, queue $queue:" "$work/all.log" || fail "queue $queue of g0 is not served"
done
json 'assert d["counters"]["dropped"]["unserved"] == 0, d' <"$work/all.json"
json 'assert d["counters"]["dropped"]["unserved"] > 0, d' <"$work/added.json"
json 'assert d["counters"]["dropped"]["unserved"] > 0, d' <"$work/native.json"
json 'assert d["counters"]["dropped"]["unserved"] == 0, d' <"$work/open.json"
