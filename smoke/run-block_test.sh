#!/usr/bin/env bash
# `[block]` of a router: packets of listed sources end at its ports, those to be forwarded and those for itself; all
# others pass, in each mode, while lists, bans and the configuration change.
#
# Exact counters by list; the sum of all packets; a reload that adds lists, changes them, opens an interface again and
# removes them; an observed interface; contents that are held; metrics; wrong configurations.
. "$(dirname "$0")/lib/router_topology.sh"
default_routes
hosts_own_checksums
sources=(203.0.113.5 203.0.113.200 198.51.100.7 192.0.2.7 192.0.2.200 2001:db8:9::5)
for source in "${sources[@]}"; do
    case $source in
    *:*) within source ip addr add "$source/128" dev s0 && within router ip route add "$source" via fd00:0::2 ;;
    *) within source ip addr add "$source/32" dev s0 && within router ip route add "$source" via 10.0.0.2 ;;
    esac
done
within source ip neigh replace 10.0.0.1 lladdr 02:00:00:00:01:01 dev s0
within source ip -6 neigh replace fd00:0::1 lladdr 02:00:00:00:01:01 dev s0

answered() { # SOURCE [TARGET]
    local target=${2:-10.0.1.2}
    case $1 in *:*) target=${2:-fd00:1::2} ;; esac
    within source ping -q -c 3 -i 0.02 -W 1 -I "$1" "$target" | has_line " 0% packet loss"
}
loses() { ! answered "$@"; }
put() { printf '%s\n' "${@:2}" >"$work/new" && mv "$work/new" "$work/$1"; } # FILE LINE...
ask() { "$program" "$@" --socket "$work/sock"; }
lists() { show block-lists; }
packets() { # LIST: the packets about which it has decided
    show -j block-lists | json "print(next(l['packets'] for l in d if l['name'].endswith('$1')))"
}
blocked() { show -j counters | json 'print(d[0]["dropped"].get("blocked", 0))'; }

put allow 203.0.113.128/25
put bad 203.0.113.0/24 2001:db8:9::/48
put some 192.0.2.0/24
put exception 192.0.2.128/25
pairs=('[[block.pair]]' 'list = "some"' 'to = ["10.0.2.0/24", "fd00:2::/64"]'
    '[[block.pair]]' 'list = "exception"' 'to = ["10.0.2.2"]' 'action = "pass"')
section() { printf '%s\n' '[block]' 'lists = ["bad"]' 'allow = ["allow"]' "bans = \"$work/bans\"" "cache = \"$work/cache\"" "$@"; }

for mode in copy xdp; do
    rm -f "$work/bans"
    configure "$(section "${pairs[@]}")"
    start_router
    [ "$mode" = copy ] || wait_for 10 forwards_in_driver || fail "not in the driver: $(show interfaces)"
    for source in 203.0.113.200 198.51.100.7 10.0.0.2; do
        answered "$source" || fail "$source is not answered in mode $mode"
    done
    before=$(packets bad)
    loses 203.0.113.5 && loses 2001:db8:9::5 || fail "a listed source is forwarded in mode $mode"
    loses 203.0.113.5 10.0.0.1 || fail "a listed source reaches the router in mode $mode"
    [ "$(($(packets bad) - before))" -eq 9 ] || fail "not 9 packets but $before to $(packets bad) in mode $mode"
    [ "$(blocked)" = "$(packets bad)" ] || fail "blocked: $(blocked), by the list $(packets bad)"
    # Pairs of source and destination.
    loses 192.0.2.7 10.0.2.2 && answered 192.0.2.7 10.0.1.2 || fail "other verdicts by a pair in mode $mode"
    answered 192.0.2.200 10.0.2.2 && answered 192.0.2.200 10.0.1.2 || fail "other verdicts by an exception for a destination"
    [ "$(packets 'some to 10.0.2.0/24,fd00:2::/64')" -eq 3 ] || fail "other packets of a pair: $(lists)"
    show blocked 192.0.2.7 --count 0s | has_line "^192.0.2.7/32 by destination" || fail "other lists of a source in a pair"
    # A change of the file, and bans.
    put bad 203.0.113.0/24 198.51.100.0/24
    wait_for 15 loses 198.51.100.7 || fail "a new line has no effect in mode $mode"
    wait_for 15 answered 2001:db8:9::5 || fail "a removed line has an effect in mode $mode"
    ask ban 2001:db8:9::5 --for 3600 >/dev/null
    loses 2001:db8:9::5 || fail "a ban has no effect in mode $mode"
    show blocked 2001:db8:9::5 --count 0s | has_line "drop 2001:db8:9::5/128 by bans" || fail "no line of the ban"
    refuse 1 "10.0.0.1, an address of r0: a ban would cut this host off" ask ban 10.0.0.0/24
    # A port that is opened again has the filter.
    answered 10.0.0.2 || fail "another source is not answered in mode $mode"
    sed -i 's/^interface = .*/interface = [{ name = "r0", mode = "generic" }, { name = "r1" }, { name = "r2" }]/' "$work/router.toml"
    ask reload | has_line "workers replaced" || fail "the mode is not changed: $(tail -3 "$work/fingerpost.log")"
    loses 203.0.113.5 && answered 203.0.113.200 || fail "other verdicts by a port that is opened again in mode $mode"
    # Observed: the kernel forwards all.
    ask demote r0 >/dev/null
    answered 203.0.113.5 || fail "an observed interface drops packets in mode $mode"
    ask promote r0 >/dev/null
    loses 203.0.113.5 || fail "a promoted interface drops no packets in mode $mode"
    # Held, and applied by an order.
    put bad 203.0.113.0/24 198.51.100.0/24 192.0.2.1 192.0.2.2
    wait_for 15 eval 'lists | has_line "bad prefixes 4 "' || fail "no 4 prefixes: $(lists)"
    put bad 203.0.113.0/24
    wait_for 15 eval 'lists | has_line "bad prefixes 4 .*held: it has 1 prefixes where it had 4"' || fail "not held: $(lists)"
    loses 198.51.100.7 || fail "a list that is held is applied"
    ask apply-lists | has_line "all lists are in force" || fail "the lists are not applied: $(lists)"
    answered 198.51.100.7 || fail "a list that is applied has no effect"
    # Some interfaces alone.
    sed -i 's/^bans = /interfaces = ["r1", "r2"]\n&/' "$work/router.toml"
    ask reload | has_line "applied block" || fail "the interfaces are not changed: $(tail -3 "$work/fingerpost.log")"
    answered 203.0.113.5 && answered 203.0.113.5 10.0.0.1 || fail "packets of an interface that is not named are dropped in mode $mode"
    sed -i 's/^interfaces = .*/interfaces = ["r0"]/' "$work/router.toml"
    ask reload | has_line "applied block" || fail "the interface is not changed: $(tail -3 "$work/fingerpost.log")"
    loses 203.0.113.5 && answered 203.0.113.200 || fail "other verdicts by an interface that is named in mode $mode"
    # Other lists, and none.
    put worse 198.51.100.0/24
    ask ban 192.0.2.200 >/dev/null
    sed -i 's/^lists = .*/lists = ["worse"]/' "$work/router.toml"
    ask reload | has_line "applied block" || fail "the lists are not changed: $(tail -3 "$work/fingerpost.log")"
    loses 198.51.100.7 && answered 203.0.113.5 || fail "other verdicts by the new lists in mode $mode"
    loses 2001:db8:9::5 && loses 192.0.2.200 || fail "a reload loses the bans"
    ask unban 192.0.2.200 >/dev/null
    sed -i 's/^lists = .*/lists = ["none"]/' "$work/router.toml"
    refuse 1 "reading the list $work/none: " ask reload
    loses 198.51.100.7 || fail "a reload that fails has an effect"
    sed -i '/^\[block\]/,/^action/d' "$work/router.toml"
    ask reload | has_line "applied block" || fail "the lists are not removed: $(tail -3 "$work/fingerpost.log")"
    for source in 198.51.100.7 2001:db8:9::5; do
        answered "$source" || fail "lists that are removed have an effect on $source in mode $mode: $(show counters; show interfaces; within router ip neigh)"
    done
    refuse 1 "not available: this process has no block lists (see [block])" show block-lists
    stop_router
    put bad 203.0.113.0/24 2001:db8:9::/48
done
unset mode

# The metrics, and a start with a ban of the last time.
listen=127.0.0.1:9377
configure "$(section '[metrics]' "listen = \"$listen\"")"
start_router
loses 2001:db8:9::5 || fail "the bans are lost at a restart"
within router curl -sf "http://$listen/metrics" >"$work/metrics" || fail "no metrics"
has_line "^fingerpost_block_list_prefixes{list=\"bans\",family=\"IPv6\"} 1.0$" <"$work/metrics" ||
    fail "no metric of prefixes: $(grep block_list "$work/metrics")"
has_line "^fingerpost_block_list_packets_total{list=\"bans\",action=\"drop\"} 3$" <"$work/metrics" ||
    fail "other packets: $(grep block_list "$work/metrics")"
within router curl -sf "http://$listen/api/block-lists" | json 'assert [l["name"].split("/")[-1] for l in d] == ["allow", "bans", "bad"], d'
stop_router

# Checks.
put bad 10.0.0.0/24
configure "$(section)"
check_config() { within router "$program" run --check -c "$work/router.toml"; }
check_config >"$work/check" 2>&1 && fail "a list with the router's address passes the check"
has_line "block: .*bad would be held: 10.0.0.0/24 contains 10.0.0.1, an address of r0" <"$work/check" || fail "the check prints $(cat "$work/check")"
configure "$(section 'crowdsec = "http://127.0.0.1:8080"')"
refuse 1 'needs `crowdsec_key`' check_config
