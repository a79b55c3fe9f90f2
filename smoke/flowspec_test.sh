#!/usr/bin/env bash
# BGP flow specifications of GoBGP and BIRD: random packets pass random ones as they pass nftables; then order,
# rates, what is refused, and the ends of sessions.
: "${FINGERPOST_PACKETS:=2500}"
export FINGERPOST_FILTERED=1
. "$(dirname "$0")/lib/random_packets.sh"
. "$(dirname "$0")/lib/gobgp.sh"

"$python" "$here/smoke/flowspec_rules.py" write $((seed + 1)) 40 "$work/gobgp.flows" "$work/ruleset"
flowspec() {
    cat <<FLOWSPEC
[flowspec]
as = 65001
router_id = "10.0.0.1"
inbound = ["r0"]
hold_time = "6s"
FLOWSPEC
}

# The kernel with a ruleset of the same meaning.
within router nft -f "$work/ruleset" || fail "nftables refuses the ruleset"
pass kernel
within router nft delete table inet flowspec

configure "$(flowspec)" '{ name = "r0" }, { name = "r1" }, { name = "r2" }'
start_router
flows() { show -j flowspec | json "print(d[0]['$1'])"; }
has() { [ "$(flows "$1")" = "$2" ]; }
# The workers use the rules of this number of flow specifications.
has_flows() { has flows "$1" && [ "$(show -j acl flowspec | json 'print(len(d[0]["rules"]))')" = "$(flows rules)" ]; }
shows() { show flowspec | has_line "$1"; }
logs() { grep -q "$1" "$work/fingerpost.log"; }
established() { [ "$(show -j flowspec | json 'print(sum(s["established"] for s in d[0]["sessions"]))')" = "$1" ]; }

flow() { # FAMILY MATCH... then ACTION...
    local family=$1
    shift
    gobgp global rib -a "$family" add match "$@" || fail "GoBGP refuses: $*"
}
connect_gobgp() {
    start_gobgp router
    wait_for 30 established 1 || fail "no session: $(show flowspec) $(cat "$work/gobgpd.log")"
}
connect_gobgp
count=0
while IFS=$'\t' read -ra line; do
    flow "${line[@]}" then discard
    count=$((count + 1))
done <"$work/gobgp.flows"
wait_for 10 has_flows "$(sort -u "$work/gobgp.flows" | wc -l)" || fail "flow specifications are missing: $(show flowspec)"
has refused_flows 0 && has malformed 0 || fail "some are not applied: $(show flowspec)"
pass router
compare
denied=$(show -j counters | json 'print(d[0]["dropped"]["acl_denied"])')
[ "$denied" -gt $((packets / 20)) ] || fail "only $denied packets are denied: $(show counters)"
echo "   $count flow specifications of GoBGP: $(arrived) frames of $packets packets are those of nftables, $denied packets denied"

# The order of RFC 8955, rates, and actions that access lists do not have. The session's end removes all.
gobgp global rib -a ipv4-flowspec del all && gobgp global rib -a ipv6-flowspec del all || fail "GoBGP does not delete"
wait_for 10 has_flows 0 || fail "withdrawn ones stay: $(show flowspec)"
flow ipv4-flowspec destination 11.0.0.0/8 then discard
flow ipv4-flowspec destination 11.1.0.0/16 then rate-limit 125000
flow ipv4-flowspec destination 11.1.1.0/24 then accept
flow ipv4-flowspec destination 11.2.0.0/16 fragment dont-fragment then discard
flow ipv4-flowspec destination 11.3.0.0/16 then redirect 65001:1
flow ipv4-flowspec destination 11.4.0.0/16 then mark 46
flow ipv4-flowspec destination 11.5.0.0/16 port '==53' then rate-limit 250000
flow ipv6-flowspec label '==7' then discard
wait_for 10 has_flows 8 || fail "flow specifications are missing: $(show flowspec)"
show acl flowspec >"$work/acl" && show flowspec >"$work/flowspec"
sed -n 's/^ *[0-9]*: \(.*\): .*/\1/p' "$work/acl" >"$work/rules"
cat >"$work/expected" <<RULES
permit to 11.1.1.0/24
police 1mbit to 11.1.0.0/16
permit to 11.1.0.0/16
deny to 11.2.0.0/16 df yes
permit setdscp 46 to 11.4.0.0/16
police 2mbit policer FLOW to 11.5.0.0/16 ipproto 6,17 sport 53
permit to 11.5.0.0/16 ipproto 6,17 sport 53
police 2mbit policer FLOW to 11.5.0.0/16 ipproto 6,17 dport 53
permit to 11.5.0.0/16 ipproto 6,17 dport 53
deny to 11.0.0.0/8
deny to ::/0 flowlabel 7
RULES
[ "$(grep -o 'flow-[0-9a-f]*-1' "$work/rules" | sort | uniq -c | awk '{ print $1 }')" = 2 ] ||
    fail "the policer of two rules is not one: $(cat "$work/rules")"
sed -i 's/flow-[0-9a-f]*-1/FLOW/' "$work/rules"
text="redirection to a VRF not supported"
grep -q "$text" "$work/flowspec" || fail "show flowspec has no \"$text\": $(cat "$work/flowspec")"
diff "$work/expected" "$work/rules" || fail "the rules are: $(cat "$work/acl")"
kill -9 "$gobgpd" && wait "$gobgpd" 2>/dev/null || true
wait_for 20 has_flows 0 || fail "flow specifications outlive their session: $(show flowspec)"
wait_for 5 logs 'session with 127.0.0.1:.* established' || fail "the log has no session"
wait_for 5 logs 'session with 127.0.0.1:.* ended: connection closed by the peer' || fail "the log has no end"

# BIRD. A session to an address of its own host needs multihop.
cat >"$work/bird.conf" <<BIRD
router id 10.0.0.8;
flow4 table flows4;
flow6 table flows6;
protocol device {}
protocol static four {
    flow4 { table flows4; };
    route flow4 { dst 12.0.0.0/8; proto = 17; dport = 53 || > 60000; } { bgp_ext_community.add((generic, 0x80060000, 0x0)); };
}
protocol static six {
    flow6 { table flows6; };
    route flow6 { src 0:0:102::/48 offset 32; label 7 || > 9; } { bgp_ext_community.add((generic, 0x80060000, 0x0)); };
    route flow6 { src fd77::/64; next header 6; tcp flags 0x02/0x12; } { bgp_ext_community.add((generic, 0x80060000, 0x0)); };
}
protocol bgp fingerpost {
    local 127.0.0.1 as 65001;
    neighbor 127.0.0.1 port 1179 as 65001;
    multihop;
    connect delay time 1;
    error wait time 1, 2;
    flow4 { table flows4; import none; export all; };
    flow6 { table flows6; import none; export all; };
}
BIRD
launch router bird -f -c "$work/bird.conf" -s "$work/bird.sock" >"$work/bird.log" 2>&1
bird=$launched
wait_for 30 has_flows 3 || fail "no flow specifications of BIRD: $(show flowspec) $(cat "$work/bird.log")"
show acl flowspec | sed -n 's/^ *[0-9]*: \(.*\): .*/\1/p' >"$work/rules"
cat >"$work/expected" <<RULES
deny to 12.0.0.0/8 ipproto udp dport 53,60001-65535
deny from fd77::/64 ipproto tcp flags syn/syn,ack
deny to ::/0 srcbits 0:0:102::/0:0:ffff:: flowlabel 7,10-1048575
RULES
diff "$work/expected" "$work/rules" || fail "the rules of BIRD are: $(show acl flowspec)"
explain() { "$program" acl explain --socket "$work/sock" flowspec "$@"; }
explain from 192.0.2.1 to 12.0.0.1 ipproto udp dport 53 >"$work/explained" && fail "explain permits what is denied"
grep -q '^1: deny to 12.0.0.0/8 ipproto udp' "$work/explained" || fail "explain prints: $(cat "$work/explained")"
explain from fd77::1 to 2001:db8::1 ipproto tcp flags ack >"$work/explained" || fail "explain denies: $(cat "$work/explained")"
explain from 2001:db8:102::1 to fd00:1::2 flowlabel 10 >"$work/explained" && fail "explain permits what is denied"
explain from 2001:db8:102::1 to fd00:1::2 flowlabel 9 >"$work/explained" || fail "explain denies: $(cat "$work/explained")"
explain from 2001:db8:103::1 to fd00:1::2 flowlabel 10 >"$work/explained" || fail "explain denies: $(cat "$work/explained")"
# A session that is silent ends after the hold time; the router reports its own end to the peer.
kill -STOP "$bird"
wait_for 30 has_flows 0 || fail "a silent session lives on: $(show flowspec)"
wait_for 5 shows 'last end: .*hold timer expired' || fail "the end is: $(show flowspec)"
kill -CONT "$bird"
wait_for 40 has_flows 3 || fail "BIRD does not come back: $(show flowspec)"

# A reload with another AS ends the session, with the old one it comes back; with another interface it stays.
for as in 65002 65001; do
    configure "$(flowspec | sed "s/^as = .*/as = $as/")" '{ name = "r0" }, { name = "r1" }, { name = "r2" }'
    "$program" reload --socket "$work/sock" | has_line 'applied flowspec' || fail "reload with AS $as"
    [ "$as" = 65001 ] || wait_for 5 has_flows 0 || fail "the rules stay: $(show flowspec)"
done
wait_for 40 has_flows 3 || fail "BIRD does not come back: $(show flowspec)"
configure "$(flowspec | sed 's/"r0"/"r1"/')" '{ name = "r0" }, { name = "r1" }, { name = "r2" }'
"$program" reload --socket "$work/sock" | has_line 'applied flowspec' || fail "reload with another interface"
has_flows 3 || fail "another interface ends the session: $(show flowspec)"
show -j acl flowspec | json 'i, = d[0]["inbound"]; assert i["name"] == "r1", i' || fail "the list examines: $(show acl flowspec)"
# One that cannot listen is refused, and the session stays.
configure "$(flowspec)
listen = \"192.0.2.99:1179\"" '{ name = "r0" }, { name = "r1" }, { name = "r2" }'
refuse 1 "listen for BGP" "$program" reload --socket "$work/sock"
has_flows 3 || fail "a refused reload ends the session: $(show flowspec)"

# A process of another user is refused.
within router setpriv --reuid 65534 --clear-groups "$python" -c '
import socket
assert socket.create_connection(("127.0.0.1", 1179)).recv(1) == b""' || fail "a process of another user is served"
wait_for 5 shows 'last refusal: .*user 65534 is not in flowspec.users' || fail "the refusal is: $(show flowspec)"
within router curl -s --max-time 5 http://127.0.0.1:1179/ >/dev/null && fail "HTTP is answered"
stop_router
grep -q 'Received: Administrative shutdown' "$work/bird.log" || within router birdc -s "$work/bird.sock" show protocols all fingerpost | has_line 'Received: Administrative shutdown' || fail "BIRD does not learn the end: $(cat "$work/bird.log")"
kill -9 "$bird" && wait "$bird" 2>/dev/null || true
