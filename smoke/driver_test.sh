#!/usr/bin/env bash
# Forwarding in the driver (`mode = "xdp"`) while things change: packets of a stream arrive once each, forwarded by
# the steering program where it can, and else by the workers; every packet is counted.
#
#   source s0 ── r0 router r1 ── a0 a      203.0.113.1 and 2001:db8::1
#                          r2 ── b0 b
. "$(dirname "$0")/lib/router_topology.sh"

mode=xdp
within a ip link set lo up
within a ip addr add 10.0.1.3/24 dev a0
within a ip addr add fd00:1::3/64 dev a0
within router ip route add 198.51.100.0/24 via 10.0.2.2

# Succeeds if packets of the stream are forwarded in the driver.
driven() {
    local before
    before=$(forwarded_in_driver)
    sleep 0.1
    [ "$(forwarded_in_driver)" -gt $((before + 20)) ]
}
# The workers forward them.
undriven() { ! driven; }
reload() { "$program" reload --socket "$work/sock" >"$work/reload" || fail "$(cat "$work/reload")"; }
again() { wait_for 5 driven || fail "the driver does not forward again: $(show interfaces)"; }

configure
refuse 1 'CAP_PERFMON missing' within router setpriv --bounding-set=-perfmon "$program" run -c "$work/router.toml"
cp "$work/router.toml" "$work/plain.toml"
start_router
wait_for 5 forwards_in_driver || fail "no forwarding in the driver: $(show interfaces)"
show interfaces | has_line 'XDP, AF_XDP copy' || fail "the mode: $(show interfaces)"
fly
again
checks() { show -j audit | json 'assert d[0]["mismatches"] == 0, d; print(d[0]["checks"])'; }
audited() { [ "$(checks)" -ge $(($1 + 10)) ]; }
# Of packets in the driver: the workers receive none.
wait_for 10 audited "$(checks)" || fail "packets in the driver are not audited: $(show audit)"
echo "an access list is the workers'"
cat >>"$work/router.toml" <<'CONFIG'
[[access_list]]
name = "edge"
inbound = ["r0"]
default = "permit"
rules = ["deny ipproto udp dport 9"]
CONFIG
reload
wait_for 5 undriven || fail "the driver forwards past an access list"
cp "$work/plain.toml" "$work/router.toml"
reload
again
echo "several next hops: the stream, of neither TCP nor UDP, is the workers'"
within router ip route replace 203.0.113.0/24 nexthop via 10.0.1.2 nexthop via 10.0.1.3
within router ip -6 route replace 2001:db8::/32 nexthop via fd00:1::2 nexthop via fd00:1::3
wait_for 5 undriven || fail "the driver forwards by several next hops"
within router ip route replace 203.0.113.0/24 via 10.0.1.3
within router ip -6 route replace 2001:db8::/32 via fd00:1::3
again
echo "a demoted interface, and promoted"
"$program" demote r0 --socket "$work/sock" >/dev/null
wait_for 5 undriven || fail "the driver forwards for an observed interface"
"$program" promote r0 --socket "$work/sock" >/dev/null
again
echo "another MTU of a link, and other routes"
within router ip link set r1 mtu 1400
again
for _ in {1..20}; do
    within router ip route replace 203.0.113.0/24 via 10.0.1.2
    within router ip route replace 203.0.113.1/32 via 10.0.1.3
    within router ip route del 203.0.113.1/32
done
again
flown

echo "a peer that no longer takes what is redirected"
pings() { within source ping -q -c 200 -i 0.01 -W 1 203.0.113.1 >"$work/pings" & pinging=$!; }
pings
sleep 0.5
within a ethtool -K a0 gro off
wait "$pinging" || fail "$(cat "$work/pings")"
lost=$(awk '/packets transmitted/ { print $1 - $4 }' "$work/pings")
[ "$lost" -le 10 ] || fail "the driver sends to a device that drops: $lost of 200 packets"
refused=$(show -j counters | json 'print(d[0]["dropped"].get("tx_refused", 0))')
[ "$refused" -eq "$lost" ] || fail "$lost packets were lost, and $refused count as refused: $(show counters)"
before=$(forwarded_in_driver)
within source ping -q -c 20 -i 0.01 -W 1 203.0.113.1 >/dev/null || fail "203.0.113.1 does not answer"
# Answers still leave by r0.
[ $(($(forwarded_in_driver) - before)) -eq 20 ] || fail "not the answers alone: $(show interfaces)"
echo "   $lost packets were lost"
within a ethtool -K a0 gro on

echo "killed: the kernel forwards, nothing is left, and it starts again"
pings
sleep 0.5
kill -KILL "$router"
wait "$router" 2>/dev/null || true
wait "$pinging" || fail "$(cat "$work/pings")"
lost=$(awk '/packets transmitted/ { print $1 - $4 }' "$work/pings")
[ "$lost" -le 2 ] || fail "$lost packets were lost"
[ -z "$(programs router)" ] || fail "a program is left on: $(programs router)"
start_router
wait_for 5 forwards_in_driver || fail "no forwarding in the driver: $(show interfaces)"
before=$(forwarded_in_driver)
within source ping -q -c 20 -i 0.01 -W 1 203.0.113.1 >/dev/null || fail "203.0.113.1 does not answer"
[ "$(forwarded_in_driver)" -ge $((before + 38)) ] || fail "the driver does not forward: $(show interfaces)"
echo "another mode, by a reload"
sed -i 's/mode = "xdp"/mode = "copy"/g' "$work/router.toml"
reload
within source ping -q -c 20 -i 0.01 -W 1 203.0.113.1 >/dev/null || fail "203.0.113.1 does not answer"
show interfaces | has_line 'XDP,' && fail "still forwarded in the driver: $(show interfaces)"
stop_router
json 'c = d["counters"] if "counters" in d else d; assert c["received"] == c["sent"] >= 80, c' <"$work/report.json" || fail "packets of the former mode are not counted"

echo "mode auto"
# `chooses [COMMAND...]`: a start with $work/router.toml, by COMMAND, forwards in the driver.
chooses() {
    launch router "$@" "$program" run -c "$work/router.toml" -j >"$work/report.json" 2>"$work/fingerpost.log"
    router=$launched
    wait_for 20 grep -q 'following the kernel after' "$work/fingerpost.log" || fail "the router does not start"
    # The programs are exchanged in the first turns of the control thread.
    wait_for 1 forwards_in_driver
}
sed -i 's/, mode = "copy"//g' "$work/router.toml"
chooses || fail "no forwarding in the driver: $(show interfaces)"
stop_router
chooses setpriv --bounding-set=-perfmon && fail "forwarded in the driver without CAP_PERFMON: $(show interfaces)"
within source ping -q -c 20 -i 0.01 -W 1 203.0.113.1 >/dev/null || fail "203.0.113.1 does not answer"
stop_router
printf '[fib]\nengine = "D18R"\n' >>"$work/router.toml"
chooses && fail "forwarded in the driver by an engine of the workers: $(show interfaces)"
stop_router
