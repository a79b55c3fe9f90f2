#!/usr/bin/env bash
# `fingerpost block --crowdsec` drops the packets of sources that a CrowdSec engine bans, and no others.
#
#   client c0 ── s0 server s1 ── e0 engine      10.1.0.2 ── 10.1.0.1, 10.2.0.1 ── 10.2.0.2; the client has banned
#                                               addresses, too
#
# The engine is Debian's `crowdsec` with its Local API and a database of its own, without the central API and without
# logs to read. Bans and deletions by `cscli`: addresses, ranges, several decisions of one address, their ends; an engine
# that cannot be reached, one that is killed; a wrong key. The kernel's answers to ping decide.
# runs alone: a ban must be effective a second after the poll that reports it
sources=(203.0.113.5 203.0.113.6 198.51.100.7 198.51.100.8 192.0.2.77 192.0.2.78 2001:db8:9::5)
. "$(dirname "$0")/lib/block_topology.sh"

namespace engine
join server s1 02:00:00:00:02:01 engine e0 02:00:00:00:02:02
within server ip addr add 10.2.0.1/24 dev s1
within engine ip addr add 10.2.0.2/24 dev e0

# An engine that is a Local API, with its files in $work/engine.
mkdir -p "$work"/engine/{data,hub,none}
echo '{}' >"$work/engine/hub/.index.json"
echo 'simulation: false' >"$work/engine/simulation.yaml"
printf '%s\n' 'name: none' 'filters: ["false"]' 'decisions: [{ type: ban, duration: 4h }]' >"$work/engine/profiles.yaml"
touch "$work/engine/client.yaml"
cat >"$work/engine/config.yaml" <<CONFIG
common: { daemonize: false, log_media: stdout, log_level: info, working_dir: . }
config_paths:
  config_dir: $work/engine
  data_dir: $work/engine/data
  hub_dir: $work/engine/hub
  index_path: $work/engine/hub/.index.json
  simulation_path: $work/engine/simulation.yaml
  notification_dir: $work/engine/none
  plugin_dir: $work/engine/none
db_config: { type: sqlite, db_path: $work/engine/data/crowdsec.db, use_wal: true }
api:
  client: { credentials_path: $work/engine/client.yaml }
  server: { listen_uri: 10.2.0.2:8080, profiles_path: $work/engine/profiles.yaml }
prometheus: { enabled: false }
CONFIG
cscli() {
    within engine cscli -c "$work/engine/config.yaml" --color no "$@" >"$work/cscli.log" 2>&1 ||
        fail "cscli $*: $(cat "$work/cscli.log")"
}
start_engine() {
    launch engine crowdsec -c "$work/engine/config.yaml" -no-cs >>"$work/engine.log" 2>&1
    engine=$launched
    wait_for 20 within engine cscli -c "$work/engine/config.yaml" decisions list || fail "the engine does not start"
}
cscli machines add smoke --password smoke -u http://10.2.0.2:8080 -f "$work/engine/client.yaml"
cscli bouncers add fingerpost -k the-key
(umask 077 && echo the-key >"$work/key" && echo other-key >"$work/wrong")
start_engine
ban() { cscli decisions add "$@"; } # --ip ADDRESS --duration TIME
lift() { cscli decisions delete "$@"; }

# Whether three pings from a source are answered, or all of them are lost.
ping_from() { # SOURCE SUMMARY
    local target=10.1.0.1
    case $1 in *:*) target=fd01::1 ;; esac
    # ping fails if all are lost.
    { within client ping -q -c 3 -i 0.02 -W 0.3 -I "$1" "$target" || true; } | has_line "$2"
}
answered() { ping_from "$1" ' 0% packet loss'; }
dropped() { ping_from "$1" ' 100% packet loss'; }
attached() { within server ip link show s0 | has_line 'xdp'; }

# A decision is effective after the poll that follows it, and a second.
poll=1
within_a_poll() { # dropped|answered SOURCE
    local begin=${EPOCHREALTIME/./} limit=$(((poll + 1) * 1000000)) start
    until start=${EPOCHREALTIME/./} && "$@"; do
        [ $((start - begin)) -le "$limit" ] || fail "$2 is not $1 within $((limit / 1000000)) s"
    done
    [ $((start - begin)) -le "$limit" ] || fail "$2 is $1 only after $(((start - begin) / 1000)) ms"
    printf '   %s %s after %d ms\n' "$2" "$1" $(((start - begin) / 1000))
}

for source in "${sources[@]}"; do answered "$source" || fail "$source is not answered before the start"; done

# The whole set: a decision from before the start.
ban --ip 192.0.2.77 --duration 1h
arguments=(--crowdsec http://10.2.0.2:8080 --crowdsec-key "$work/key" --cache "$work/cache" --poll "$poll")
launch server "$program" block s0 "${arguments[@]}" -j >"$work/block.json" 2>"$work/block.log"
block=$launched
wait_for 20 attached || fail "no program: $(cat "$work/block.log")"
wait_for 20 dropped 192.0.2.77 || fail "a decision from before the start has no effect: $(cat "$work/block.log")"
answered 192.0.2.78 || fail "a source without a decision is dropped"

# Addresses and ranges, and their deletion.
ban --ip 203.0.113.5 --duration 1h
within_a_poll dropped 203.0.113.5
answered 203.0.113.6 || fail "a neighbor of a banned address is dropped"
ban --range 198.51.100.0/29 --duration 1h
within_a_poll dropped 198.51.100.7
answered 198.51.100.8 || fail "the address after a banned range is dropped"
ban --ip 2001:db8:9::5 --duration 1h
within_a_poll dropped 2001:db8:9::5
lift --ip 203.0.113.5
within_a_poll answered 203.0.113.5
lift --range 198.51.100.0/29
within_a_poll answered 198.51.100.7
dropped 2001:db8:9::5 || fail "the end of others ends a ban"

# Two decisions of one address: each ends alone, also the longer one first, which the engine hides from other bouncers.
line() { grep "^$1 " "$work"/cache/*; }
hours_left() { # SOURCE
    local end=$(date -d "$(line "$1" | sed 's/.*expires=//')" +%s)
    echo $(((end - $(date +%s)) / 3600))
}
ban --ip 203.0.113.6 --duration 10h --reason long
ban --ip 203.0.113.6 --duration 4h --reason short
wait_for 5 eval '[ "$(hours_left 203.0.113.6)" -eq 9 ]' || fail "another end: $(line 203.0.113.6)"
lift --scenario long
wait_for 5 eval '[ "$(hours_left 203.0.113.6)" -eq 3 ]' || fail "the end of a decision that was deleted: $(line 203.0.113.6)"
dropped 203.0.113.6 || fail "a ban ends with another of its address"
lift --scenario short
within_a_poll answered 203.0.113.6

# Decisions that no list can have.
ban --scope country --value FR --duration 1h
ban --ip 192.0.2.78 --type captcha --duration 1h
wait_for 5 grep -q 'scope than "Ip" and "Range" are not applied: 1, .*Country FR' "$work/block.log" ||
    fail "it does not log a decision of a country"
wait_for 5 grep -q 'type than "ban" are not applied: 1, .*captcha of Ip 192.0.2.78' "$work/block.log" ||
    fail "it does not log a decision of another type"
answered 192.0.2.78 || fail "a decision of another type is applied"

# An engine that cannot be reached: the list stays, a ban ends by itself, and later bans arrive later.
ban --ip 203.0.113.5 --duration 4s
within_a_poll dropped 203.0.113.5
within server ip link set s1 down
ban --ip 198.51.100.8 --duration 1h
lift --ip 2001:db8:9::5
wait_for 15 grep -q 'the list stays as it was' "$work/block.log" || fail "an engine out of reach is not logged"
wait_for 10 answered 203.0.113.5 || fail "a ban does not end by itself"
dropped 192.0.2.77 && dropped 2001:db8:9::5 || fail "the list goes with the engine"
answered 198.51.100.8 || fail "a ban arrives without a link"
within server ip link set s1 up
within_a_poll dropped 198.51.100.8
within_a_poll answered 2001:db8:9::5
wait_for 5 grep -q 'the source of the list answers again' "$work/block.log" || fail "the engine's return is not logged"

# An engine that is killed.
kill -KILL "$engine"
wait "$engine" 2>/dev/null || true
wait_for 15 eval '[ "$(grep -c "the list stays as it was" "$work/block.log")" -ge 2 ]' || fail "a killed engine is not logged"
dropped 192.0.2.77 && dropped 198.51.100.8 || fail "the list goes with the engine"
start_engine
ban --ip 2001:db8:9::5 --duration 1h
within_a_poll dropped 2001:db8:9::5
dropped 192.0.2.77 && dropped 198.51.100.8 || fail "the list goes with the engine's restart"

kill -INT "$block"
wait "$block" || fail "block ended with $?: $(cat "$work/block.log")"
json '(list,) = d["lists"]
assert (list["action"], list["v4"], list["v6"], list["expiring"]) == ("drop", 2, 1, 3), d
assert list["packets"] > 30, d' <"$work/block.json" || fail "other counters"
! grep -qr the-key "$work/block.log" "$work/cache" || fail "it writes its key"

# A wrong key: the list is that of the cache, until the engine accepts the key.
arguments=(--crowdsec http://10.2.0.2:8080 --crowdsec-key "$work/wrong" --cache "$work/cache" --poll "$poll")
launch server "$program" block s0 "${arguments[@]}" >"$work/wrong.txt" 2>"$work/wrong.log"
block=$launched
wait_for 20 grep -q '403 Forbidden.* the file of --crowdsec-key' "$work/wrong.log" ||
    fail "it does not log a wrong key: $(cat "$work/wrong.log")"
wait_for 20 dropped 192.0.2.77 || fail "the list of the last time has no effect"
ban --ip 203.0.113.5 --duration 1h
cscli bouncers add other -k other-key
within_a_poll dropped 203.0.113.5
[ "$(grep -c Forbidden "$work/wrong.log")" -eq 1 ] || fail "it logs a wrong key at each poll"
kill -INT "$block"
wait "$block" || fail "block ended with $?: $(cat "$work/wrong.log")"

: >"$work/empty"
refuse 1 "there is no key of CrowdSec in the file" within server "$program" block s0 \
    --crowdsec http://10.2.0.2:8080 --crowdsec-key "$work/empty" --cache "$work/cache"

kill -TERM "$engine"
wait "$engine" || true
