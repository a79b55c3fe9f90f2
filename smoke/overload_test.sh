#!/usr/bin/env bash
# runs alone: it measures sessions whose packets may be 150 ms late
# A router whose two workers each receive more than twice of what they can forward: BFD (3 × 50 ms), BGP (3 s) and VRRP
# (100 ms) with a neighbor that sends it stay up, while another neighbor sends a storm of ARP and ND as well. Without the
# router's distinction of packets for itself they are lost.
#
#   router r1 ══ a0 a   FRR (bgpd, bfdd) in the router, BIRD in a, keepalived in both; the flood's source
#          r2 ══ b0 b   the flood's destination; the storm's source            ══ two queues
queues=2
. "$(dirname "$0")/lib/router_topology.sh"

seconds=${FINGERPOST_SECONDS:-12}
default_routes
hosts_own_checksums
bfd_and_bgp() {
    cat >"$work/a.conf" <<BIRD
router id 10.0.1.2;
log "$work/a.log" { info, trace, warning, error };
protocol device {}
protocol bfd { interface "a0" { interval 50 ms; multiplier 3; }; debug { states, events }; }
protocol bgp peer {
    local as 65001;
    neighbor 10.0.1.1 as 65001;
    direct;
    bfd on;
    hold time 3;
    connect delay time 1;
    debug { states };
    ipv4 { import none; export none; };
}
BIRD
    launch a bird -f -c "$work/a.conf" -s "$work/a.sock" >/dev/null 2>"$work/a.err"
    cat >"$work/bgpd.conf" <<'FRR'
router bgp 65001
 bgp router-id 10.0.1.1
 timers connect 1
 neighbor 10.0.1.2 remote-as 65001
 neighbor 10.0.1.2 timers 1 3
 neighbor 10.0.1.2 bfd 3 50 50
FRR
    frr zebra
    wait_for 20 test -S "$work/frr/zserv" || fail "zebra does not start"
    frr bfdd --bfdctl "$work/frr/bfdd.sock"
    frr bgpd
}
virtual_router() { # NAME INTERFACE PRIORITY
    cat >"$work/keepalived.$1.conf" <<KEEPALIVED
global_defs { vrrp_version 3 }
vrrp_instance gateway {
    state BACKUP
    interface $2
    virtual_router_id 5
    priority $3
    advert_int 0.1
    virtual_ipaddress { 10.0.1.254/24 }
}
KEEPALIVED
    launch "$1" keepalived --vrrp --dont-fork --log-console --use-file "$work/keepalived.$1.conf" \
        --pid "$work/keepalived.$1.pid" --vrrp_pid "$work/keepalived.$1.vrrp.pid" >"$work/keepalived.$1.log" 2>&1
}
frr_says() { vtysh --vty_socket "$work/frr" -c "$1"; }
# Whether BGP, BFD and VRRP are as they are without a flood.
is_up() {
    frr_says "show bgp neighbors 10.0.1.2 json" | json "assert d['10.0.1.2']['bgpState'] == 'Established'" 2>/dev/null &&
        frr_says "show bfd peers json" | json "assert [peer['status'] for peer in d] == ['up']" 2>/dev/null &&
        within router ip -br addr show dev r1 | has_line 10.0.1.254 &&
        ! within a ip -br addr show dev a0 | has_line 10.0.1.254
}
# Prints how often a session or the virtual router's master has been lost.
losses() {
    frr_says "show bfd peers counters json" | json "print(sum(peer['session-down'] for peer in d))"
    frr_says "show bgp neighbors 10.0.1.2 json" | json "print(d['10.0.1.2']['connectionsDropped'])"
    cat "$work"/keepalived.{router,a}.log | grep -cE 'Entering (MASTER|BACKUP) STATE'
}
counter() { show -j counters | json "print(d[0]$1)"; }

configure
# Two workers, each on a processor that it shares with processes of a higher priority, so that the floods exceed it.
sed -i 's/^\[workers\]/&\ncores = [0, 1]/' "$work/router.toml"
start_router
workers=$(grep -l '^worker' /proc/"$router"/task/*/comm | cut -d / -f 5)
[ "$(wc -w <<<"$workers")" = 2 ] || fail "not two workers: $(cat /proc/"$router"/task/*/comm)"
renice -n 19 -p $workers >/dev/null
bfd_and_bgp
virtual_router router r1 200
virtual_router a a0 100
sessions() { frr_says "show bgp summary"; frr_says "show bfd peers"; tail -n 5 "$work"/keepalived.*.log; }
wait_for 30 is_up || fail "no session: $(sessions)"
for port in 5201 5202; do launch b iperf3 -s -p "$port" >/dev/null 2>&1; done
for port in 5201 5202; do
    wait_for 5 eval '[ -n "$(within b ss -Hltn sport = $port)" ]' || fail "iperf3 does not listen"
done
# Prints for each worker the packets for it, and those of them that were lost since it was late.
received_and_lost() {
    show -j workers | json "
for worker in d:
    counts = worker['counters']
    print(counts['received'], sum(counts['dropped'].get(reason, 0) for reason in ('rx_ring_full', 'fill_empty')))"
}

# One run of the overload: succeeds if no session was lost.
run() {
    local before after counts started=() busy=() port core received lost
    before=$(losses | paste -sd ' ') counts=$(received_and_lost)
    for core in 0 1; do
        launch router taskset -c "$core" sh -c 'while :; do :; done'
        busy+=("$launched")
    done
    launch b "$python" "$here/smoke/overload_storm.py" b0 >"$work/storm" 2>&1
    started+=("$launched")
    # Several flows, which the queues share.
    for port in 5201 5202; do
        launch a iperf3 -c 10.0.2.2 -p "$port" -u -l 30 -b 0 -P 8 -t "$seconds" >"$work/iperf.$port" 2>&1
        started+=("$launched")
    done
    sleep "$seconds"
    kill "${busy[@]}"
    wait "${busy[@]}" 2>/dev/null || true
    # A control connection of iperf3 may be lost in the flood.
    kill "${started[@]}" 2>/dev/null || true
    wait "${started[@]}" 2>/dev/null || true
    counts=$(paste -d ' ' <(received_and_lost) <(echo "$counts") | awk '{ print $1 - $3, $2 - $4 }')
    after=$(losses | paste -sd ' ')
    echo "$counts" | while read -r received lost; do
        echo "   a worker: $((received / seconds)) packets/s, $((lost / seconds)) of them lost"
    done
    echo "   $(cat "$work/storm") ARP and ND requests/s; losses of BFD, BGP and VRRP: before $before, after $after"
    [ "$(cat "$work/storm")" -gt 1000 ] || fail "no storm: $(cat "$work/storm")"
    overloaded=$(echo "$counts" | awk '2 * $2 <= $1 { few = 1 } END { print !few }')
    [ "$after" = "$before" ] && is_up
}
# A machine that stops for 150 ms loses a session of BFD in one run, a router that starves it in all.
for _ in 1 2 3 4; do
    problem=
    if ! run; then
        problem="sessions are lost under overload"
    elif [ "$overloaded" = 0 ]; then
        problem="the workers receive less than 2 × of what they can forward"
    fi
    wait_for 30 is_up || fail "the sessions do not come back: $(sessions)"
    [ -n "$problem" ] || break
done
[ -z "$problem" ] || fail "$problem: $(sessions)"

# The counter-run: the steering program no longer knows the router's address, so that BFD and BGP wait with the flood for
# the worker, which passes to the kernel what is not lost there.
found=
for map in $(sed -n 's/^map_id:\s*//p' /proc/"$router"/fdinfo/* | sort -u); do
    bpftool map show id "$map" | has_line 'name fp_locals4 ' || continue
    bpftool map delete id "$map" key 10 0 1 1 || fail "map $map has no 10.0.1.1: $(bpftool map dump id "$map")"
    found=1
done
[ -n "$found" ] || fail "the router has no map of its own addresses: $(bpftool map)"
is_up || fail "no session without a flood: $(sessions)"
if run; then fail "no session is lost without the distinction: the test shows nothing"; fi
stop_router
