#!/usr/bin/env bash
# Packets a second between veth pairs by tables of several sizes: by the kernel's forwarding, by AF_XDP and in the
# driver, in turns on the same routes and packets, every one checked (`fingerpost demo`).
#
#   bash bench/forwarding.sh
#   FINGERPOST     the program; default target/release/fingerpost
#   ROUTES         the numbers of IPv4 routes, with a quarter as many of IPv6; default "1000 10000 100000 1000000"
#   SECONDS_EACH   seconds of sending for each size; default 18
#
# Needs root, and a machine that is otherwise idle. Possible bias: the routes are generated, with the prefix lengths of
# the Internet; a veth copies each packet of a program that redirects it, and hands the kernel a reference. Generator, router
# and checkers share the processors of one machine.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
program=${FINGERPOST:-$here/target/release/fingerpost}
[ -x "$program" ] || { echo "forwarding.sh: no $program: cargo build --release, or set FINGERPOST" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for routes in ${ROUTES:-1000 10000 100000 1000000}; do
    "$program" table generate --v4 "$routes" --v6 $((routes / 4)) -o "$work/table"
    "$program" demo --compare-kernel --mode xdp --seconds "${SECONDS_EACH:-18}" --table "$work/table" -j >"$work/$routes.json"
done
python3 "$here/bench/forwarding_summary.py" "$work"/*.json
