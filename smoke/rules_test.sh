#!/usr/bin/env bash
# Routing rules: packets from r0 use a table of their own, and main where that has no route; when the rules
# change, the router changes its tables by itself.
#
#   source s0 ── r0 router r1 ── a0 a      both a and b have 11.0.0.1 and 12.0.0.1
#                          r2 ── b0 b
#
# `ip route get … iif r0` has the kernel's route, and the receivers' counters where packets went.
. "$(dirname "$0")/lib/router_topology.sh"

number=0
for name in source a b; do
    within "$name" ip route add default via "10.0.$number.1"
    number=$((number + 1))
done
for name in a b; do
    within "$name" ip addr add 11.0.0.1/8 dev lo
    within "$name" ip addr add 12.0.0.1/8 dev lo
done
within router ip route add 11.0.0.0/8 via 10.0.1.2
within router ip route add 12.0.0.0/8 via 10.0.1.2
within router ip route add 11.0.0.0/8 via 10.0.2.2 table 100
within router ip route add 11.0.0.0/8 via 10.0.1.2 table 101
within router ip rule add iif r0 lookup 100 priority 100

received() { within "$1" cat "/sys/class/net/${1}0/statistics/rx_packets"; }
# `goes ADDRESS NAME`: pings from source arrive there, and the kernel says so too.
goes() {
    local before
    within router ip route get "$1" from 10.0.0.2 iif r0 | has_line "dev $([ "$2" = a ] && echo r1 || echo r2)" \
        || fail "the kernel's way to $1: $(within router ip route get "$1" from 10.0.0.2 iif r0)"
    before=$(received "$2")
    within source ping -c 20 -i 0.02 -W 2 -q "$1" >"$work/ping.log" || fail "$1: $(cat "$work/ping.log")"
    [ $(($(received "$2") - before)) -ge 20 ] || fail "$1 does not go to $2"
}
of_r0() { show -j interfaces | json "entry = next(entry for entry in d if entry['name'] == 'r0'); print(entry['table'], entry.get('rules'))"; }
counter() { show -j counters | json "print(d[0]$1)"; }

# `tables BOOLEAN`: the router has both tables, which share their memory or do not.
tables() { show -j fib | json "assert {(entry['table'], entry['shared']) for entry in d} == {(100, $1), (254, $1)}, d" || fail "the tables"; }
mode=copy
configure
start_router
tables True
goes 11.0.0.1 b
stop_router

echo "forwarded in the driver, by tables apart"
mode=
hosts_take_redirected
configure
start_router
wait_for 5 forwards_in_driver || fail "no forwarding in the driver: $(show interfaces)"
[ "$(of_r0 | cut -d' ' -f1)" = 100 ] || fail "r0 by $(of_r0)"
tables False
goes 11.0.0.1 b
before=$(counter '["sent"]')
goes 11.0.0.1 b
[ $(($(counter '["sent"]') - before)) -ge 38 ] || fail "the kernel forwards, not the router"
[ "$(forwarded_in_driver)" -ge 38 ] || fail "the workers forward, not the driver: $(show interfaces)"

echo "what the table has no route for is looked up in main, by the kernel"
before=$(counter '["punted"].get("host_route", 0)')
goes 12.0.0.1 a
[ $(($(counter '["punted"].get("host_route", 0)') - before)) -ge 20 ] || fail "not by the host"

echo "the rules change"
within router ip rule add iif r0 lookup 101 priority 50
wait_for 10 grep -q 'routing rules have changed: changed r0; workers replaced' "$work/fingerpost.log" || fail "nothing happens"
[ "$(of_r0 | cut -d' ' -f1)" = 101 ] || fail "r0 by $(of_r0)"
goes 11.0.0.1 a

echo "a rule by more than the interface is reported as not followed"
within router ip rule add from 10.0.0.9 lookup 100 priority 40
wait_for 5 eval '[ "$(of_r0)" = "101 rule 40 of IPv4 matches other fields than the input interface" ]' || fail "r0 by $(of_r0)"
show interfaces | has_line 'rule 40 of IPv4 .* not followed, packets go by table 101' || fail "$(show interfaces)"
within router ip rule del priority 40
wait_for 5 eval '[[ "$(of_r0)" != *"rule 40"* ]]' || fail "r0 by $(of_r0)"

echo "a table in the configuration is used, whatever the rules are"
stop_router
configure "" '{ name = "r0", table = 100 }, { name = "r1" }, { name = "r2" }'
start_router
[ "$(of_r0)" = "100 None" ] || fail "r0 by $(of_r0)"
stop_router
