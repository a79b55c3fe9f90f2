#!/usr/bin/env bash
# The counters of a gate by rule of its policy: as many packets of either family as were sent, in `show gate` and in
# metrics that three parsers read; every rule, the rest (`others`), and packets without a rule. Over reloads, one of
# them refused: a rule that stays keeps its numbers, a removed one is no longer listed, one that returns begins
# with 0, and all together are always the packets received. With two workers, which share nothing.
#
#   client c0 ══ g0 gate g1 ══ t0 grantor      protected: 192.0.2.0/24, 2001:db8::/32, all of 10.64.0.0/10
queues=2
. "$(dirname "$0")/lib/gate_topology.sh"

within client ip addr add 10.1.0.2/24 dev c0
within gate ip addr add fd01::1/64 dev g0
within gate ip addr add fd02::1/64 dev g1
within gate ip neigh add 10.2.0.2 lladdr 02:00:00:00:02:02 dev g1
within gate ip neigh add fd02::2 lladdr 02:00:00:00:02:02 dev g1
within gate ip route add 192.0.2.0/24 via 10.2.0.2

# Writes a configuration: the policies, a line each: a prefix and its key.
gate() {
    cat >"$work/gate.toml" <<CONFIG
[front]
interface = "g0"
[back]
interface = "g1"
$(busy_machine)
cores = [0, 1]
[link]
bandwidth = "1gbit"
[flow_table]
entries = 4096
[control]
socket = "$work/sock"
[metrics]
listen = "127.0.0.1:9276"
[allow]
prefixes = ["10.1.7.0/24"]
[block]
prefixes = ["10.1.8.0/24", "2001:db8:bad::/48"]
[[grantors]]
name = "site"
members = [{ address = "10.2.0.2" }]
[[grantors]]
name = "six"
members = [{ address = "fd02::2" }]
CONFIG
    while read -r prefix_of says; do
        printf '[[policy]]\nprefix = "%s"\n%s\n' "$prefix_of" "$says"
    done >>"$work/gate.toml"
}
# Three hundred rules beyond the first, which have no counter of their own.
many() { for number in $(seq 0 299); do echo "10.64.$((number / 256)).$((number % 256))/32 action = \"drop\""; done; }

{
    printf '%s\n' '192.0.2.0/24 grantors = "site"' '2001:db8::/32 grantors = "six"' '192.0.2.9/32 action = "drop"' \
        '2001:db8::9/128 action = "drop"' '198.51.100.0/24 grantors = "site"'
    many
} | gate

asked() {
    within gate "$python" "$here/smoke/policies_packets.py" "$prefix" "$program" "$work" "$launched"
}
guarded gate asked
