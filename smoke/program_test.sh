#!/usr/bin/env bash
# Hostile flow programs, compiled by clang. Each is refused with the
# section and the reason, by `program build`, by `program check` and by the gate's configuration, and what is
# sound passes; no object is left of what was refused.
. "$(dirname "$0")/lib/namespaces.sh"

"$program" program source flow.h >"$work/flow.h"
# Writes a program whose pkt function has this body.
hostile() {
    cat >"$work/$1.c" <<SOURCE
#include "flow.h"

SECTION("init") uint64_t on_decision(struct gk_bpf_init_ctx *ctx) { (void)ctx; return INIT_OK; }

SECTION("pkt") uint64_t on_packet(struct gk_bpf_pkt_ctx *ctx)
{
$2
}
SOURCE
}
refused=0
# Has a program refused: name, reason, body.
refuses() {
    hostile "$1" "$3"
    refuse 1 "$2" "$program" program build "$work/$1.c" -o "$work/$1.o"
    [ ! -e "$work/$1.o" ] || fail "$1: an object is left"
    clang -target bpfel -O2 -ffreestanding -I"$work" -c "$work/$1.c" -o "$work/$1.raw.o" 2>"$work/clang.log" ||
        fail "$1: clang: $(cat "$work/clang.log")"
    refuse 1 "$2" "$program" program check "$work/$1.raw.o"
    grep -q 'pkt' "$work/refuse.log" || fail "$1: no section is named: $(cat "$work/refuse.log")"
    refused=$((refused + 1))
}
refuses endless 'infinite loop' '
    volatile uint64_t left = ctx->now;
    while (left | 1) left += 2;
    return DECLINE;'
refuses beyond-cookie 'of the cookie at 64' '
    uint8_t *cookie = pkt_ctx_to_cookie(ctx);
    cookie[64] = 1;
    return DECLINE;'
refuses before-cookie 'of the cookie at' '
    uint8_t *cookie = pkt_ctx_to_cookie(ctx);
    cookie[ctx->l4_proto] = 1;
    return DECLINE;'
refuses blind-packet 'of the packet at' '
    const struct packet *packet = pkt_ctx_to_pkt(ctx);
    return packet->l4[0] ? DECLINE : ERROR;'
refuses unset 'not initialized' '
    uint64_t never;
    __asm__ volatile("%0 = *(u64 *)(r10 - 8)" : "=r"(never));
    return never & 1;'
refuses writes-context 'read-only' '
    ctx->now = 0;
    return DECLINE;'
refuses no-divisor 'divisor' '
    return ctx->now / ctx->expire_at & 1;'
refuses kernel-helper 'unknown helper function' '
    uint64_t (*helper)(void) = (void *)5;
    return helper() & 1;'
refuses leak 'pointer' '
    *(uint64_t *)pkt_ctx_to_cookie(ctx) = (uint64_t)ctx;
    return DECLINE;'

# The same with what is missing is sound.
hostile sound '
    const struct packet *packet = pkt_ctx_to_pkt(ctx);
    uint8_t *cookie = pkt_ctx_to_cookie(ctx);
    const uint8_t *l4 = packet->l4;
    if (l4 + 1 > packet->end) return ERROR;
    cookie[ctx->l4_proto & 63] = 1;
    return l4[0] ? DECLINE : ERROR;'
"$program" program build "$work/sound.c" -o "$work/sound.o" >"$work/build.log"
"$program" program check "$work/sound.o" >"$work/check.log"

# Not every file is a program, and a gate says which of its own is none.
head -c 200 "$work/sound.o" >"$work/cut.o"
refuse 1 'object' "$program" program check "$work/cut.o"
secret_key key 11
chmod 600 "$work/key"
cat >"$work/gate.toml" <<CONFIG
$(gate_sides g0 g1 1gbit)
$(gate_site '{ address = "10.2.0.2" }')
[[sender]]
id = 7
keys = { 1 = "key" }
[[program]]
number = 1
file = "sound.o"
CONFIG
"$program" gate check --offline -c "$work/gate.toml" >"$work/check.log" || fail "$(cat "$work/check.log")"
sed -i 's/sound.o/endless.raw.o/' "$work/gate.toml"
refuse 1 'infinite loop' "$program" gate check -c "$work/gate.toml"
grep -q 'gate.toml:18' "$work/refuse.log" || fail "no line: $(cat "$work/refuse.log")"
echo "   $refused hostile programs refused with their reasons, a sound one taken"
