#!/usr/bin/env bash
# The front interface of a gate and of a router changes while packets arrive: another MAC, another MTU,
# down and up, another name, deleted and created again under the same name, and created under another
# name than that of the configuration. The test reloads neither of them for it. Then the back of a gate is deleted
# and created again, between it and a grantor.
#
#   client c0 ── f0 gate g0 ── t0 grantor s0 ── v0 server        the gate's kernel forwards, too
#
# At the gate no undecided packet passes after any change, and the gate forwards requests again by
# itself; the router forwards packets again. A reload works after each change.
. "$(dirname "$0")/lib/protected_topology.sh"

within gate sysctl -qw net.ipv4.ip_forward=1
within grantor sysctl -qw net.ipv4.ip_forward=1

# `send N` sends N UDP packets from the client to the server, to the present MAC of the front.
front_mac=02:00:00:00:01:01
front=f0
send() {
    within client "$python" "$here/smoke/devices_packets.py" "$1" "$front_mac" "${size:-60}"
}
# Counts packets that leave the gate: tunnel packets, UDP packets outside tunnels, and packets above 1280
# bytes.
within grantor nft -f - <<'NFT'
table inet count {
    counter tunnels { }
    counter plain { }
    counter long { }
    chain in { type filter hook prerouting priority -300
        iif t0 ip daddr 10.9.1.100 counter name tunnels
        iif t0 udp dport 9 counter name plain
        iif t0 ip length > 1280 counter name long
    }
}
NFT
counted() {
    within grantor nft -j list counter inet count "$1" |
        json 'print(next(entry["counter"]["packets"] for entry in d["nftables"] if "counter" in entry))'
}
show() { "$program" show --socket "$work/sock" "$@"; }
problems() { show -j interfaces | json 'print(*[link["problem"] for link in d if link.get("problem")], sep="; ")'; }
ready() { [ -z "$(problems)" ]; }
arrives() { send 3 && [ "$(counted "$1")" -gt "$2" ]; }
goes_on() { # COUNTER: packets of this counter arrive again
    local before
    before=$(counted "$1")
    wait_for 15 arrives "$1" "$before" || fail "no more packets are counted as $1: $(show interfaces)"
}
reloads() { "$program" reload --socket "$work/sock" >"$work/reload.log" 2>&1 || fail "reload: $(cat "$work/reload.log")"; }
create() { # NAME MAC: creates the front
    within gate ip link add "$1" address "$2" type veth peer name c0 address 02:00:00:00:01:02 netns "${prefix}client"
    within gate ip link set "$1" up
    within client ip link set c0 up
    within client ip addr add 10.1.0.2/24 dev c0
    within gate ip addr add 10.1.0.1/24 dev "$1"
}
recreate() { # NAME MAC
    within gate ip link delete "$front"
    wait_for 10 eval 'problems | has_line "is gone"' || fail "no problem is reported for an interface that is gone"
    front=$1
    front_mac=$2
    create "$1" "$2"
}

# Makes each change; `after NAME COMMAND...`, which each role defines, makes one and checks its effect.
changes() {
    after "another MAC" eval 'front_mac=02:00:00:00:01:21; within gate ip link set f0 address $front_mac'
    after "a smaller MTU" within gate ip link set f0 mtu 1280
    after "a larger MTU" within gate ip link set f0 mtu 1500
    after "down and up" eval 'within gate ip link set f0 down; within gate ip link set f0 up'
    after "deleted and created again" recreate f0 02:00:00:00:01:22
    after "another name" eval 'within gate ip link set f0 down; within gate ip link set f0 name f9; within gate ip link set f9 up; front=f9'
    after "another MAC under that name" eval 'front_mac=02:00:00:00:01:23; within gate ip link set f9 address $front_mac'
    after "deleted, and created again under the first name" recreate f0 02:00:00:00:01:24
}

echo "at a gate"
cat >"$work/gate.toml" <<CONFIG
$(busy_machine)
$(gate_sides f0 g0 1gbit)
$(gate_site '{ address = "10.9.1.100" }')
[control]
socket = "$work/sock"
[metrics]
listen = "127.0.0.1:9275"
CONFIG
start_gate
goes_on tunnels
metric() { within gate curl -s 127.0.0.1:9275/metrics | awk -v name="$1" '$1 == name {print $2}'; }
[ "$(metric fingerpost_ready)" = 1.0 ] || [ "$(metric fingerpost_ready)" = 1 ] || fail "not ready: $(metric fingerpost_ready)"
after() {
    local change=$1 plain
    shift
    plain=$(counted plain)
    "$@"
    # Immediately: the kernel would forward packets that the gate does not take.
    send 50
    goes_on tunnels
    send 50
    [ "$(counted plain)" = "$plain" ] || fail "$change: $(($(counted plain) - plain)) packets have bypassed the gate"
    wait_for 10 ready || fail "$change: $(problems)"
    kill -HUP "$gate"
    goes_on tunnels
    [ "$(counted plain)" = "$plain" ] || fail "$change, and a reload: packets have bypassed the gate"
    echo "   $change: 0 of 100 packets bypass the gate"
}
changes
echo "   the rule of docs/guide/gate.md closes the window before the program is attached, and holds without a gate"
grep -A3 '^nft add table inet gate' "$here/docs/guide/gate.md" | sed '/^```/d; s/eth0/f0/' >"$work/rules.sh"
[ "$(grep -c '^nft add' "$work/rules.sh")" = 3 ] || fail "no rule in the guide: $(cat "$work/rules.sh")"
within gate bash -e "$work/rules.sh"
plain=$(counted plain) front_mac=02:00:00:00:01:01
touch "$work/flood"
while [ -e "$work/flood" ]; do send 20 2>/dev/null || true; done &
flood=$!
for _ in 1 2 3 4 5; do
    within gate ip link delete f0
    create f0 02:00:00:00:01:01
    goes_on tunnels
done
rm "$work/flood"
wait "$flood"
[ "$(counted plain)" = "$plain" ] || fail "$(($(counted plain) - plain)) packets have bypassed the gate beside the rule"
echo "   without its front the gate is not ready"
within gate ip link delete f0
wait_for 10 eval 'problems | has_line "f0 is gone"' || fail "the problem is not reported: $(show interfaces)"
case $(metric fingerpost_ready) in 0 | 0.0) ;; *) fail "still ready" ;; esac
grep -q 'f0 is gone' "$work/gate.log" || fail "not in the log"
create f0 02:00:00:00:01:01
front_mac=02:00:00:00:01:01 front=f0
goes_on tunnels
kill -INT "$gate"
wait "$gate" || fail "the gate ended with $?"
balanced <"$work/gate.json"
[ -z "$(programs gate)" ] || fail "a program is left on: $(programs gate)"
plain=$(counted plain)
send 50
[ "$(counted plain)" = "$plain" ] || fail "the rule lets packets pass without a gate"
within gate nft delete table inet gate
goes_on plain

echo "at a router"
printf 'interface = [{ name = "f0" }, { name = "g0" }]\n[control]\nsocket = "%s"\n' "$work/sock" >"$work/router.toml"
launch gate "$program" run -c "$work/router.toml" -j >"$work/report.json" 2>"$work/router.log"
router=$launched
wait_for 20 grep -q 'following the kernel after' "$work/router.log" || fail "the router does not start"
sent() { show -j counters | json 'print(d[0]["sent"])'; }
more_sent() { send 3 && [ "$(sent)" -gt "$1" ]; }
forwards() { # CHANGE
    wait_for 10 more_sent "$(sent)" || fail "$1: the router itself forwards no packet: $(show interfaces)"
}
after() {
    local change=$1
    shift
    "$@"
    goes_on plain
    wait_for 10 ready || fail "$change: $(problems)"
    forwards "$change"
    reloads
    forwards "$change, and a reload"
    echo "   $change: packets are forwarded"
}
after "nothing" true
changes
echo "   the router forwards no packet that is too long for the new MTU"
within gate ip link set g0 mtu 1280
mtu() { show -j interfaces | json 'print(next(link["mtu"] for link in d if link["name"] == "g0"))'; }
wait_for 5 eval '[ "$(mtu)" = 1280 ]' || fail "the router does not follow the MTU: $(show interfaces)"
before=$(counted plain)
size=1400 send 3
forwards "a smaller MTU"
[ "$(counted long)" = 0 ] ||
    fail "packets of 1400 bytes left by an MTU of 1280"
echo "   frames grow with the MTU"
within gate ip link set f0 mtu 3000
within gate ip link set g0 mtu 1500
forwards "a larger MTU"
wait_for 10 ready || fail "a larger MTU: $(problems)"
kill -INT "$router"
wait "$router" || fail "the router ended with $?"
balanced <"$work/report.json"
[ -z "$(programs gate)" ] || fail "a program is left on: $(programs gate)"

echo "at the back of a gate with a grantor"
umask 077
secret_key grantor.key 2b
grant_all
cat >"$work/grantor.toml" <<CONFIG
$(grantor_config '"t0", "s0"' 10.9.1.100 10.2.0.1 7 grantor.key)
[control]
socket = "$work/grantor.sock"
CONFIG
gate_config >"$work/back.toml"
start_grantor
start_gate back
answers() { within client ping -c 1 -W 1 -I "$1" 192.0.2.7; }
for number in 2 3 4; do
    within client ip addr add "10.1.0.$number/24" dev c0 2>/dev/null || true
done
within client ip route replace default via 10.1.0.1
wait_for 20 answers 10.1.0.2 || fail "no client is granted"
within gate ip link delete g0
within gate ip link add g0 address 02:00:00:00:02:11 type veth peer name t0 address 02:00:00:00:02:12 netns "${prefix}grantor"
within grantor ip link set t0 up
within grantor ip addr add 10.2.0.2/24 dev t0
within gate ip link set g0 up
within gate ip addr add 10.2.0.1/24 dev g0
within gate ip route add 10.9.1.100/32 via 10.2.0.2
within gate ip route add 192.0.2.0/24 via 10.2.0.2
within grantor ip route add 10.1.0.0/24 via 10.2.0.1
# A client that no decision was made about: the gate has to hear the grantor.
# A flow without a decision: its later packets pass as granted only if the gate hears the grantor.
granted() { "$program" show -j gate --socket "$work/gate.sock" | json 'print(d[0]["packets"]["granted"])'; }
is_granted() { answers 10.1.0.3 && [ "$(granted)" -gt "$1" ]; }
wait_for 20 is_granted "$(granted)" || fail "the gate hears no decision behind a back created again"
grep -q 'g0 is a new device: listening for decisions on it' "$work/back.log" || fail "not in the log"
echo "   deleted and created again: the gate hears decisions"
kill -INT "$gate"
wait "$gate" || fail "the gate ended with $?"
balanced <"$work/back.json"
kill -INT "$grantor"
wait "$grantor" || fail "the grantor ended with $?"
balanced <"$work/grantor.json"
