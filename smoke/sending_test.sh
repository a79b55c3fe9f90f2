#!/usr/bin/env bash
# Flow programs that a grantor sends to a running gate:
#
#   client c0 ── f0 gate g0 ── t0 grantor s0 ── v0 server      10.1.0.x │ 10.2.0.x │ 192.0.2.7
#
# clang compiles a program that lets UDP to one port through; the grantor sends it, while nft(8)
# drops three of ten messages both ways, and packets go by it. Then a gate that does not want it, another
# version (old flows keep theirs), a gate that is killed and comes back without it, and another
# hand (sending_peers.py) that forges, cuts, lies and sends what does not pass the verifier.
. "$(dirname "$0")/lib/protected_topology.sh"

for number in $(seq 10 19); do
    within client ip addr add "10.1.0.$number/24" dev c0
done

umask 077
"$program" program source flow.h >"$work/flow.h"
# A program that lets UDP to a port through, and a table of no use that makes it as long as a few
# messages.
only() {
    cat >"$work/only.c" <<SOURCE
#include "flow.h"

struct state { uint64_t left; };
static const uint64_t ports[256] = { [0 ... 254] = $1, [255] = 1 };

SECTION("init") uint64_t on_decision(struct gk_bpf_init_ctx *ctx)
{
	struct state *state = init_ctx_to_cookie(ctx);
	return state->left == 0 ? INIT_ERROR : INIT_OK;
}

SECTION("pkt") uint64_t on_packet(struct gk_bpf_pkt_ctx *ctx)
{
	struct state *state = pkt_ctx_to_cookie(ctx);
	const struct packet *packet = pkt_ctx_to_pkt(ctx);
	const uint8_t *l4 = packet->l4;

	if (ctx->l4_proto != PROTOCOL_UDP || l4 + 8 > packet->end)
		return DECLINE;
	if (get16(l4 + 2) != ports[state->left & 255] || state->left == 0)
		return DECLINE;
	state->left--;
	return gk_bpf_prep_for_tx(ctx, GRANTED, 0) == 0 ? FORWARD : ERROR;
}
SOURCE
    "$program" program build "$work/only.c" -o "$work/only.o" >"$work/build.log"
}
only 7
"$program" program build declined -o "$work/declined.o" >"$work/build.log"
cat >"$work/endless.c" <<'SOURCE'
#include "flow.h"

SECTION("init") uint64_t on_decision(struct gk_bpf_init_ctx *ctx) { (void)ctx; return INIT_OK; }

SECTION("pkt") uint64_t on_packet(struct gk_bpf_pkt_ctx *ctx)
{
	volatile uint64_t left = ctx->now;
	while (left | 1) left += 2;
	return DECLINE;
}
SOURCE
clang -target bpfel -O2 -ffreestanding -I"$work" -c "$work/endless.c" -o "$work/endless.o" 2>"$work/clang.log"
secret_key grantor.key 2b
secret_key other.key 3c
cat >"$work/policy.lua" <<'POLICY'
function decide(p)
    return run { program = 9, cookie = string.pack("<I8", 1000), expire = 300 }
end
POLICY
cat >"$work/grantor.toml" <<CONFIG
$(grantor_config '"t0", "s0"' 10.9.1.100 10.2.0.1 7 grantor.key)
[[program]]
number = 9
file = "only.o"
[control]
socket = "$work/grantor.sock"
[metrics]
listen = "127.0.0.1:9275"
CONFIG
cat >"$work/gate.toml" <<CONFIG
$(gate_config)
[[sender]]
id = 8
keys = { 1 = "other.key" }
[[program]]
number = 1
file = "declined.o"
[metrics]
listen = "127.0.0.1:9274"
CONFIG
# The check finds programs that cannot be sent.
sed 's/only.o/endless.o/' "$work/grantor.toml" >"$work/bad.toml"
refuse 1 'infinite loop' "$program" grantor check -c "$work/bad.toml"
sed 's/version = 2/version = 1/' "$work/grantor.toml" >"$work/bad.toml"
refuse 1 'programs are sent by version 2 of the protocol only' "$program" grantor check -c "$work/bad.toml"
"$program" grantor check --offline -c "$work/grantor.toml" >"$work/check.log"
grep -q ', 1 programs$' "$work/check.log" || fail "check: $(cat "$work/check.log")"

at_gate() { "$program" show programs -j --socket "$work/gate.sock"; }
at_grantor() { "$program" show programs -j --socket "$work/grantor.sock"; }
# Says whether the gate has the grantor's program as it is now, and both say so.
has() {
    local digest
    digest=$(sha256sum "$work/only.o" | cut -d' ' -f1)
    at_gate | json "p, = [p for p in d if p['number'] == 9]
assert (p['origin'], p['state'], p['digest']) == ('grantor 7', 'active', '$digest'), p" &&
        at_grantor | json "p, = d
assert (p['gate'], p['number'], p['name'], p['state'], p['digest']) == ('10.2.0.1', 9, 'only', 'active', '$digest'), p"
}
hand() {
    within gate "$python" "$here/smoke/sending_peers.py" "$prefix" "$program" "$work" "$@"
}
start_gate
start_grantor

# A gate accepts no programs unless it is configured to, and answers so.
wait_for 10 grep -q 'gate 10.2.0.1 rejected program 9 (only): the gate accepts no programs' "$work/grantor.log" ||
    fail "the grantor has no answer in its log: $(cat "$work/grantor.log")"
hand asks 10.1.0.10
sed -i 's/^sources = .*/&\naccept_programs = true/' "$work/gate.toml"
# A third of all messages is lost from here on, both ways.
within grantor nft -f - <<'RULES' || fail "no messages can be lost here: nft(8) does not work"
table ip third {
    chain out { type filter hook output priority 0; udp dport 45233 numgen random mod 10 < 3 drop; }
    chain in { type filter hook input priority 0; udp sport 45233 numgen random mod 10 < 3 drop; }
}
RULES
"$program" reload --socket "$work/gate.sock" >"$work/reload.log" || fail "reload: $(cat "$work/reload.log")"
wait_for 75 has || fail "the program does not arrive: $(at_gate) $(at_grantor)"
within grantor nft delete table ip third
wait_for 10 grep -q 'program 9 of grantor 7 is active' "$work/gate.log" || fail "the gate does not say it"
wait_for 10 grep -q 'gate 10.2.0.1 accepted program 9 (only)' "$work/grantor.log" || fail "the grantor does not say it"
"$program" show programs --socket "$work/gate.sock" >"$work/programs.txt"
grep -q '^program 1 active, of configuration, sha256 ' "$work/programs.txt" || fail "$(cat "$work/programs.txt")"
grep -q '^program 9 active, of grantor 7, sha256 ' "$work/programs.txt" || fail "$(cat "$work/programs.txt")"
hand goes 10.1.0.11 7
echo "   a program by clang is sent, verified and decides of packets while a third of all messages is lost"

# Another version: flows keep the one that they began with, new ones have the new one.
only 8
"$program" reload --socket "$work/grantor.sock" >"$work/reload.log" || fail "reload: $(cat "$work/reload.log")"
grep -q ', 1 programs$' "$work/reload.log" || fail "$(cat "$work/reload.log")"
wait_for 20 has || fail "the new version does not arrive: $(at_gate)"
"$program" show programs --socket "$work/gate.sock" >"$work/programs.txt"
grep -q '^program 9 active.*, previous version kept for its flows$' "$work/programs.txt" || fail "$(cat "$work/programs.txt")"
hand goes 10.1.0.11 7
hand goes 10.1.0.12 8
# An invalid program is not sent.
cp "$work/only.o" "$work/sound.o"
cp "$work/endless.o" "$work/only.o"
refuse 1 'infinite loop' "$program" reload --socket "$work/grantor.sock"
cp "$work/sound.o" "$work/only.o"

# Another hand, which has a key of its own and does not keep to anything.
hand lies "$work/endless.o" "$work/declined.o"
hand goes 10.1.0.11 7
hand goes 10.1.0.12 8
within gate "$python" "$here/smoke/lib/metrics.py" http://127.0.0.1:9274/metrics \
    'begins=fingerpost_gate_program{number="1",origin="configuration",' \
    'begins=fingerpost_gate_program{number="9",origin="grantor 7",' \
    'begins=fingerpost_gate_decisions_total{result="programs_accepted"} 2' \
    'begins=fingerpost_gate_decisions_total{result="programs_refused"} 1'
within grantor "$python" "$here/smoke/lib/metrics.py" http://127.0.0.1:9275/metrics \
    'begins=fingerpost_grantor_program{gate="10.2.0.1",number="9",program="only",state="active"} 1'

# A gate that was killed has forgotten; it is found out by its session.
kill -KILL "$gate"
wait "$gate" 2>/dev/null || true
start_gate
wait_for 20 has || fail "it is not sent again: $(at_gate) $(at_grantor)"
hand goes 10.1.0.13 8
# A gate that accepts no programs any more has none.
sed -i '/^accept_programs/d' "$work/gate.toml"
"$program" reload --socket "$work/gate.sock" >"$work/reload.log" || fail "reload: $(cat "$work/reload.log")"
wait_for 20 hand asks 10.1.0.13 || fail "$(hand asks 10.1.0.13)"
echo "   sent again to a gate that was killed, and taken away by its configuration"

kill -INT "$gate" "$grantor"
wait "$gate" || fail "the gate ended with $?"
wait "$grantor" || fail "the grantor ended with $?"
json 'assert d["counters"]["balanced"], d' <"$work/gate.json"
json 'p = d["grantor"]["decisions"]; assert d["counters"]["balanced"] and p["abandoned"] == 0, p' <"$work/grantor.json"
