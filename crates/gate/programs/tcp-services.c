/* tcp-services: a server with a few TCP ports, which is also a client of a few remote ports.
 *
 * A decision names up to 12 ports: first those that the server listens on, then the remote
 * ports that it connects to. The first limit applies to TCP to the former and from the latter.
 * The second, a twentieth of the first, applies in addition to new connections, fragments, and
 * the ICMP messages that a server needs. Two kinds of packets answer no request and are dropped,
 * as is everything else: a SYN+ACK to a listening port, and a SYN from a remote port to a port
 * that does not listen. Packets go directly, without the grantor.
 */
#include "limit.h"

#define MOST_PORTS 12

struct parameters {
	uint32_t rate1_kib, next_renewal_ms;
	uint32_t renewal_step_ms : 24, listening : 4, remote : 4;
	uint16_t ports[MOST_PORTS];
};

struct state {
	uint64_t fill_at;
	int64_t left1, left2;
	uint64_t next_renewal_at;
	uint32_t rate1_kib;
	uint32_t renewal_step_ms : 24, listening : 4, remote : 4;
	uint16_t ports[MOST_PORTS];
};

_Static_assert(sizeof(struct parameters) == 36, "as decisions have it");
_Static_assert(sizeof(struct state) == 64, "the cookie");

SECTION("init") uint64_t on_decision(struct gk_bpf_init_ctx *ctx)
{
	void *cookie = init_ctx_to_cookie(ctx);
	const struct parameters params = *(const struct parameters *)cookie;
	struct state *state = cookie;

	if (params.listening + params.remote > MOST_PORTS)
		return INIT_ERROR;
	state->fill_at = ctx->now + cycles_per_sec;
	state->left1 = (int64_t)params.rate1_kib * 1024;
	state->left2 = state->left1 / 20;
	state->next_renewal_at = ctx->now + cycles_per_ms * params.next_renewal_ms;
	state->rate1_kib = params.rate1_kib;
	state->renewal_step_ms = params.renewal_step_ms;
	state->listening = params.listening;
	state->remote = params.remote;
#pragma unroll
	for (int i = 0; i < MOST_PORTS; i++)
		state->ports[i] = params.ports[i];
	return INIT_OK;
}

/* Returns whether a port is among those of index `from` to `to`. */
INLINE int contains(const uint16_t *ports, int from, int to, uint16_t port)
{
#pragma clang loop unroll(disable)
	for (int i = 0; i < MOST_PORTS; i++)
		if (i >= from && i < to && ports[i] == port)
			return 1;
	return 0;
}

SECTION("pkt") uint64_t on_packet(struct gk_bpf_pkt_ctx *ctx)
{
	struct state *state = pkt_ctx_to_cookie(ctx);
	const struct packet *packet = pkt_ctx_to_pkt(ctx);
	const uint8_t *l4 = packet->l4;
	uint32_t bytes = packet->pkt_len;
	int64_t rate1 = (int64_t)state->rate1_kib * 1024;
	int second = ctx->fragmented;

	if (over_first(&state->fill_at, &state->left1, &state->left2, rate1, rate1 / 20, ctx->now,
		       bytes))
		return DECLINE;
	if (ctx->fragmented && l4 >= packet->end) {
		if (ctx->l4_proto != PROTOCOL_TCP)
			return DECLINE;
	} else if (ctx->l4_proto == PROTOCOL_TCP) {
		if (l4 + 20 > packet->end)
			return DECLINE;
		uint16_t src = get16(l4), dst = get16(l4 + 2);
		int syn = l4[13] & TCP_SYN, ack = l4[13] & TCP_ACK;
		int listening = state->listening, all = listening + state->remote;

		if (contains(state->ports, 0, listening, dst)) {
			if (syn && ack)
				return DECLINE;
			second |= syn != 0;
		} else if ((syn && !ack) || !contains(state->ports, listening, all, src)) {
			return DECLINE;
		}
	} else if (may_be_icmp(ctx, packet)) {
		second = 1;
	} else {
		return DECLINE;
	}
	if (second && over_second(&state->left2, bytes))
		return DECLINE;
	return send(ctx, &state->next_renewal_at, state->renewal_step_ms, 1);
}
