#!/usr/bin/env bash
# The engines with whole Internet tables against two programs that are not ours: DPDK's
# rte_fib and rte_fib6 on millions of addresses (`fingerpost-bench agree`), and the
# kernel of a namespace, which is given every route and asked for 100,000 addresses
# (`ip route get`). Every answer must be the same.
#
# Without FINGERPOST_DATA, or shared/data beside the repository, a generated table
# replaces it, and the script prints that.
. "$(dirname "$0")/lib/namespaces.sh"

data=${FINGERPOST_DATA:-$here/../shared/data}
asked=${SMOKE_ADDRESSES:-100000}
v4=$data/ipv4-20151023-pch-nexthop.txt.gz
v6=$data/ipv6-20260730-routeviews-origin.dat.gz
if [ ! -e "$v4" ] || [ ! -e "$v6" ]; then
    echo "no $v4 or no $v6: using a generated table"
    "$program" table generate --output "$work/generated"
    v4=$work/generated
    v6=$work/generated
fi

# DPDK. Labels are hops as they are, of which 2 bytes hold 32,767 and 4 bytes the rest.
# Nothing of it may stay, ended well or not.
"$bench" agree --hops 0 --table "$v4" || fail "DPDK's rte_fib and the engines differ"
"$bench" agree --hops 0 --table "$v6" -6 || fail "DPDK's rte_fib6 and the engines differ"
ours() { pgrep -f "^/proc/$1/fd/" || true; }
"$bench" agree --hops 0 --table "$v4" >/dev/null &
agree=$!
started() { [ -n "$(ours $agree)" ]; }
wait_for 60 started || fail "bench agree does not start DPDK"
kill -KILL $agree
wait $agree 2>/dev/null || true
gone() { [ -z "$(ours $agree)" ]; }
wait_for 10 gone || fail "DPDK's process outlives the one that started it"
# The folders of processes that run are another test's.
left() {
    local folder
    for folder in /run/dpdk/fingerpost-*; do
        [ ! -d "$folder" ] || [ -d "/proc/${folder##*-}" ] || echo "$folder"
    done
}
all_removed() { [ -z "$(left)" ]; }
wait_for 5 all_removed || fail "DPDK left $(left)"

# The kernel.
compare() {
    local family=$1 table=$2
    shift 2
    namespace "kernel$family"
    namespace "peer$family"
    join "kernel$family" d0 02:00:00:00:00:01 "peer$family" p0 02:00:00:00:00:02
    within "kernel$family" ip addr add 10.255.255.254/32 dev d0
    within "kernel$family" "$python" "$here/smoke/engines_kernel.py" "$table" "$family" "$asked" \
        >"$work/kernel$family"
    cut -d' ' -f1 "$work/kernel$family" >"$work/addresses"
    for engine in "$@"; do
        "$program" route get --table "$table" --engine "$engine" --file "$work/addresses" -j \
            >"$work/ours.json" || [ $? -eq 1 ]
        json '[print(a["address"], a["next_hop"] or "-") for a in d]' \
            <"$work/ours.json" >"$work/ours"
        cmp "$work/kernel$family" "$work/ours" ||
            fail "$engine and the kernel differ: $(diff "$work/kernel$family" "$work/ours" | head -5)"
    done
    echo "IPv$family: $asked addresses, of which $(grep -vc ' -$' "$work/kernel$family") have" \
        "a route: the kernel and $* agree"
    # Half a gigabyte of routes.
    ip netns delete "${prefix}kernel$family"
}
compare 4 "$v4" dir24_8 D16X4R poptrie
compare 6 "$v6" D16X8R/64 poptrie
