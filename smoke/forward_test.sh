#!/usr/bin/env bash
# The router on AF_XDP between three veth pairs, by a configuration, judged by scapy:
#
#   source s0 ── r0 router r1 ── a0 a
#                          r2 ── b0 b
#
# Packets that must be forwarded arrive once, on the right side, byte for byte as scapy computes them; others
# do not arrive (forward_packets.py). Meanwhile the kernel still answers
# for the router's own addresses, and at the end every counter is as the packets were.
. "$(dirname "$0")/lib/namespaces.sh"

for name in source router a b; do
    namespace "$name"
done
join source s0 02:00:00:00:01:02 router r0 02:00:00:00:01:01
join a a0 02:00:00:00:02:02 router r1 02:00:00:00:02:01
join b b0 02:00:00:00:03:02 router r2 02:00:00:00:03:01
within router ip addr add 10.0.0.1/24 dev r0
within router ip addr add fd00::1/64 dev r0
within source ip addr add 10.0.0.2/24 dev s0
within source ip addr add fd00::2/64 dev s0

cat >"$work/routes.txt" <<'ROUTES'
11.0.0.0/8 10.0.1.2
11.1.2.0/24 10.0.2.2
12.0.0.0/8 b
2001:4::/32 a
2001:4:1::/48 fd00:2::2
2001:5::/32 b
14.0.0.0/8 blackhole
ROUTES
cat >"$work/router.toml" <<'CONFIG'
interface = [{ name = "r0" }, { name = "r1" }, { name = "r2" }]

[[nexthop]]
name = "a"
interface = "r1"
mac = "02:00:00:00:02:02"
address = "10.0.1.2"

[[nexthop]]
name = "b"
interface = "r2"
mac = "02:00:00:00:03:02"
address = "fd00:2::2"

[[nexthop]]
name = "b by its other address"
interface = "r2"
mac = "02:00:00:00:03:02"
address = "10.0.2.2"

[[routes]]
file = "routes.txt"

[[route]]
prefix = "15.0.0.0/8"
nexthop = "b"
CONFIG
printf '\n[control]\nsocket = "%s"\n' "$work/sock" >>"$work/router.toml"

"$program" forward -c "$work/router.toml" --check >"$work/check.log"
grep -q '^valid: 5 IPv4 and 3 IPv6 routes' "$work/check.log" || fail "--check: $(cat "$work/check.log")"

launch router "$program" forward -c "$work/router.toml" -j >"$work/report.json" 2>"$work/router.log"
router=$launched
wait_for 10 grep -q 'forwarding by' "$work/router.log" || fail "the router does not start"
for interface in r0 r1 r2; do
    grep -q "$interface, queue 0: AF_XDP copy" "$work/router.log" || fail "$interface is not in copy mode"
done
[ "$(programs router)" = "r0 r1 r2" ] || fail "programs on: $(programs router)"

# The kernel keeps its own: ARP, neighbor discovery and ping.
ip -n "${prefix}source" neigh flush dev s0
within source ping -c 2 -i 0.2 -W 2 -q 10.0.0.1 >"$work/ping.log" || fail "no answer from 10.0.0.1"
within source ping -c 2 -i 0.2 -W 2 -q fd00::1 >"$work/ping.log" || fail "no answer from fd00::1"

"$python" "$here/smoke/forward_packets.py" "$prefix" "$work/expected.json"

"$program" show --socket "$work/sock" -j interfaces >"$work/interfaces.json"
"$program" show --socket "$work/sock" nexthops >"$work/nexthops"
grep -q 'nexthop b by its other address via 10.0.2.2 dev r2 send uses 1' "$work/nexthops" ||
    fail "show nexthops: $(cat "$work/nexthops")"
refuse 1 'not available with static routes' "$program" show --socket "$work/sock" audit

# A reload reads the files again; no packet is lost, because no worker is replaced.
sed -i 's/^12.0.0.0.8 b$/12.0.0.0\/8 a/' "$work/routes.txt"
"$program" reload --socket "$work/sock" >"$work/reloaded" || fail "the reload fails"
grep -q '1 route changed' "$work/reloaded" || fail "reload: $(cat "$work/reloaded")"
"$program" show --socket "$work/sock" route 12.0.0.1 >"$work/get"
grep -q 'nexthop a via 10.0.1.2 dev r1' "$work/get" || fail "after the reload: $(cat "$work/get")"

kill -INT "$router"
status=0
wait "$router" || status=$?
[ "$status" -eq 0 ] || fail "the router ended with $status"
[ -z "$(programs router)" ] || fail "a program is left on: $(programs router)"
"$python" "$here/smoke/forward_counters.py" "$work/expected.json" "$work/report.json" "$work/interfaces.json"
