#!/usr/bin/env bash
# A gate that asks TCP for an answer to a cookie, under a flood that sends each forged SYN twice:
# what the second packet cannot stop, first without cookies and then with.
#
#   client c0 ── g0 gate g1 ── t0 grantor      10.1.0.x, fd01::x │ 10.2.0.x, fd02::x
#                                              protected: 192.0.2.0/24, 2001:db8:2::/48
#
# Clients are the kernel's own TCP; answers are judged by scapy (cookie.py).
. "$(dirname "$0")/place.sh"

for name in client gate grantor; do
    namespace "$name"
done
join client c0 02:00:00:00:01:02 gate g0 02:00:00:00:01:01
join grantor t0 02:00:00:00:02:02 gate g1 02:00:00:00:02:01
within gate ip addr add 10.1.0.1/24 dev g0
within gate ip addr add fd01::1/64 dev g0
within gate ip addr add 10.2.0.1/24 dev g1
within gate ip addr add fd02::1/64 dev g1
for address in 2 $(seq 10 19); do
    within client ip addr add "10.1.0.$address/24" dev c0
done
within client ip addr add fd01::2/64 dev c0
within grantor ip addr add 10.2.0.2/24 dev t0
within grantor ip addr add fd02::2/64 dev t0
within gate ip route add 192.0.2.0/24 via 10.2.0.2
within gate ip -6 route add 2001:db8:2::/48 via fd02::2
within client ip route add 192.0.2.0/24 via 10.1.0.1
# Forged sources are not to be asked for, and the far ends' MACs are known.
within gate ip neigh replace 10.1.0.2 lladdr 02:00:00:00:01:02 dev g0
within gate ip neigh replace 10.2.0.2 lladdr 02:00:00:00:02:02 dev g1
within gate ip -6 neigh replace fd02::2 lladdr 02:00:00:00:02:02 dev g1
within client ip neigh replace 10.1.0.1 lladdr 02:00:00:00:01:01 dev c0

guard() {
    cat >"$work/$1.toml" <<CONFIG
[front]
interface = "g0"
[back]
interface = "g1"
[link]
bandwidth = "100mbit"
[table]
entries = 2048
[admission]
proof = "$1"
cookies = 5000
[[grantors]]
name = "site"
members = [{ address = "10.2.0.2" }]
[[grantors]]
name = "site6"
members = [{ address = "fd02::2" }]
[[policy]]
prefix = "192.0.2.0/24"
grantors = "site"
[[policy]]
prefix = "2001:db8:2::/48"
grantors = "site6"
[decisions]
v1_from = ["10.2.0.2"]
[control]
socket = "$work/sock"
CONFIG
    launch gate "$program" gate -c "$work/$1.toml" -j >"$work/$1.json" 2>"$work/$1.log"
    gate=$launched
    wait_for 20 grep -q 'guarding after' "$work/$1.log" || fail "the gate does not start"
    within client "$python" "$here/smoke/cookie.py" "$prefix" "$program" "$work" "$1"
    kill -INT "$gate"
    local status=0
    wait "$gate" || status=$?
    [ "$status" -eq 0 ] || fail "the gate ended with $status"
    json 'c = d["counters"]; assert c["balanced"], c; p = d["gate"]["packets"]
ended = c["sent"] + sum(c["punted"].values()) + sum(c["dropped"].values())
own = c.get("originated", 0)
assert c["received"] + own == ended, c
ends = "request granted allowed back front no_route declined over_rate policy no_grantor program program_error over_limit over_limit_each syn_cookie proof"
assert p["received"] == sum(p[name] for name in ends.split()), p
assert (c["dropped"]["syn_cookie"], c["dropped"]["proof"]) == (p["syn_cookie"], p["proof"]), p
assert own == d["gate"]["link"]["cookies_sent"], c
print("   every one of", p["received"], "packets counted, and", own, "answers")' <"$work/$1.json"
}

guard second-packet
guard syn-cookie
