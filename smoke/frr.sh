#!/usr/bin/env bash
# FRR feeds the router by its Forwarding Plane Manager protocol, not by the kernel:
#
#   source s0 ── r0 router r1 ── a0 a: BIRD, half of a table
#                (FRR)     r2 ── b0 b: BIRD, the other half
#
# zebra sends what it has to the router, and puts the same into the kernel, which is what
# the router is compared with: it has not asked the kernel for a single route. Every fifth
# prefix of the full table, so that bgpd does not take minutes.
. "$(dirname "$0")/place.sh"

data=${FINGERPOST_DATA:-$here/../shared/data}
table=$data/ipv4-20260730-routeviews-origin.dat.gz
if [ -f "$table" ]; then
    zcat "$table" | awk '!/^;/ && ++n % 5 == 0 {print $1}' >"$work/prefixes"
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
for side in "a 1" "b 2"; do
    read -r name number <<<"$side"
    within router ip addr add "10.0.$number.1/24" dev "r$number"
    within "$name" ip addr add "10.0.$number.2/24" dev "${name}0"
done
awk -v work="$work" '{ print "route " $1 " blackhole;" >(work "/" (NR % 2 ? "a" : "b") ".routes") }' "$work/prefixes"
for side in "a 1" "b 2"; do
    read -r name number <<<"$side"
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
    connect retry time 1;
    error wait time 1, 2;
    ipv4 { import none; export all; };
}
CONF
    launch "$name" bird -f -c "$work/$name.conf" -s "$work/$name.ctl" 2>"$work/$name.log"
done
echo "fpm address 127.0.0.1 port 2620" >"$work/zebra.conf"
cat >"$work/bgpd.conf" <<'CONF'
router bgp 65000
 bgp router-id 10.0.0.1
 no bgp ebgp-requires-policy
 timers connect 1
 neighbor 10.0.1.2 remote-as 65001
 neighbor 10.0.2.2 remote-as 65002
CONF
cat >"$work/router.toml" <<CONFIG
interface = [{ name = "r0" }, { name = "r1" }, { name = "r2" }]
[feed]
fpm = "127.0.0.1:2620"
[control]
socket = "$work/sock"
CONFIG

show() { "$program" show --socket "$work/sock" "$@"; }
have() { show -j fib | json 'print(d[0]["routes"])'; }
changes() { show -j feeds | json 'print(d[0]["changes"])'; }
silent() {
    local before
    before=$(changes)
    sleep 1
    [ "$(changes)" = "$before" ]
}
same() {
    wait_for 60 silent || fail "FRR does not come to rest"
    "$python" "$here/smoke/routes.py" "${prefix}router" "$program" "$work/sock" 2
}
check() { "$python" "$here/smoke/follow.py" "$prefix" "$work/prefixes" "$1"; }
# FRR gives its rights up, and must get at its files after that.
chmod 711 "$work"
install -d -o frr -g frr "$work/frr"
frr() {
    launch router "/usr/lib/frr/$1" -f "$work/$1.conf" -i "$work/frr/$1.pid" \
        -z "$work/frr/zserv" --vty_socket "$work/frr" -A 127.0.0.1 -P 0 "${@:2}" >"$work/$1.log" 2>&1
    printf -v "frr_$1" %s "$launched"
}

refuse 1 "feed.fpm" "$program" run -c <(echo '[feed]'; echo 'fpm = "here"'; echo '[[interface]]'; echo 'name = "r0"')
launch router "$program" run -c "$work/router.toml" -j >"$work/report.json" 2>"$work/fingerpost.log"
router=$launched
wait_for 10 grep -q 'following the kernel after' "$work/fingerpost.log" || fail "the router does not start"
frr zebra -M dplane_fpm_nl
wait_for 10 test -S "$work/frr/zserv" || fail "zebra does not start"
frr bgpd
settled() { [ "$(have)" -ge "$total" ]; }
wait_for 100 settled || fail "the router has $(have) of $total routes"
same
check both
show feeds

echo "a's daemon ends: its half goes"
# shellcheck disable=SC2046
kill -KILL $(ip netns pids "${prefix}a")
half() { [ "$(have)" -le $((total * 6 / 10)) ]; }
within router ip link set r1 down
within router ip link set r1 up
wait_for 60 half || fail "the routes of a stay: $(have)"
same
check b

echo "zebra and bgpd are killed and started again: routes stay meanwhile, and are told anew"
# shellcheck disable=SC2154
kill -KILL "$frr_bgpd" "$frr_zebra"
wait "$frr_bgpd" "$frr_zebra" 2>/dev/null || true
check b
rm -f "$work/frr/zserv"
frr zebra -M dplane_fpm_nl
wait_for 10 test -S "$work/frr/zserv" || fail "zebra does not start again"
frr bgpd
sleep 8
half_there() { [ "$(have)" -ge $((total * 4 / 10)) ]; }
wait_for 60 half_there || fail "the routes of b do not come back: $(have)"
same
check b

kill -INT "$router"
status=0
wait "$router" || status=$?
[ "$status" -eq 0 ] || fail "the router ended with $status"
json 'r = d; assert r["balanced"]; print(r["received"], "packets received, and every one counted")' <"$work/report.json"
