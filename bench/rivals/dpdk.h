/*
 * DPDK as a rival: starts its environment without requirements on the machine, and with its
 * memory on huge pages. For `rte_fib.c` and `rte_lpm.c`.
 *
 * DPDK uses huge pages that the system has reserved beforehand, which a test cannot require.
 * Small pages would be a disadvantage against our tables on huge ones, so its memory is
 * replaced by memory with the same advice to the kernel. The answer to `table` contains the
 * bytes on huge pages.
 */

#ifndef RIVAL_DPDK_H
#define RIVAL_DPDK_H

#ifndef RIVAL_H
#include "rival.h"
#endif
#include <libgen.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_memory.h>
#include <rte_version.h>

/*
 * Replaces the memory of DPDK by anonymous memory with the advice to use huge pages.
 *
 * Without reserved pages DPDK uses a shared file in memory, which stays on small pages. No
 * other process shares it, so that a private copy is equivalent; only touched pages are
 * copied.
 */
static int advise(const struct rte_memseg_list *list, void *unused)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = list->len / page, touched = 0;
	unsigned char *resident = malloc(pages);
	char *kept = NULL;

	(void)unused;
	if (resident == NULL || mincore(list->base_va, list->len, resident) < 0)
		goto leave;
	for (size_t i = 0; i < pages; i++)
		touched += resident[i] & 1;
	kept = malloc(touched * page + 1);
	if (kept == NULL)
		goto leave;
	for (size_t i = 0, n = 0; i < pages; i++)
		if (resident[i] & 1)
			memcpy(kept + n++ * page, (char *)list->base_va + i * page, page);
	if (mmap(list->base_va, list->len, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
		SAY("error replacing DPDK's memory: %s", strerror(errno));
		exit(1);
	}
	(void)madvise(list->base_va, list->len, MADV_HUGEPAGE);
	for (size_t i = 0, n = 0; i < pages; i++)
		if (resident[i] & 1)
			memcpy((char *)list->base_va + i * page, kept + n++ * page, page);
leave:
	/* If it fails, the pages stay small, and `huge` reports that. */
	free(resident);
	free(kept);
	return 0;
}

/* Starts DPDK with room for so many bytes; false after a line of why not. */
static bool start_dpdk(size_t room)
{
	char prefix[32], megabytes[32], folder[512];
	/* No devices, no files of its own, no huge pages set aside; wide vectors are
	 * allowed, which they are not by default. */
	char *eal[] = {
		"rival", "--no-huge", "--no-pci", "--no-telemetry", "--file-prefix", prefix,
		"--no-shconf", "--log-level=error", "--force-max-simd-bitwidth=512",
		"-l", "0", "-m", megabytes, NULL,
	};
	pid_t parent = getppid();

	snprintf(prefix, sizeof(prefix), "fingerpost-%d", (int)getpid());
	snprintf(megabytes, sizeof(megabytes), "%zu", room >> 20);
	/* A kill during the start would leave a folder. */
	prctl(PR_SET_PDEATHSIG, 0);
	if (rte_eal_init(sizeof(eal) / sizeof(*eal) - 1, eal) < 0) {
		SAY("error starting DPDK: %s", rte_strerror(rte_errno));
		return false;
	}
	/* The folder that DPDK creates even without files in it. */
	snprintf(folder, sizeof(folder), "%s", rte_eal_get_runtime_dir());
	rmdir(folder);
	rmdir(dirname(folder));
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		exit(1);
	rte_memseg_list_walk(advise, NULL);
	return true;
}

/* Returns the largest next hop of a file. */
static uint32_t most_hop(const struct map *routes)
{
	const struct route4 *list4 = routes->at;
	const struct route6 *list6 = routes->at;
	uint32_t most = 0;

	for (size_t i = 0; i < number(routes); i++) {
		uint32_t hop = family == 4 ? list4[i].hop : list6[i].hop;

		most = hop > most ? hop : most;
	}
	return most;
}

/* The bits of the first stage, and of each that follows. */
#define FIRST 24
#define STRIDE 8

/*
 * Counts the groups of 256 entries that a table takes behind the first stage: one for
 * each prefix of 24 bits, and each of 8 more, that has a longer route in it.
 */
static size_t groups(const struct map *routes)
{
	const struct route4 *list4 = routes->at;
	const struct route6 *list6 = routes->at;
	size_t count = 0, n = number(routes);
	unsigned int bits = family == 4 ? 32 : 128;

	for (unsigned int len = FIRST; len < bits; len += STRIDE) {
		/* Sorted by address, routes of one block follow each other. */
		size_t before = n;

		for (size_t i = 0; i < n; i++) {
			bool same;

			if ((family == 4 ? list4[i].len : list6[i].len) <= len)
				continue;
			if (family == 4)
				same = before < n && list4[before].addr >> (32 - len) ==
							     list4[i].addr >> (32 - len);
			else
				same = before < n &&
				       memcmp(list6[before].addr, list6[i].addr, len / 8) == 0;
			count += !same;
			before = i;
		}
	}
	return count;
}

/* Returns how many groups to set aside: room for what updates may bring. For IPv6 DPDK
 * sets more aside than it comes to use: about one a route, on the tables at hand. */
static size_t spare_groups(const struct map *routes, size_t needed)
{
	size_t most = family == 6 && needed < 2 * number(routes) ? 2 * number(routes) : needed;

	return most + needed / 4 + 256;
}

/* Returns the room that DPDK takes for a table of so many bytes: its own routing table
 * takes some hundred bytes a route. */
static size_t room_for(const struct map *routes, size_t table)
{
	return table + number(routes) * 800 + (96 << 20);
}

#endif
