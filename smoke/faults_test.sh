#!/usr/bin/env bash
# Failing system calls, made to fail by strace(1): no space, no memory, no descriptors, no buffers.
#
#   source s0 ── r0 router r1 ── a0 a
#                          r2 ── b0 b
#
# Files (faults_injection.py files): whichever call fails, a file that is replaced is the old one or the new
# one, and nothing is beside it. Starts (faults_injection.py starts): the router forwards, or ends with a
# message and leaves nothing behind. At work: lost netlink messages and descriptors that have run
# out cost no route and no answer, and every packet is counted.
. "$(dirname "$0")/lib/router_topology.sh"

which strace >/dev/null || fail "no strace(1)"
"$python" "$here/smoke/faults_injection.py" files "$program" "$work" || fail "files"

configure "[image]
path = \"$work/table.image\"
interval = \"1s\""
"$python" "$here/smoke/faults_injection.py" starts "$program" "$work" "$prefix" || fail "starts"

# The process is strace's child; signals go to it.
traced() { # NAME INJECTION...
    local name=$1
    shift
    rm -f "$work/table.image"
    launch router strace -f -o "$work/$name.trace" "$@" \
        "$program" run -c "$work/router.toml" -j >"$work/$name.json" 2>"$work/$name.log"
    local tracer=$launched
    cp "$work/$name.log" "$work/fingerpost.log"
    wait_for 30 grep -q 'following the kernel after' "$work/$name.log" || fail "$name: the router does not start"
    router=$(pgrep -P "$tracer")
    tracer_of_router=$tracer
}
ends() { # NAME
    local status=0
    kill -INT "$router"
    wait "$tracer_of_router" || status=$?
    [ "$status" -eq 0 ] || fail "$1: the router ended with $status"
    balanced <"$work/$1.json"
    grep -q INJECTED "$work/$1.trace" || fail "$1: no call has failed; the test is blind"
    ! grep -q panicked "$work/$1.log" || fail "$1: a thread panicked"
    echo "   $1: $(grep -c INJECTED "$work/$1.trace") calls failed"
}
has() { show -j route 172.16.5.1 | json 'assert d[0]["route"]["prefix"] == "172.16.5.0/24", d'; }

within source ip route add default via 10.0.0.1
within a ip route add default via 10.0.1.1
within b ip route add default via 10.0.2.1
# The name of the case, the call that fails, the error, and the positions of the call.
for fault in "netlink recvfrom ENOBUFS 90+60" "clients accept4 EMFILE 1+2" "image fsync EIO 1+1" "wakeups sendto ENOBUFS 60+5"; do
    read -r name call error when <<<"$fault"
    traced "$name" -e "trace=$call" -e "inject=$call:error=$error:when=$when"
    for i in $(seq 200); do echo "route replace 172.16.$i.0/24 via 10.0.1.2"; done >"$work/batch"
    within router ip -batch "$work/batch"
    within source ping -c 40 -i 0.01 -W 2 -q 10.0.1.2 >"$work/ping.log" || fail "$name: $(cat "$work/ping.log")"
    wait_for 20 has || fail "$name: a route is lost: $(show routes 2>&1 | tail -3)"
    same
    within router ip route flush root 172.16.0.0/12
    same
    ends "$name"
done
