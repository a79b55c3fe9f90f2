/* granted: the state of that name as a program.
 *
 * A window of one second, which begins with the first packet after the end of the last one, has
 * `rate_kib` KiB. A packet that exceeds it is dropped and uses nothing. From `next_renewal_ms` on,
 * a packet every `renewal_step_ms` requests renewal.
 */
#include "flow.h"

struct terms {
	uint32_t rate_kib, next_renewal_ms, renewal_step_ms;
};

struct state {
	uint64_t renew_at, left, next_renewal_at;
	uint32_t rate_kib, renewal_step_ms;
};

SECTION("init") uint64_t on_decision(struct gk_bpf_init_ctx *ctx)
{
	void *cookie = init_ctx_to_cookie(ctx);
	const struct terms terms = *(const struct terms *)cookie;
	struct state *state = cookie;

	state->renew_at = ctx->now + cycles_per_sec;
	state->left = (uint64_t)terms.rate_kib * 1024;
	state->next_renewal_at = ctx->now + cycles_per_ms * terms.next_renewal_ms;
	state->rate_kib = terms.rate_kib;
	state->renewal_step_ms = terms.renewal_step_ms;
	return INIT_OK;
}

SECTION("pkt") uint64_t on_packet(struct gk_bpf_pkt_ctx *ctx)
{
	struct state *state = pkt_ctx_to_cookie(ctx);
	uint32_t bytes = pkt_ctx_to_pkt(ctx)->pkt_len;

	if (ctx->now >= state->renew_at) {
		state->renew_at = ctx->now + cycles_per_sec;
		state->left = (uint64_t)state->rate_kib * 1024;
	}
	if (bytes > state->left)
		return DECLINE;
	state->left -= bytes;
	if (ctx->now >= state->next_renewal_at) {
		state->next_renewal_at = ctx->now + cycles_per_ms * state->renewal_step_ms;
		return gk_bpf_prep_for_tx(ctx, RENEW, 0) == 0 ? FORWARD : ERROR;
	}
	return gk_bpf_prep_for_tx(ctx, GRANTED, 0) == 0 ? FORWARD : ERROR;
}
