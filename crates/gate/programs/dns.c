/* dns: a server of DNS that answers, and asks nobody.
 *
 * Queries to port 53 with one question go by the first limit; questions for everything there
 * is (ANY), zone transfers, TCP connections being opened and the ICMP that a server has to
 * hear face the second one too. What is no query is dropped: answers, which are reflected;
 * names that are none; fragments, of which queries have no need.
 */
#include "limit.h"

#define DNS_HEADER 12
#define MOST_LABELS 64
#define TYPE_IXFR 251
#define TYPE_AXFR 252
#define TYPE_ANY 255

SECTION("init") uint64_t on_decision(struct gk_bpf_init_ctx *ctx)
{
	return init_limits(ctx);
}

/* The type that a query asks for, or -1 if it is none. */
INLINE int asked(const uint8_t *dns, const uint8_t *end)
{
	if (dns + DNS_HEADER > end)
		return -1;
	/* A query, of the usual kind, not truncated; one question. */
	if ((dns[2] & 0xfa) != 0 || get16(dns + 4) != 1)
		return -1;
	const uint8_t *at = dns + DNS_HEADER;

#pragma clang loop unroll(disable)
	for (int label = 0; label < MOST_LABELS; label++) {
		if (at + 1 > end)
			return -1;
		uint8_t len = *at;

		/* Longer than a label, or a pointer to one before, of which there is none. */
		if (len > 63)
			return -1;
		at += 1;
		if (len == 0) {
			if (at + 4 > end)
				return -1;
			return get16(at);
		}
		at += len;
	}
	return -1;
}

SECTION("pkt") uint64_t on_packet(struct gk_bpf_pkt_ctx *ctx)
{
	struct limits *limits = pkt_ctx_to_cookie(ctx);
	const struct packet *packet = pkt_ctx_to_pkt(ctx);
	const uint8_t *l4 = packet->l4;
	uint32_t bytes = packet->pkt_len;
	int second = 0;

	if (over_limit1(limits, ctx->now, bytes) || ctx->fragmented)
		return DECLINE;
	if (ctx->l4_proto == PROTOCOL_UDP) {
		if (l4 + 8 > packet->end || get16(l4 + 2) != 53)
			return DECLINE;
		int type = asked(l4 + 8, packet->end);

		if (type < 0)
			return DECLINE;
		second = type == TYPE_ANY || type == TYPE_AXFR || type == TYPE_IXFR;
	} else if (ctx->l4_proto == PROTOCOL_TCP) {
		if (l4 + 20 > packet->end || get16(l4 + 2) != 53)
			return DECLINE;
		if (l4[13] & TCP_SYN) {
			if (l4[13] & TCP_ACK)
				return DECLINE;
			second = 1;
		}
	} else if (may_be_icmp(ctx, packet)) {
		second = 1;
	} else {
		return DECLINE;
	}
	if (second && over_second(&limits->left2, bytes))
		return DECLINE;
	return send_limited(ctx, limits);
}
