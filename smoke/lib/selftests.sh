# Sourced by the smoke test of the kernel's selftests: router_topology.sh with two more links, cases that run with
# the kernel alone and with the router, and what a host observes.
#
#   source s0 ── r0 router r1 ── a0 a       10.0.0.x, 10.0.1.x; fd00:0::x, fd00:1::x
#          s1 ── r3        r2 ── b0 b       10.0.3.x, 10.0.2.x
#          s2 ───────────────── a1          fd00:4::x: a second path from source to a
#
#   VERBOSE=1                  in the environment: prints each case when it ends
#   restore                    adds each address and route of the topology that is absent
#   follow                     waits until the router has the kernel's routes, if it is on
#   try SCRIPT CASE LEAST COMMAND...   runs a case
#   alone_and_with_router COMMAND   runs the cases of COMMAND twice, prints their table, and fails if results differ
#   joined COMMAND...          its output as a line
#   settled COMMAND...         its output, once it is that with the kernel alone
#   pings ARGUMENTS            how many of five pings are answered
#   silent_pings ARGUMENTS     whether one of two is
#   hops ARGUMENTS             what traceroute prints
#   long_pings LENGTH ARGUMENTS   the errors about pings of a length, and whether fragments are answered
#   mtu LINK MTU               sets the MTU of both ends of a link, which is named by the router's end
#   learned DESTINATION...     the path MTU that source has learned; `forget`
. "$(dirname "${BASH_SOURCE[0]}")/router_topology.sh"

join source s1 02:00:00:00:04:02 router r3 02:00:00:00:04:01
join source s2 02:00:00:00:05:02 a a1 02:00:00:00:05:01
for interface in s0 s1 s2; do own_checksums source "$interface"; done
for interface in a0 a1; do own_checksums a "$interface"; done
own_checksums b b0
for name in router a b; do
    within "$name" sysctl -qw net.ipv4.icmp_ratelimit=0 net.ipv6.icmp.ratelimit=0 net.ipv4.icmp_msgs_per_sec=100000 \
        net.ipv4.icmp_msgs_burst=1000
done
within router sysctl -qw net.ipv4.fib_multipath_hash_policy=1 net.ipv6.fib_multipath_hash_policy=1
within a sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1

# Adds each address and route of the topology that is absent: cases remove them with addresses and with links.
restore() {
    local line
    while read -r line; do
        # shellcheck disable=SC2086
        within ${line%% *} ip ${line#* } 2>"$work/restore.err" || grep -qE 'exists|already assigned' "$work/restore.err" ||
            fail "$line: $(cat "$work/restore.err")"
    done <<'LINES'
router addr add 10.0.0.1/24 dev r0
router addr add 10.0.1.1/24 dev r1
router addr add 10.0.2.1/24 dev r2
router addr add 10.0.3.1/24 dev r3
router -6 addr add fd00:0::1/64 dev r0
router -6 addr add fd00:1::1/64 dev r1
router -6 addr add fd00:2::1/64 dev r2
router -6 addr add fd00:3::1/64 dev r3
source addr add 10.0.3.2/24 dev s1
source -6 addr add fd00:3::2/64 dev s1
source -6 addr add fd00:4::2/64 dev s2
source route add default via 10.0.0.1
source -6 route add default via fd00:0::1
source route add 10.0.2.2 via 10.0.3.1
source -6 route add fd00:2::2 via fd00:3::1
a -6 addr add fd00:4::1/64 dev a1
a addr add 169.254.2.22/24 dev a0
a -6 addr add fe80:2::22/64 dev a0
a addr add 203.0.113.1/32 dev lo
a -6 addr add 2001:db8:2::1/128 dev lo
a route add default via 10.0.1.1
a -6 route add default via fd00:1::1
b -6 addr add fd00:2::2/64 dev b0
b addr add 169.254.3.23/24 dev b0
b -6 addr add fe80:3::23/64 dev b0
b addr add 203.0.113.1/32 dev lo
b -6 addr add 2001:db8:2::1/128 dev lo
b route add default via 10.0.2.1
b -6 route add default via fd00:2::1
router addr add 169.254.2.12/24 dev r1
router addr add 169.254.3.13/24 dev r2
router -6 addr add fe80:2::12/64 dev r1
router -6 addr add fe80:3::13/64 dev r2
LINES
}

state=off
begun=$(now)
sent() { show -j counters | json 'print(d[0]["sent"])'; }
packets() { within source "$python" "$here/smoke/selftests_packets.py" "$@"; }
# With the router on: it has the kernel's routes.
follow() { [ "$state" = off ] || agrees >"$work/agrees.log" || fail "the router has other routes: $(cat "$work/agrees.log")"; }

# `try SCRIPT CASE LEAST COMMAND...`: COMMAND prints what the hosts observe. With the router on it must have sent
# LEAST packets at least, beside those that selftests_packets.py sends for itself. Words in parentheses are for the
# reader, and may differ.
try() {
    local script=$1 name=$2 least=$3 before=0 count=- result
    shift 3
    echo 0 >"$work/others"
    follow
    [ "$state" = off ] || before=$(sent)
    result=$("$@")
    if [ "$state" = on ]; then
        count=$(($(sent) - before - $(cat "$work/others")))
        [ "$count" -ge "$least" ] || fail "$script, $name: $result; the router has sent $count packets, not $least: $(show counters)"
    fi
    printf '%s\t%s\t%s\t%s\n' "$script" "$name" "$result" "$count" >>"$work/results.$state"
    [ -z "${VERBOSE:-}" ] || echo "   $script | $name | $result | $count ($(since "$begun"))" >&2
}

pings() { # ARGUMENTS...: of ping
    local status=0
    within source ping -q -c 5 -i 0.02 -W 5 "$@" >"$work/ping.log" || status=$?
    [ "$status" -le 1 ] || fail "ping $*: $(cat "$work/ping.log")"
    sed -n 's/.* \([0-9]*\) received.*/\1 of 5 answered/p' "$work/ping.log"
}
silent_pings() { within source ping -q -c 2 -i 0.1 -W 1 "$@" >/dev/null && echo answered || echo "no answer"; }
hops() { within source traceroute -n -q 1 -w 5 -m 5 "$@" | awk 'NR > 1 { print $2 }' | paste -sd ' '; }

joined() { "$@" | tr -d '\n'; }
# `settled COMMAND...`: with the router on, what it prints when that is what it has printed with the kernel alone,
# within 10 s: the router reads settings once a second.
settled() {
    local until=$((SECONDS + 10)) got
    got=$("$@")
    [ "$state" = on ] || echo "$got" >"$work/settled"
    until [ "$got" = "$(cat "$work/settled")" ] || [ "$SECONDS" -ge "$until" ]; do got=$("$@"); done
    echo "$got"
}
mtu() {
    case $1 in
    r0) within source ip link set s0 mtu "$2" ;;
    r1) within a ip link set a0 mtu "$2" ;;
    r2) within b ip link set b0 mtu "$2" ;;
    r3) within source ip link set s1 mtu "$2" ;;
    esac
    within router ip link set "$1" mtu "$2"
    [ "$state" = off ] || wait_for 10 has_mtu "$1" "$2" || fail "the router does not follow the MTU of $1: $(show interfaces)"
}
has_mtu() { [ "$(show -j interfaces | json "print(next(i['mtu'] for i in d if i['name'] == '$1'))")" = "$2" ]; }
learned() {
    local mtu
    mtu=$(within source ip route get "$@" | sed -n 's/.* mtu \(lock \)\?\([0-9]*\).*/\1\2/p')
    echo "${mtu:-none}"
}
# Pings with packets of this length: the ICMP errors, and whether packets are answered, which source fragments
# then.
long_pings() { # LENGTH ARGUMENTS...
    local status=0
    within source ping -M want -i 0.1 -c 3 -W 5 -s "$@" >"$work/ping.log" || status=$?
    [ "$status" -le 1 ] || fail "ping $*: $(cat "$work/ping.log")"
    {
        sed -n 's/^\(From .*\) icmp_seq=[0-9]* \(.*\)/\1 \2/p' "$work/ping.log" | tr -d '()' | uniq
        grep -q ' bytes from' "$work/ping.log" && echo answered || echo "no answer"
    } | paste -sd , | sed 's/,/, /g'
}
forget() {
    within source ip route flush cache
    within source ip -6 route flush cache
}
initial_mtus() {
    forget
    mtu r0 2000
    mtu r3 2000
    mtu r1 1400
    mtu r2 "${1:-1500}"
}

# Runs COMMAND with the kernel alone, then with the router, and compares.
alone_and_with_router() { # COMMAND
    "$1"
    configure "" '{ name = "r0" }, { name = "r1" }, { name = "r2" }, { name = "r3" }'
    start_router
    state=on
    "$1"
    stop_router
    compare
}

# Prints the table, and fails if a case differs.
compare() {
    local wrong=0 script name alone with count
    # A file, because the virtual machine has no /dev/fd.
    paste "$work/results.off" "$work/results.on" >"$work/results"
    echo "   script | case | kernel alone | with Fingerpost | packets sent by the router"
    while IFS=$'\t' read -r script name alone _ _ _ with count; do
        echo "   $script | $name | $alone | $with | $count"
        if [ "$(sed 's/ ([^)]*)//g' <<<"$alone")" != "$(sed 's/ ([^)]*)//g' <<<"$with")" ]; then
            wrong=$((wrong + 1))
            echo "   DIFFERS"
        fi
    done <"$work/results"
    [ "$wrong" = 0 ] || fail "$wrong cases"
}
