#!/usr/bin/env bash
# The Python module beside pytricia, py-radix, pyasn and MaxMind's reader: seconds and memory of a load, lookups of one
# address and of many, by a table of IPv4 and by the MaxMind database that `fingerpost table convert` makes of it.
#
#   bash bench/python.sh [RECORD]
#   RECORD             a file for the results as JSON; default: they are printed only
#   FINGERPOST         the program; default target/release/fingerpost
#   FINGERPOST_WHEEL   a wheel of the module; default: pip makes one of crates/python
#   FINGERPOST_DATA    the folder of the table; default ../shared/data
#   ROUNDS             turns of each package; default 5
#
# Needs PyPI, Python's headers and a machine that is otherwise idle. Each package has a process of its own in each turn, and
# all must give the same answers to 200,000 random addresses. Possible bias: the table has the routes with one origin
# only, because pyasn reads no others; pytricia and py-radix are loaded from lines that are in memory, the others from
# their file; the memory is that of the process, with all values, less what it had before.
set -Eeuo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
program=${FINGERPOST:-$here/target/release/fingerpost}
data=${FINGERPOST_DATA:-$here/../shared/data}
rounds=${ROUNDS:-5}
[ -x "$program" ] || { echo "no program $program: cargo build --release -p fingerpost, or set FINGERPOST" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 -m venv "$work/environment"
pip() { "$work/environment/bin/pip" --quiet --disable-pip-version-check "$@"; }
pip install numpy==2.3.4 pytricia==1.3.0 py-radix==1.1.0 pyasn==1.6.2 maxminddb==3.2.0
pip install "${FINGERPOST_WHEEL:-$here/crates/python}"

"$program" table convert "$data/ipv4-20260730-routeviews-origin.dat.gz" --to text |
    awk '$2 ~ /^[0-9]+$/ { print $1 "\t" $2 }' >"$work/table.dat"
"$program" table convert "$work/table.dat" --to mmdb --record-key autonomous_system_number -o "$work/table.mmdb"

for round in $(seq "$rounds"); do
    for package in fingerpost pytricia py-radix pyasn fingerpost-mmdb maxminddb; do
        echo "round $round: $package" >&2
        "$work/environment/bin/python" "$here/bench/python_package.py" measure "$package" "$work" >>"$work/results"
    done
done
"$work/environment/bin/python" "$here/bench/python_package.py" summary "$work/results" ${1:+"$1"}
