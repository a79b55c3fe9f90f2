# Sourced by every smoke test: creates its environment, and removes it.
#
# The environment is a few network namespaces joined by veth pairs, and a scratch folder. All names
# begin with the prefix of the runner (or of this process), and every interface is created inside a
# namespace. However the script ends, its processes, namespaces and files are removed; a namespace
# removes its interfaces with it. Nothing here touches the machine's own interfaces or addresses.
#
#   namespace NAME             creates a namespace
#   join A a0 MAC B b0 MAC     joins two namespaces by a veth pair, both ends up; with ${tags[a0]}, a
#                              list of PROTOCOL ID, by VLAN devices over the pair a0.below, b0.below
#   within NAME COMMAND...     runs a command in a namespace
#   launch NAME COMMAND...     the same in the background, as process $launched
#   COMMAND | has_line PATTERN grep that reads all that the command writes, and prints nothing
#   refuse STATUS TEXT COMMAND...   the command must end with STATUS and write TEXT to standard error
#   fail WORDS...              ends the test
#   own_checksums NAME IFACE   the kernel of a namespace computes the checksums of what it sends by
#                              this interface
#   own_tags NAME IFACE        it writes VLAN tags into the frames that it sends by this interface
#   start_gate [NAME]          starts a gate in the namespace gate by $work/NAME.toml (gate.toml) and
#                              waits until it guards; its process is $gate, its report NAME.json
#   start_grantor [NAME [REPORT]]   starts a grantor in the namespace grantor by $work/NAME.toml
#                              (grantor.toml) and waits until it grants; its process is $grantor, its
#                              report REPORT.json (NAME.json)
#   secret_key FILE BYTE       writes a key of 32 times this byte, in hexadecimal, to $work/FILE
#   grant_all                  writes $work/policy.lua, which grants each flow 1000 KiB/s for 300 s
#   monotonic                  prints the time of the monotonic clock in seconds, as heartbeat.py does
#   balanced                   fails unless the counters of standard input, the report of a gate or of
#                              a router, have one end for each packet
#
# Parts of a configuration, printed:
#
#   busy_machine                              a stall timeout for workers that wait long for a
#                                             processor: other tests run at the same time
#   gate_sides FRONT BACK BANDWIDTH [LINES]   the interfaces, with these lines for the front, and the
#                                             link
#   gate_site MEMBER                          a set of one grantor, and 192.0.2.0/24 protected by it
#   gate_policy PREFIX ACTION                 a policy without grantors
#   gate_sender ID KEY ADDRESS                a sender of decisions by version 2
#   grantor_config INTERFACES ADDRESS GATE ID KEY
#                                             a grantor with policy.lua that signs by this key

set -Eeuo pipefail
# `set -e` ends a script without a message; this names the command.
trap 'echo "FAIL: status $? of \`$BASH_COMMAND\` at ${BASH_SOURCE[0]##*/}:$LINENO" >&2' ERR

here=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
program=${FINGERPOST:-$here/target/release/fingerpost}
bench=${FINGERPOST_BENCH:-$here/target/debug/fingerpost-bench}
prefix=${SMOKE_PREFIX:-fp$$-}
python=/usr/bin/python3
# Where Python finds the modules of smoke/lib; compiled copies would be left beside them.
export PYTHONPATH=$here/smoke/lib PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d "${TMPDIR:-/tmp}/fingerpost-smoke.XXXXXXXX")
namespaces=()
declare -A tags

fail() {
    echo "FAIL: $*" >&2
    exit 1
}

leave() {
    local status=$?
    trap - EXIT INT TERM HUP ERR
    set +e
    # Without it the shell reports every process that is killed here.
    disown -a
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
    # Addresses work at once, and the kernel sends no router solicitations.
    within "$1" sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 \
        net.ipv6.conf.default.router_solicitations=0 net.ipv4.conf.all.rp_filter=0 \
        net.ipv4.conf.default.rp_filter=0
    ip -n "$prefix$1" link set lo up
}

join() {
    local a=$1 a_name=$2 a_mac=$3 b=$4 b_name=$5 b_mac=$6
    local each=() below=
    [ -z "${queues:-}" ] || each=(numrxqueues "$queues" numtxqueues "$queues")
    [ -z "${tags[$a_name]:-}" ] || below=.below
    ip -n "$prefix$a" link add "$a_name$below" address "$a_mac" "${each[@]}" type veth \
        peer name "$b_name$below" address "$b_mac" "${each[@]}" netns "$prefix$b"
    ip -n "$prefix$a" link set "$a_name$below" up
    ip -n "$prefix$b" link set "$b_name$below" up
    if [ -n "$below" ]; then
        tag "$a" "$a_name" ${tags[$a_name]}
        tag "$b" "$b_name" ${tags[$a_name]}
    fi
}

# Puts VLAN devices with these tags, the outer one first, over an end of a pair; the last one has its name.
tag() { # NAMESPACE NAME [PROTOCOL ID]...
    local namespace=$1 name=$2 lower=$2.below device
    # Two tags more than untagged frames of the same MTU.
    ip -n "$prefix$namespace" link set "$lower" mtu 1508
    own_checksums "$namespace" "$lower"
    own_tags "$namespace" "$lower"
    shift 2
    while [ $# -gt 0 ]; do
        device=$name
        [ $# -eq 2 ] || device=$lower.$2
        ip -n "$prefix$namespace" link add link "$lower" name "$device" type vlan protocol "$1" id "$2"
        ip -n "$prefix$namespace" link set "$device" up
        lower=$device
        shift 2
    done
    ip -n "$prefix$namespace" link set "$name" mtu 1500
}

within() {
    local name=$1
    shift
    # One program in place of two: an emulated processor takes a tenth of a second for each.
    if [ "$1" = ip ]; then
        ip -n "$prefix$name" "${@:2}"
    else
        ip netns exec "$prefix$name" "$@"
    fi
}

# Runs a command in a namespace in the background; its process is `$launched`, the
# command itself and no shell around it, so that signals reach it.
launch() {
    local name=$1
    shift
    (exec ip netns exec "$prefix$name" "$@") &
    launched=$!
}

# A veth leaves checksums to a card, which it does not have, and frames that an AF_XDP socket takes
# arrive without them.
own_checksums() { within "$1" ethtool -K "$2" tx off >/dev/null; }

# A veth carries a tag beside the frame, where the XDP program of Linux 6.1 cannot see it.
own_tags() { within "$1" ethtool -K "$2" txvlan off tx-vlan-stag-hw-insert off >/dev/null 2>&1; }

start_gate() {
    local name=${1:-gate}
    launch gate "$program" gate -c "$work/$name.toml" -j >"$work/$name.json" 2>"$work/$name.log"
    gate=$launched
    wait_for 20 grep -q 'guarding after' "$work/$name.log" || fail "the gate does not start"
}

start_grantor() {
    local name=${1:-grantor}
    local report=${2:-$name}
    launch grantor "$program" grantor -c "$work/$name.toml" -j >"$work/$report.json" 2>"$work/$report.log"
    grantor=$launched
    wait_for 20 grep -q 'granting' "$work/$report.log" || fail "the grantor does not start"
}

# Runs a piece of Python with the JSON of standard input as `d`.
json() {
    "$python" -c "import json, sys; d = json.load(sys.stdin); $1"
}

balanced() {
    json 'c = d.get("counters", d)
assert c["balanced"], c
ended = c["sent"] + sum(c["punted"].values()) + sum(c["dropped"].values())
assert c["received"] + c.get("originated", 0) == ended, c
print("  ", c["received"], "packets received,", c.get("originated", 0), "originated, and every one counted")'
}

secret_key() { printf "$2%.0s" {1..32} >"$work/$1" && echo >>"$work/$1"; }

grant_all() { echo 'function decide(p) return grant { rate = 1000, expire = 300 } end' >"$work/policy.lua"; }

monotonic() { "$python" -c 'import time; print(time.monotonic())'; }

busy_machine() { printf '%s\n' '[workers]' 'stall_timeout = "2000ms"'; }

gate_sides() {
    printf '%s\n' '[front]' "interface = \"$1\"" ${4:+"$4"} \
        '[back]' "interface = \"$2\"" '[link]' "bandwidth = \"$3\""
}

gate_site() {
    cat <<CONFIG
[[grantors]]
name = "site"
members = [$1]
[[policy]]
prefix = "192.0.2.0/24"
grantors = "site"
CONFIG
}

gate_policy() { printf '[[policy]]\nprefix = "%s"\naction = "%s"\n' "$1" "$2"; }

gate_sender() {
    cat <<CONFIG
[[sender]]
id = $1
keys = { 1 = "$2" }
[decisions]
sources = ["$3"]
CONFIG
}

grantor_config() {
    cat <<CONFIG
interfaces = [$1]
$(busy_machine)
[tunnel]
addresses = ["$2"]
gates = ["$3"]
[policy]
file = "policy.lua"
[decisions]
version = 2
id = $4
keys = { 1 = "$5" }
CONFIG
}

# Names the interfaces of a namespace that have an XDP program.
programs() {
    ip -n "$prefix$1" -j -d link show | json 'print(*(i["ifname"] for i in d if "xdp" in i))'
}

# The IPv4 packets that the kernel has forwarded, here or where the words run a command: `by_kernel within router`.
by_kernel() { # [WORD...]
    "$@" awk '$1 == "Ip:" && column { print $column }
        $1 == "Ip:" { for (i = 2; i <= NF; i++) if ($i == "ForwDatagrams") column = i }' /proc/net/snmp
}

# Unlike `grep -q`, which leaves at the first match: the command before it could then end by a closed
# pipe, and with it, under pipefail, the whole pipe.
has_line() { grep "$@" | cat >/dev/null; }

refuse() {
    local status=$1 text=$2 got=0
    shift 2
    "$@" >"$work/refuse.out" 2>"$work/refuse.log" || got=$?
    [ "$got" -eq "$status" ] || fail "\`$*\` ended with $got, not $status: $(cat "$work/refuse.log")"
    grep -qF -- "$text" "$work/refuse.log" ||
        fail "\`$*\` does not say \"$text\" but: $(cat "$work/refuse.log")"
    [ ! -s "$work/refuse.out" ] || fail "\`$*\` failed, and wrote to standard output"
}

# Waits until a command succeeds: wait_for SECONDS COMMAND... Its output is thrown away, so it must not call `fail`.
wait_for() {
    local until=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [ "$SECONDS" -lt "$until" ] || return 1
        sleep 0.05
    done
}
