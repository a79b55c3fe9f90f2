#!/usr/bin/env bash
# The lists of `fingerpost block` that come from outside: a URL, BIRD by a routing table, and orders to ban.
#
# A web server whose list changes, is unchanged, shrinks, and is away, also at the start; HTTPS with a certificate that
# is trusted, and one that is not; blackhole routes of a BGP peer (RFC 7999); flow specifications; bans that begin at once, end by
# themselves, outlive the process, and are refused; `show blocked` counts to the packet.
. "$(dirname "$0")/lib/block_topology.sh"
. "$(dirname "$0")/lib/gobgp.sh"

socket=$work/control.sock
ask() { within server "$program" "$@" --socket "$socket"; }
lists() { ask show block-lists; }
mkdir "$work/web" "$work/cache" "$work/state"
web() { put "web/$1" "${@:2}"; }
serve() { # starts the web server; its process is $httpd
    launch server busybox httpd -f -vv -p 127.0.0.1:8099 -h "$work/web" 2>>"$work/httpd.log"
    httpd=$launched
}
start() { # NAME ARGUMENT...; its process is $block
    launch server "$program" block s0 --cache "$work/cache" --poll 1 --control="$socket" "${@:2}" -j \
        >"$work/$1.json" 2>"$work/$1.log"
    block=$launched
    wait_for 20 attached || fail "no program: $(cat "$work/$1.log")"
    wait_for 20 lists || fail "no control socket: $(cat "$work/$1.log")"
}
stop() { # NAME
    kill -INT "$block"
    wait "$block" || fail "block ended with $?: $(cat "$work/$1.log")"
}
loses() { ! answered "$1"; }
logs() { wait_for 15 grep -qF -- "$2" "$work/$1.log" || fail "it does not log \"$2\": $(tail -5 "$work/$1.log")"; }

# A URL.
url=http://127.0.0.1:8099/list
web list "# a published list" 203.0.113.0/24 2001:db8:9::/48 198.51.100.7
put allow 203.0.113.128/25
serve
start url --allow "$work/allow" --block "$url"
wait_for 15 loses 203.0.113.5 || fail "the list at the URL has no effect: $(cat "$work/url.log")"
loses 2001:db8:9::5 && answered 203.0.113.200 && answered 192.0.2.77 || fail "other verdicts by the list"
wait_for 15 grep -q "response:304" "$work/httpd.log" || fail "an unchanged list is sent again: $(cat "$work/httpd.log")"
web list 203.0.113.0/24 2001:db8:9::/48 192.0.2.77
wait_for 15 loses 192.0.2.77 || fail "a change of the list has no effect"
wait_for 15 answered 198.51.100.7 || fail "a line that is gone has an effect"
web list "<html><body>Under maintenance</body></html>"
logs url "reading the list $url: $work/cache/"
loses 192.0.2.77 || fail "a page of HTML empties the list"
lists | has_line "^drop $url prefixes 3 .*error: .*it begins with \"<html>" || fail "other lists: $(lists)"
web list 192.0.2.77
logs url "the list is held: it has 1 prefixes where it had 3"
loses 203.0.113.5 || fail "a list that has been cut off is applied"
lists | has_line "^drop $url prefixes 3 .*held: it has 1 prefixes" || fail "other lists: $(lists)"
web list 203.0.113.0/24 2001:db8:9::/48 192.0.2.77 198.51.100.7
wait_for 15 loses 198.51.100.7 || fail "a list after one that was held has no effect"
rm "$work/web/list"
logs url "$url: the list stays as it was: the server responds 404"
kill "$httpd"
logs url "$url: the list stays as it was: connecting"
lists | has_line "^drop $url prefixes 4 .*error: .*connecting" || fail "other lists: $(lists)"
loses 198.51.100.7 || fail "the list ends with its server"
stop url

# A start without the server: the list of the last time.
start again --block "$url"
loses 198.51.100.7 || fail "the list is lost at a restart"
web list 203.0.113.0/24 192.0.2.77
serve
wait_for 15 answered 198.51.100.7 || fail "the list is not fetched from a server that is back"
logs again "the source of the list answers again"
stop again
kill "$httpd"

# HTTPS.
certificate() { # NAME HOST
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "/CN=$2" \
        -addext "subjectAltName=IP:$2" -addext "basicConstraints=critical,CA:FALSE" \
        -keyout "$work/$1.key" -out "$work/$1.pem" 2>"$work/openssl.log"
}
certificate right 127.0.0.1
certificate other 127.0.0.2
web secret 198.51.100.0/24
(cd "$work/web" && exec ip netns exec "${prefix}server" openssl s_server -accept 127.0.0.1:8443 -WWW -quiet \
    -cert "$work/right.pem" -key "$work/right.key" >"$work/tls.log" 2>&1) &
tls=$!
export SSL_CERT_FILE=$work/other.pem
start untrusted --block https://127.0.0.1:8443/secret
logs untrusted "https://127.0.0.1:8443/secret: "
answered 198.51.100.7 || fail "a list with a certificate that is not trusted is applied"
stop untrusted
export SSL_CERT_FILE=$work/right.pem
start trusted --block https://127.0.0.1:8443/secret
wait_for 15 loses 198.51.100.7 || fail "the list by HTTPS has no effect: $(cat "$work/trusted.log" "$work/tls.log")"
stop trusted
unset SSL_CERT_FILE
kill "$tls"

# Blackhole routes of a BGP peer, in a table of their own.
bird() { # NAME ROUTER-ID CONFIG
    printf '%s\n' 'log stderr all;' "router id $2;" 'protocol device { scan time 1; }' "$3" >"$work/$1.conf"
    launch "$1" bird -f -c "$work/$1.conf" -s "$work/$1.ctl" -P "$work/$1.pid" 2>"$work/$1.bird.log"
}
bird client 10.1.0.2 'ipv4 table blackholes;
protocol static holes { ipv4 { table blackholes; };
    route 192.0.2.77/32 blackhole { bgp_community.add((65535, 666)); };
    route 198.51.100.0/24 blackhole; }
protocol bgp upstream { local 10.1.0.2 as 65001; neighbor 10.1.0.1 as 65002; connect delay time 1;
    ipv4 { table blackholes; import none; export all; next hop self; }; }'
bird server 10.1.0.1 'protocol bgp peer1 { local 10.1.0.1 as 65002; neighbor 10.1.0.2 as 65001; connect delay time 1;
    ipv4 { import filter { if (65535, 666) ~ bgp_community then { dest = RTD_BLACKHOLE; accept; } reject; }; export none; }; }
protocol kernel { kernel table 100; ipv4 { import none; export where source = RTS_BGP; }; }'
route_there() { within server ip route show table 100 | has_line "^blackhole 192.0.2.77"; }
start table --table 100
wait_for 30 route_there || fail "BIRD installs no blackhole route: $(cat "$work/server.bird.log")"
wait_for 15 loses 192.0.2.77 || fail "a blackhole route has no effect: $(cat "$work/table.log")"
answered 198.51.100.7 || fail "a route without the community has an effect"
within client birdc -s "$work/client.ctl" disable holes >/dev/null
wait_for 15 answered 192.0.2.77 || fail "a route that is withdrawn has an effect"
# The only prefix is gone: a list by routes may shrink.
lists | has_line "^drop table 100 prefixes 0 " || fail "other lists: $(lists)"
within server ip route add blackhole 198.51.100.0/24 table 100
wait_for 15 loses 198.51.100.7 || fail "a route by ip has no effect"
within server ip route add blackhole 10.1.0.0/16 table 100
logs table "table 100: the list is held: 10.1.0.0/16 contains 10.1.0.1"
answered 10.1.0.2 || fail "the host is cut off by a route"
stop table

# Flow specifications of GoBGP: those that discard by the source alone.
start_gobgp server
gobgp global rib -a ipv4-flowspec add match source 198.51.100.0/24 then discard
gobgp global rib -a ipv4-flowspec add match source 192.0.2.77/32 protocol icmp then discard
gobgp global rib -a ipv6-flowspec add match source 2001:db8:9::/48 then discard
start flowspec --flowspec 65001@127.0.0.1:1179
wait_for 60 loses 198.51.100.7 || fail "a flow specification has no effect: $(cat "$work/flowspec.log" "$work/gobgpd.log")"
wait_for 15 loses 2001:db8:9::5 || fail "a flow specification of IPv6 has no effect: $(cat "$work/flowspec.log")"
answered 192.0.2.77 || fail "a flow specification for a protocol drops all packets of its source"
logs flowspec "the list has not the 1 rules that match more than a source"
gobgp global rib -a ipv4-flowspec del match source 198.51.100.0/24 then discard
wait_for 15 answered 198.51.100.7 || fail "a flow specification that is withdrawn has an effect"
kill "$gobgpd"
wait_for 15 answered 2001:db8:9::5 || fail "flow specifications stay after the session"
stop flowspec

# Bans.
start bans --bans "$work/state/bans" --allow "$work/allow"
ask ban 192.0.2.77 | has_line "192.0.2.77/32 is banned" || fail "ban prints nothing of use"
loses 192.0.2.77 || fail "a ban has no effect"
ask ban 203.0.113.0/24 --for 3600 -j | json 'assert "203.0.113.0/24 is banned until" in d["done"], d'
loses 203.0.113.5 && answered 203.0.113.200 || fail "other verdicts by a ban and an exception"
ask ban 2001:db8:8::/45 --for 2 >/dev/null
loses 2001:db8:9::5 || fail "a ban of IPv6 has no effect"
wait_for 15 answered 2001:db8:9::5 || fail "a ban does not end"
ask show blocked 203.0.113.0/24 --count 0s >/dev/null
loses 203.0.113.5
# `show` itself counts for a time only; the counter of the process goes on.
(sleep 0.5 && loses 203.0.113.5) &
ask show blocked 203.0.113.0/24 --count 3s -j >"$work/blocked.json"
wait $! || fail "a banned prefix is answered"
json '(b,) = d
assert (b["action"], b["packets"], b["bytes"]) == ("drop", 3, 3 * 98), b
assert b["lines"] == [{"list": "bans", "action": "drop", "prefix": "203.0.113.0/24"}] and b["within"] == 1, b
assert 2900 < b["counted_ms"] < 6000, b' <"$work/blocked.json" || fail "other counts of a prefix"
ask show blocked 203.0.113.200 --count 0s | has_line "^203.0.113.200/32 pass" || fail "other lists of an exception"
refuse_none() { ask show blocked 198.51.100.7 --count 0s >"$work/none" && return 1; has_line "not listed" <"$work/none"; }
refuse_none || fail "a prefix in no list: $(cat "$work/none")"
refuse 1 "10.1.0.0/24 contains 10.1.0.1, an address of s0: a ban would cut this host off" ask ban 10.1.0.0/24
refuse 1 '"x" is not an address or prefix' ask ban x
refuse 1 "did you mean 2001:db8:8::/45?" ask ban 2001:db8:9::/45
refuse 1 "198.51.100.7/32 is not banned" ask unban 198.51.100.7
refuse 1 "not available on \`fingerpost block\`" ask show routes
wait_for 5 grep -q "^192.0.2.77/32$" "$work/state/bans" || fail "the bans are not saved"
kill -KILL "$block"
wait "$block" 2>/dev/null || true
wait_for 15 eval '! attached' || fail "the program stays after SIGKILL"
start bans --bans "$work/state/bans" --allow "$work/allow"
loses 192.0.2.77 && loses 203.0.113.5 || fail "bans are lost at a restart"
ask unban 192.0.2.77 >/dev/null
answered 192.0.2.77 || fail "a ban that is lifted has an effect"
refuse 1 "another process serves this control socket" within server "$program" block lo --block "$work/allow" --control="$socket"
stop bans
grep -q "^203.0.113.0/24 expires=" "$work/state/bans" && ! grep -q 192.0.2.77 "$work/state/bans" ||
    fail "other bans are saved: $(cat "$work/state/bans")"

# A ban that would cut the host off since its addresses have changed.
printf '%s\n' 10.1.0.0/24 192.0.2.77 >"$work/state/bans"
start early --bans "$work/state/bans"
logs early "the ban of 10.1.0.0/24 is not in force: 10.1.0.0/24 contains 10.1.0.1, an address of s0"
answered 10.1.0.2 && loses 192.0.2.77 || fail "other verdicts by bans of the last time"
stop early

refuse 2 "required" within server "$program" block s0 --bans "$work/state/bans"
refuse 2 "an AS and an address are needed" within server "$program" block s0 --flowspec 127.0.0.1
refuse 1 "the list http://: " within server "$program" block s0 --block http://
