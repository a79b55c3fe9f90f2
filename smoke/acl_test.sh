#!/usr/bin/env bash
# Access lists: random packets through random lists, compared with the kernel and `fingerpost acl nft`, byte for byte
# and counter by counter; then what an operator does with lists.
export FINGERPOST_FILTERED=1
. "$(dirname "$0")/lib/random_packets.sh"

rules() { "$python" "$here/smoke/acl_rules.py" write "$@"; }
rules $((seed + 1)) 40 >"$work/source.rules"
rules $((seed + 2)) 60 >"$work/a.rules"
rules $((seed + 3)) 300 >"$work/b.rules"
lists() { # the number of rules of source's list, behind an interface that does not exist
    cat <<LISTS
[[prefix_list]]
name = "none-of-ours"
prefixes = ["203.0.113.0/24", "2001:db8:dead::/48"]
[[access_list]]
name = "from-source"
inbound = ["r0", "r9"]
default = "permit"
rules = ["deny from @none-of-ours"]
file = "source.rules"
[[access_list]]
name = "to-a"
outbound = ["r1"]
default = "permit"
file = "a.rules"
[[access_list]]
name = "to-b"
outbound = ["r2"]
default = "deny"
file = "b.rules"
LISTS
}
with_mode() { configure "$(lists)" "{ name = \"r0\", mode = \"$1\" }, { name = \"r1\", mode = \"$1\" }, { name = \"r2\", mode = \"$1\" }"; }

# The kernel with the exported ruleset.
with_mode auto
"$program" acl nft -c "$work/router.toml" >"$work/ruleset" || fail "no ruleset"
within router nft -f "$work/ruleset" || fail "nftables refuses the ruleset"
pass kernel
within router nft -j list table inet fingerpost_acl >"$work/nft.json"
within router nft delete table inet fingerpost_acl

for mode in auto generic; do
    with_mode "$mode"
    start_router
    pass router
    compare
    show -j acl >"$work/show.json"
    "$python" "$here/smoke/acl_rules.py" compare "$work/nft.json" "$work/show.json" to-a to-b || fail "counters differ from those of the kernel"
    denied=$(show -j counters | json 'print(d[0]["dropped"]["acl_denied"])')
    [ "$denied" -gt $((packets / 20)) ] || fail "only $denied packets are denied: $(show counters)"
    echo "   mode $mode: $(arrived) frames of $packets packets are those of the kernel, $denied packets denied"
    [ "$mode" = auto ] && stop_router
done

# A reload keeps the counters of the rules that stay, and one with an error changes nothing.
number() { show -j acl "$1" | json "print(d[0]['rules'][$2]['$3'])"; }
first=$(number from-source 1 packets) rule=$(number from-source 1 rule)
sed -i 's/^\[control\]/[[access_list]]\nname = "more"\ndefault = "drop"\n[control]/' "$work/router.toml"
"$program" reload --socket "$work/sock" 2>"$work/reload.err" && fail "a bad default is accepted"
grep -q 'access_list.default: "drop" is unknown: permit or deny' "$work/reload.err" || fail "the error is: $(cat "$work/reload.err")"
[ "$(show -j acl | json 'print(len(d))')" = 3 ] || fail "a refused reload has changed the lists"
sed -i 's/default = "drop"/default = "deny"/; s/rules = \["deny from @none-of-ours"\]/rules = ["count dscp 63"]/' "$work/router.toml"
"$program" reload --socket "$work/sock" >"$work/reload.out" || fail "no reload"
grep -q 'applied access_list' "$work/reload.out" || fail "the reload says: $(cat "$work/reload.out")"
[ "$(number from-source 0 rule)" = "count dscp 63" ] || fail "the list has not changed"
[ "$(number from-source 1 packets) $(number from-source 1 rule)" = "$first $rule" ] || fail "a counter is lost"
show acl from-source | has_line '^from-source: inbound r0, r9 (no port) 41 rules' || fail "show acl: $(show acl from-source)"
show acl nothing 2>"$work/err" && fail "a list that does not exist is shown"
grep -q 'nothing: no access list of this router (there is: from-source, to-a, to-b, more)' "$work/err" || fail "the error is: $(cat "$work/err")"

# Which rule, and why.
explain() { "$program" acl explain -c "$work/router.toml" "$@"; }
packet=(from 10.66.0.1 to 11.0.0.1 ipproto udp sport 9 dport 9 dscp 63)
explain from-source "${packet[@]}" >"$work/explained" || [ $? -eq 1 ] || fail "explain fails"
grep -q '^1: count dscp 63$' "$work/explained" || fail "explain prints: $(cat "$work/explained")"
explain -j more "${packet[@]}" >"$work/explained.json" || [ $? -eq 1 ] || fail "explain -j fails"
json 'assert d == {"result": "deny", "by_default": True, "rules": []}, d' <"$work/explained.json" || fail "explain -j: $(cat "$work/explained.json")"
explain more "${packet[@]}" >"$work/explained" && fail "a denied packet has status 0"
grep -q '^default: deny$' "$work/explained" || fail "explain prints: $(cat "$work/explained")"
explain more from 10.66.0.1 2>"$work/err" && fail "half a packet is explained"
grep -q 'to: a packet has one address here' "$work/err" || fail "the error is: $(cat "$work/err")"
stop_router
