/* declined: drops every packet, as the state of that name does. */
#include "flow.h"

SECTION("init") uint64_t on_decision(struct gk_bpf_init_ctx *ctx)
{
	(void)ctx;
	return INIT_OK;
}

SECTION("pkt") uint64_t on_packet(struct gk_bpf_pkt_ctx *ctx)
{
	(void)ctx;
	return DECLINE;
}
