#!/usr/bin/env bash
# BIRD feeds the router a full table, by BGP and the kernel:
#
#   source s0 ── r0 router r1 ── a0 a: BIRD, half of the table
#                (BIRD)    r2 ── b0 b: BIRD, the other half
#
# Nothing of BIRD is patched or told of the router: it puts its routes into the kernel.
# After every change the router must have the kernel's routes, all of them, within two
# seconds; packets are sent the whole time and looked at where they come out (follow.py).
. "$(dirname "$0")/place.sh"

data=${FINGERPOST_DATA:-$here/../shared/data}
table=$data/ipv4-20260730-routeviews-origin.dat.gz
if [ -f "$table" ]; then
    zcat "$table" | awk '!/^;/ {print $1}' >"$work/prefixes"
else
    "$program" table generate --v4 100000 2>/dev/null | awk '!/:/ {print $1}' >"$work/prefixes"
fi
total=$(wc -l <"$work/prefixes")

for name in source router a b; do
    namespace "$name"
done
join source s0 02:00:00:00:01:02 router r0 02:00:00:00:01:01
join a a0 02:00:00:00:02:02 router r1 02:00:00:00:02:01
join b b0 02:00:00:00:03:02 router r2 02:00:00:00:03:01
within router sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
within router ip addr add 10.0.0.1/24 dev r0
within source ip addr add 10.0.0.2/24 dev s0
within router ip addr add 10.0.1.1/24 dev r1
within a ip addr add 10.0.1.2/24 dev a0
within router ip addr add 10.0.2.1/24 dev r2
within b ip addr add 10.0.2.2/24 dev b0

# Every other prefix by a, the rest by b.
awk -v work="$work" '{ print "route " $1 " blackhole;" >(work "/" (NR % 2 ? "a" : "b") ".routes") }' "$work/prefixes"
for name in a b; do
    number=$([ "$name" = a ] && echo 1 || echo 2)
    cat >"$work/$name.conf" <<CONF
router id 10.0.$number.2;
log stderr { warning, error, fatal, bug };
protocol device {}
protocol static its_half {
    ipv4;
    include "$work/$name.routes";
}
protocol bgp to_router {
    local 10.0.$number.2 as 6500$number;
    neighbor 10.0.$number.1 as 65000;
    ipv4 { import none; export all; };
}
CONF
done
cat >"$work/router.conf" <<CONF
router id 10.0.0.1;
log stderr { warning, error, fatal, bug };
protocol device { scan time 10; }
protocol kernel { scan time 60; ipv4 { import none; export all; }; }
protocol bgp from_a { local 10.0.1.1 as 65000; neighbor 10.0.1.2 as 65001; ipv4 { import all; export none; }; }
protocol bgp from_b { local 10.0.2.1 as 65000; neighbor 10.0.2.2 as 65002; ipv4 { import all; export none; }; }
CONF
printf 'interface = [{ name = "r0" }, { name = "r1" }, { name = "r2" }]\n[control]\nsocket = "%s"\n' \
    "$work/sock" >"$work/router.toml"

show() { "$program" show --socket "$work/sock" "$@"; }
have() { show -j fib | json 'print(d[0]["routes"])'; }
same() { "$python" "$here/smoke/routes.py" "${prefix}router" "$program" "$work/sock" "${1:-2}"; }
# BIRD has said all that it has to say, and the router taken it over.
changes() { show -j feeds | json 'print(d[0]["changes"])'; }
silent() {
    local before
    before=$(changes)
    sleep 1
    [ "$(changes)" = "$before" ]
}
birdc() { within "$1" birdc -s "$work/$1.ctl" "${@:2}"; }
daemon() {
    launch "$1" bird -f -c "$work/$1.conf" -s "$work/$1.ctl" 2>"$work/$1.log"
    printf -v "bird_$1" %s "$launched"
}
now() { date +%s.%N; }
since() { "$python" -c "import sys, time; print(f'{time.time() - float(sys.argv[1]):.2f}')" "$1"; }
# Packets to every 500th prefix or so come out where BIRD says.
check() { "$python" "$here/smoke/follow.py" "$prefix" "$work/prefixes" "$1"; }

for name in router a b; do
    bird -p -c "$work/$name.conf" 2>"$work/$name.log" || fail "BIRD does not like $name.conf"
done

launch router "$program" run -c "$work/router.toml" -j >"$work/report.json" 2>"$work/fingerpost.log"
router=$launched
wait_for 10 grep -q 'following the kernel after' "$work/fingerpost.log" || fail "the router does not start"
start=$(now)
daemon router
daemon a
daemon b
# The kernel's count is quick to ask; the router's must follow.
full() { [ "$(birdc router show route count | awk '/of.*routes for/ {print $1; exit}')" -ge "$total" ]; }
wait_for 120 full || fail "BIRD has not all routes: $(birdc router show route count)"
echo "   BIRD has $total routes after $(since "$start") s"
settled() { [ "$(have)" -ge "$total" ]; }
last=$(now)
wait_for 120 settled || fail "the router has $(have) of $total routes"
echo "   the router has them $(since "$last") s later"
wait_for 60 silent || fail "BIRD does not come to rest"
same
check both

echo "a session is reset: half of the table goes and comes"
birdc router disable from_a >/dev/null
half() { [ "$(have)" -le $((total * 6 / 10)) ]; }
wait_for 60 half || fail "the routes of a stay: $(have)"
wait_for 60 silent || fail "BIRD does not come to rest"
same
check b
birdc router enable from_a >/dev/null
wait_for 120 settled || fail "the routes of a do not come back: $(have)"
wait_for 60 silent || fail "BIRD does not come to rest"
same
check both

echo "BIRD is killed and started again: the kernel keeps its routes, and so does the router"
# shellcheck disable=SC2154
kill -KILL "$bird_router"
wait "$bird_router" 2>/dev/null || true
check both
daemon router
wait_for 120 full || fail "BIRD does not come back"
wait_for 60 silent || fail "BIRD does not come to rest"
same
check both

echo "the router is killed: the kernel forwards; started again it has a full table"
kill -KILL "$router"
wait "$router" 2>/dev/null || true
check both
start=$(now)
launch router "$program" run -c "$work/router.toml" -j >"$work/report.json" 2>"$work/fingerpost.log"
router=$launched
wait_for 20 grep -q 'following the kernel after' "$work/fingerpost.log" || fail "the router does not start again"
echo "   forwarding $(since "$start") s after its start"
same 2
check both
show fib
show feeds

kill -INT "$router"
status=0
wait "$router" || status=$?
[ "$status" -eq 0 ] || fail "the router ended with $status"
json 'r = d; assert r["balanced"]; assert r["received"] == r["sent"] + sum(r["punted"].values()) + sum(r["dropped"].values()); print(r["received"], "packets received, and every one counted")' <"$work/report.json"
