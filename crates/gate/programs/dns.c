/* dns: an authoritative DNS server, which sends no queries.
 *
 * The first limit applies to queries to port 53 with one question. The second applies in
 * addition to queries of type ANY, zone transfers, new TCP connections and the ICMP messages
 * that a server needs. All else is dropped: answers, which are reflected; malformed names;
 * and fragments, which queries do not need.
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

/* Returns the type of a query, or -1 if the message is no valid query. */
INLINE int query_type(const uint8_t *dns, const uint8_t *end)
{
	if (dns + DNS_HEADER > end)
		return -1;
	/* A standard query, not truncated, with one question. */
	if ((dns[2] & 0xfa) != 0 || get16(dns + 4) != 1)
		return -1;
	const uint8_t *at = dns + DNS_HEADER;

#pragma clang loop unroll(disable)
	for (int label = 0; label < MOST_LABELS; label++) {
		if (at + 1 > end)
			return -1;
		uint8_t len = *at;

		/* Too long, or a compression pointer, which a first name cannot have. */
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
		int type = query_type(l4 + 8, packet->end);

		if (type < 0)
			return DECLINE;
		second = type == TYPE_ANY || type == TYPE_AXFR || type == TYPE_IXFR;
	} else if (ctx->l4_proto == PROTOCOL_TCP) {
		if (l4 + 20 > packet->end || get16(l4 + 2) != 53)
			return DECLINE;
		second = opens_connection(l4);
		if (second < 0)
			return DECLINE;
	} else if (may_be_icmp(ctx, packet)) {
		second = 1;
	} else {
		return DECLINE;
	}
	return send_within(ctx, limits, second, bytes);
}
