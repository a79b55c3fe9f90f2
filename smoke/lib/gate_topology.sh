# Sourced by the tests of a gate between a client and a grantor:
#
#   client c0 ── g0 gate g1 ── t0 grantor         10.1.0.x │ 10.2.0.x
#
# The gate is .1 on both sides, the grantor 10.2.0.2. The client has no address: each test sets
# the addresses and routes that it needs.
#
#   sides BANDWIDTH           prints the interfaces, and the bandwidth of the link to the back
#   known_ends                gives the client 10.1.0.2, and the gate the MACs of both ends
#   both_families             prints a set of grantors for either family, and the prefixes they protect:
#                             192.0.2.0/24 by 10.2.0.2 and 2001:db8:2::/48 by fd02::2
#   guarded NAME COMMAND...   runs a gate by $work/NAME.toml while the command runs; it must end with
#                             status 0 and every packet counted; its report is $work/NAME.json
. "$(dirname "${BASH_SOURCE[0]}")/namespaces.sh"

for name in client gate grantor; do
    namespace "$name"
done
join client c0 02:00:00:00:01:02 gate g0 02:00:00:00:01:01
join grantor t0 02:00:00:00:02:02 gate g1 02:00:00:00:02:01
within gate ip addr add 10.1.0.1/24 dev g0
within gate ip addr add 10.2.0.1/24 dev g1
within grantor ip addr add 10.2.0.2/24 dev t0

sides() {
    busy_machine
    gate_sides g0 g1 "$1"
}

known_ends() {
    within client ip addr add 10.1.0.2/24 dev c0
    within gate ip neigh replace 10.1.0.2 lladdr 02:00:00:00:01:02 dev g0
    within gate ip neigh replace 10.2.0.2 lladdr 02:00:00:00:02:02 dev g1
}

both_families() {
    cat <<'CONFIG'
[[grantors]]
name = "site"
members = [{ address = "10.2.0.2" }]
[[grantors]]
name = "site6"
members = [{ address = "fd02::2" }]
[[policy]]
prefix = "192.0.2.0/24"
grantors = "site"
[[policy]]
prefix = "2001:db8:2::/48"
grantors = "site6"
CONFIG
}

guarded() {
    local name=$1 status=0
    shift
    local gate
    start_gate "$name"
    "$@"
    kill -INT "$gate"
    wait "$gate" || status=$?
    [ "$status" -eq 0 ] || fail "the gate ended with $status"
    balanced <"$work/$name.json"
    "$python" "$here/smoke/lib/gate_report.py" --rules <"$work/$name.json"
}
