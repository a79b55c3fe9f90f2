#!/usr/bin/env bash
# Traces: the steps of a packet that is described, and that the router does not send; then the packet itself, which
# ends the same way.
#
#   source s0 ── r0 router r1 ── a0 a
#                          r2 ── b0 b
. "$(dirname "$0")/lib/router_topology.sh"

default_routes
within router ip route add 11.0.0.0/8 via 10.0.1.2
within router ip route add 11.1.0.0/16 via 10.0.2.2
within router ip route add 12.0.0.0/8 via 10.0.2.77
within router ip route add blackhole 13.0.0.0/8
within router ip -6 route add 2001:db8::/32 via fd00:2::2
within router ping -c 1 -q 10.0.0.2 >/dev/null
within router ping -c 1 -q 10.0.1.2 >/dev/null
within router ping -c 1 -q 10.0.2.2 >/dev/null
within router ping -c 1 -q fd00:2::2 >/dev/null
sleep 2 # duplicate address detection of the router

configure '[[access_list]]
name = "to-b"
outbound = ["r2"]
default = "permit"
rules = ["deny ipproto udp dport 7"]
[[access_list]]
name = "from-source"
inbound = ["r0"]
default = "permit"
rules = ["count ipproto udp", "deny ipproto tcp dport 23"]'
start_router
rest
trace() { "$program" trace --socket "$work/sock" "$@"; }
# Prints the ends of a trace: interface, direction and verdict of each.
ends() { trace -j "$@" | json '[t] = d
print("held" if t["held"] else "", *(" ".join([e["interface"], e["direction"], e["verdict"]]) for e in t["ends"]), sep=";")'; }
expect() { # ENDS TRACE...
    local expect=$1 got
    shift
    got=$(ends "$@") || fail "no trace of $*"
    [ "$got" = "$expect" ] || fail "trace $*: $got, not $expect"
    echo "   $*: $got"
}
before=$(show -j counters)
words="from 10.0.0.2 ipproto udp sport 9 dport 9"
expect ";r1 out sent" -i r0 $words to 11.0.0.1
expect ";r2 out sent" -i r0 $words to 11.1.0.1
expect ";r2 out sent" -i r0 from fd00::2 to 2001:db8::1 ipproto udp sport 9 dport 9
expect ";r0 in blackhole" -i r0 $words to 13.0.0.1
expect ";r0 in acl_denied" -i r0 from 10.0.0.2 to 11.0.0.1 ipproto tcp dport 23
expect ";r0 in own_address" -i r0 $words to 10.0.1.1
expect ";r0 in no_route;r0 out sent" -i r0 $words to 99.0.0.1
expect ";r0 in ttl_expired;r0 out sent" -i r0 --ttl 1 $words to 11.0.0.1
expect "held" -i r0 $words to 12.0.0.1
expect ";r0 in not_ours" -i r0 --hex "02 00 00 00 77 77 020000000102 0800 4500"
[ "$(show -j counters)" = "$before" ] || fail "a trace is counted"
[ "$(show -j acl from-source | json 'print([rule["packets"] for rule in d[0]["rules"]])')" = "[0, 0]" ] || fail "a trace is counted by a rule"

trace -j -i r0 from 10.0.0.2 ipproto udp sport 9 dport 7 to 11.1.0.1 | json 'lists = [(l["name"], l["direction"], l["rules"], l["result"]) for l in d[0]["access_lists"]]
assert lists == [("from-source", "inbound", [[1, "count ipproto udp"]], "permit"), ("to-b", "outbound", [[1, "deny ipproto udp dport 7"]], "deny")], lists
assert [(e["verdict"], e["rule"]) for e in d[0]["ends"]] == [("acl_denied", "to-b 1")], d' || fail "the lists of a trace"

echo "in words"
trace -i r0 $words to 11.1.0.1 >"$work/words" || fail "no trace"
sed 's/^/   /' "$work/words"
for line in '^packet: r0 in arrival length 42: 10.0.0.2 > 11.1.0.1 protocol 17 ttl 64$' '^parse: ipv4$' \
    '^access list from-source inbound: permit$' '^access list to-b outbound: permit$' '^    1: count ipproto udp$' \
    '^destination, table 254: 11.1.0.1 send dev r2 lladdr 02:00:00:00:03:02 by 11.1.0.0/16 via 10.0.2.2 dev r2$' \
    '^end: r2 out sent length 42: 10.0.0.2 > 11.1.0.1 protocol 17 ttl 63$'; do
    grep -q "$line" "$work/words" || fail "no line $line"
done

trace -i r0 from 10.0.0.2 to 11.0.0.1 ipproto tcp dport 23 | has_line "^end: r0 in dropped acl_denied rule from-source 2 length 54: " || fail "no rule"

echo "the packets themselves"
"$program" capture --socket "$work/sock" --no-driver -j >"$work/ends" 2>"$work/capture.log" &
capture=$!
wait_for 10 grep -q capturing "$work/capture.log" || fail "no capture"
(exec "$program" trace --socket "$work/sock" -j --next 2 udp and net 11.1.0.0/16) >"$work/next" 2>"$work/next.log" &
next=$!
wait_for 10 grep -q waiting "$work/next.log" || fail "trace --next does not wait"
sleep 0.3
within source "$python" -c 'import socket
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("10.0.0.2", 9))
for address in ["11.0.0.1", "11.1.0.1", "13.0.0.1", "11.1.0.1", "99.0.0.1"]:
    udp.sendto(b"x", (address, 9))'
wait "$next" || fail "trace --next: $(cat "$work/next.log")"
json 'assert len(d) == 2, d
for t in d:
    assert t["destination"]["address"] == "11.1.0.1" and [e["verdict"] for e in t["ends"]] == ["sent"], t' <"$work/next" || fail "trace --next: $(cat "$work/next")"
sleep 0.3
kill -INT "$capture"
wait "$capture" || fail "the capture fails"
sort "$work/ends" | "$python" -c '
import json, sys
ends = sorted((p["interface"], p["verdict"]) for p in map(json.loads, sys.stdin))
want = [("r0", "blackhole"), ("r0", "no_route"), ("r0", "sent"), ("r1", "sent"), ("r2", "sent"), ("r2", "sent")]
assert [end for end in ends if end in want] == want, ends' || fail "the packets end in another way"

echo "wrong arguments"
refuse 1 '"r9" is no port; these are: r0, r1, r2' trace -i r9 $words to 11.0.0.1
refuse 1 'to: a packet has one address here' trace -i r0 $words
refuse 1 'the frame is not in hexadecimal digits' trace -i r0 --hex 0g
refuse 1 'the frame has 2 bytes: 14 for its Ethernet header' trace -i r0 --hex 0000
refuse 2 'the following required arguments were not provided' trace $words to 11.0.0.1
stop_router
