/*
 * A rival: the longest-prefix match of DPDK, `rte_fib` for IPv4 (DIR-24-8) and
 * `rte_fib6` for IPv6 (a trie of 24, then 8 bits).
 *
 * It is written from DPDK's headers, and calls only their functions: the table is filled
 * route by route, and the time of a pass is that of `rte_fib_lookup_bulk`. Next hops take 2
 * bytes if they fit, of which one bit marks a further stage, else 4.
 */

#ifndef RIVAL_DPDK_H
#include "dpdk.h"
#endif
#include <rte_fib.h>
#include <rte_fib6.h>

/* The largest next hop of 2 bytes. */
#define NARROW ((1 << 15) - 1)

static struct rte_fib *fib4;
static struct rte_fib6 *fib6;
static size_t bytes;

static const char *rival_version(void)
{
	return rte_version();
}

static bool rival_make(const struct map *routes)
{
	size_t needed = groups(routes), spare = spare_groups(routes, needed);
	bool wide = most_hop(routes) > NARROW || spare > NARROW;
	size_t width = wide ? 4 : 2;
	size_t count = number(routes);
	/* Room for routes that updates add. */
	int most = (int)(count + count / 8 + 1024);

	bytes = (width << FIRST) + (needed << STRIDE) * width;
	if (!start_dpdk(room_for(routes, (width << FIRST) + (spare << STRIDE) * width)))
		return false;
	if (family == 4) {
		struct rte_fib_conf conf = {
			.type = RTE_FIB_DIR24_8,
			.default_nh = NONE,
			.max_routes = most,
			.dir24_8 = {
				.nh_sz = wide ? RTE_FIB_DIR24_8_4B : RTE_FIB_DIR24_8_2B,
				.num_tbl8 = (uint32_t)spare,
			},
		};
		fib4 = rte_fib_create("rival", SOCKET_ID_ANY, &conf);
	} else {
		struct rte_fib6_conf conf = {
			.type = RTE_FIB6_TRIE,
			.default_nh = NONE,
			.max_routes = most,
			.trie = {
				.nh_sz = wide ? RTE_FIB6_TRIE_4B : RTE_FIB6_TRIE_2B,
				.num_tbl8 = (uint32_t)spare,
			},
		};
		fib6 = rte_fib6_create("rival", SOCKET_ID_ANY, &conf);
	}
	if (fib4 == NULL && fib6 == NULL)
		SAY("error making the table: %s", rte_strerror(rte_errno));
	return fib4 != NULL || fib6 != NULL;
}

static size_t rival_bytes(void)
{
	return bytes;
}

static int rival_change4(const struct route4 *route)
{
	if (route->hop == NONE)
		return rte_fib_delete(fib4, route->addr, (uint8_t)route->len);
	return rte_fib_add(fib4, route->addr, (uint8_t)route->len, route->hop);
}

static int rival_change6(const struct route6 *route)
{
	if (route->hop == NONE)
		return rte_fib6_delete(fib6, route->addr, (uint8_t)route->len);
	return rte_fib6_add(fib6, route->addr, (uint8_t)route->len, route->hop);
}

static int rival_lookup(const char *word)
{
	bool vector = strcmp(word, "vector") == 0;

	if (!vector && strcmp(word, "scalar") != 0)
		return -EINVAL;
	if (family == 4)
		return rte_fib_select_lookup(fib4, vector ? RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512
							  : RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO);
	return rte_fib6_select_lookup(fib6, vector ? RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512
						   : RTE_FIB6_LOOKUP_TRIE_SCALAR);
}

static void pass4(const struct part *part)
{
	uint32_t *ips = keys.at;
	uint64_t hops[BURST_MAX];

	for (size_t i = part->first; i < part->last; i += part->burst) {
		size_t n = RTE_MIN(part->burst, part->last - i);

		rte_fib_lookup_bulk(fib4, ips + i, hops, (int)n);
		if (part->out != NULL)
			for (size_t j = 0; j < n; j++)
				part->out[i + j] = (uint32_t)hops[j];
	}
}

static void chain4(const struct part *part)
{
	const uint32_t *ips = keys.at;
	const uint32_t zero = zero_mask;
	uint64_t hop = NONE;

	for (size_t i = part->first; i < part->last; i++) {
		uint32_t ip = ips[i] ^ ((uint32_t)hop & zero);

		rte_fib_lookup_bulk(fib4, &ip, &hop, 1);
		if (part->out != NULL)
			part->out[i] = (uint32_t)hop;
	}
}

static void pass6(const struct part *part)
{
	uint8_t (*ips)[ADDR6] = keys.at;
	uint64_t hops[BURST_MAX];

	for (size_t i = part->first; i < part->last; i += part->burst) {
		size_t n = RTE_MIN(part->burst, part->last - i);

		rte_fib6_lookup_bulk(fib6, ips + i, hops, (int)n);
		if (part->out != NULL)
			for (size_t j = 0; j < n; j++)
				part->out[i + j] = (uint32_t)hops[j];
	}
}

static void chain6(const struct part *part)
{
	uint8_t (*ips)[ADDR6] = keys.at;
	const uint32_t zero = zero_mask;
	uint64_t hop = NONE;

	for (size_t i = part->first; i < part->last; i++) {
		uint64_t ip[1][ADDR6 / 8];

		memcpy(ip, ips[i], sizeof(ip));
		ip[0][0] ^= hop & zero;
		rte_fib6_lookup_bulk(fib6, (uint8_t (*)[ADDR6])ip, &hop, 1);
		if (part->out != NULL)
			part->out[i] = (uint32_t)hop;
	}
}

static void rival_pass(const struct part *part)
{
	if (family == 4)
		(part->chained ? chain4 : pass4)(part);
	else
		(part->chained ? chain6 : pass6)(part);
}
