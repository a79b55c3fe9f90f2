#!/usr/bin/env bash
# The table in the kernel: programs that look up in it pass the verifier and give the right answers, for IPv4 and IPv6,
# as does the kernel's own trie. In the virtual machine this is a test of Debian's kernel: of arrays that can be
# mapped, of values above 4 MiB, and of calls between functions.
#
# in a VM: it needs the kernel that people have
. "$(dirname "$0")/lib/namespaces.sh"

measure() { # OPTION...
    "$bench" xdp --keys 20000 --rounds 1 --rivals lpm-trie --record "$work/record" "$@"
}

# LPM_TRIE only: bpf_fib_lookup without a neighbor is of Linux 6.3.
for family in 4 6; do
    option=()
    [ "$family" = 4 ] || option=(-6)
    measure "${option[@]}" --table "${FINGERPOST_DATA:-$here/../shared/data}/ipv$family-20260730-routeviews-origin.dat.gz" --routes 1000,100000 -j \
        >"$work/$family.json" 2>"$work/$family.log" || fail "IPv$family: $(cat "$work/$family.log")"
    "$python" "$here/smoke/xdp_report.py" "$work/$family.json" 1000 100000 || fail "IPv$family: other contestants or sizes"
done

# It compares the list with a search, and some of the bans with the program.
"$bench" block --prefixes 20000 --rounds 1 --rate 500 --seconds 2 --packets 0 -j --record "$work/record" --html "$work/block.html" >"$work/block.json" \
    2>"$work/block.log" || fail "block: $(cat "$work/block.log")"
json 'assert d["prefixes"] == 20000 and d["bans"] == 1000 and d["p99"] > 0, d' <"$work/block.json" || fail "other bans"
[ "$(grep -o '<svg' "$work/block.html" | wc -l)" -eq 3 ] || fail "the page has other plots than of load, ban, and its p99"

refuse 1 "a table has at least one route" measure --routes 0
refuse 1 "from 1 to 2^24" "$bench" xdp --keys 20000000
chmod 755 "$work"
install -m 755 "$bench" "$work/fingerpost-bench"
refuse 1 "eBPF programs need root" setpriv --reuid 65534 --clear-groups "$work/fingerpost-bench" xdp
echo "the table in the kernel is right on Linux $(uname -r)"
