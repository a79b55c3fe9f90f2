/* web: a web server, with FTP and SSH.
 *
 * The first limit applies to TCP to ports 21, 22, 80, 443 and 51000 to 51999 (passive FTP).
 * The second applies in addition to new connections, fragments, and the ICMP messages that a
 * server needs. A SYN+ACK to a listening port answers no request: it is reflected, and dropped,
 * as is everything else.
 */
#include "limit.h"

SECTION("init") uint64_t on_decision(struct gk_bpf_init_ctx *ctx)
{
	return init_limits(ctx);
}

INLINE int listens(uint16_t port)
{
	return port == 80 || port == 443 || port == 22 || port == 21 ||
	       (port >= 51000 && port <= 51999);
}

SECTION("pkt") uint64_t on_packet(struct gk_bpf_pkt_ctx *ctx)
{
	struct limits *limits = pkt_ctx_to_cookie(ctx);
	const struct packet *packet = pkt_ctx_to_pkt(ctx);
	const uint8_t *l4 = packet->l4;
	uint32_t bytes = packet->pkt_len;
	int second = ctx->fragmented;

	if (over_limit1(limits, ctx->now, bytes))
		return DECLINE;
	if (ctx->fragmented && l4 >= packet->end) {
		/* A later fragment has no ports: without the first one the server discards it. */
		if (ctx->l4_proto != PROTOCOL_TCP)
			return DECLINE;
	} else if (ctx->l4_proto == PROTOCOL_TCP) {
		if (l4 + 20 > packet->end || !listens(get16(l4 + 2)))
			return DECLINE;
		int opens = opens_connection(l4);

		if (opens < 0)
			return DECLINE;
		second |= opens;
	} else if (may_be_icmp(ctx, packet)) {
		second = 1;
	} else {
		return DECLINE;
	}
	return send_within(ctx, limits, second, bytes);
}
