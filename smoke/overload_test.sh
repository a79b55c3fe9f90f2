#!/usr/bin/env bash
# runs alone: it measures sessions whose packets may be 150 ms late
# A router that receives more than twice of what it can forward: BFD (3 × 50 ms) and BGP (3 s) with a neighbor stay up
# while another neighbor sends a storm of ARP and ND as well.
#
#   source s0 ── r0 router r1 ── a0 a   BIRD at both ends of this link
#                          r2 ── b0 b   the flood's destination; the storm's source
. "$(dirname "$0")/lib/router_topology.sh"

seconds=${FINGERPOST_SECONDS:-12}
default_routes
hosts_own_checksums
speaker() { # NAME ROUTER_ID NEIGHBOR INTERFACE
    cat >"$work/$1.conf" <<BIRD
router id $2;
log "$work/$1.log" { info, trace, warning, error };
protocol device {}
protocol bfd { interface "$4" { interval 50 ms; multiplier 3; }; debug { states, events }; }
protocol bgp peer {
    local as 65001;
    neighbor $3 as 65001;
    direct;
    bfd on;
    hold time 3;
    connect delay time 1;
    debug { states };
    ipv4 { import none; export none; };
}
BIRD
    launch "$1" bird -f -c "$work/$1.conf" -s "$work/$1.sock" >/dev/null 2>"$work/$1.err"
}
birdc() { within router birdc -s "$work/router.sock" "$@"; }
is_up() { birdc show protocols peer | grep -q Established && birdc show bfd sessions | grep -q "r1 *Up"; }
counter() { show -j counters | json "print(d[0]$1)"; }

configure
# One worker, on a processor that it shares with two busy processes, so that the floods exceed it.
sed -i 's/^\[workers\]/&\ncores = [0]/' "$work/router.toml"
start_router
speaker a 10.0.1.2 10.0.1.1 a0
speaker router 10.0.1.1 10.0.1.2 r1
wait_for 30 is_up || fail "no session: $(birdc show protocols peer) $(birdc show bfd sessions)"
for port in 5201 5202; do launch b iperf3 -s -p "$port" >/dev/null 2>&1; done
for port in 5201 5202; do
    wait_for 5 eval '[ -n "$(within b ss -Hltn sport = $port)" ]' || fail "iperf3 does not listen"
done

# One run of the overload: succeeds if no session was lost.
run() {
    local before received dropped started=() busy=() port
    before=$(wc -l <"$work/router.log")
    received=$(counter "['received']") dropped=$(counter "['dropped'].get('fill_empty', 0)")
    for _ in 1 2; do
        launch router taskset -c 0 nice -n -5 sh -c 'while :; do :; done'
        busy+=("$launched")
    done
    launch b "$python" "$here/smoke/overload_storm.py" b0 >"$work/storm" 2>&1
    started+=("$launched")
    for port in 5201 5202; do
        launch source iperf3 -c 10.0.2.2 -p "$port" -u -l 30 -b 0 -t "$seconds" >"$work/iperf.$port" 2>&1
        started+=("$launched")
    done
    sleep "$seconds"
    kill "${busy[@]}"
    wait "${busy[@]}" 2>/dev/null || true
    # A control connection of iperf3 may be lost in the flood.
    kill "${started[@]}" 2>/dev/null || true
    wait "${started[@]}" 2>/dev/null || true
    received=$(($(counter "['received']") - received))
    dropped=$(($(counter "['dropped'].get('fill_empty', 0)") - dropped))
    lost=$(tail -n "+$((before + 1))" "$work/router.log" | grep -cE 'changed state from Up|peer: State changed to stop' || true)
    echo "   $((received / seconds)) packets/s received, $((dropped / seconds)) dropped, $(cat "$work/storm") ARP and ND requests/s, $lost sessions lost"
    [ "$(cat "$work/storm")" -gt 1000 ] || fail "no storm: $(cat "$work/storm")"
    [ "$dropped" -gt $((received / 2)) ] || fail "no overload of 2 ×: $(show counters)"
    [ "$lost" = 0 ] && is_up
}
# A machine that stops for 150 ms loses a session of BFD in one run, a router that starves it in all.
for attempt in 1 2 3; do
    run && break
    [ "$attempt" -lt 3 ] || fail "sessions are lost under overload: $(tail -20 "$work/router.log")"
    wait_for 30 is_up || fail "the sessions do not come back"
done
stop_router
