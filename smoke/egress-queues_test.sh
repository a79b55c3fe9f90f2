#!/usr/bin/env bash
# runs alone: it measures rates and round trips
# Queues before a slow link: TCP has the rate that it has with the kernel's tbf, where packets wait for half a
# second; here they wait for milliseconds; ECN marks replace drops; and a flood of three times the
# link leaves the packets of a routing protocol alone, which it does not without their class.
#
#   source s0 ── r0 router r1 ── a0 a       20 Mbit/s from the router to a
. "$(dirname "$0")/lib/router_topology.sh"

rate=20
seconds=${FINGERPOST_SECONDS:-5}
default_routes
hosts_own_checksums
for name in source a; do within "$name" sysctl -qw net.ipv4.tcp_ecn=0 net.ipv4.icmp_ratelimit=0; done
# Both ends of a transfer and the router share the machine's processors.
launch a iperf3 -s >/dev/null 2>&1
wait_for 5 eval '[ -n "$(within a ss -Hltn sport = 5201)" ]' || fail "iperf3 does not listen"

queue() { # LINES...
    local line
    printf '[[egress_queue]]\ninterface = "r1"\nbandwidth = "%smbit"\n' "$rate"
    for line in "$@"; do echo "$line"; done
}
class() { # CLASS KEY
    show -j egress-queues | json "print(next(c['$2'] for c in d[0]['classes'] if c['class'] == '$1'))"
}

# Sends by TCP to a, and prints Mbit/s that arrived and the median round trip of pings meanwhile, in ms.
transfer() {
    # Reno fills a queue until it loses a packet.
    launch source iperf3 -c 10.0.1.2 -C reno -t "$seconds" -J >"$work/iperf.json"
    local iperf=$launched
    sleep 1
    within source ping -i 0.1 -w $((seconds - 2)) 10.0.1.2 >"$work/ping" || true
    wait "$iperf" || fail "iperf3: $(cat "$work/iperf.json")"
    "$python" - "$work" <<'READ'
import json, re, statistics, sys
work = sys.argv[1]
received = json.load(open(f"{work}/iperf.json"))["end"]["sum_received"]["bits_per_second"]
times = [float(ms) for ms in re.findall(r"time=([\d.]+)", open(f"{work}/ping").read())]
print(f"{received / 1e6:.2f} {statistics.median(times):.2f}")
READ
}
holds() { "$python" -c "import sys; sys.exit(not ($1))" || fail "$2"; }

within router tc qdisc add dev r1 root tbf rate "${rate}mbit" burst 10kb limit 1514000
read -r kernel_rate kernel_ms <<<"$(transfer)"
within router tc qdisc del dev r1 root
echo "   the kernel, tbf with 1000 packets: $kernel_rate Mbit/s, ping $kernel_ms ms"

configure "$(queue)"
start_router
read -r router_rate router_ms <<<"$(transfer)"
delayed=$(class default dropped_delay)
echo "   the router, CoDel: $router_rate Mbit/s, ping $router_ms ms, $delayed packets dropped"
holds "0.85 * $kernel_rate < $router_rate < $rate" "the rate is not that of the link"
holds "$router_ms < $kernel_ms / 5" "packets wait as long as in a plain queue"
[ "$delayed" -gt 0 ] || fail "CoDel has dropped nothing: $(show egress-queues)"
[ "$(class default marked)" = 0 ] || fail "packets without ECN are marked: $(show egress-queues)"

echo "with ECN"
for name in source a; do within "$name" sysctl -qw net.ipv4.tcp_ecn=1; done
before=$(class default dropped_delay)
read -r ecn_rate ecn_ms <<<"$(transfer)"
marked=$(class default marked) dropped=$(($(class default dropped_delay) - before))
echo "   the router, ECN: $ecn_rate Mbit/s, ping $ecn_ms ms, $marked packets marked, $dropped dropped"
holds "0.85 * $kernel_rate < $ecn_rate < $rate" "the rate is not that of the link"
holds "$ecn_ms < $kernel_ms / 5" "packets wait as long as in a plain queue"
# The pings are without ECN.
[ "$marked" -gt 0 ] && [ "$dropped" -le "$delayed" ] || fail "no marks: $(show egress-queues)"

# A flood of three times the link; prints how many of 30 pings with this TOS are answered.
flood() { # TOS
    launch source iperf3 -c 10.0.1.2 -u -b $((3 * rate))M -l 1200 -t 5 >"$work/udp" 2>&1
    local iperf=$launched
    sleep 1
    { within source ping -i 0.1 -c 30 -W 1 -Q "$1" 10.0.1.2 || [ "$?" = 1 ]; } | sed -n 's/.* \([0-9]*\) received.*/\1/p'
    wait "$iperf" || true
}
control=$(flood 0xc0)
full=$(class default dropped_full)
echo "   a flood of $((3 * rate)) Mbit/s: $control of 30 control packets arrive, $full packets of the flood dropped"
[ "$control" -ge 29 ] || fail "control packets are lost: $(show egress-queues)"
[ "$full" -gt 1000 ] || fail "no flood: $(show egress-queues)"
[ "$(class control packets)" -ge 30 ] || fail "no control packet: $(show egress-queues)"

echo "without a share for control packets, by a reload"
sent=$(class default packets)
configure "$(queue 'control_share = 0')"
"$program" reload --socket "$work/sock" || fail "the reload fails"
[ "$(class default packets)" -ge "$sent" ] || fail "a reload resets the counters"
without=$(flood 0xc0)
echo "   $without of 30 control packets arrive"
[ "$without" -le 20 ] || fail "the class makes no difference"

echo "packets of the host itself take their part of the link"
launch a iperf3 -s -p 5202 >/dev/null 2>&1
wait_for 5 eval '[ -n "$(within a ss -Hltn sport = 5202)" ]' || fail "iperf3 does not listen"
arrived() { within a cat /sys/class/net/a0/statistics/rx_bytes; }
from_host() { show -j egress-queues | json "print(d[0]['host_bytes'])"; }
launch router iperf3 -c 10.0.1.2 -p 5202 -u -b "$((rate / 2))M" -l 1200 -t 5 >"$work/host" 2>&1
floods=("$launched")
launch source iperf3 -c 10.0.1.2 -u -b $((3 * rate))M -l 1200 -t 5 >"$work/udp" 2>&1
floods+=("$launched")
sleep 1.5
read -r since all host < <(echo "$(date +%s%N) $(arrived) $(from_host)")
sleep 2.5
read -r until all2 host2 < <(echo "$(date +%s%N) $(arrived) $(from_host)")
wait "${floods[@]}" || true
read -r all host < <(awk "BEGIN { t = ($until - $since) / 8000; printf \"%.2f %.2f\\n\", ($all2 - $all) / t, ($host2 - $host) / t }")
echo "   $all Mbit/s arrive, $host of them from the host"
holds "0.9 * $rate < $all < 1.03 * $rate" "the link of $rate Mbit/s carries $all"
holds "0.45 * $rate < $host < 0.57 * $rate" "the host sends $((rate / 2)) Mbit/s, of which $host are counted"

"$program" show --socket "$work/sock" egress-queues | sed 's/^/   /'
echo "without the queue, by a reload"
# Whether the router's process has the program that counts what the host sends.
counts_host() {
    local id
    for id in $({ sed -n 's/^prog_id:[[:space:]]*//p' "/proc/$router/fdinfo/"* 2>/dev/null || true; } | sort -u); do
        bpftool prog show id "$id" | has_line 'name fp_host_egress' && return 0
    done
    return 1
}
counts_host || fail "the host's packets are not counted"
configure
"$program" reload --socket "$work/sock" || fail "the reload fails"
counts_host && fail "the host's packets are still counted"
stop_router

configure "$(queue 'bandwidth2 = 3')"
refuse 1 "unknown field" "$program" run -c "$work/router.toml"
