/*
 * A rival: DPDK's older longest-prefix match, `rte_lpm` for IPv4 (a table of 24 bits and
 * groups of 8 below it, 4 bytes an entry) and `rte_lpm6` for IPv6 (the same, ever deeper).
 *
 * Lookups are `rte_lpm_lookup_bulk`, which DPDK inlines into the caller, or four at a
 * time in a vector (`lookup x4`: `rte_lpm_lookupx4`, as in DPDK's own forwarder), and
 * `rte_lpm6_lookup_bulk_func`. Neither table can hold a route of length 0: it is
 * stored apart, and is the answer if there is no other.
 *
 * `rte_lpm_add` searches all rules of the same length for the new one, so that a full table
 * takes minutes to fill.
 */

#ifndef RIVAL_DPDK_H
#include "dpdk.h"
#endif
#include <rte_lpm.h>
#include <rte_lpm6.h>

/* The largest next hops. */
#define HOP4 0x00ffffff
#define HOP6 ((1 << 21) - 1)

static struct rte_lpm *lpm4;
static struct rte_lpm6 *lpm6;
static uint32_t fallback = NONE;
static bool by_four;
static size_t bytes;

static const char *rival_version(void)
{
	return rte_version();
}

static bool rival_make(const struct map *routes)
{
	size_t needed = groups(routes), spare = spare_groups(routes, needed);
	size_t count = number(routes), most = count + count / 8 + 1024;
	/* The rules of IPv6 are in a hash table with a large overhead. */
	size_t rules = most * (family == 4 ? sizeof(struct rte_lpm_tbl_entry) * 2 : 256);

	if (most_hop(routes) > (family == 4 ? HOP4 : HOP6)) {
		SAY("error rte_lpm holds next hops to %d only", family == 4 ? HOP4 : HOP6);
		return false;
	}
	bytes = (4 << FIRST) + (needed << STRIDE) * 4;
	if (!start_dpdk(room_for(routes, (4 << FIRST) + (spare << STRIDE) * 4 + rules)))
		return false;
	if (family == 4) {
		struct rte_lpm_config config = {
			.max_rules = (uint32_t)most, .number_tbl8s = (uint32_t)spare,
		};
		lpm4 = rte_lpm_create("rival", SOCKET_ID_ANY, &config);
	} else {
		struct rte_lpm6_config config = {
			.max_rules = (uint32_t)most, .number_tbl8s = (uint32_t)spare,
		};
		lpm6 = rte_lpm6_create("rival", SOCKET_ID_ANY, &config);
	}
	if (lpm4 == NULL && lpm6 == NULL)
		SAY("error making the table: %s", rte_strerror(rte_errno));
	return lpm4 != NULL || lpm6 != NULL;
}

static size_t rival_bytes(void)
{
	return bytes;
}

static int rival_change4(const struct route4 *route)
{
	if (route->len == 0) {
		fallback = route->hop;
		return 0;
	}
	if (route->hop == NONE)
		return rte_lpm_delete(lpm4, route->addr, (uint8_t)route->len);
	return rte_lpm_add(lpm4, route->addr, (uint8_t)route->len, route->hop);
}

static int rival_change6(const struct route6 *route)
{
	if (route->len == 0) {
		fallback = route->hop;
		return 0;
	}
	if (route->hop == NONE)
		return rte_lpm6_delete(lpm6, route->addr, (uint8_t)route->len);
	return rte_lpm6_add(lpm6, route->addr, (uint8_t)route->len, route->hop);
}

static int rival_lookup(const char *word)
{
	by_four = strcmp(word, "x4") == 0;
	if (!by_four && strcmp(word, "bulk") != 0)
		return -EINVAL;
	return by_four && family != 4 ? -ENOTSUP : 0;
}

/* Converts an answer of rte_lpm. */
static uint32_t hop4(uint32_t said)
{
	return said & RTE_LPM_LOOKUP_SUCCESS ? said & HOP4 : fallback;
}

static void pass4(const struct part *part)
{
	const uint32_t *ips = keys.at;
	uint32_t hops[BURST_MAX];

	for (size_t i = part->first; i < part->last; i += part->burst) {
		unsigned int n = (unsigned int)RTE_MIN(part->burst, part->last - i);

		rte_lpm_lookup_bulk(lpm4, ips + i, hops, n);
		used(hops);
		if (part->out != NULL)
			for (size_t j = 0; j < n; j++)
				part->out[i + j] = hop4(hops[j]);
	}
}

static void pass4_by_four(const struct part *part)
{
	const uint32_t *ips = keys.at;
	uint32_t hops[BURST_MAX];

	for (size_t i = part->first; i < part->last; i += part->burst) {
		size_t n = RTE_MIN(part->burst, part->last - i), j = 0;

		for (; j + 4 <= n; j += 4)
			rte_lpm_lookupx4(lpm4, _mm_loadu_si128((const xmm_t *)(ips + i + j)),
					 hops + j, fallback);
		for (; j < n; j++)
			if (rte_lpm_lookup(lpm4, ips[i + j], &hops[j]) != 0)
				hops[j] = fallback;
		used(hops);
		if (part->out != NULL)
			memcpy(part->out + i, hops, n * sizeof(*hops));
	}
}

static void chain4(const struct part *part)
{
	const uint32_t *ips = keys.at;
	const uint32_t zero = zero_mask;
	uint32_t hop = NONE;

	for (size_t i = part->first; i < part->last; i++) {
		if (rte_lpm_lookup(lpm4, ips[i] ^ (hop & zero), &hop) != 0)
			hop = fallback;
		if (part->out != NULL)
			part->out[i] = hop;
	}
	used(&hop);
}

/* Converts an answer of rte_lpm6, which has -1 for none. */
static uint32_t hop6(int32_t said)
{
	return said < 0 ? fallback : (uint32_t)said;
}

static void pass6(const struct part *part)
{
	uint8_t (*ips)[ADDR6] = keys.at;
	int32_t hops[BURST_MAX];

	for (size_t i = part->first; i < part->last; i += part->burst) {
		unsigned int n = (unsigned int)RTE_MIN(part->burst, part->last - i);

		rte_lpm6_lookup_bulk_func(lpm6, ips + i, hops, n);
		if (part->out != NULL)
			for (size_t j = 0; j < n; j++)
				part->out[i + j] = hop6(hops[j]);
	}
}

static void chain6(const struct part *part)
{
	uint8_t (*ips)[ADDR6] = keys.at;
	const uint32_t zero = zero_mask;
	uint32_t hop = NONE;

	for (size_t i = part->first; i < part->last; i++) {
		uint64_t ip[ADDR6 / 8];

		memcpy(ip, ips[i], sizeof(ip));
		ip[0] ^= hop & zero;
		if (rte_lpm6_lookup(lpm6, (const uint8_t *)ip, &hop) != 0)
			hop = fallback;
		if (part->out != NULL)
			part->out[i] = hop;
	}
}

static void rival_pass(const struct part *part)
{
	if (family == 4)
		(part->chained ? chain4 : by_four ? pass4_by_four : pass4)(part);
	else
		(part->chained ? chain6 : pass6)(part);
}
