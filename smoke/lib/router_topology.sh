# Sourced by the smoke tests of a router that follows the kernel: a crossing of three veth
# pairs, and functions for its tests.
#
#   source s0 ── r0 router r1 ── a0 a       10.0.0.x, fd00:0::x     .1 is the router
#                          r2 ── b0 b       10.0.1.x and 10.0.2.x
#
#   default_routes         lets source, a and b send everything to the router
#   hosts_own_checksums    lets the kernels of source, a and b compute the checksums of what they send
#   hosts_take_redirected  lets their interfaces receive what a program of the router redirects (GRO)
#   forwards_in_driver     succeeds if all interfaces forward in the driver (mode = "xdp")
#   forwarded_in_driver    prints how many packets the router has forwarded so
#   narrow MTU             sets the MTU of the link between the router and a
#   stop_kernel, resume_kernel   the kernel of the router drops what it would forward; forwards again
#   configure [LINES [INTERFACES]]
#                          writes the router's configuration, with these lines in it; with $mode, in that mode
#   start_router           starts it, and waits until it follows the kernel
#   stop_router            stops it: it must end with status 0, and with every packet counted
#   show WHAT...           runs `fingerpost show` with its socket
#   same                   compares its routes with the kernel's, within two seconds, by an
#                          independent program
#   agrees [SETTLE]        compares them by its own `fib diff kernel`, which takes less time, and
#                          addresses by the kernel's lookup
#   have, changes          print the number of its IPv4 routes, and of the changes that it applied
#   silent, rest           succeeds if nothing changes for a second; waits for that
#   observed_path [DEVICE]     prints what source observes of the path to 11.0.0.1: the hops, and the MTU
#                              that a router reports
#   prefixes EVERY         writes every EVERY-th prefix of the full table to $work/prefixes
#   halves                 starts BIRD in a with the prefixes on odd lines, in b with the even ones
#   two_sessions           configures BIRD in the router: both sessions, exported to the kernel
#   full, settled, half    succeed if BIRD has all routes; if the router has them; if it has one half
#   reset_session          resets the session with a, and checks routes and packets meanwhile
#   check PEER             packets leave as the prefixes of PEER (a, b or both) require (follow.py)
#   frr DAEMON ARGS        starts a daemon of FRR in the namespace router
#   fly, flown             sends packets to a all the time; checks that all arrived, once
#   send_udp ADDRESS COUNT source sends packets of 100 bytes to a port of an address
#   now, since TIME        print the time, and the time since then, in seconds
. "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"

for name in source router a b; do
    namespace "$name"
done
join source s0 02:00:00:00:01:02 router r0 02:00:00:00:01:01
join a a0 02:00:00:00:02:02 router r1 02:00:00:00:02:01
join b b0 02:00:00:00:03:02 router r2 02:00:00:00:03:01
within router sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
number=0
for side in "source s0" "a a0" "b b0"; do
    read -r name theirs <<<"$side"
    within router ip addr add "10.0.$number.1/24" dev "r$number"
    within router ip addr add "fd00:$number::1/64" dev "r$number"
    within "$name" ip addr add "10.0.$number.2/24" dev "$theirs"
    within "$name" ip addr add "fd00:$number::2/64" dev "$theirs"
    number=$((number + 1))
done

hosts_own_checksums() {
    local name interface end
    for end in "source s0" "a a0" "b b0"; do
        read -r name interface <<<"$end"
        own_checksums "$name" "$interface"
    done
}

hosts_take_redirected() {
    local name interface end
    for end in "source s0" "a a0" "b b0"; do
        read -r name interface <<<"$end"
        within "$name" ethtool -K "$interface" gro on
    done
}

forwards_in_driver() { show -j interfaces | json 'assert all(link["mode"].startswith("XDP") for link in d), d'; }
forwarded_in_driver() { show -j interfaces | json 'print(sum(link["steered"].get("forwarded", 0) for link in d))'; }

narrow() {
    within router ip link set r1 mtu "$1"
    within a ip link set a0 mtu "$1"
}

default_routes() {
    local name number=0
    for name in source a b; do
        within "$name" ip route add default via "10.0.$number.1"
        within "$name" ip -6 route add default via "fd00:$number::1"
        number=$((number + 1))
    done
}

# Its setting `ip_forward` would stop the router, too.
stop_kernel() {
    within router nft -f - <<'NFT'
table inet kernel {
    chain forward {
        type filter hook forward priority 0; policy drop;
    }
}
NFT
}
resume_kernel() { within router nft delete table inet kernel; }

observed_path() {
    local by=(${1:+-i "$1"})
    within source traceroute -n -q 1 -w 3 -m 4 "${by[@]}" 11.0.0.1 | awk 'NR > 1 { print $2 }'
    by=(${1:+-I "$1"})
    # Status 1: no answer.
    { within source ping -c 1 -W 2 -M "do" -s 1450 "${by[@]}" 11.0.0.1 || [ "$?" = 1 ]; } |
        sed -n 's/^\(From .*\)icmp_seq=1/\1/p'
    within source ip route flush cache
}

configure() {
    local more=${mode:+, mode = \"$mode\"}
    local interfaces="{ name = \"r0\"$more }, { name = \"r1\"$more }, { name = \"r2\"$more }"
    [ "${mode:-}" != xdp ] || hosts_take_redirected
    [ $# -lt 2 ] || interfaces=$2
    cat >"$work/router.toml" <<CONFIG
interface = [$interfaces]
$(busy_machine)
${1:-}
[control]
socket = "$work/sock"
CONFIG
}

start_router() {
    launch router "$program" run -c "$work/router.toml" -j >"$work/report.json" 2>"$work/fingerpost.log"
    router=$launched
    wait_for 20 grep -q 'following the kernel after' "$work/fingerpost.log" || fail "the router does not start"
}

stop_router() {
    local status=0
    kill -INT "$router"
    wait "$router" || status=$?
    [ "$status" -eq 0 ] || fail "the router ended with $status"
    balanced <"$work/report.json"
    [ ! -e "$work/sock" ] || fail "the socket is left"
}

show() { "$program" show --socket "$work/sock" "$@"; }
have() { show -j fib | json 'print(d[0]["routes"])'; }
changes() { show -j feeds | json 'print(d[0]["changes"])'; }
silent() {
    local before
    before=$(changes)
    sleep 1
    [ "$(changes)" = "$before" ]
}
rest() { wait_for 60 silent || fail "the routes do not come to rest"; }
same() { "$python" "$here/smoke/lib/compare_routes.py" "${prefix}router" "$program" "$work/sock" 2; }
agrees() { "$program" fib diff kernel --socket "$work/sock" --settle "${1:-2s}" 2>&1 | sed 's/^/   /'; }
check() { "$python" "$here/smoke/lib/follow.py" "$prefix" "$work/prefixes" "$1"; }
now() { date +%s.%N; }
since() { "$python" -c "import sys, time; print(f'{time.time() - float(sys.argv[1]):.2f}')" "$1"; }

prefixes() {
    local table=${FINGERPOST_DATA:-$here/../shared/data}/ipv4-20260730-routeviews-origin.dat.gz
    if [ -f "$table" ]; then
        zcat "$table" | awk -v every="$1" '!/^;/ && ++n % every == 0 {print $1}' >"$work/prefixes"
    else
        "$program" table generate --v4 100000 2>/dev/null | awk '!/:/ {print $1}' >"$work/prefixes"
    fi
    total=$(wc -l <"$work/prefixes")
}

halves() {
    local name number
    awk -v work="$work" '{ print "route " $1 " blackhole;" >(work "/" (NR % 2 ? "a" : "b") ".routes") }' \
        "$work/prefixes"
    for name in a b; do
        number=$([ "$name" = a ] && echo 1 || echo 2)
        cat >"$work/$name.conf" <<CONF
router id 10.0.$number.2;
log stderr { warning, error, fatal, bug };
protocol device {}
protocol static its_half {
    ipv4;
    include "$work/$name.routes";
}
protocol bgp to_router {
    local 10.0.$number.2 as 6500$number;
    neighbor 10.0.$number.1 as 65000;
    connect retry time 1;
    error wait time 1, 2;
    ipv4 { import none; export all; };
}
CONF
        bird_in "$name"
    done
}

two_sessions() {
    cat >"$work/router.conf" <<'CONF'
router id 10.0.0.1;
log stderr { warning, error, fatal, bug };
protocol device { scan time 10; }
protocol kernel { scan time 60; ipv4 { import none; export all; }; }
protocol bgp from_a { local 10.0.1.1 as 65000; neighbor 10.0.1.2 as 65001; ipv4 { import all; export none; }; }
protocol bgp from_b { local 10.0.2.1 as 65000; neighbor 10.0.2.2 as 65002; ipv4 { import all; export none; }; }
CONF
}

birdc() { within "$1" birdc -s "$work/$1.ctl" "${@:2}"; }
# BIRD's count is quick to query; the router's must reach it.
full() { [ "$(birdc router show route count | awk '/of.*routes for/ {print $1; exit}')" -ge "$total" ]; }
settled() { [ "$(have)" -ge "$total" ]; }
half() { [ "$(have)" -le $((total * 6 / 10)) ]; }

# Resets the session with a: half of the routes go and come back, and the program under test follows.
reset_session() {
    birdc router disable from_a >/dev/null
    wait_for 60 half || fail "the routes of a stay: $(have)"
    rest
    agrees
    check b
    birdc router enable from_a >/dev/null
    wait_for 120 settled || fail "the routes of a do not come back: $(have)"
    rest
    agrees
    check both
}

# BIRD in a namespace by its configuration; its process is `$launched`.
bird_in() {
    bird -p -c "$work/$1.conf" 2>"$work/$1.log" || fail "BIRD does not like $1.conf"
    launch "$1" bird -f -c "$work/$1.conf" -s "$work/$1.ctl" 2>"$work/$1.log"
}

# Starts a daemon of FRR in the namespace router, by its configuration in $work; its process is
# `$frr_DAEMON`. The peers of bgpd are those of `halves`.
frr() {
    # FRR drops its privileges, and must reach its files after that.
    chmod 711 "$work"
    install -d -o frr -g frr "$work/frr"
    [ -e "$work/bgpd.conf" ] || cat >"$work/bgpd.conf" <<'CONF'
router bgp 65000
 bgp router-id 10.0.0.1
 no bgp ebgp-requires-policy
 timers connect 1
 neighbor 10.0.1.2 remote-as 65001
 neighbor 10.0.2.2 remote-as 65002
CONF
    [ -e "$work/$1.conf" ] || : >"$work/$1.conf"
    launch router "/usr/lib/frr/$1" -f "$work/$1.conf" -i "$work/frr/$1.pid" \
        -z "$work/frr/zserv" --vty_socket "$work/frr" -A 127.0.0.1 -P 0 "${@:2}" >"$work/$1.log" 2>&1
    printf -v "frr_$1" %s "$launched"
}

# Adds 203.0.113.1 and 2001:db8::1 to a, by static routes, and sends packets there all the time
# (stream.py) until `flown`, which checks that each arrived once.
fly() {
    within a ip addr add 203.0.113.1/32 dev lo
    within a ip -6 addr add 2001:db8::1/128 dev lo
    within a ip route add default via 10.0.1.1
    within a ip -6 route add default via fd00:1::1
    within source ip route add default via 10.0.0.1
    within source ip -6 route add default via fd00:0::1
    within router ip route add 203.0.113.0/24 via 10.0.1.2
    within router ip -6 route add 2001:db8::/32 via fd00:1::2
    # Resolves the neighbors, so that no packet of the stream waits for them. A running router has the routes a
    # moment after the kernel, and until then answers with Destination Unreachable.
    wait_for 10 within source ping -qc1 -W2 203.0.113.1 || fail "203.0.113.1 does not answer"
    wait_for 10 within source ping -6 -qc1 -W2 2001:db8::1 || fail "2001:db8::1 does not answer"
    mkfifo "$work/end"
    "$python" "$here/smoke/lib/stream.py" "$prefix" a <"$work/end" >"$work/packets" 2>&1 &
    flying=$!
    exec 9>"$work/end"
}

flown() {
    local status=0
    echo >&9
    exec 9>&-
    wait "$flying" || status=$?
    sed 's/^/   /' "$work/packets"
    [ "$status" = 0 ] || fail "packets were lost, or arrived twice"
}

send_udp() { # ADDRESS COUNT
    within source "$python" -c 'import socket, sys, time
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
udp = socket.socket(family, socket.SOCK_DGRAM)
udp.bind(("fd00:0::2" if family == socket.AF_INET6 else "10.0.0.2", 9))
for i in range(int(sys.argv[2])):
    udp.sendto(bytes(100), (sys.argv[1], 9))
    if i % 200 == 199: time.sleep(0.05)' "$@"
}
