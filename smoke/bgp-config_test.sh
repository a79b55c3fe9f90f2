#!/usr/bin/env bash
# Two gates announce what they protect, by configurations that `gate bgp-config` writes:
#
#   one (BIRD)  o0 ── u0 up (BIRD: the router before them) u1 ── t0 two (FRR's bgpd)
#
# The router must have the protected prefixes, of both families and from both gates, and
# nothing else; when one is taken out of service, from the other only.
. "$(dirname "$0")/lib/namespaces.sh"

for name in up one two; do
    namespace "$name"
done
join one o0 02:00:00:00:01:02 up u0 02:00:00:00:01:01
join two t0 02:00:00:00:02:02 up u1 02:00:00:00:02:01
for side in "one o0 u0 1" "two t0 u1 2"; do
    read -r name near far number <<<"$side"
    within "$name" ip addr add "10.1.$number.2/24" dev "$near"
    within "$name" ip addr add "fd01:$number::2/64" dev "$near"
    within up ip addr add "10.1.$number.1/24" dev "$far"
    within up ip addr add "fd01:$number::1/64" dev "$far"
done

cat >"$work/gate.toml" <<'CONFIG'
[front]
interface = "o0"
[back]
interface = "lo"
[link]
bandwidth = "1gbit"
[[grantors]]
name = "site"
members = [{ address = "10.9.0.1" }]
[[grantors]]
name = "site6"
members = [{ address = "fd09::1" }]
[[policy]]
prefix = "192.0.2.0/24"
grantors = "site"
[[policy]]
prefix = "192.0.2.128/25"
grantors = "site"
[[policy]]
prefix = "192.0.2.9/32"
action = "back"
exempt = true
[[policy]]
prefix = "2001:db8:2::/48"
grantors = "site6"
[[policy]]
prefix = "203.0.113.0/24"
action = "drop"
CONFIG

written() { # NUMBER SPEAKER
    "$program" gate bgp-config -c "$work/gate.toml" --speaker "$2" --local-as 65001 --router-id "10.1.$1.2" \
        --peer "10.1.$1.1,65000" --peer "fd01:$1::1,65000"
}
refuse 1 "cannot announce 192.0.2.0/24: no --peer has an IPv4 address" \
    "$program" gate bgp-config -c "$work/gate.toml" --local-as 1 --router-id 1.1.1.1 --peer fd01::1,2
refuse 1 "AS 0 is reserved (RFC 7607)" \
    "$program" gate bgp-config -c "$work/gate.toml" --local-as 0 --router-id 1.1.1.1 --peer 10.1.1.1,2
refuse 2 '"AS2" is not an AS number' \
    "$program" gate bgp-config -c "$work/gate.toml" --local-as 1 --router-id 1.1.1.1 --peer 10.1.1.1,AS2

cat >"$work/up.conf" <<'CONF'
router id 10.1.0.1;
log stderr all;
protocol device {}
template bgp gates {
    local as 65000;
    connect retry time 1;
    error wait time 1, 2;
    ipv4 { import all; export all; };
    ipv6 { import all; export all; };
}
CONF
for number in 1 2; do
    cat >>"$work/up.conf" <<CONF
protocol static something$number { ipv4; route 198.51.10$number.0/24 unreachable; }
protocol bgp gate${number}_4 from gates { neighbor 10.1.$number.2 as 65001; }
protocol bgp gate${number}_6 from gates { neighbor fd01:$number::2 as 65001; }
CONF
done
# Each session carries its own family.
sed -i 's/^\(protocol bgp gate._4.*\)}/\1 ipv6 { import none; export none; }; }/; s/^\(protocol bgp gate._6.*\)}/\1 ipv4 { import none; export none; }; }/' "$work/up.conf"
bird -p -c "$work/up.conf" 2>"$work/up.log" || fail "BIRD does not like up.conf"
launch up bird -f -c "$work/up.conf" -s "$work/up.ctl" 2>"$work/up.log"
wait_for 10 test -S "$work/up.ctl" || fail "BIRD does not start"

written 1 bird >"$work/one.conf"
bird -p -c "$work/one.conf" 2>"$work/one.log" || fail "BIRD does not like what was written: $(cat "$work/one.conf")"
launch one bird -f -c "$work/one.conf" -s "$work/one.ctl" 2>"$work/one.log"
one=$launched

chmod 711 "$work"
install -d -o frr -g frr "$work/frr"
written 2 frr >"$work/two.conf"
chmod 644 "$work/two.conf"
# Without zebra: nothing is to reach the kernel.
launch two /usr/lib/frr/bgpd -f "$work/two.conf" -i "$work/frr/bgpd.pid" -z "$work/frr/none" \
    --vty_socket "$work/frr" -A 127.0.0.1 -P 0 >"$work/two.log" 2>&1
two=$launched

# The prefixes that the router has from a gate, one session after the other.
from() {
    local which
    for which in 4 6; do
        birdc -s "$work/up.ctl" "show route protocol gate$1_$which" |
            "$python" -c 'import re, sys; print(*sorted(re.findall(r"^([0-9a-f.:]+/[0-9]+)", sys.stdin.read(), re.M)))'
    done
}
protects() { [ "$(from "$1")" = "$(printf '192.0.2.0/24\n2001:db8:2::/48')" ]; }
wait_for 30 protects 1 || fail "from BIRD: $(from 1)"
wait_for 30 protects 2 || fail "from FRR: $(from 2)"
[ -z "$(within one ip route show proto bird)$(within two ip route show proto bgp)" ] || fail "something is in a kernel"
birdc -s "$work/one.ctl" 'show route' | has_line 198.51.10 && fail "BIRD has learnt something"
kill -0 "$two" || fail "bgpd has ended: $(cat "$work/two.log")"

echo "one is taken out of service"
kill -TERM "$one"
wait "$one" 2>/dev/null || true
gone() { [ -z "$(from 1 | tr -d '\n')" ]; }
wait_for 10 gone || fail "the prefixes are still there: $(from 1)"
protects 2 || fail "from FRR: $(from 2)"
