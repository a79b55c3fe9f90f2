#!/usr/bin/env bash
# Bonds: packets through a bond of two ports, and through a VLAN device over it, in each mode that the router
# forwards, with the kernel alone and with the router.
#
#   source s0 ── r0 router bond0 ═╤═ r1 ── a0 ═╤═ bond0 a      11.0.0.1 …
#                                 └─ r3 ── a3 ─┘
#
# in a VM: it needs bonds
. "$(dirname "$0")/lib/router_topology.sh"

join a a3 02:00:00:00:04:02 router r3 02:00:00:00:04:01
for end in "source s0" "a a0" "a a3"; do
    read -r name interface <<<"$end"
    own_checksums "$name" "$interface"
    own_tags "$name" "$interface"
done
# The answers to the probes of traceroute are Unreachables, by the router and by a.
for name in router a; do within "$name" sysctl -qw net.ipv4.icmp_ratelimit=0; done
within source ip route add 11.0.0.0/8 via 10.0.0.1
within router ip addr flush dev r1
within a ip addr flush dev a0
for host in {1..16}; do within a ip addr add "11.0.0.$host/32" dev lo; done

# `bond MODE`: makes a bond in that mode at both ends, over r1 and r3, and over a0 and a3, with addresses; and
# VLAN 100 over it.
bond() {
    local side name one two host
    for side in "router r1 r3 1" "a a0 a3 2"; do
        read -r name one two host <<<"$side"
        ! within "$name" ip link show bond0 >/dev/null 2>&1 || within "$name" ip link del bond0
        within "$name" ip link add bond0 type bond mode "$1" miimon 20
        [ "$1" != 802.3ad ] || within "$name" ip link set bond0 type bond lacp_rate fast xmit_hash_policy layer3+4
        for member in "$one" "$two"; do
            within "$name" ip link set "$member" down
            within "$name" ip link set "$member" master bond0
        done
        [ "$1" != active-backup ] || within "$name" ip link set bond0 type bond primary "$one"
        within "$name" ip link set bond0 up
        # The frames of bond0.100 must have their tags when they leave by a member.
        own_tags "$name" bond0 || true
        within "$name" ip addr add "10.0.9.$host/24" dev bond0
        within "$name" ip link add link bond0 name bond0.100 type vlan id 100
        within "$name" ip link set bond0.100 up
        within "$name" ip addr add "10.1.9.$host/24" dev bond0.100
    done
    within router ip link set bond0.100 mtu 1400
    within a ip route replace 10.0.0.0/24 via 10.0.9.1
}
# `aggregated NAME`: both members of the bond collect and distribute, by LACP, as their partners do (state 63).
# Until then the bond drops some of the frames that arrive.
aggregated() { [ "$(within "$1" grep -c "port state: 63$" /proc/net/bonding/bond0)" = 4 ]; }
# `lead_by GATEWAY SOURCE`: a's addresses are behind the bond, or behind the VLAN device over it.
lead_by() { within router ip route replace 11.0.0.0/8 via "$1"; within a ip route replace 10.0.0.0/24 via "$2"; }
answers() { within source ping -c 5 -i 0.02 -W 2 "$1" >"$work/ping.log"; }
each() {
    lead_by 10.0.9.2 10.0.9.1
    wait_for 20 answers 11.0.0.1 || fail "through the bond: $(cat "$work/ping.log")"
    observed_path
    lead_by 10.1.9.2 10.1.9.1
    wait_for 20 answers 11.0.0.1 || fail "through the VLAN device: $(cat "$work/ping.log")"
    observed_path
}
bond 802.3ad
for name in router a; do
    wait_for 30 aggregated "$name" || fail "LACP: $(within "$name" cat /proc/net/bonding/bond0)"
done
each >"$work/kernel"
grep -q "mtu = 1400" "$work/kernel" || fail "the kernel alone: $(cat "$work/kernel")"
sed 's/^/   the kernel alone: /' "$work/kernel"

# `fails_over PEER MEMBER OTHER`: while packets for some addresses pass, the end a of a member goes down, and returns.
# Prints how long the flows of the member take to leave by the other, whose end is OTHER.
fails_over() {
    local watchers=() name host pings=() counts
    launch router ip -tshort monitor link >"$work/events"
    watchers+=("$launched")
    for name in "$1" "$3"; do
        launch a tcpdump -tt -l -n -i "$name" icmp >"$work/arrivals.$name" 2>"$work/tcpdump.$name"
        watchers+=("$launched")
        wait_for 10 grep -q "listening on" "$work/tcpdump.$name" || fail "no tcpdump: $(cat "$work/tcpdump.$name")"
    done
    # Four seconds, since a busy guest takes the link down late.
    for host in {1..12}; do
        within source ping -q -c 200 -i 0.02 -W 1 "11.0.0.$host" >/dev/null &
        pings+=("$!")
    done
    sleep 1
    within a ip link set "$1" down
    wait "${pings[@]}" || true
    kill "${watchers[@]}"
    wait "${watchers[@]}" 2>/dev/null || true
    counts=$("$python" "$here/smoke/bond_failover.py" "$2" "$work/events" "$work/arrivals.$1" "$work/arrivals.$3") ||
        fail "$2 fails"
    echo "   $4: ${counts% *} flows of $2 leave by the other after at most ${counts#* } ms"
    [ "${counts#* }" -lt 1000 ] || fail "that is more than a second"
    within a ip link set "$1" up
}
fails_over a3 r3 a0 "the kernel alone"
wait_for 30 aggregated router || fail "LACP: $(within router cat /proc/net/bonding/bond0)"

configure "" '{ name = "r0" }, { name = "r1" }, { name = "r3" }'
start_router
members() { show -j interfaces | json 'print(*next((link["bond"]["members"] for link in d if link.get("bond")), []))'; }
has_members() { [ "$(members)" = "$1" ]; }
sent() { show -j counters | json 'print(d[0]["sent"])'; }
# `forwards ADDRESS`: the router itself forwards the packets, except for the first to an unknown neighbor.
forwards() {
    local before
    before=$(sent)
    answers "$1" || fail "$(cat "$work/ping.log"): $(show interfaces)"
    [ $(($(sent) - before)) -ge 8 ] ||
        fail "the router has sent $(($(sent) - before)) of 10: $(show interfaces)"
}

wait_for 5 has_members "r1 r3" || fail "$(show interfaces)"
each >"$work/router"
diff "$work/kernel" "$work/router" || fail "the host observes another router"
for gateways in "10.0.9.2 10.0.9.1" "10.1.9.2 10.1.9.1"; do
    # shellcheck disable=SC2086
    lead_by $gateways
    answers 11.0.0.1
    forwards 11.0.0.1
done
echo "   the router: the same, and it has forwarded the packets"

echo "the flows are distributed over the members"
arrived() { within a cat "/sys/class/net/$1/statistics/rx_packets"; }
lead_by 10.0.9.2 10.0.9.1
before="$(arrived a0) $(arrived a3)"
for host in {1..16}; do answers "11.0.0.$host" || fail "11.0.0.$host: $(cat "$work/ping.log")"; done
read -r one two <<<"$before"
one=$(($(arrived a0) - one)) two=$(($(arrived a3) - two))
echo "   $one packets by r1, $two by r3"
[ "$one" -ge 10 ] && [ "$two" -ge 10 ] || fail "$one by r1, $two by r3"

echo "a member fails and returns, while packets pass"
within source ping -c 400 -i 0.01 -W 1 11.0.0.1 >"$work/long.log" &
pings=$!
sleep 1
within a ip link set a3 down
wait_for 5 has_members r1 || fail "$(show interfaces)"
wait "$pings" || fail "$(tail -3 "$work/long.log")"
sed -n 's/^\(400 packets.*\), time.*/   \1/p' "$work/long.log"
forwards 11.0.0.1
within a ip link set a3 up
wait_for 20 has_members "r1 r3" || fail "$(show interfaces)"
forwards 11.0.0.2
wait_for 30 aggregated router || fail "LACP: $(within router cat /proc/net/bonding/bond0)"
fails_over a3 r3 a0 "802.3ad, the router"
wait_for 30 has_members "r1 r3" || fail "$(show interfaces)"

echo "active-backup: the active member alone sends"
bond active-backup
lead_by 10.0.9.2 10.0.9.1
wait_for 10 has_members r1 || fail "$(show interfaces)"
show interfaces | has_line "r3 is no active member of bond0" || fail "$(show interfaces)"
wait_for 20 answers 11.0.0.1
forwards 11.0.0.1
fails_over a0 r1 a3 "active-backup, the router"
wait_for 10 has_members r1 || fail "$(show interfaces)"
within router ip link set bond0 type bond primary r3
within a ip link set bond0 type bond primary a3
wait_for 10 has_members r3 || fail "$(show interfaces)"
answers 11.0.0.1 || true
forwards 11.0.0.1

echo "balance-xor, then a mode that is left to Linux"
bond balance-xor
lead_by 10.0.9.2 10.0.9.1
wait_for 10 has_members "r1 r3" || fail "$(show interfaces)"
wait_for 20 answers 11.0.0.1
forwards 11.0.0.1
bond balance-rr
lead_by 10.0.9.2 10.0.9.1
left() { show interfaces | has_line "r1 is a member of bond0, and the mode balance-rr is not forwarded"; }
wait_for 10 left || fail "$(show interfaces)"
wait_for 20 answers 11.0.0.1 || fail "the kernel does not forward: $(cat "$work/ping.log")"
stop_router
