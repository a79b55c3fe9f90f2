#!/usr/bin/env bash
# A gate of two workers: what is one flow's is one worker's, whatever queue it comes by.
#
#   client c0 ══ g0 gate g1 ══ t0 grantor      10.1.0.x │ 10.2.0.x, two queues each
#
# The client sends packets of every pair by both queues (steering.py). Where the workers hand each
# other what is not theirs, each flow is in one table, and a granted one has its rate once; so it is
# after a restart, which makes other flows theirs. The same packets and a gate that believes its
# card: each flow is in both tables, and has its rate twice, so that the queues were used.
queues=2
. "$(dirname "$0")/vantage.sh"

within client ip addr add 10.1.0.2/24 dev c0
within gate ip neigh replace 10.2.0.2 lladdr 02:00:00:00:02:02 dev g1
within gate ip neigh replace 10.1.0.2 lladdr 02:00:00:00:01:02 dev g0

configure() {
    cat >"$work/$1.toml" <<CONFIG
[front]
interface = "g0"
steering = "$2"
[back]
interface = "g1"
[link]
bandwidth = "1gbit"
[table]
entries = 4096
keep = "$work/flows-$2"
[[grantors]]
name = "site"
members = [{ address = "10.2.0.2" }]
[[policy]]
prefix = "192.0.2.0/24"
grantors = "site"
[decisions]
v1_from = ["10.2.0.2"]
[workers]
cores = [0, 1]
[control]
socket = "$work/sock"
CONFIG
}

for how in "software software" "again software" "card card"; do
    read -r name by <<<"$how"
    configure "$name" "$by"
    echo "-- $name"
    guarded "$name" within client "$python" "$here/smoke/steering.py" "$prefix" "$program" "$work" "$name"
done
json 'assert d["counters"]["dropped"]["handover_full"] == 0, d' <"$work/software.json"

# Wrong words are told with their place, and nothing starts.
sed 's/"software"/"both"/' "$work/software.toml" >"$work/wrong.toml"
if "$program" gate check -c "$work/wrong.toml" 2>"$work/wrong"; then fail "\"both\" is taken"; fi
grep -q 'wrong.toml:3: front.steering' "$work/wrong" || fail "it does not say where: $(cat "$work/wrong")"
