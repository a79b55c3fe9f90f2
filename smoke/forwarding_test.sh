#!/usr/bin/env bash
# Forwarding that the kernel's settings turn off, for all interfaces or for one: each packet is forwarded, answered or
# dropped as by the kernel alone, also after a change while the router runs.
#
#   source s0 ── r0 router r1 ── a0 a
. "$(dirname "$0")/lib/router_topology.sh"

within router ip route add 11.0.0.0/8 via 10.0.1.2
within router ip -6 route add 2001:db8::/48 via fd00:1::2
within router ip route add blackhole 20.0.0.0/16
within router ip route add unreachable 20.1.0.0/16
within router ip -6 route add blackhole 2001:db8:20::/48
within router ip -6 route add unreachable 2001:db8:21::/48
within router sysctl -qw net.ipv4.icmp_ratemask=0 net.ipv6.icmp.ratelimit=0
# They drop what is not their own.
for name in source a b; do within "$name" sysctl -qw net.ipv4.ip_forward=0; done

pass() {
    # The kernel sends one error a second about packets that no route forwards, of which there are two.
    sleep 2.1
    "$python" "$here/smoke/forwarding_packets.py" "$prefix" || fail "the packets"
}
forwarded() { grep -c forwarded "$work/kernel.$case" || true; }
# The kernel sets all interfaces when the setting for all changes.
cases=("ip_forward=1 all=1" "ip_forward=0 all=1" "ip_forward=0 r0=1 all=1" "ip_forward=1 r0=0 all=1" "ip_forward=1 all=0" "ip_forward=0 all=0")
# Since Linux 6.17.
forced=net.ipv6.conf.r0.force_forwarding
if within router sysctl -qn "$forced" >/dev/null 2>&1; then cases+=("ip_forward=1 all=0 force=1"); fi
sysctls() { # CASE
    local setting
    for setting in $1; do
        case $setting in
        ip_forward=*) within router sysctl -qw "net.ipv4.$setting" ;;
        force=*) within router sysctl -qw "$forced=${setting#*=}" ;;
        all=*) within router sysctl -qw "net.ipv6.conf.all.forwarding=${setting#*=}" ;;
        *) within router sysctl -qw "net.ipv4.conf.${setting%=*}.forwarding=${setting#*=}" ;;
        esac
    done
}
# Each case begins with the same settings of all interfaces.
begin() {
    sysctls "ip_forward=$((1 - $(within router sysctl -n net.ipv4.ip_forward)))"
    [ "${#cases[@]}" = 6 ] || sysctls force=0
    sysctls "$case"
}
# The neighbors are resolved in either case.
pass >"$work/first"
for case in "${cases[@]}"; do
    begin
    pass >"$work/kernel.$case"
    echo "   $case, the kernel alone: $(forwarded) of $(wc -l <"$work/kernel.$case") probes are forwarded"
done
cmp -s "$work/kernel.${cases[0]}" "$work/kernel.${cases[5]}" && fail "the kernel alone always forwards"

configure
start_router
count() { show -j counters | json "print(d[0]$1)"; }
off() { show -j interfaces | json "print(next(link for link in d if link['name'] == 'r0').get('forwarding_off', []))"; }
follows() { pass >"$work/router" && diff -q "$work/kernel.$case" "$work/router" >/dev/null; }
for case in "${cases[@]}"; do
    begin
    wait_for 10 follows || diff "$work/kernel.$case" "$work/router" || fail "$case: the outcomes differ"
    before=$(count '["sent"]') refused=$(count '["dropped"].get("forwarding_off", 0)')
    follows || fail "$case: the outcomes differ"
    sent=$(($(count '["sent"]') - before)) refused=$(($(count '["dropped"].get("forwarding_off", 0)') - refused))
    [ "$sent" -ge "$(forwarded)" ] || fail "$case: the router has sent $sent packets of $(forwarded)"
    # Of IPv4: a packet each way, one whose TTL is used up, and one by each of the other routes; of IPv6: those
    # that have a next hop.
    case $case in
    "ip_forward=1 all=1") expected=0 ;;
    "ip_forward=0 all=1") expected=6 ;;
    "ip_forward=0 r0=1 all=1") expected=1 ;;
    "ip_forward=1 r0=0 all=1") expected=5 ;;
    "ip_forward=1 all=0") expected=3 ;;
    "ip_forward=0 all=0") expected=9 ;;
    "ip_forward=1 all=0 force=1") expected=1 ;;
    esac
    [ "$refused" = "$expected" ] || fail "$case: $refused packets are refused, not $expected"
    echo "   $case, the router: the same outcomes, $sent sent, $refused refused, off at r0: $(off)"
done
case="ip_forward=0 all=0"
begin
within router "$program" run --check -c "$work/router.toml" >"$work/check" 2>&1 || true
for setting in net.ipv4.conf.r0.forwarding net.ipv6.conf.all.forwarding; do
    grep -q "forwarding of .* is off.*sysctl -w $setting=1" "$work/check" || fail "no warning of $setting: $(cat "$work/check")"
done
show interfaces | has_line "forwarding of IPv4 is off in the kernel" || fail "$(show interfaces)"
stop_router
