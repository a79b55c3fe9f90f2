#!/usr/bin/env bash
# The router that follows the kernel, between three veth pairs:
#
#   source s0 ── r0 router r1 ── a0 a
#                          r2 ── b0 b
#
# `ip` changes routes, links, addresses and neighbors; ping says whether packets still
# arrive, `ip -j route` what the router must know, and the counters that the packets went
# through the router and not past it through the kernel.
. "$(dirname "$0")/lib/router_topology.sh"

default_routes
for name in a b; do
    within "$name" ip addr add 11.0.0.1/8 dev lo
    within "$name" ip -6 addr add 2001:db8::1/32 dev lo
done
within router ip route add 11.0.0.0/8 via 10.0.1.2
within router ip -6 route add 2001:db8::/32 via fd00:1::2
configure

counter() { show -j counters | json "print(d[0]$1)"; }
# `arrive N ADDRESS`: N pings are answered, and the router, not the kernel, sent them.
arrive() {
    local before after
    before=$(counter '["sent"]')
    within source ping -c "$1" -i 0.05 -W 2 -q "$2" >"$work/ping.log" || fail "$2: $(cat "$work/ping.log")"
    after=$(counter '["sent"]')
    # Both ways; the first to an unknown neighbor may go by the kernel.
    [ $((after - before)) -ge $((2 * $1 - 2)) ] || fail "$2: the router sent $((after - before)) of $((2 * $1))"
}
lladdr() { show -j route "$1" | json 'print(d[0].get("mac"))'; }

# A check sees what a start would see: first the valid, then the invalid, each named.
check() { within router "$program" run -c "$1" --check "${@:2}"; }
cannot_start() { # TEXT CHANGE: of the configuration, by sed
    sed "$2" "$work/router.toml" >"$work/wrong.toml"
    refuse 1 "$1" check "$work/wrong.toml"
    refuse 1 "" within router timeout 20 "$program" run -c "$work/wrong.toml"
    check "$work/wrong.toml" --offline >"$work/offline.log" || fail "$1: the file alone is valid"
}
check "$work/router.toml" 2>"$work/check.log" | has_line '^valid: ports r0, r1, r2' || fail "--check"
! grep -q warning "$work/check.log" || fail "warnings: $(cat "$work/check.log")"
cannot_start 'r9: no such interface' 's/"r2"/"r9"/'
cannot_start 'lo: not an Ethernet interface' 's/"r2"/"lo"/'
cannot_start 'r0: 2 queues wanted, it has 1' 's/^\[workers\]/&\ncores = [0, 1]/'
cannot_start 'there is no core 999' 's/^\[workers\]/&\ncores = [999]/'
cannot_start 'cannot listen for metrics at 192.0.2.200:9273' '$a [metrics]\nlisten = "192.0.2.200:9273"'
within router tc qdisc add dev r2 root tbf rate 10mbit burst 10kb latency 50ms
check "$work/router.toml" >"$work/check.log" 2>&1 || fail "a queueing discipline is no error"
grep -q "warning: r2 has the queueing discipline tbf" "$work/check.log" || fail "$(cat "$work/check.log")"
within router tc qdisc del dev r2 root
within router ip link add d0 type veth peer name d1
sed 's/"r2"/"d0"/; $a [image]\npath = "/no/such/folder/image"' "$work/router.toml" >"$work/warned.toml"
check "$work/warned.toml" -j >"$work/check.json" || fail "warnings are no errors"
json 'assert d["valid"] and not d["errors"], d
down, folder = sorted(d["warnings"])
assert down.startswith("d0 is down") and folder.startswith("image.path: the folder /no/such/folder does not exist"), d' \
    <"$work/check.json"
within router ip link delete d0
[ -z "$(programs router)" ] || fail "a check leaves programs on: $(programs router)"
refuse 1 "no router answers here" show routes

start_router
[ "$(programs router)" = "r0 r1 r2" ] || fail "programs on: $(programs router)"
same
agrees

# A router's own programs are no finding; others are.
check "$work/router.toml" >"$work/check.log" || fail "--check beside a router at work"
sed "s|$work/sock|$work/other.sock|" "$work/router.toml" >"$work/other.toml"
refuse 1 "r0: another XDP program is attached" check "$work/other.toml"

echo "a second one is refused, and the first goes on"
refuse 1 "" within router "$program" run -c "$work/router.toml"
arrive 5 11.0.0.1
arrive 5 2001:db8::1
arrive 5 10.0.1.2
[ "$(lladdr 11.0.0.1)" = 02:00:00:00:02:02 ] || fail "11.0.0.1 by $(lladdr 11.0.0.1)"

echo "a route changes its gateway"
within router ip route replace 11.0.0.0/8 via 10.0.2.2
same
wait_for 2 [ "$(lladdr 11.0.0.1)" = 02:00:00:00:03:02 ] || true
arrive 5 11.0.0.1
[ "$(lladdr 11.0.0.1)" = 02:00:00:00:03:02 ] || fail "11.0.0.1 by $(lladdr 11.0.0.1)"

echo "own and broadcast addresses, half of a /30, are no difference: the kernel delivers them too"
within router ip addr add 10.0.77.1/30 dev r2
for seed in 1 2 3 4 5 6 7 8; do
    "$program" fib diff kernel --socket "$work/sock" --sample 1000 --seed "$seed" 2>"$work/diff.log" ||
        fail "seed $seed: $(cat "$work/diff.log")"
done
within router ip addr del 10.0.77.1/30 dev r2

echo "a longer one, a blackhole, a prohibition, two ways, and all gone again"
within router ip route add 11.0.0.0/24 via 10.0.1.2
within router ip route add blackhole 12.0.0.0/8
within router ip route add prohibit 13.0.0.0/8
within router ip route add 14.0.0.0/8 nexthop via 10.0.1.2 weight 1 nexthop via 10.0.2.2 weight 3
within router ip -6 route add 2001:db9::/32 nexthop via fd00:1::2 nexthop via fd00:2::2
within router ip nexthop add id 7 via 10.0.2.2 dev r2
within router ip route add 15.0.0.0/8 nhid 7
same
within router ip route add unreachable 16.0.0.0/8
within router ip -6 route add blackhole 2001:dba::/32
within router ip -6 route add prohibit 2001:dbb::/32
# Every route asked for by an address too: what the kernel's lookup says of each kind.
"$program" fib diff kernel --socket "$work/sock" --sample 1000 -j 2>"$work/diff.log" | json 'assert d == [], d'
grep -Eq ' 1[5-9] routes and 1[5-9] addresses .* 0 differences' "$work/diff.log" || fail "$(cat "$work/diff.log")"
arrive 5 11.0.0.1
[ "$(lladdr 11.0.0.1)" = 02:00:00:00:02:02 ] || fail "11.0.0.1 by $(lladdr 11.0.0.1)"
within source ping -c 1 -W 0.2 -q 12.0.0.1 >/dev/null && fail "12.0.0.1 answers"
[ "$(counter '["dropped"]["blackhole"]')" -eq 1 ] || fail "no packet dropped for the blackhole"
within source ping -c 1 -W 1 13.0.0.1 >"$work/ping.log" && fail "13.0.0.1 answers"
grep -qi 'prohibited\|filtered' "$work/ping.log" || fail "the kernel does not refuse 13.0.0.1: $(cat "$work/ping.log")"
within router ip nexthop del id 7
for gone in 11.0.0.0/24 12.0.0.0/8 13.0.0.0/8 14.0.0.0/8 16.0.0.0/8; do
    within router ip route del "$gone"
done
agrees

echo "a neighbor's MAC changes"
within b ip link set b0 address 02:00:00:00:03:09
within router ip neigh replace 10.0.2.2 lladdr 02:00:00:00:03:09 dev r2
wait_for 2 eval '[ "$(lladdr 11.0.0.1)" = 02:00:00:00:03:09 ]' || fail "the new MAC is not taken: $(lladdr 11.0.0.1)"
arrive 5 11.0.0.1

echo "a link goes down, and its routes without a word"
within router ip link set r2 down
same
show route 11.0.0.1 >/dev/null && fail "11.0.0.1 has a route"
within router ip link set r2 up
within router ip -6 addr add fd00:2::1/64 dev r2 2>/dev/null || true
within router ip route add 11.0.0.0/8 via 10.0.2.2
same
arrive 5 11.0.0.1

echo "an address of the router's comes and goes"
within router ip addr add 10.9.9.9/32 dev lo
within source ping -c 2 -i 0.1 -W 2 -q 10.9.9.9 >"$work/ping.log" || fail "no answer from 10.9.9.9"
within router ip addr del 10.9.9.9/32 dev lo
same

echo "the router is killed: the kernel forwards, and nothing is left; it comes back"
kill -KILL "$router"
wait "$router" 2>/dev/null || true
within source ping -c 3 -i 0.05 -W 1 -q 11.0.0.1 >"$work/ping.log" || fail "the kernel does not take over: $(cat "$work/ping.log")"
[ -z "$(programs router)" ] || fail "a program is left on: $(programs router)"
[ -z "$(ip -n "${prefix}router" -br link show type tun)" ] || fail "the TUN device is left"
start_router
same
arrive 5 11.0.0.1

show -j audit | json 'assert d[0]["checks"] > 0 and d[0]["mismatches"] == 0, d' || fail "the auditor"

for what in routes neighbors interfaces nexthops counters fib feeds workers audit; do
    show -j "$what" | json 'assert d, "empty"' || fail "show -j $what"
    show "$what" >/dev/null || fail "show $what"
done
show routes 11.0.0.0/8 | has_line '^11.0.0.0/8 via 10.0.2.2 dev r2$' || fail "show routes 11.0.0.0/8"
within router ip route replace 11.0.0.0/8 via 10.0.2.2 metric 7 proto bird
within router ip route del 11.0.0.0/8 metric 0
same
show -j route 11.0.0.1 | json 'entry = d[0]; assert (entry["protocol"], entry["metric"], entry["age_or_more"]) == ("bird", 7, False) and entry["age"] < 60, entry' || fail "where the route comes from"
for words in 'proto bird metric 7, unchanged for [0-9]* s$' 'generation' 'lladdr 02:00:00:00:03:09'; do
    show route 11.0.0.1 --explain | has_line "$words" || fail "--explain: no $words: $(show route 11.0.0.1 --explain)"
done
refuse 1 "nonsense" show routes nonsense

stop_router
