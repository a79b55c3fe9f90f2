#!/usr/bin/env bash
# The number of an interface's channels: set for two workers while the router runs, reported by the check, put back
# at the end, unless another program has changed it since.
#
#   source s0 ── r0 router r1 ── a0 a       up to four channels, one at the start
queues=4
. "$(dirname "$0")/lib/router_topology.sh"

default_routes
hosts_own_checksums
for end in "source s0" "a a0" "b b0"; do
    read -r name interface <<<"$end"
    # XDP on a veth needs as many receive queues as its other end has queues to send.
    within "$name" ethtool -L "$interface" tx 1
done
for interface in r0 r1 r2; do within router ethtool -L "$interface" rx 1 tx 1; done
# The receive channels of an interface of the router.
channels() { within router ethtool -l "$1" | awk '/^Current/ { now = 1 } now && $1 == "RX:" { print $2 }'; }
have() { [ "$(channels r0) $(channels r1) $(channels r2)" = "$1" ] || fail "channels $(channels r0) $(channels r1) $(channels r2), not $1"; }
have "1 1 1"

two_workers() { # CHANNELS
    configure "" "{ name = \"r0\", channels = $1 }, { name = \"r1\", channels = 2 }, { name = \"r2\", channels = 2 }"
    sed -i 's/^\[workers\]/&\ncores = [0, 1]/' "$work/router.toml"
}
check() { within router "$program" run -c "$work/router.toml" --check "$@"; }
passes() { within source ping -c 3 -i 0.1 -W 2 -q 10.0.1.2 >"$work/ping" || fail "$(cat "$work/ping")"; }

two_workers 3
check >"$work/check" || fail "$(cat "$work/check")"
sed 's/^/   /' "$work/check"
grep -q "^    worker 0, core 0: r0 queues 0 2, r1 queue 0, r2 queue 0; [0-9]* MiB for packets$" "$work/check" || fail "no plan"
check -j | json 'first, second = d["workers"]
assert first["queues"] == {"r0": [0, 2], "r1": [0], "r2": [0]} and second["queues"]["r0"] == [1], d
assert first["bytes"] > second["bytes"] > 1 << 20, d'
have "1 1 1"
start_router
have "3 2 2"
show -j interfaces | json 'print("  ", d[0]["name"], d[0]["mode"]); assert d[0]["mode"] == "XDP, AF_XDP copy", d[0]'
passes

echo "a reload changes the number"
two_workers 2
"$program" reload --socket "$work/sock" || fail "the reload fails"
have "2 2 2"
passes
stop_router
have "1 1 1"

echo "a number that was changed again stays"
two_workers 2
start_router
within router ethtool -L r1 rx 3 tx 3
stop_router
have "1 3 1"

echo "a number that the device cannot have"
within router ethtool -L r1 rx 1 tx 1
two_workers 5
refuse 1 "r0: cannot set 5 channels: it has between 1 and 4" check
refuse 1 "r0: cannot set 5 channels: it has between 1 and 4" within router timeout 20 "$program" run -c "$work/router.toml"
two_workers 1
refuse 1 "interface.channels: 1 channels: at least 2" check
have "1 1 1"
