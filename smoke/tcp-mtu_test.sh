#!/usr/bin/env bash
# runs alone: it measures rates
# TCP by a path whose second link has a smaller MTU: the sender learns it from the router, and the transfer
# has the rate of its link, with the kernel alone and with the router.
#
#   source s0 ── r0 router r1 ── a0 a       MTU 1500, and 1400 from the router to a
. "$(dirname "$0")/lib/router_topology.sh"

rate=${FINGERPOST_RATE:-300}
seconds=${FINGERPOST_SECONDS:-4}
default_routes
hosts_own_checksums
# a itself announces segments for 1500 bytes, so only the router can report the MTU.
within router ip link set r1 mtu 1400
[ "$rate" = 0 ] || within source tc qdisc add dev s0 root tbf rate "${rate}mbit" burst 64kb latency 20ms
launch a iperf3 -s >/dev/null 2>&1
wait_for 5 eval '[ -n "$(within a ss -Hltn sport = 5201)" ]' || fail "iperf3 does not listen"

# Sends by TCP to a, and prints the received Mbit/s and the MTU that the sender has learned.
transfer() { # ADDRESS
    within source ip route flush cache
    within source ip -6 route flush cache
    within source iperf3 -c "$1" -t "$seconds" -O 1 -J >"$work/iperf.json" || fail "iperf3: $(cat "$work/iperf.json")"
    json 'print("%.1f" % (d["end"]["sum_received"]["bits_per_second"] / 1e6))' <"$work/iperf.json"
    within source ip route get "$1" | grep -o 'mtu [0-9]*' || echo "no mtu"
}
addresses=(10.0.1.2 fd00:1::2)
kernel=()
for address in "${addresses[@]}"; do
    transfer "$address" >"$work/of"
    grep -q 'mtu 1400' "$work/of" || fail "the kernel alone: $(cat "$work/of")"
    kernel+=("$(head -n 1 "$work/of")")
done

configure
start_router
for at in 0 1; do
    address=${addresses[at]}
    transfer "$address" >"$work/of"
    grep -q 'mtu 1400' "$work/of" || fail "$address: $(cat "$work/of")"
    measured=$(head -n 1 "$work/of")
    ratio=$("$python" -c "print('%.2f' % ($measured / ${kernel[at]}))")
    echo "   $address: the kernel ${kernel[at]} Mbit/s, the router $measured Mbit/s ($ratio), both with mtu 1400"
    # Without a rate there is no link, and the kernel passes on 64 KiB at a time.
    [ "$rate" = 0 ] || "$python" -c "import sys; sys.exit($ratio < 0.7)" || fail "the transfer is slower"
done
show -j counters | json 'assert d[0]["sent"] > 20000 and d[0]["icmp_errors"]["too_big"] >= 2, d'
stop_router
