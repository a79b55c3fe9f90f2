#!/usr/bin/env bash
# FRR feeds the router by its Forwarding Plane Manager protocol, not by the kernel:
#
#   source s0 ── r0 router r1 ── a0 a: BIRD, half of a table
#                (FRR)     r2 ── b0 b: BIRD, the other half
#
# zebra sends what it has to the router, and puts the same into the kernel, which is what
# the router is compared with: it reads no route from the kernel. Every fifth
# prefix of the full table, so that bgpd does not take minutes.
. "$(dirname "$0")/lib/router_topology.sh"

prefixes 5
echo "fpm address 127.0.0.1 port 2620" >"$work/zebra.conf"
configure '[feed]
fpm = "127.0.0.1:2620"'
refuse 1 "feed.fpm" "$program" run -c <(echo '[feed]'; echo 'fpm = "here"'; echo '[[interface]]'; echo 'name = "r0"')
start_router
echo "before FRR connects there are no routes, and the comparison with the kernel lists them"
status=0
"$program" fib diff kernel --socket "$work/sock" --settle 100ms -j >"$work/differences.json" 2>"$work/differences.log" || status=$?
[ "$status" -eq 1 ] || fail "fib diff kernel ended with $status: $(cat "$work/differences.log")"
json 'got = {(entry["what"], entry["of"], entry["kernel"]["via"][0]["dev"], "router" in entry) for entry in d}
want = {("route", net, f"r{n}", False) for n in range(3) for net in (f"10.0.{n}.0/24", f"fd00:{n}::/64".replace(":0:", ":"))}
assert got == want, got' <"$work/differences.json" || fail "not the differences that there are"
halves
frr zebra -M dplane_fpm_nl
wait_for 10 test -S "$work/frr/zserv" || fail "zebra does not start"
frr bgpd
settled() { [ "$(have)" -ge "$total" ]; }
wait_for 100 settled || fail "the router has $(have) of $total routes"
show audit
rest
# zebra sends routes to the router before it puts them into the kernel, which may take a while.
agrees 20s
same
check both
show feeds
# Bash's own way to connect: a process that may not read this tree can do it.
connect_as_nobody() {
    within router setpriv --reuid 65534 --regid 65534 --clear-groups \
        timeout 20 bash -c 'exec 3<>/dev/tcp/127.0.0.1/2620; cat <&3' >/dev/null 2>&1 || true
}
refused() { grep -q "fpm: connection from 127.0.0.1:[0-9]* refused: $1" "$work/fingerpost.log"; }
echo "a second peer is refused while zebra is connected"
connect_as_nobody
wait_for 10 refused "another peer is connected" || fail "no refusal in the log: $(cat "$work/fingerpost.log")"
agrees

echo "a's daemon ends: its half goes"
# shellcheck disable=SC2046
kill -KILL $(ip netns pids "${prefix}a")
half() { [ "$(have)" -le $((total * 6 / 10)) ]; }
within router ip link set r1 down
within router ip link set r1 up
wait_for 60 half || fail "the routes of a stay: $(have)"
rest
agrees
check b

echo "zebra and bgpd are killed and started again: routes stay meanwhile, and are sent again"
# shellcheck disable=SC2154
kill -KILL "$frr_bgpd" "$frr_zebra"
wait "$frr_bgpd" "$frr_zebra" 2>/dev/null || true
# Refusals are logged every five seconds: the connection is made until this one is.
refused_nobody() { connect_as_nobody; refused "user 65534 is not in feed.fpm_users"; }
wait_for 20 refused_nobody || fail "no refusal in the log: $(cat "$work/fingerpost.log")"
check b
rm -f "$work/frr/zserv"
frr zebra -M dplane_fpm_nl
wait_for 10 test -S "$work/frr/zserv" || fail "zebra does not start again"
frr bgpd
sleep 8
half_there() { [ "$(have)" -ge $((total * 4 / 10)) ]; }
wait_for 60 half_there || fail "the routes of b do not come back: $(have)"
rest
# zebra sends routes to the router before it puts them into the kernel, which may take a while.
agrees 20s
same
check b


echo "the router is killed, and starts by an image: it forwards before FRR has sent a route"
stop_router
configure "[feed]
fpm = \"127.0.0.1:2620\"
[image]
path = \"$work/table.image\""
start_router
wait_for 60 half_there || fail "FRR does not send the routes again: $(have)"
rest
agrees 20s
"$program" save --socket "$work/sock" | sed 's/^/   /'
kill -KILL "$router"
wait "$router" 2>/dev/null || true
# Neither the kernel forwards nor does FRR send routes.
kill -STOP "$frr_zebra"
stop_kernel
start_router
check b
[ "$(have)" -lt 100 ] || fail "there are routes, so the image has not been tried: $(have)"
kill -CONT "$frr_zebra"
resume_kernel
wait_for 60 half_there || fail "FRR does not send the routes again: $(have)"
rest
agrees 20s
same
check b
stop_router
