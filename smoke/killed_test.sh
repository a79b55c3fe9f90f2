#!/usr/bin/env bash
# `kill -9` at random moments while the driver forwards (`mode = "xdp"`) and routes change: the kernel forwards from
# then on, no packet is lost but those in flight, nothing is left behind, and the next start is clean.
#
#   FINGERPOST_KILLS    how often; default 8
. "$(dirname "$0")/lib/router_topology.sh"

kills=${FINGERPOST_KILLS:-8}
mode=xdp
# The settings of the kernel that a start may change.
settings() {
    within router ip -d link show | sed 's/ qlen .*//'
    within router ip rule
    within router ip route show table all
    within router ip -6 route show table all | sed 's/ expires .*//'
    within router sysctl -a 2>/dev/null | grep '^net\.' | grep -v 'random\|_count\|dentry\|nf_conntrack'
    within router nft list ruleset
    within router ss -aHn --xdp
    for link in r0 r1 r2; do
        # A killed router leaves this one off: tags stay in the frames, which the kernel reads as well.
        within router ethtool -k "$link" | sed "/^rx-vlan-offload/d"
        within router ethtool -l "$link"
    done
}
configure
fly
settings >"$work/before"
for number in $(seq "$kills"); do
    start_router
    wait_for 10 forwards_in_driver || fail "no forwarding in the driver: $(show interfaces)"
    touch "$work/changing"
    while [ -e "$work/changing" ]; do within router ip route replace 198.51.100.0/24 via 10.0.2.2; done &
    changing=$!
    sleep "0.$(printf %03d $((RANDOM % 1000)))"
    kill -KILL "$router" || fail "the router had ended: $(cat "$work/fingerpost.log")"
    wait "$router" 2>/dev/null || true
    # Ended in order: a command of a loop that is killed may still add the route.
    rm "$work/changing"
    wait "$changing"
    [ -z "$(programs router)" ] || fail "a program is left on: $(programs router)"
done
within router ip route del 198.51.100.0/24
echo >&9
exec 9>&-
wait "$flying" || true
sed 's/^/   /' "$work/packets"
read -r sent came twice < <(tr -dc '0-9 \n' <"$work/packets")
echo "   $kills kills: $((sent - came)) packets lost"
[ "$twice" = 0 ] || fail "$twice packets arrived twice"
# Some 4000 packets a second pass.
[ $((sent - came)) -le $((2 * kills)) ] || fail "$((sent - came)) packets were lost by $kills kills"
settings >"$work/after"
diff "$work/before" "$work/after" || fail "it left something behind"

echo "and it starts again"
start_router
wait_for 10 forwards_in_driver || fail "no forwarding in the driver: $(show interfaces)"
within source ping -q -c 20 -i 0.01 -W 1 203.0.113.1 >/dev/null || fail "203.0.113.1 does not answer"
stop_router
