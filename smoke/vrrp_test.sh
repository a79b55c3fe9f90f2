#!/usr/bin/env bash
# A virtual router (VRRP): FRR's vrrpd is the master for 10.0.0.254, and the host in `source` sends its
# packets to the virtual MAC, which a MAC-VLAN device over r0 has. Each result of the kernel alone is the
# one expected of the router.
#
#   source s0 ── r0 router r1 ── a0 a      11.0.0.1
#     default via 10.0.0.254: vrrp4-0-5 over r0, 00:00:5e:00:01:05
#
# in a VM: it needs a MAC-VLAN device
. "$(dirname "$0")/lib/router_topology.sh"

virtual=00:00:5e:00:01:05
own_checksums source s0
own_checksums a a0
for name in router a; do within "$name" sysctl -qw net.ipv4.icmp_ratelimit=0; done
within a ip addr add 11.0.0.1/32 dev lo
within a ip route add default via 10.0.1.1
within router ip route add 11.0.0.0/8 via 10.0.1.2
within router ip link add vrrp4-0-5 link r0 address "$virtual" type macvlan mode bridge
within router ip link set vrrp4-0-5 up
within router ip addr add 10.0.0.254/24 dev vrrp4-0-5
# As FRR's manual has it: each device answers ARP for its own addresses.
for device in r0 vrrp4-0-5; do
    within router sysctl -qw "net.ipv4.conf.$device.arp_ignore=1" "net.ipv4.conf.$device.arp_announce=2"
done
within source ip route add default via 10.0.0.254
within router ip link set r1 mtu 1400

printf '%s\n' 'interface r0' ' vrrp 5 version 3' ' vrrp 5 ip 10.0.0.254' >"$work/vrrpd.conf"
frr zebra
wait_for 20 test -S "$work/frr/zserv" || fail "zebra does not start"
frr vrrpd
vrrp() { vtysh --vty_socket "$work/frr" -c 'show vrrp json'; }
is_master() { vrrp | json 'assert d[0]["v4"]["status"] == "Master", d'; }
wait_for 20 is_master || fail "vrrpd is not the master: $(vrrp)"

# Prints the properties that the host observes: the MAC of its gateway, the path, the path MTU.
seen() {
    within source ip neigh flush dev s0
    within source ping -c 5 -i 0.02 -W 2 11.0.0.1 >"$work/ping.log" || return 1
    within source ip neigh show 10.0.0.254 | awk '{ print $1, $5 }'
    observed_path
}
seen >"$work/kernel" || fail "the kernel alone: $(cat "$work/ping.log")"
grep -q "^10.0.0.254 $virtual$" "$work/kernel" || fail "the kernel alone: $(cat "$work/kernel")"
grep -q "mtu = 1400" "$work/kernel" || fail "the kernel alone: $(cat "$work/kernel")"
sed 's/^/   the kernel alone: /' "$work/kernel"

configure
start_router
secondary() { show -j interfaces | json "print(*next(link.get('secondary_macs', []) for link in d if link['name'] == 'r0'))"; }
is_secondary() { [ "$(secondary)" = "$1" ]; }
sent() { show -j counters | json 'print(d[0]["sent"])'; }
forwards() {
    local before
    before=$(sent)
    seen >"$work/router" || fail "the router: $(cat "$work/ping.log")"
    diff "$work/kernel" "$work/router" || fail "the host sees another router"
    # Five pings and their answers, and a probe and its answer; the first packet waits for a neighbor.
    [ $(($(sent) - before)) -ge 8 ] || fail "the router has sent $(($(sent) - before)): $(show interfaces)"
}
wait_for 5 is_secondary "$virtual" || fail "no secondary MAC: $(show interfaces)"
forwards
echo "   the router: the same, and it has forwarded the packets"

echo "the device goes down, as keepalived takes it down: no router has the address"
within router ip link set vrrp4-0-5 down
wait_for 5 is_secondary "" || fail "$(show interfaces)"
within source ping -c 2 -i 0.2 -W 1 -q 11.0.0.1 >/dev/null && fail "packets to the virtual MAC are forwarded"
within router ip link set vrrp4-0-5 up
wait_for 5 is_secondary "$virtual" || fail "$(show interfaces)"
wait_for 20 is_master || fail "vrrpd is not the master again: $(vrrp)"
forwards
echo "   and comes back: forwarded again"
stop_router
