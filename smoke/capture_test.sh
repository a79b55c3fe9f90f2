#!/usr/bin/env bash
# Captures: each packet of a router once, with its verdict, as its counters have it, of workers and of the XDP programs,
# which forward and drop by a block list; the filters of tcpdump; the last drops; live into another program. tshark and
# tcpdump read them.
#
#   source s0 ── r0 router r1 ── a0 a       random packets, sound and damaged
#                          r2 ── b0 b
packets=2000
. "$(dirname "$0")/lib/random_packets.sh"

capture() { "$program" capture --socket "$work/sock" "$@"; }
# Starts a capture into $work/NAME.pcapng, and waits for its beginning.
begin() { # NAME ARGS...
    local name=$1
    shift
    (exec "$program" capture --socket "$work/sock" -w "$work/$name.pcapng" "$@") 2>"$work/$name.log" &
    captures+=("$!")
    wait_for 10 grep -q "^fingerpost: capturing; Ctrl-C stops$" "$work/$name.log" || fail "no capture: $(cat "$work/$name.log")"
}
end_all() {
    sleep 0.3 # what has been handled is written
    local one
    for one in "${captures[@]}"; do
        kill -INT "$one"
        wait "$one" || fail "a capture ended with $?: $(cat "$work"/*.log)"
    done
    captures=()
}
captures=()
in_driver() { show -j interfaces | json 'sys.exit(0 if any(link["mode"].startswith("XDP") for link in d) else 1)'; }

hosts_take_redirected
echo 10.66.2.0/23 >"$work/bad"
configure "[block]
lists = [\"bad\"]"
start_router
wait_for 10 in_driver || fail "the driver does not forward: $(show interfaces)"
filters=("ip6" "udp or icmp6" "net 11.0.0.0/8 and greater 100 and not port 53")
begin all
at=0
for filter in "${filters[@]}"; do
    begin "filtered$at" $filter
    at=$((at + 1))
done
refuse 1 "4 captures are running: end one of them first" capture
counts() { show -j counters >"$work/$1.json" && show -j interfaces >"$work/$1-interfaces.json"; }
counts before
pass router
counts after
end_all
grep -q "^fingerpost: [0-9]* packets captured$" "$work/all.log" || fail "packets are missed: $(cat "$work/all.log")"

echo "every packet once, by its verdict, as tshark reads it"
tshark -r "$work/all.pcapng" -T fields -E separator=/t -e frame.comment -e frame.interface_name -e frame.packet_flags_direction >"$work/read" 2>"$work/tshark.log" ||
    fail "tshark: $(cat "$work/tshark.log")"
"$python" "$here/smoke/capture_counts.py" "$work/before" "$work/after" "$work/read" || fail "the capture is not what the counters have"

echo "the filters are those of tcpdump"
at=0
for filter in "${filters[@]}"; do
    # The counter is unequal, too, if tcpdump cannot read a file.
    expect=$(tcpdump -n -r "$work/all.pcapng" $filter 2>/dev/null | grep -c '^[0-9][0-9]:')
    got=$(tcpdump -n -r "$work/filtered$at.pcapng" 2>/dev/null | grep -c '^[0-9][0-9]:')
    echo "   $filter: $got packets"
    [ "$got" -gt 50 ] && [ "$got" -eq "$expect" ] || fail "$filter: $got packets, not $expect"
    at=$((at + 1))
done

echo "the last drops"
capture --last-drops -j >"$work/last" || fail "no last drops"
"$python" "$here/smoke/capture_counts.py" last "$work/after" "$work/last" || fail "the last drops lack a reason"
capture --last-drops --verdict bad_checksum | has_line " r0 in dropped bad_checksum worker 0 length " || fail "no line for a bad checksum"
capture --last-drops -w "$work/last.pcapng" && tshark -r "$work/last.pcapng" -Y 'frame.comment contains "bad_checksum"' 2>/dev/null | has_line . || fail "tshark finds no bad checksum"

echo "live, into another program"
within source ip route add 10.0.1.0/24 via 10.0.0.1
within a ip route add 10.0.0.0/24 via 10.0.1.1
live() { # ARGS...
    # The shell in the background may empty it after wait_for has read the message of the capture before.
    : >"$work/live.log"
    capture "$@" -c 3 -i r1 --verdict sent -s 64 -w - ip proto 1 2>"$work/live.log" | tcpdump -n -r - >"$work/live" 2>"$work/live.err" &
    local live=$!
    wait_for 10 grep -q capturing "$work/live.log" || fail "no capture: $(cat "$work/live.log")"
    [ $# -eq 0 ] || ! in_driver || fail "packets are still forwarded in the driver"
    within source ping -c 5 -i 0.1 -q 10.0.1.2 >/dev/null || fail "no ping"
    wait "$live" || fail "tcpdump: $(cat "$work/live.err")"
    [ "$(grep -c 'ICMP echo request' "$work/live")" -eq 3 ] || fail "tcpdump shows: $(cat "$work/live")"
    grep -q "^fingerpost: 3 packets captured$" "$work/live.log" || fail "no count: $(cat "$work/live.log")"
}
live
live --no-driver
wait_for 5 in_driver || fail "the driver does not forward again"

echo "captures that are killed end"
for at in 1 2 3 4; do begin "killed$at"; done
kill -KILL "${captures[@]}"
wait "${captures[@]}" 2>/dev/null || true
captures=()
sleep 1 # the router notices it, and waits until no program copies for them
# As many again: each has a place in every program.
for at in 1 2 3 4; do begin "next$at" -i "r$((at % 3))" --one-in 3; done
end_all

echo "wrong arguments"
refuse 1 'filter "udp prot 53": can'"'"'t parse filter expression: syntax error' capture udp prot 53
refuse 1 "--verdict no_rute: no such verdict" capture --verdict no_rute
refuse 1 '"r9" is no interface of the workers; these are: r0, r1, r2' capture -i r9
refuse 2 "invalid value '0' for '--one-in <N>'" capture --one-in 0
echo kept >"$work/kept"
refuse 1 "no router answers here" "$program" capture --socket "$work/none" -w "$work/kept"
[ "$(cat "$work/kept")" = kept ] || fail "a capture that does not begin has emptied its file"
refuse 1 "a filter needs tcpdump, which compiles it: install tcpdump" \
    env PATH=/nonexistent "$program" capture --socket "$work/sock" udp
stop_router
