/* grantedv2: two limits. Fragments, and packets other than TCP and UDP, face the second too. */
#include "limit.h"

SECTION("init") uint64_t on_decision(struct gk_bpf_init_ctx *ctx)
{
	return init_limits(ctx);
}

SECTION("pkt") uint64_t on_packet(struct gk_bpf_pkt_ctx *ctx)
{
	struct limits *limits = pkt_ctx_to_cookie(ctx);
	uint32_t bytes = pkt_ctx_to_pkt(ctx)->pkt_len;
	int usual = ctx->l4_proto == PROTOCOL_TCP || ctx->l4_proto == PROTOCOL_UDP;

	if (over_limit1(limits, ctx->now, bytes))
		return DECLINE;
	if ((!usual || ctx->fragmented) && over_second(&limits->left2, bytes))
		return DECLINE;
	return send_limited(ctx, limits);
}
