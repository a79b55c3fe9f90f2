#!/usr/bin/env bash
# The dashboard in a terminal of tmux's: what it shows, and that the terminal is as before
# whichever way it ends.
. "$(dirname "$0")/lib/router_topology.sh"

within source ip route add default via 10.0.0.1
within a ip addr add 11.0.0.1/8 dev lo
within a ip route add default via 10.0.1.1
within router ip route add 11.0.0.0/8 via 10.0.1.2
refuse 1 "needs a terminal" "$program" top --socket "$work/sock"
configure
start_router

export TMUX_TMPDIR=$work
terminal() { tmux -L fingerpost "$@"; }
screen() { terminal capture-pane -p -t top; }
shows() { screen | has_line -- "$1"; }
# Ended with the rest: the server belongs to no namespace.
trap 'status=$?; trap - ERR; set +e; tmux -L fingerpost kill-server 2>/dev/null; (exit "$status"); leave' EXIT
terminal -f /dev/null new-session -d -s top -x 120 -y 40 bash --norc
terminal send-keys -t top "PS1='\$? ready> '" Enter
wait_for 5 shows '^0 ready>' || fail "no terminal: $(screen)"

show_top() {
    terminal send-keys -t top "clear; stty -a | md5sum; $program top --socket $work/sock --delay 0.3" Enter
    wait_for 10 shows 'q quits' || fail "nothing is shown: $(screen)"
}
ended() {
    wait_for 5 shows "^$1 ready>" || fail "it does not end with $1: $(screen)"
    shows 'q quits' && fail "the screen is left: $(screen)"
    terminal send-keys -t top "stty -a | md5sum" Enter
    sums() { screen | grep -E '^[0-9a-f]{32}  -$'; }
    modes() { [ "$(sums | wc -l)" -eq 2 ]; }
    wait_for 5 modes || fail "no modes: $(screen)"
    [ "$(sums | sort -u | wc -l)" -eq 1 ] || fail "the terminal is not as before: $(screen)"
}

show_top
within source ping -c 40 -i 0.05 -W 2 -q 11.0.0.1 >"$work/ping.log" &
pinging=$!
wait_for 10 shows 'in [1-9][0-9]* packets/s' || fail "no packets: $(screen)"
for words in 'workers' '254 ipv4' 'flat' 'all fit in L' 'kernel: idle for' ' 0 overruns' 'auditor: 0 mismatches' '│r1 *up *XDP, AF_XDP'; do
    wait_for 3 shows "$words" || fail "no \"$words\": $(screen)"
done
wait "$pinging" || fail "ping: $(cat "$work/ping.log")"
terminal send-keys -t top q
ended 0
show_top
terminal send-keys -t top C-c
ended 0
show_top
stop_router
ended 1
shows 'fingerpost: .*sock' || fail "it does not say why: $(screen)"
