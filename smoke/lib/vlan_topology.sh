# Sourced by the smoke tests of VLAN devices over the ports of a router.
#
#   source s0.100, s0.30 over outer, s0 ── r0 router r1 ── a0.300 a      11.0.0.1, 2001:db8::1
#
#   The router has r0.100, inner over customer (802.1ad) and r1.300, of which inner has a MAC of its own.
#
#   vlan NAMESPACE DEVICE LOWER PROTOCOL ID NETWORK HOST [MAC]   makes a VLAN device with addresses
#   ping_from DEVICE ADDRESS   sends five pings from source
#   forwards DEVICE ADDRESS    five pings are answered; with $state on, the router itself has sent them, except for
#                              the first to an unknown neighbor
#   go_by DEVICE GATEWAY GATEWAY6   the source reaches a by this device and these gateways
#   vlans, have_vlans NAMES    prints the VLAN devices that the router forwards for; compares them
. "$(dirname "${BASH_SOURCE[0]}")/router_topology.sh"

for end in "source s0" "a a0" "b b0"; do
    read -r name interface <<<"$end"
    own_checksums "$name" "$interface"
    own_tags "$name" "$interface"
done
for name in router a; do within "$name" sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0; done
sysctl -qw net.ipv4.route.error_cost=0

vlan() {
    local mac=${8:+address $8}
    # shellcheck disable=SC2086
    within "$1" ip link add link "$3" name "$2" $mac type vlan protocol "$4" id "$5"
    within "$1" ip link set "$2" up
    [ "$6" = - ] && return
    within "$1" ip addr add "10.1.$6.$7/24" dev "$2"
    within "$1" ip addr add "fd01:$6::$7/64" dev "$2" nodad
}
vlan router r0.100 r0 802.1Q 100 100 1
vlan router customer r0 802.1ad 200 - -
vlan router inner customer 802.1Q 30 30 1 02:00:00:00:09:30
vlan router r1.300 r1 802.1Q 300 44 1
vlan source s0.100 s0 802.1Q 100 100 2
vlan source outer s0 802.1ad 200 - -
vlan source s0.30 outer 802.1Q 30 30 2
vlan a a0.300 a0 802.1Q 300 44 2
# Priorities of packets by those of their tags: the inner device decides.
within source ip link set s0.100 type vlan egress 0:3 6:2
within source ip link set outer type vlan egress 0:5
within source ip link set s0.30 type vlan egress 0:4
within router ip link set r0.100 type vlan ingress 3:6 2:15
within router ip link set customer type vlan ingress 5:6
within router ip link set inner type vlan ingress 4:2
within router ip link set r1.300 mtu 1400 type vlan egress 0:3 2:1 6:5 15:7
within a ip addr add 11.0.0.1/32 dev lo
within a ip -6 addr add 2001:db8::1/128 dev lo
within a ip route add default via 10.1.44.1
within a ip -6 route add default via fd01:44::1
routes() {
    within router ip route replace 11.0.0.0/8 via 10.1.44.2
    within router ip -6 route replace 2001:db8::/32 via fd01:44::2
}
routes

state=off
sent() { show -j counters | json 'print(d[0]["sent"])'; }
ping_from() { within source ping -c 5 -i 0.02 -W 2 -I "$1" "$2" >"$work/ping.log"; }
forwards() {
    local before=0
    [ "$state" = off ] || before=$(sent)
    ping_from "$1" "$2" || fail "router $state: $1 to $2: $(cat "$work/ping.log")"
    [ "$state" = off ] || [ $(($(sent) - before)) -ge 8 ] ||
        fail "$1 to $2: the kernel forwards, the router has sent $(($(sent) - before)) of 10: $(show interfaces)"
}
go_by() {
    within source ip route replace 11.0.0.0/8 via "$2" dev "$1"
    within source ip -6 route replace 2001:db8::/32 via "$3" dev "$1"
}
vlans() {
    show -j interfaces | json 'print(*[v["name"] for i in d if i["name"] != "c0" for v in i.get("vlans", []) if "problem" not in v])'
}
have_vlans() { [ "$(vlans)" = "$1" ]; }
