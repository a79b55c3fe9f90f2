#!/usr/bin/env bash
# The router and Linux on Debian's own kernel, where they differ for VRF, bond, VLAN and MAC-VLAN devices.
# Each result of the kernel alone is the one expected of the router.
#
#   source s0 ── r0 router r1 ── a0 a      11.0.0.1, 2001:db8::1
#                          r2 ── b0 b      12.0.0.1
#
# in a VM: it needs devices that the kernel of a test machine may lack
#
# The processor is emulated, so that everything takes ten times as long: the router starts once.
. "$(dirname "$0")/lib/router_topology.sh"

hosts_own_checksums
# Every ICMP error is sent. The second limit is for all namespaces.
within router sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0
sysctl -qw net.ipv4.route.error_cost=0
default_routes
within a ip addr add 11.0.0.1/32 dev lo
within a ip -6 addr add 2001:db8::1/128 dev lo
within b ip addr add 12.0.0.1/32 dev lo
routes() {
    within router ip route replace 11.0.0.0/8 via 10.0.1.2
    within router ip route replace 12.0.0.0/8 via 10.0.2.2
    within router ip -6 route replace 2001:db8::/32 via fd00:1::2
}
routes
configure

state=off
sent() { show -j counters | json 'print(d[0]["sent"])'; }
pinged() { within source ping -c 5 -i 0.02 -W 2 -q "$1" >"$work/ping.log"; }
# `forwards ADDRESS`: five pings are answered; with the router on, the router itself has sent them, except
# for the first to an unknown neighbor.
forwards() {
    local before=0
    [ "$state" = off ] || before=$(sent)
    pinged "$1" || fail "router $state: $1: $(cat "$work/ping.log")"
    [ "$state" = off ] || [ $(($(sent) - before)) -ge 8 ] ||
        fail "$1: the kernel forwards, the router has sent $(($(sent) - before)) of 10: $(show interfaces)"
}
answers() { pinged "$1" || fail "router $state: no answer from $1: $(cat "$work/ping.log")"; }

launch a "$python" -c '
import hashlib, socket
server = socket.create_server(("::", 5001), family=socket.AF_INET6, dualstack_ipv6=True)
while True:
    connection, _ = server.accept()
    received = hashlib.sha256()
    while part := connection.recv(1 << 20):
        received.update(part)
    connection.sendall(received.digest())
    connection.close()'
disown "$launched"
transfer() {
    within source timeout 20 "$python" -c '
import hashlib, os, socket, sys
data = os.urandom(1 << 20)
for address in sys.argv[1:]:
    s = socket.create_connection((address, 5001))
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    answer = b""
    while part := s.recv(64):
        answer += part
    assert answer == hashlib.sha256(data).digest(), address' "$@" || fail "router $state: TCP to $*"
}
basic() {
    forwards 11.0.0.1
    forwards 2001:db8::1
    answers 10.0.0.1
    answers fd00:0::1
    transfer 11.0.0.1 2001:db8::1
    for to in "-4 11.0.0.1 10.0.0.1" "-6 2001:db8::1 fd00::1"; do
        read -r family address hop <<<"$to"
        within source traceroute "$family" -n -q 1 -w 3 -m 4 "$address" >"$work/trace.log" 2>&1
        [ "$(awk 'NR > 1 { print $2 }' "$work/trace.log" | paste -sd ' ')" = "$hop $address" ] ||
            fail "router $state: UDP traceroute: $(cat "$work/trace.log")"
    done
    echo "   router $state: ping, TCP and UDP traceroute pass, IPv4 and IPv6; own addresses answer"
}

# Addresses of IPv6 go as an interface enters or leaves a VRF, and its routes of both families.
within router ip link add red type vrf table 10
within router ip link set red up
within router ip route add vrf red unreachable default metric 4278198272
within router ip -6 route add vrf red unreachable default metric 4278198272
enslave() { # into the VRF: the way from source to a
    for port in r0 r1; do
        within router ip link set "$port" master red
        within router ip -6 addr replace "fd00:${port#r}::1/64" dev "$port" nodad
    done
    within router ip route replace vrf red 11.0.0.0/8 via 10.0.1.2
    within router ip -6 route replace vrf red 2001:db8::/32 via fd00:1::2
}
release() {
    for port in r0 r1; do
        within router ip link set "$port" nomaster
        within router ip -6 addr replace "fd00:${port#r}::1/64" dev "$port" nodad
    done
    routes
}
echoes() { within b awk '$1 == "Icmp:" { if (n) print $n; else for (n = 1; $n != "InEchos"; n++); }' /proc/net/snmp; }
# `$result` is how many of 10 pings to what only main has leave the VRF, and what ping reports.
leaving() {
    local before
    before=$(echoes)
    within source ping -c 10 -i 0.02 -W 1 -q 12.0.0.1 >"$work/ping.log" && fail "router $state: 12.0.0.1 answers"
    result="$(($(echoes) - before)) of 10 leave, $(grep -o '[0-9]* received.*loss' "$work/ping.log")"
}
# Forwarding in the VRF, and none out of it, unless its table is without a default route: then the
# kernel's rules lead on to main, from which no way leads back.
in_red() {
    local confined
    forwards 11.0.0.1
    forwards 2001:db8::1
    answers 10.0.0.1
    answers fd00:0::1
    leaving
    confined=$result
    within router ip route del vrf red unreachable default metric 4278198272
    leaving
    within router ip route add vrf red unreachable default metric 4278198272
    echo "   router $state: forwarding in the VRF; own addresses answer; pings to main: $confined;"
    echo "      without the VRF's default route: $result"
    result="$confined; $result"
}
# After a change of VRFs packets arrive within 2 seconds, and the router goes by the table TABLE after the
# workers are replaced.
follows() {
    local start
    start=$(now)
    wait_for 2 within source ping -c 1 -W 1 -q 11.0.0.1 || fail "no packet arrives 2 s after the change: $(show interfaces)"
    printf '   router on: a packet arrives after %s s, ' "$(since "$start")"
    wait_for 10 goes_by "$1" || fail "not by table $1: $(show interfaces)"
    echo "the router goes by table $1 after $(since "$start") s"
}
goes_by() {
    show -j interfaces | json "assert {link['table'] for link in d if link['name'] in ('r0', 'r1')} == {$1}"
}

# Devices that cannot be configured as ports: a VLAN device and a MAC-VLAN device over r2, and a bond of r1.
far() { # NAMESPACE DEVICE NUMBER: answers from 10.0.NUMBER.2 go out by the device
    within "$1" ip link set "$2" up
    within "$1" ip addr add "10.0.$3.2/24" dev "$2"
    within "$1" ip -6 addr add "fd00:$3::2/64" dev "$2" nodad
    within "$1" ip rule add from "10.0.$3.2" lookup "$3"
    within "$1" ip -6 rule add from "fd00:$3::2" lookup "$3"
    within "$1" ip route add default via "10.0.$3.1" table "$3"
    within "$1" ip -6 route add default via "fd00:$3::1" table "$3"
}
near() { # DEVICE NUMBER
    within router ip link set "$1" up
    near_addresses "$@"
}
near_addresses() {
    within router ip addr replace "10.0.$2.1/24" dev "$1"
    within router ip -6 addr replace "fd00:$2::1/64" dev "$1" nodad
}
over() { # DEVICE NUMBER
    for address in "10.0.$2.2" "fd00:$2::2"; do
        wait_for 5 within source ping -c 1 -W 1 -q "$address" || fail "router $state: $address over $1"
        pinged "$address" || fail "router $state: over $1: $(cat "$work/ping.log")"
    done
    echo "   router $state: packets are forwarded over $1"
}
join_bond() {
    within router ip link set r1 down
    within router ip link set r1 master bond0
}
leave_bond() {
    within router ip link set r1 nomaster
    within router ip link set r1 up
    within router ip -6 addr replace fd00:1::1/64 dev r1 nodad
    routes
}
problem() { show -j interfaces | json "print(next(link.get('problem') or '' for link in d if link['name'] == 'r1'))"; }

echo "the kernel alone"
basic
enslave
in_red
expected=$result
[[ $expected == "0 of 10 leave, 0 received, +10 errors, "*"10 of 10 leave, 0 received, 100%"* ]] || fail "the kernel alone: $expected"
release
within b ip link add link b0 name b0.100 type vlan id 100
within router ip link add link r2 name r2.100 type vlan id 100
within router ip link add link r2 name mac0 type macvlan mode bridge
within router ip link add bond0 type bond mode active-backup miimon 10
join_bond
near r2.100 3
near mac0 4
near bond0 5
far b b0.100 3
far b b0 4
far a a0 5
over r2.100 3
over mac0 4
over bond0 5

echo "as configured ports they are refused"
sed "1s/.*/interface = [{ name = \"r0\" }, { name = \"r2.100\" }, { name = \"mac0\" }, { name = \"bond0\" }, { name = \"r1\" }]/" \
    "$work/router.toml" >"$work/unfit.toml"
for option in "" --check; do
    refuse 1 "r2.100 is a VLAN device, which cannot be a port" \
        within router timeout 30 "$program" run -c "$work/unfit.toml" ${option:+"$option"}
    for reason in "mac0 is a MAC-VLAN device" "bond0 is a bond"; do
        grep -qF "$reason" "$work/refuse.log" || fail "run $option: no \"$reason\": $(cat "$work/refuse.log")"
    done
    echo "   run${option:+ $option}: status 1, each is named"
done
leave_bond

echo "the router, started with ports in a VRF"
enslave
start_router
state=on
in_red
[ "$result" = "$expected" ] || fail "the router: $result; the kernel: $expected"
echo "they leave it"
release
follows 254
basic
forwards 12.0.0.1
agrees
echo "they enter it"
enslave
follows 10
in_red
[ "$result" = "$expected" ] || fail "the router: $result; the kernel: $expected"
echo "and leave it again"
release
follows 254
forwards 11.0.0.1
forwards 2001:db8::1
forwards 12.0.0.1
answers 10.0.0.1

echo "other devices over ports"
over r2.100 3
# The MAC-VLAN device belongs to r2: b answers to its MAC, and it sends by r2.
secondary() { show -j interfaces | json "print(*next(link.get('secondary_macs', []) for link in d if link['name'] == 'r2'))"; }
is_secondary() { [ "$(secondary)" = "$1" ]; }
over mac0 4
mac=$(within router cat /sys/class/net/mac0/address)
is_secondary "$mac" || fail "mac0 has $mac: $(show interfaces)"
forwards 10.0.4.2
forwards fd00:4::2
within router ip link set mac0 down
wait_for 5 is_secondary "" || fail "mac0 is down: $(show interfaces)"
within router ip link set mac0 up
near_addresses mac0 4
wait_for 5 is_secondary "$mac" || fail "mac0 is up: $(show interfaces)"
over mac0 4
forwards 10.0.4.2
forwards fd00:4::2
echo "a port enters a bond, and leaves it"
join_bond
over bond0 5
wait_for 5 eval 'show interfaces | has_line "bond bond0 up .* members r1"' || fail "no bond: $(show interfaces)"
over bond0 5
leave_bond
wait_for 10 eval '[ -z "$(problem)" ]' || fail "the problem stays: $(show interfaces)"
forwards 11.0.0.1
stop_router
