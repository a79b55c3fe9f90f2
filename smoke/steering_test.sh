#!/usr/bin/env bash
# A gate of two workers: what is one flow's is one worker's, whatever queue it comes by.
#
#   client c0 ══ g0 gate g1 ══ t0 grantor      10.1.0.x │ 10.2.0.x, two queues each
#
# The client sends packets of every pair by both queues (steering_packets.py). Where the workers hand each
# other what is not theirs, each flow is in one table, and a granted one has its rate once; so it is
# after a restart, which makes other flows theirs. The same packets and a gate that believes its
# card: each flow is in both tables, and has its rate twice, so that the queues were used.
queues=2
. "$(dirname "$0")/lib/gate_topology.sh"

known_ends

configure() {
    cat >"$work/$1.toml" <<CONFIG
$(gate_sides g0 g1 1gbit "steering = \"$2\"")
[flow_table]
entries = 4096
state_file = "$work/flows-$2"
$(gate_site '{ address = "10.2.0.2" }')
[decisions]
v1_sources = ["10.2.0.2"]
$(busy_machine)
cores = [0, 1]
[control]
socket = "$work/sock"
CONFIG
}

for how in "software software" "again software" "card card"; do
    read -r name by <<<"$how"
    configure "$name" "$by"
    echo "-- $name"
    guarded "$name" within client "$python" "$here/smoke/steering_packets.py" "$prefix" "$program" "$work" "$name"
done
json 'assert d["counters"]["dropped"]["handover_full"] == 0, d' <"$work/software.json"

# An unknown value is reported with its place, and nothing starts.
sed 's/"software"/"both"/' "$work/software.toml" >"$work/wrong.toml"
if "$program" gate check -c "$work/wrong.toml" 2>"$work/wrong"; then fail "\"both\" is taken"; fi
grep -q 'wrong.toml:3: front.steering' "$work/wrong" || fail "it does not say where: $(cat "$work/wrong")"
