# Random packets through a router between three hosts, and what arrives: the router is Linux alone, or Fingerpost.
# Source it in place of router_topology.sh.
#
#   source s0 ── r0 router r1 ── a0 a       the link of a has an MTU of 1400 bytes
#                          r2 ── b0 b
#
# FINGERPOST_PACKETS: the number of packets, by default $packets or 5000; FINGERPOST_SEED: the first seed;
# FINGERPOST_FILTERED: see linux_packets.py.
. "$(dirname "${BASH_SOURCE[0]}")/router_topology.sh"

packets=${FINGERPOST_PACKETS:-${packets:-5000}} seed=${FINGERPOST_SEED:-1}
narrow 1400
hosts_own_checksums
within router ip route add 11.0.0.0/8 via 10.0.1.2
within router ip route add 12.0.0.0/8 via 10.0.2.2
within router ip route add 10.66.0.0/16 via 10.0.0.2
within router ip -6 route add 2001:db8::/48 via fd00:1::2
within router ip -6 route add fd77::/64 via fd00::2
at=0
for kind in unreachable prohibit blackhole; do
    within router ip route add "$kind" "20.$at.0.0/16"
    within router ip -6 route add "$kind" "2001:db8:2$at::/48"
    at=$((at + 1))
done
within router sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0 net.ipv4.icmp_msgs_per_sec=100000 net.ipv4.icmp_msgs_burst=1000
# A host that is no router drops what is not its own.
for name in source a b; do within "$name" sysctl -qw net.ipv4.ip_forward=0; done
# Written once, and sent in each pass. Meanwhile the router's duplicate address detection ends.
within source "$python" "$here/smoke/linux_packets.py" write "$seed" "$packets" >"$work/packets" &
written=$!
sleep 2
wait "$written" || fail "no packets"

# Writes what arrives at each host of the packets that source sends to files with this name.
pass() { # NAME
    local host receivers=()
    rm -f "$work/stop"
    for host in source:s0 a:a0 b:b0; do
        launch "${host%:*}" "$python" "$here/smoke/random_arrivals.py" "${host#*:}" "$work/stop" >"$work/$1.${host%:*}" 2>"$work/ready.${host%:*}"
        receivers+=("$launched")
        wait_for 60 grep -q ready "$work/ready.${host%:*}" || fail "${host%:*} does not receive"
    done
    # The neighbors are known before the first packet.
    within router ping -c 1 -q 10.0.0.2 >/dev/null && within router ping -c 1 -q 10.0.1.2 >/dev/null && within router ping -c 1 -q 10.0.2.2 >/dev/null
    within router ping -c 1 -q fd00::2 >/dev/null && within router ping -c 1 -q fd00:1::2 >/dev/null
    within source "$python" "$here/smoke/send_packets.py" s0 "$work/packets" || fail "source cannot send"
    sleep 1
    : >"$work/stop"
    local receiver
    for receiver in "${receivers[@]}"; do
        wait "$receiver" || fail "a receiver: $(cat "$work"/ready.*)"
    done
}

# Fails if what has arrived through the router is not what arrived through the kernel.
compare() {
    [ -z "${FINGERPOST_KEEP:-}" ] || cp -r "$work" "$FINGERPOST_KEEP"
    local host differs=
    for host in a b source; do
        [ -s "$work/kernel.$host" ] || fail "the kernel sends nothing to $host"
        diff "$work/kernel.$host" "$work/router.$host" >"$work/difference.$host" || {
            echo "$host: $(grep -c '^[<>]' "$work/difference.$host") frames differ"
            "$python" "$here/smoke/linux_packets.py" explain <(sed -n 1,20p "$work/difference.$host")
            differs=1
        }
    done
    [ -z "${differs:-}" ] || fail "the router differs from the kernel: $(show counters)"
}

# The number of frames that have arrived.
arrived() { cat "$work"/router.{a,b,source} | wc -l; }
