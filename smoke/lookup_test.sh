#!/usr/bin/env bash
# Longest-prefix match against Linux: the kernel of a namespace is given the routes of
# data/nested.txt and asked which one it would take (`ip route get fibmatch`) for the
# border addresses of every prefix and for random ones; `fingerpost route get` must
# name the same prefix and next hop, in several engines.
#
# With --write the kernel's answers become data/nested.answers, which the tests that
# need no root compare with.
. "$(dirname "$0")/lib/namespaces.sh"

namespace kernel
namespace peer
join kernel d0 02:00:00:00:00:01 peer p0 02:00:00:00:00:02
within kernel ip addr add 10.255.0.254/24 dev d0
within kernel ip addr add fd00:ff::fe/64 dev d0
sed -n 's/^\([0-9a-f].*\) \(.*\)$/route add \1 via \2/p' "$here/data/nested.txt" >"$work/routes"
within kernel ip -batch "$work/routes" || fail "the kernel does not take the routes"

within kernel "$python" "$here/smoke/lookup_kernel.py" "$here/data/nested.txt" >"$work/answers"
if [ "${1-}" = --write ]; then
    cp "$work/answers" "$here/data/nested.answers"
fi
cmp "$work/answers" "$here/data/nested.answers" || fail "data/nested.answers is not what the kernel says"

mapfile -t addresses < <(cut -d' ' -f1 "$work/answers")
for engine in auto linear D16X4R D20R; do
    "$program" route get --table "$here/data/nested.txt" --engine "$engine" -j "${addresses[@]}" \
        >"$work/ours.json" || [ $? -eq 1 ]
    json '[print(a["address"], a["prefix"] or "-", a["next_hop"] or "-") for a in d]' \
        <"$work/ours.json" >"$work/ours"
    diff "$work/answers" "$work/ours" || fail "$engine differs from the kernel"
done
echo "${#addresses[@]} addresses, the kernel and we agree"
