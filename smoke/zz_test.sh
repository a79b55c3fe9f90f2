#!/usr/bin/env bash
# Forwarding in the driver (`mode = "xdp"`) while things change: packets of a stream arrive once each, forwarded by
# the steering program where it can, and else by the workers; every packet is counted.
#
#   source s0 ── r0 router r1 ── a0 a      203.0.113.1 and 2001:db8::1 are in a, then in b
#                          r2 ── b0 b
. "$(dirname "$0")/lib/router_topology.sh"

mode=xdp
within a ip link set lo up
for name in a b; do
    [ "$name" = a ] || within "$name" ip addr add 203.0.113.1/32 dev lo
    [ "$name" = a ] || within "$name" ip -6 addr add 2001:db8::1/128 dev lo
done
within b ip route add default via 10.0.2.1
within b ip -6 route add default via fd00:2::1

# Packets of the stream are forwarded in the driver; or they are the workers'.
count() { show -j counters | json "print(d[0]['$1'])"; }
driven() {
    local before
    before=$(forwarded_in_driver)
    sleep 0.1
    [ "$(forwarded_in_driver)" -gt $((before + 20)) ]
}
undriven() { ! driven; }

configure
start_router
wait_for 5 forwards_in_driver || fail "no forwarding in the driver: $(show interfaces)"
show interfaces | has_line 'XDP, AF_XDP copy' || fail "the mode: $(show interfaces)"
fly
wait_for 5 driven || fail "the driver forwards nothing: $(show interfaces)"
echo "an access list is the workers', and ends"
cp "$work/router.toml" "$work/plain.toml"
cat >>"$work/router.toml" <<'CONFIG'
[[access_list]]
name = "edge"
inbound = ["r0"]
rules = ["deny udp any any port = 9", "permit any"]
CONFIG
"$program" reload --socket "$work/sock" >"$work/reload" || fail "$(cat "$work/reload")"
wait_for 5 undriven || fail "an access list is not applied in the driver"
cp "$work/plain.toml" "$work/router.toml"
"$program" reload --socket "$work/sock" >"$work/reload" || fail "$(cat "$work/reload")"
wait_for 5 driven || fail "the driver does not forward again: $(show interfaces)"
echo "several next hops are the workers'"
within router ip route replace 203.0.113.0/24 nexthop via 10.0.1.2 nexthop via 10.0.2.2
within router ip -6 route del 2001:db8::/32
within router ip -6 route add 2001:db8::/32 nexthop via fd00:1::2 nexthop via fd00:2::2
wait_for 5 undriven || fail "several next hops in the driver"
within router ip route replace 203.0.113.0/24 via 10.0.1.2
within router ip -6 route del 2001:db8::/32
within router ip -6 route add 2001:db8::/32 via fd00:1::2
wait_for 5 driven || fail "the driver does not forward again: $(show interfaces)"
echo "a demoted interface, and promoted"
"$program" demote r0 --socket "$work/sock" >/dev/null
wait_for 5 undriven || fail "an observed interface forwards"
"$program" promote r0 --socket "$work/sock" >/dev/null
wait_for 5 driven || fail "a promoted interface does not forward: $(show interfaces)"
flown
stop_router
