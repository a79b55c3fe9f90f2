#!/usr/bin/env bash
# BIRD feeds the router a full IPv6 table, by BGP over IPv6 and the kernel; a session is
# reset, an interface goes down and up, and packets to what stays lose nothing.
#
#   source s0 ── r0 router r1 ── a0 a           a static route, for packets all the time
#                (BIRD)    r2 ── b0 b: BIRD, the table
. "$(dirname "$0")/lib/router_topology.sh"

table=${FINGERPOST_DATA:-$here/../shared/data}/ipv6-20260730-routeviews-origin.dat.gz
if [ -f "$table" ]; then
    zcat "$table" | awk '!/^;/ {print $1}' >"$work/prefixes"
else
    "$program" table generate --v6 50000 2>/dev/null | awk '/:/ {print $1}' >"$work/prefixes"
fi
total=$(wc -l <"$work/prefixes")


awk '{ print "route " $1 " blackhole;" }' "$work/prefixes" >"$work/b.routes"
cat >"$work/b.conf" <<CONF
router id 10.0.2.2;
log stderr { warning, error, fatal, bug };
protocol device {}
protocol static its_own {
    ipv6;
    include "$work/b.routes";
}
protocol bgp to_router {
    local fd00:2::2 as 65002;
    neighbor fd00:2::1 as 65000;
    connect retry time 1;
    error wait time 1, 2;
    ipv6 { import none; export all; };
}
CONF
cat >"$work/router.conf" <<'CONF'
router id 10.0.0.1;
log stderr { error, fatal, bug };
protocol device { scan time 10; }
protocol kernel { scan time 60; ipv6 { import none; export all; }; }
protocol bgp from_b { local fd00:2::1 as 65000; neighbor fd00:2::2 as 65002; error wait time 1, 2; ipv6 { import all; export none; }; }
CONF
have6() { show -j fib | json 'print(d[1]["routes"])'; }
settled() { [ "$(have6)" -ge "$total" ]; }
emptied() { [ "$(have6)" -lt 100 ]; }

configure
start_router
fly
start=$(now)
bird_in router
bird_in b
wait_for 90 settled || fail "the router has $(have6) of $total routes"
echo "   $total routes after $(since "$start") s"
rest
same

echo "the session is reset"
birdc router disable from_b >/dev/null
wait_for 60 emptied || fail "the routes stay: $(have6)"
rest
agrees
birdc router enable from_b >/dev/null
wait_for 90 settled || fail "the routes do not come back: $(have6)"
rest
agrees

echo "the interface goes down, and up"
within router ip link set r2 down
wait_for 60 emptied || fail "the routes stay: $(have6)"
rest
agrees
within router ip link set r2 up
# IPv6 addresses went with the interface, as Linux has it.
within router ip addr replace fd00:2::1/64 dev r2
wait_for 90 settled || fail "the routes do not come back: $(have6)"
rest
agrees
same

flown
show feeds
stop_router
