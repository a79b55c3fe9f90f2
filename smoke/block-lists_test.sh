#!/usr/bin/env bash
# `fingerpost block` protects a host: packets of listed sources end before its kernel, all others reach it.
#
# Lists of both families, an exception before them, counters to the packet; files that change while packets come, up to
# a table that outgrows its arrays; contents that are held, and SIGHUP; a process that is killed; wrong arguments.
. "$(dirname "$0")/lib/block_topology.sh"

put allow 203.0.113.128/25 2001:db8:9:1::/64
put bad "# unwanted sources" "203.0.113.0/24 a word for people" 198.51.100.7
put worse "2001:db8:9::/48 ; a comment"
arguments=(--allow "$work/allow" --block "$work/bad" --block "$work/worse")

for source in "${sources[@]}"; do answered "$source" || fail "$source is not answered before the start"; done

launch server "$program" block s0 "${arguments[@]}" -j >"$work/first.json" 2>"$work/first.log"
wait_for 20 attached || fail "no program: $(cat "$work/first.log")"
for source in 203.0.113.200 192.0.2.77 2001:db8:9:1::5 10.1.0.2 fd01::2; do
    answered "$source" || fail "$source is not answered"
done
for source in 203.0.113.5 198.51.100.7 2001:db8:9::5; do
    if answered "$source"; then fail "$source is answered"; fi
done

refuse 1 "attaching the program to s0" within server "$program" block s0 "${arguments[@]}"

# A change is effective soon, and removes what is no longer there.
put bad "203.0.113.0/24" "192.0.2.64/26"
wait_for 15 eval '! answered 192.0.2.77' || fail "a new line has no effect"
wait_for 15 answered 198.51.100.7 || fail "a removed line has an effect"

# A table that outgrows its arrays: the program is replaced, and no packet is lost meanwhile.
within client ping -q -c 400 -i 0.01 -W 1 10.1.0.1 >"$work/ping" &
ping=$!
sleep 0.5
"$python" -c 'print("192.0.2.64/26\n203.0.113.0/24", *(f"100.{i >> 8 & 255}.{i & 255}.{i * 7 & 255}" for i in range(60000)), sep="\n")' >"$work/new"
mv "$work/new" "$work/bad"
wait_for 30 eval 'grep -q "bad: 6000[0-9] prefixes" "$work/first.log"' || fail "no 60,000 prefixes: $(cat "$work/first.log")"
wait "$ping" || true
has_line " 0% packet loss" <"$work/ping" || fail "packets are lost while the program is replaced: $(cat "$work/ping")"
answered 198.51.100.7 && ! answered 192.0.2.77 || fail "other verdicts by the larger table"

# An interface that is removed and made again.
ip -n "${prefix}server" link del s0
wait_for 15 grep -qF "s0: the interface is gone" "$work/first.log" || fail "a removed interface is not logged"
join client c0 02:00:00:00:01:02 server s0 02:00:00:00:01:01
addresses
wait_for 15 attached || fail "no program on the new interface: $(cat "$work/first.log")"
answered 198.51.100.7 && ! answered 192.0.2.77 || fail "other verdicts on the new interface"

# Held: the host's own address, everything, and a list that has lost most of its lines.
hold() { # TEXT LINE...
    put bad "${@:2}"
    wait_for 15 grep -qF -- "$1" "$work/first.log" || fail "it does not log \"$1\": $(tail -3 "$work/first.log")"
    answered 10.1.0.2 && ! answered 192.0.2.77 || fail "a list that is held is applied"
}
hold "10.1.0.0/24 contains 10.1.0.1, an address of s0" 10.1.0.0/24
hold "it contains 0.0.0.0/0" 0.0.0.0/0
hold "it has 1 prefixes where it had 6000" 198.51.100.7
kill -HUP "$launched"
wait_for 15 eval '! answered 198.51.100.7 && answered 192.0.2.77' || fail "SIGHUP does not apply a shorter list"
# A file that goes leaves the list.
rm "$work/bad"
wait_for 15 grep -qF "the list stays as it was" "$work/first.log" || fail "a file that is missing is not logged"
! answered 198.51.100.7 || fail "a file that is missing empties its list"

kill -INT "$launched"
wait "$launched" || fail "block ended with $?: $(cat "$work/first.log")"
! attached || fail "the program stays"
json '
allow, bad, worse = d["lists"]
assert (allow["action"], bad["action"]) == ("pass", "drop"), d
assert d["interfaces"][0]["name"] == "s0" and d["interfaces"][0]["mode"] in ("native", "generic"), d
assert allow["packets"] == 6, d
assert worse["packets"] == 3 and worse["v6"] == 1, d
assert bad["packets"] >= 12 and bad["v4"] == 1, d
assert d["not_listed"]["packets"] > 400, d
' <"$work/first.json" || fail "other counters"

# A folder is one list.
mkdir "$work/folder"
put folder/one 203.0.113.5
put folder/two 198.51.100.7 203.0.113.5
launch server "$program" block s0 --block "$work/folder" -j >"$work/folder.json" 2>"$work/folder.log"
wait_for 20 attached || fail "no program: $(cat "$work/folder.log")"
! answered 203.0.113.5 && ! answered 198.51.100.7 && answered 192.0.2.77 || fail "other verdicts by a folder"
put folder/three 192.0.2.64/26
wait_for 15 eval '! answered 192.0.2.77' || fail "a new file has no effect"
# The first of these packets may have come before the list.
! answered 192.0.2.77 || fail "a new file has no effect later"
rm "$work/folder/two" "$work/folder/three"
kill -HUP "$launched"
wait_for 15 answered 198.51.100.7 || fail "a file that is gone has an effect"
kill -INT "$launched"
wait "$launched" || fail "block ended with $?: $(cat "$work/folder.log")"
json '(one,) = d["lists"]
assert one["v4"] == 1 and one["packets"] >= 9, d' <"$work/folder.json" || fail "other counters by a folder"

# A list for one destination, and an exception from another list for it.
within server ip addr add 10.1.0.3/24 dev s0
within client ip neigh replace 10.1.0.3 lladdr 02:00:00:00:01:01 dev c0
put bad 198.51.100.0/24
put some 203.0.113.0/24
launch server "$program" block s0 --block "$work/bad" --block-to "10.1.0.3,2001:db8::/32=$work/some" \
    --allow-to "10.1.0.3/32=$work/bad" -j >"$work/pairs.json" 2>"$work/pairs.log"
wait_for 20 attached || fail "no program: $(cat "$work/pairs.log")"
! answered 203.0.113.5 10.1.0.3 && answered 203.0.113.5 || fail "other verdicts by a list for a destination"
answered 198.51.100.7 10.1.0.3 && ! answered 198.51.100.7 || fail "other verdicts by an exception for a destination"
# The destination is this host: an own address is a reason to hold the list.
put some 10.1.0.0/24
wait_for 15 grep -qF "some to 10.1.0.3/32,2001:db8::/32: the list is held" "$work/pairs.log" ||
    fail "a list for this host's address is applied: $(cat "$work/pairs.log")"
kill -INT "$launched"
wait "$launched" || fail "block ended with $?: $(cat "$work/pairs.log")"
json 'passed, bad, some = d["lists"]
assert (passed["action"], passed["to"], passed["packets"]) == ("pass", ["10.1.0.3/32"], 3), d
assert (bad["packets"], some["packets"]) == (3, 3), d' <"$work/pairs.json" || fail "other counters by destinations"

# A line that expires, and one whose time is none.
put bad "203.0.113.5 expires=$(date -u -d '+5 seconds' +%FT%TZ)" 198.51.100.7
launch server "$program" block s0 --block "$work/bad" -j >"$work/expiry.json" 2>"$work/expiry.log"
wait_for 20 attached || fail "no program: $(cat "$work/expiry.log")"
! answered 203.0.113.5 || fail "a line that expires has no effect before"
wait_for 15 answered 203.0.113.5 || fail "a line does not expire"
! answered 198.51.100.7 || fail "another line ends, too"
put bad "203.0.113.5 expires=tomorrow"
wait_for 15 grep -qF '`expires=tomorrow`: a time is needed' "$work/expiry.log" || fail "it does not name a bad time"
! answered 198.51.100.7 || fail "a list with a bad time is applied"
kill -INT "$launched"
wait "$launched" || fail "block ended with $?: $(cat "$work/expiry.log")"
json '(bad,) = d["lists"]
assert (bad["v4"], bad["expiring"]) == (1, 0), d' <"$work/expiry.json" || fail "other counters after an expiry"

# Exactly the packets that were sent, and none is dropped while it observes.
put bad 203.0.113.0/24
launch server "$program" block s0 "${arguments[@]}" --observe --mode generic --interval 1 >"$work/second.txt" 2>"$work/second.log"
wait_for 20 attached || fail "no program: $(cat "$work/second.log")"
answered 203.0.113.5 || fail "a packet is dropped by an observer"
answered 203.0.113.200 || fail "an exception is dropped by an observer"
wait_for 15 eval '[ "$(grep -c "not listed" "$work/second.txt")" -ge 2 ]' || fail "no counters each second"
kill -KILL "$launched"
wait "$launched" 2>/dev/null || true
wait_for 15 eval '! attached' || fail "the program stays after SIGKILL"
awk '$NF ~ /bad$/ { print $1, $2, $3 }' "$work/second.txt" | has_line "^drop 1 3$" || fail "not 3 packets: $(cat "$work/second.txt")"
awk '$NF ~ /allow$/ { print $1, $2, $3 }' "$work/second.txt" | has_line "^pass 2 3$" || fail "not 3 packets of the exception"

within server "$program" block s0 "${arguments[@]}" --check >"$work/check" || fail "--check: $?"
has_line 'drop *1 IPv4 *0 IPv6' <"$work/check" || fail "--check prints $(cat "$work/check")"
# A list of bogons is held for the host's private address, until an allow list has that.
put bad 10.0.0.0/8 127.0.0.0/8
refuse_check() { within server "$program" block s0 "${arguments[@]}" --check >"$work/check" 2>"$work/check.log"; }
if refuse_check; then fail "--check accepts the host's own address"; fi
has_line 'held: 10.0.0.0/8 contains 10.1.0.1' <"$work/check" || fail "--check prints $(cat "$work/check")"

put allow 203.0.113.128/25 10.1.0.0/24
refuse_check || fail "--check refuses bogons though the host's own address is allowed: $(cat "$work/check")"

# An allow list that no longer protects the host from a list after it is held.
launch server "$program" block s0 --allow "$work/allow" --block "$work/bad" >"$work/danger.txt" 2>"$work/danger.log"
wait_for 20 attached || fail "no program: $(cat "$work/danger.log")"
answered 10.1.0.2 || fail "an allowed neighbor is not answered"
put allow 203.0.113.128/25 198.51.100.0/24
wait_for 15 grep -qF "allow: the list is held: without its former prefixes" "$work/danger.log" ||
    fail "an allow list that is needed is not held: $(cat "$work/danger.log")"
answered 10.1.0.2 || fail "the host is cut off"
put bad 192.0.2.0/24 127.0.0.0/8
wait_for 15 eval '! answered 192.0.2.77' || fail "a list without danger is not applied"
answered 10.1.0.2 || fail "the host is cut off by the next change"
# A list that is held, and so not applied, holds no allow list.
put bad 10.0.0.0/8 192.0.2.0/24
wait_for 15 grep -qF "10.0.0.0/8 contains 10.1.0.1" "$work/danger.log" || fail "not held: $(cat "$work/danger.log")"
put allow 203.0.113.128/25 192.0.2.77
wait_for 15 answered 192.0.2.77 || fail "an allow list is held by a list that is not applied"
kill -INT "$launched"
wait "$launched" || fail "block ended with $?: $(cat "$work/danger.log")"

refuse 1 "no interface eth9" within server "$program" block eth9 "${arguments[@]}"
refuse 1 "reading the list $work/none" within server "$program" block s0 --block "$work/none"
refuse 1 "the list is given twice" within server "$program" block s0 --block "$work/bad" --block "$work/bad"
refuse 2 "required" within server "$program" block s0
refuse 1 "prefixes and a list are needed" within server "$program" block s0 --block-to "$work/bad"
refuse 1 "did you mean 10.1.0.0/24?" within server "$program" block s0 --block-to "10.1.0.3/24=$work/bad"
refuse 1 "CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON" setpriv --bounding-set -all --inh-caps -all "$program" block lo --block "$work/worse"
