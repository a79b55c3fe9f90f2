# Sourced by every smoke test: makes the place where it happens, and removes it.
#
# A place is a few network namespaces joined by veth pairs, and a scratch folder.
# All names begin with the prefix that the runner gives (or one of our own), every
# interface is made inside a namespace, and whatever way the script ends, its
# processes, namespaces and files go: a namespace takes its interfaces with it.
# Nothing here touches the machine's own interfaces or addresses.
#
#   namespace NAME             makes one
#   join A a0 MAC B b0 MAC     joins two by a veth pair, both ends up
#   within NAME COMMAND...     runs a command in one
#   launch NAME COMMAND...     the same in the background, as process $launched
#   refuse STATUS TEXT COMMAND...   the command must end with STATUS and say TEXT
#   fail WORDS...              ends the test

set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
program=${FINGERPOST:-$here/target/release/fingerpost}
prefix=${SMOKE_PREFIX:-fp$$-}
python=/usr/bin/python3
work=$(mktemp -d "${TMPDIR:-/tmp}/fingerpost-smoke.XXXXXXXX")
namespaces=()

fail() {
    echo "FAIL: $*" >&2
    exit 1
}

leave() {
    local status=$?
    trap - EXIT INT TERM HUP
    set +e
    for name in "${namespaces[@]}"; do
        local pids
        pids=$(ip netns pids "$prefix$name" 2>/dev/null)
        # shellcheck disable=SC2086
        [ -z "$pids" ] || kill -KILL $pids 2>/dev/null
        ip netns delete "$prefix$name" 2>/dev/null
    done
    if [ "$status" -ne 0 ] && [ -d "$work" ]; then
        for log in "$work"/*.log; do
            [ -s "$log" ] && echo "--- $(basename "$log")" && cat "$log"
        done
    fi
    rm -rf "$work"
    exit "$status"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

[ "$(id -u)" -eq 0 ] || fail "needs root (network namespaces)"
[ -x "$program" ] || fail "no program at $program: cargo build --release, or set FINGERPOST"

namespace() {
    ip netns add "$prefix$1" || fail "cannot make a network namespace: CAP_SYS_ADMIN is needed"
    namespaces+=("$1")
    # Addresses are to work at once, and nobody is to speak unasked.
    within "$1" sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 \
        net.ipv6.conf.default.router_solicitations=0 net.ipv4.conf.all.rp_filter=0 \
        net.ipv4.conf.default.rp_filter=0
    ip -n "$prefix$1" link set lo up
}

join() {
    local a=$1 a_name=$2 a_mac=$3 b=$4 b_name=$5 b_mac=$6
    local each=()
    [ -z "${queues:-}" ] || each=(numrxqueues "$queues" numtxqueues "$queues")
    ip -n "$prefix$a" link add "$a_name" address "$a_mac" "${each[@]}" type veth \
        peer name "$b_name" address "$b_mac" "${each[@]}" netns "$prefix$b"
    ip -n "$prefix$a" link set "$a_name" up
    ip -n "$prefix$b" link set "$b_name" up
}

within() {
    local name=$1
    shift
    ip netns exec "$prefix$name" "$@"
}

# Runs a command in a namespace in the background; its process is `$launched`, the
# command itself and no shell around it, so that signals reach it.
launch() {
    local name=$1
    shift
    (exec ip netns exec "$prefix$name" "$@") &
    launched=$!
}

# Runs a piece of Python with the JSON of standard input as `d`.
json() {
    "$python" -c "import json, sys; d = json.load(sys.stdin); $1"
}

# Names the interfaces of a namespace that have an XDP program.
programs() {
    ip -n "$prefix$1" -j -d link show | json 'print(*(i["ifname"] for i in d if "xdp" in i))'
}

refuse() {
    local status=$1 text=$2 got=0
    shift 2
    "$@" >"$work/refuse.out" 2>"$work/refuse.log" || got=$?
    [ "$got" -eq "$status" ] || fail "\`$*\` ended with $got, not $status: $(cat "$work/refuse.log")"
    grep -qF -- "$text" "$work/refuse.log" ||
        fail "\`$*\` does not say \"$text\" but: $(cat "$work/refuse.log")"
    [ ! -s "$work/refuse.out" ] || fail "\`$*\` failed, and wrote to standard output"
}

# Waits until a command succeeds: wait_for SECONDS COMMAND...
wait_for() {
    local until=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$until" ] || return 1
        sleep 0.05
    done
}
