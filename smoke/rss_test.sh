#!/usr/bin/env bash
# The RSS of an interface: table, key and fields are set while the router runs, changed by a reload, and put back at the
# end, unless another program has changed them since.
#
#   source s0 ── r0 router r3      a virtio card of four queues with RSS
#
# in a VM: it needs a card with RSS
. "$(dirname "$0")/lib/router_topology.sh"

card=52:54:00:00:0c:03
modprobe virtio_net
interface_of() { ip -br link | awk -v mac="$1" '$3 == mac { print $1 }'; }
wait_for 10 eval '[ -n "$(interface_of "$card")" ]' || fail "no virtio card: $(ip -br link)"
ip link set "$(interface_of "$card")" netns "${prefix}router" name r3
within router ip link set r3 up
within router ip addr add 10.0.9.1/24 dev r3
within router ethtool -L r3 combined 2

# Prints the RSS that ethtool reports; and with the number of channels, of which virtio has more while a program is
# attached.
rss() {
    local flow
    table
    key
    for flow in tcp4 udp4 tcp6 udp6; do echo "$flow: $(fields "$flow")"; done
}
state() {
    rss
    within router ethtool -l r3 | awk '/^Current/ { now = 1 } now && /Combined/ { print }'
}
table() { within router ethtool -x r3 | sed -n '/^RSS hash key/q; s/^ *[0-9]*: *//p' | tr -s ' ' '\n' | sort | uniq -c | awk '{ printf "%s:%s ", $2, $1 }'; }
key() { within router ethtool -x r3 | awk '/^RSS hash key/ { getline; print }'; }
fields() { within router ethtool -n r3 rx-flow-hash "$1" | sed -n 's/^\(IP\|L4\) /\1 /p' | paste -sd , ; }
symmetric() { key | has_line -E '^6d:5a(:6d:5a){19}$'; }
with_rss() { # LINES
    configure "" "{ name = \"r0\" }, { name = \"r3\"$1 }"
}
check() { within router "$program" run -c "$work/router.toml" --check "$@"; }
reload() { "$program" reload --socket "$work/sock" || fail "the reload fails"; }

state >"$work/before"
! symmetric || fail "the key is symmetric at the start: $(cat "$work/before")"
before=$(fields tcp4)
echo "   at the start: $(table)tcp4 by $before"

with_rss ', channels = 3, rss = "symmetric"'
check >"$work/check" || fail "$(cat "$work/check")"
start_router
symmetric || fail "the key is not symmetric: $(state)"
[ "$(fields tcp4)" = "$before" ] || fail "the fields of tcp4 are $(fields tcp4)"
echo "   symmetric, three channels: $(table)"
[ "$(table)" = "0:43 1:43 2:42 " ] || fail "table $(table)"

echo "a reload changes key, fields and table"
with_rss ', channels = 2, rss = "addresses"'
reload
! symmetric || fail "the key is known to all: $(key)"
! grep -q "$(key)" "$work/before" || fail "the key is that of the start"
[ "$(table)" = "0:64 1:64 " ] || fail "table $(table)"
for flow in tcp4 udp4 tcp6 udp6; do
    [ "$(fields "$flow")" = "IP SA,IP DA" ] || fail "$flow is hashed by $(fields "$flow")"
done
echo "   addresses, two channels: $(table)tcp4 by $(fields tcp4)"
stop_router
state | diff "$work/before" - || fail "not put back"
# The kernel removes no channel that a configured table names, and a table with the default's entries may be one.
with_rss ', rss = "symmetric"'
start_router
[ "$(table)" = "0:64 1:64 " ] || fail "table $(table)"
stop_router
within router ethtool -L r3 combined 1 || fail "the table counts as configured"
within router ethtool -L r3 combined 2

echo "fewer queues than the card has; a reload without the key puts back a table that was configured before"
within router ethtool -X r3 weight 3 1
rss >"$work/configured"
with_rss ', queues = 1, rss = "symmetric"'
start_router
[ "$(table)" = "0:128 " ] || fail "table $(table)"
with_rss ', queues = 1'
reload
rss >"$work/rss"
diff "$work/configured" "$work/rss" || fail "not put back"

echo "a table that was changed since stays"
with_rss ', queues = 1, rss = "symmetric"'
reload
[ "$(table)" = "0:128 " ] || fail "table $(table)"
within router ethtool -X r3 weight 1 7
rss >"$work/changed"
stop_router
rss | diff "$work/changed" - || fail "changed"

echo "a device without RSS"
configure "" '{ name = "r0", rss = "symmetric" }'
refuse 1 "r0: cannot set the hash key of its RSS" check
refuse 1 "r0: cannot set the hash key of its RSS" within router timeout 20 "$program" run -c "$work/router.toml"
configure "" '{ name = "r0", rss = "ports" }'
refuse 1 'interface.rss: "ports"' check
