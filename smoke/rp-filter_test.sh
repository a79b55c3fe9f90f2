#!/usr/bin/env bash
# The reverse path filter: with each value of the kernel's `rp_filter` the same sources pass with the kernel alone and
# with the router, which follows the setting while it runs. A packet whose TTL is used up gets an answer if its
# source passes.
#
#   source s0 ── r0 router r1 ── a0 a      sends packets from all kinds of sources to 10.0.0.2
#                          r2 ── b0 b
. "$(dirname "$0")/lib/router_topology.sh"

within router ip route add 11.0.0.0/8 via 10.0.1.2
within router ip route add 12.0.0.0/8 via 10.0.2.2
within router ip route add 13.0.0.0/8 nexthop via 10.0.1.2 nexthop via 10.0.2.2
within router ip route add blackhole 14.0.0.0/8
within router ip -6 route add fd12::/16 via fd00:2::2
within router sysctl -qw net.ipv4.icmp_ratelimit=0

# `settings ALL R1`: the values for all interfaces and for r1.
settings() { within router sysctl -qw "net.ipv4.conf.all.rp_filter=$1" "net.ipv4.conf.r1.rp_filter=$2"; }
pass() { "$python" "$here/smoke/rp_filter_packets.py" "$prefix" || fail "the packets"; }
every=("0 0" "0 1" "0 2" "1 0" "2 1" "1 2" "0 0")
for values in "${every[@]}"; do
    # shellcheck disable=SC2086
    settings $values
    pass >"$work/kernel.${values/ /.}"
    echo "   all and r1 $values, the kernel alone: $(paste -sd ' ' "$work/kernel.${values/ /.}")"
done
for values in 0.1 0.2 2.1; do
    cmp -s "$work/kernel.0.0" "$work/kernel.$values" && fail "the kernel alone filters nothing with $values"
done

# A filter that is set before the start.
settings 0 1
configure
start_router
filter() { show -j interfaces | json "print(next(link for link in d if link['name'] == 'r1').get('rpf_v4'))"; }
is_filter() { [ "$(filter)" = "$1" ]; }
count() { show -j counters | json "print(d[0]$1)"; }
declare -A name=([0]=None [1]=strict [2]=loose)
for values in "0 1" "${every[@]}"; do
    # shellcheck disable=SC2086
    settings $values
    larger=$((${values% *} > ${values#* } ? ${values% *} : ${values#* }))
    wait_for 5 is_filter "${name[$larger]}" || fail "$values: $(filter)"
    before=$(count '["sent"]') refused=$(count '["dropped"].get("spoofed", 0)')
    pass >"$work/router"
    diff "$work/kernel.${values/ /.}" "$work/router" || fail "other sources pass with $values"
    sent=$(($(count '["sent"]') - before)) refused=$(($(count '["dropped"].get("spoofed", 0)') - refused))
    # Each source sends three packets.
    [ "$sent" -ge $((3 * $(grep -vc expired "$work/router"))) ] || fail "$values: the router has sent $sent"
    [ $((refused > 0)) = $((larger > 0)) ] || fail "$values: the router has refused $refused"
done
echo "   the router: the same sources pass"

echo "the configuration says otherwise: for both families, until it leaves the filter to the kernel again"
settings 0 0
sed -i 's/{ name = "r1" }/{ name = "r1", rpf = "strict" }/' "$work/router.toml"
"$program" reload --socket "$work/sock" >"$work/reload" || fail "$(cat "$work/reload")"
is_filter strict || fail "$(filter)"
pass >"$work/router"
diff <(grep -v : "$work/kernel.0.1") "$work/router" || fail "other sources pass with a strict filter of both families"
sed -i 's/rpf = "strict"/rpf = "kernel"/' "$work/router.toml"
"$program" reload --socket "$work/sock" >"$work/reload" || fail "$(cat "$work/reload")"
is_filter None || fail "$(filter)"
pass >"$work/router"
diff "$work/kernel.0.0" "$work/router" || fail "other sources pass without a filter"
stop_router
