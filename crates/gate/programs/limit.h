/* Two limits: the shared code of programs that have them.
 *
 * The first limit counts all packets of the flow, dropped ones included: a flow that keeps
 * exceeding it goes into debt, and none of its packets pass. The second, lower limit counts
 * packets of which a normal peer sends few. Both are token buckets in KiB a second, filled
 * every second by their rate, up to one second's worth.
 */
#ifndef FINGERPOST_LIMIT_H
#define FINGERPOST_LIMIT_H

#include "flow.h"

/* The parameters in decisions for grantedv2, web and dns: 17 bytes. */
struct __attribute__((packed)) terms {
	uint32_t rate1_kib, rate2_kib;
	uint32_t next_renewal_ms, renewal_step_ms;
	uint8_t direct;
};

struct limits {
	uint64_t fill_at;
	int64_t left1, left2;
	uint64_t next_renewal_at;
	uint32_t rate1_kib, rate2_kib;
	uint32_t renewal_step_ms;
	uint32_t direct;
};

INLINE void begin(struct limits *limits, uint64_t now, const struct terms terms)
{
	limits->fill_at = now + cycles_per_sec;
	limits->left1 = (int64_t)terms.rate1_kib * 1024;
	limits->left2 = (int64_t)terms.rate2_kib * 1024;
	limits->next_renewal_at = now + cycles_per_ms * terms.next_renewal_ms;
	limits->rate1_kib = terms.rate1_kib;
	limits->rate2_kib = terms.rate2_kib;
	limits->renewal_step_ms = terms.renewal_step_ms;
	limits->direct = terms.direct;
}

INLINE uint64_t init_limits(struct gk_bpf_init_ctx *ctx)
{
	void *cookie = init_ctx_to_cookie(ctx);
	const struct terms terms = *(const struct terms *)cookie;
	begin(cookie, ctx->now, terms);
	return INIT_OK;
}

INLINE int64_t filled(int64_t left, uint64_t seconds, int64_t rate)
{
	left += (int64_t)seconds * rate;
	return left > rate ? rate : left;
}

/* Charges the packet to the first limit; returns whether it exceeds the limit. */
INLINE int over_first(uint64_t *fill_at, int64_t *left1, int64_t *left2, int64_t rate1,
		      int64_t rate2, uint64_t now, uint32_t bytes)
{
	if (now >= *fill_at) {
		uint64_t seconds = 1 + (now - *fill_at) / cycles_per_sec;

		*fill_at += seconds * cycles_per_sec;
		/* Longer than any debt lasts, and too short to overflow. */
		if (seconds > 1 << 20)
			seconds = 1 << 20;
		*left1 = filled(*left1, seconds, rate1);
		*left2 = filled(*left2, seconds, rate2);
	}
	*left1 -= bytes;
	return *left1 < 0;
}

/* Charges the packet to the second limit; returns whether it exceeds the limit. */
INLINE int over_second(int64_t *left2, uint32_t bytes)
{
	*left2 -= bytes;
	return *left2 < 0;
}

INLINE int over_limit1(struct limits *limits, uint64_t now, uint32_t bytes)
{
	return over_first(&limits->fill_at, &limits->left1, &limits->left2,
			  (int64_t)limits->rate1_kib * 1024, (int64_t)limits->rate2_kib * 1024,
			  now, bytes);
}

/* Forwards the packet; at intervals as a request for renewal. */
INLINE uint64_t send(struct gk_bpf_pkt_ctx *ctx, uint64_t *next_renewal_at, uint32_t step_ms,
		     uint32_t direct)
{
	if (ctx->now >= *next_renewal_at) {
		*next_renewal_at = ctx->now + cycles_per_ms * step_ms;
		return gk_bpf_prep_for_tx(ctx, RENEW, 0) == 0 ? FORWARD : ERROR;
	}
	return gk_bpf_prep_for_tx(ctx, GRANTED, direct != 0) == 0 ? FORWARD : ERROR;
}

INLINE uint64_t send_limited(struct gk_bpf_pkt_ctx *ctx, struct limits *limits)
{
	return send(ctx, &limits->next_renewal_at, limits->renewal_step_ms, limits->direct);
}

/* Forwards a packet within the first limit. If `second`, it also counts for the second limit. */
INLINE uint64_t send_within(struct gk_bpf_pkt_ctx *ctx, struct limits *limits, int second,
			    uint32_t bytes)
{
	if (second && over_second(&limits->left2, bytes))
		return DECLINE;
	return send_limited(ctx, limits);
}

/* Returns 1 for a TCP segment that opens a connection, 0 for another one, and -1 for a SYN+ACK,
 * which answers no request of the server. The caller has checked that the header is whole.
 */
INLINE int opens_connection(const uint8_t *tcp)
{
	if (!(tcp[13] & TCP_SYN))
		return 0;
	return tcp[13] & TCP_ACK ? -1 : 1;
}

/* Returns whether a packet is an ICMP message that a server needs: errors and echo. */
INLINE int may_be_icmp(const struct gk_bpf_pkt_ctx *ctx, const struct packet *packet)
{
	const uint8_t *icmp = packet->l4;

	if (icmp + 8 > packet->end)
		return 0;
	if (ctx->l3_proto == ETHERTYPE_IPV4 && ctx->l4_proto == PROTOCOL_ICMP)
		/* Echo replies and requests, unreachable, out of hops. */
		return icmp[0] == 0 || icmp[0] == 8 || icmp[0] == 3 || icmp[0] == 11;
	if (ctx->l3_proto == ETHERTYPE_IPV6 && ctx->l4_proto == PROTOCOL_ICMP6)
		/* Unreachable, too big, out of hops, echo requests and replies. */
		return (icmp[0] >= 1 && icmp[0] <= 3) || icmp[0] == 128 || icmp[0] == 129;
	return 0;
}

#endif
