/*
 * The rival of `bench engines`: the longest-prefix match of DPDK, `rte_fib` for IPv4
 * (DIR-24-8) and `rte_fib6` for IPv6 (a trie of 24, then 8 bits), asked by lines.
 *
 *   fingerpost (crates/cli/src/bench/rival.rs)            this program
 *     pins, draws keys, compares answers  ── a line ──►   one command
 *     keys, routes, answers: files that both map          ◄── `ok …` or `error …` ──
 *
 * It is written from DPDK's headers, and calls nothing but their functions: the
 * table is filled route by route and the time of a pass is that of
 * `rte_fib_lookup_bulk`. `bench/rivals/README.md` has the commands and the files.
 *
 * Time is the calling thread's on a CPU (CLOCK_THREAD_CPUTIME_ID), as on the other
 * side; every pass runs in threads of its own, each bound to one CPU and to its own
 * section of the keys. Answers of a timed pass go into one buffer as long as a burst,
 * which is what an application does with them and the cheapest there is.
 *
 * DPDK would take huge pages that are set aside beforehand; a test may not ask that
 * of a machine. So that it does not pay for small ones where the other side's tables
 * are on huge ones, its memory is replaced by some that the kernel is advised about in
 * the same way. How much came to lie on huge pages is part of the answer to `table`.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_fib.h>
#include <rte_fib6.h>
#include <rte_memory.h>
#include <rte_version.h>

/* Keys to a call at the most. */
#define BURST_MAX 1024
/* Threads at the most. */
#define THREADS_MAX 64
/* The hop that is none: no route, and in a list of changes a withdrawal. */
#define NONE 0

/* A route or a change, as it lies in a file. */
struct route4 {
	uint32_t addr; /* host order */
	uint32_t len;
	uint32_t hop;
};

struct route6 {
	uint8_t addr[RTE_FIB6_IPV6_ADDR_SIZE]; /* network order */
	uint32_t len;
	uint32_t hop;
};

/* A mapped file. */
struct map {
	void *at;
	size_t bytes;
};

static struct rte_fib *fib4;
static struct rte_fib6 *fib6;
static struct map keys;
/* Some bits of every answer are part of the next key: none, but known to nobody. */
static volatile uint32_t none_of_it;

/* Prints one answer line. */
#define SAY(...) (printf(__VA_ARGS__), putchar('\n'), fflush(stdout))

static double now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Maps a file; tells what is wrong in a line and returns false. */
static bool map(const char *path, bool writable, struct map *to)
{
	int file = open(path, writable ? O_RDWR : O_RDONLY);
	struct stat about;

	if (file < 0 || fstat(file, &about) < 0) {
		SAY("error %s: %s", path, strerror(errno));
		if (file >= 0)
			close(file);
		return false;
	}
	to->bytes = (size_t)about.st_size;
	to->at = mmap(NULL, to->bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ,
		MAP_SHARED | MAP_POPULATE, file, 0);
	close(file);
	if (to->at == MAP_FAILED) {
		to->at = NULL;
		SAY("error mapping %s: %s", path, strerror(errno));
		return false;
	}
	return true;
}

static void unmap(struct map *which)
{
	if (which->at != NULL)
		munmap(which->at, which->bytes);
	which->at = NULL;
}

/* Adds, changes or (hop NONE) removes one route. */
static int change4(const struct route4 *route)
{
	if (route->hop == NONE)
		return rte_fib_delete(fib4, route->addr, (uint8_t)route->len);
	return rte_fib_add(fib4, route->addr, (uint8_t)route->len, route->hop);
}

static int change6(const struct route6 *route)
{
	if (route->hop == NONE)
		return rte_fib6_delete(fib6, route->addr, (uint8_t)route->len);
	return rte_fib6_add(fib6, route->addr, (uint8_t)route->len, route->hop);
}

/* Makes all changes of a mapped file; returns 0, or the error with the change's number. */
static int change(const struct map *changes, size_t *count)
{
	int error = 0;

	*count = 0;
	if (fib4 != NULL) {
		const struct route4 *list = changes->at;
		size_t n = changes->bytes / sizeof(*list);

		for (; *count < n && error == 0; *count += 1)
			error = change4(&list[*count]);
	} else {
		const struct route6 *list = changes->at;
		size_t n = changes->bytes / sizeof(*list);

		for (; *count < n && error == 0; *count += 1)
			error = change6(&list[*count]);
	}
	return error;
}

/*
 * Puts anonymous memory in the place of DPDK's, with the kernel advised of huge pages.
 *
 * Without pages set aside DPDK takes a shared file in memory, which is on small pages
 * for good. Nobody shares it with us, so a private copy does as well; only what has
 * been touched is copied.
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
	/* Where it cannot be done the pages stay small: `huge` tells. */
	free(resident);
	free(kept);
	return 0;
}

/* Counts the bytes of this process that lie on huge pages. */
static size_t huge(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	size_t sum = 0, kilobytes;

	while (file != NULL && fgets(line, sizeof(line), file) != NULL)
		if (sscanf(line, "AnonHugePages: %zu", &kilobytes) == 1 ||
		    sscanf(line, "ShmemPmdMapped: %zu", &kilobytes) == 1)
			sum += kilobytes * 1024;
	if (file != NULL)
		fclose(file);
	return sum;
}

/* table 4|6 FILE HOP_BYTES GROUPS: fills a table. */
static void table(const char *words)
{
	unsigned int family, width, groups;
	char path[256];
	struct map routes;
	size_t count, room;
	double start;
	int error;

	if (fib4 != NULL || fib6 != NULL) {
		SAY("error there is a table already");
		return;
	}
	if (sscanf(words, "%u %255s %u %u", &family, path, &width, &groups) != 4 ||
	    (family != 4 && family != 6) || (width != 2 && width != 4)) {
		SAY("error table: 4 or 6, a file, 2 or 4 bytes a next hop, and a number of groups");
		return;
	}
	if (!map(path, false, &routes))
		return;
	count = routes.bytes / (family == 4 ? sizeof(struct route4) : sizeof(struct route6));
	/* Updates may bring routes that were not there. */
	room = count + count / 8 + 1024;
	if (family == 4) {
		struct rte_fib_conf conf = {
			.type = RTE_FIB_DIR24_8,
			.default_nh = NONE,
			.max_routes = (int)room,
			.dir24_8 = {
				.nh_sz = width == 2 ? RTE_FIB_DIR24_8_2B : RTE_FIB_DIR24_8_4B,
				.num_tbl8 = groups,
			},
		};
		fib4 = rte_fib_create("rival", SOCKET_ID_ANY, &conf);
	} else {
		struct rte_fib6_conf conf = {
			.type = RTE_FIB6_TRIE,
			.default_nh = NONE,
			.max_routes = (int)room,
			.trie = {
				.nh_sz = width == 2 ? RTE_FIB6_TRIE_2B : RTE_FIB6_TRIE_4B,
				.num_tbl8 = groups,
			},
		};
		fib6 = rte_fib6_create("rival", SOCKET_ID_ANY, &conf);
	}
	if (fib4 == NULL && fib6 == NULL) {
		SAY("error making the table: %s", rte_strerror(rte_errno));
		unmap(&routes);
		return;
	}
	start = now(CLOCK_THREAD_CPUTIME_ID);
	error = change(&routes, &count);
	if (error != 0) {
		rte_fib_free(fib4);
		rte_fib6_free(fib6);
		fib4 = NULL;
		fib6 = NULL;
		if (error == -ENOSPC)
			SAY("full at route %zu", count);
		else
			SAY("error at route %zu: %s", count, rte_strerror(-error));
	} else {
		double seconds = now(CLOCK_THREAD_CPUTIME_ID) - start;

		SAY("ok %zu %.6f %zu", count, seconds, huge());
	}
	unmap(&routes);
}

/* lookup vector|scalar: chooses the function. */
static void lookup(const char *word)
{
	bool vector = strcmp(word, "vector") == 0;
	int error;

	if (!vector && strcmp(word, "scalar") != 0) {
		SAY("error lookup: vector or scalar");
		return;
	}
	if (fib4 != NULL)
		error = rte_fib_select_lookup(fib4, vector ? RTE_FIB_LOOKUP_DIR24_8_VECTOR_AVX512
							   : RTE_FIB_LOOKUP_DIR24_8_SCALAR_MACRO);
	else if (fib6 != NULL)
		error = rte_fib6_select_lookup(fib6, vector ? RTE_FIB6_LOOKUP_TRIE_VECTOR_AVX512
							    : RTE_FIB6_LOOKUP_TRIE_SCALAR);
	else
		error = -ENOENT;
	if (error == 0)
		SAY("ok %s", word);
	else
		SAY("error no such lookup here: %s", rte_strerror(-error));
}

/* One thread's part of a pass. */
struct part {
	size_t first, last;
	unsigned int cpu, burst;
	/* One at a time, the next key waiting for the last answer. */
	bool chained;
	/* Where all answers go, or NULL. */
	uint32_t *out;
	pthread_barrier_t *ready;
	double seconds;
};

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
	const uint32_t none = none_of_it;
	uint64_t hop = NONE;

	for (size_t i = part->first; i < part->last; i++) {
		uint32_t ip = ips[i] ^ ((uint32_t)hop & none);

		rte_fib_lookup_bulk(fib4, &ip, &hop, 1);
		if (part->out != NULL)
			part->out[i] = (uint32_t)hop;
	}
}

static void pass6(const struct part *part)
{
	uint8_t (*ips)[RTE_FIB6_IPV6_ADDR_SIZE] = keys.at;
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
	uint8_t (*ips)[RTE_FIB6_IPV6_ADDR_SIZE] = keys.at;
	const uint32_t none = none_of_it;
	uint64_t hop = NONE;

	for (size_t i = part->first; i < part->last; i++) {
		uint64_t ip[1][RTE_FIB6_IPV6_ADDR_SIZE / 8];

		memcpy(ip, ips[i], sizeof(ip));
		ip[0][0] ^= hop & none;
		rte_fib6_lookup_bulk(fib6, (uint8_t (*)[RTE_FIB6_IPV6_ADDR_SIZE])ip, &hop, 1);
		if (part->out != NULL)
			part->out[i] = (uint32_t)hop;
	}
}

static void *work(void *words)
{
	struct part *part = words;
	cpu_set_t cpus;
	double start;

	CPU_ZERO(&cpus);
	CPU_SET(part->cpu, &cpus);
	/* A machine that forbids it is measured unpinned, as by the other side. */
	(void)pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	pthread_barrier_wait(part->ready);
	start = now(CLOCK_THREAD_CPUTIME_ID);
	if (fib4 != NULL)
		(part->chained ? chain4 : pass4)(part);
	else
		(part->chained ? chain6 : pass6)(part);
	part->seconds = now(CLOCK_THREAD_CPUTIME_ID) - start;
	return NULL;
}

/* pass burst|chain BURST THREADS [FILE]: looks all keys up. */
static void pass(const char *words)
{
	struct part parts[THREADS_MAX];
	pthread_t threads[THREADS_MAX];
	pthread_barrier_t ready;
	struct map out = { .at = NULL };
	unsigned int burst, number;
	char how[16], path[256] = "";
	size_t count, section;

	if (sscanf(words, "%15s %u %u %255s", how, &burst, &number, path) < 3 ||
	    burst == 0 || burst > BURST_MAX || number == 0 || number > THREADS_MAX) {
		SAY("error pass: burst or chain, 1 to %d keys a call, 1 to %d threads",
			BURST_MAX, THREADS_MAX);
		return;
	}
	if ((fib4 == NULL && fib6 == NULL) || keys.at == NULL) {
		SAY("error pass: a table and keys come first");
		return;
	}
	count = keys.bytes / (fib4 != NULL ? sizeof(uint32_t) : RTE_FIB6_IPV6_ADDR_SIZE);
	if (path[0] != '\0' && !map(path, true, &out))
		return;
	if (out.at != NULL && out.bytes < count * sizeof(uint32_t)) {
		SAY("error pass: no room for the answers");
		unmap(&out);
		return;
	}
	section = (count + number - 1) / number;
	pthread_barrier_init(&ready, NULL, number);
	for (unsigned int i = 0; i < number; i++) {
		parts[i] = (struct part){
			.first = RTE_MIN(i * section, count),
			.last = RTE_MIN((i + 1) * section, count),
			.cpu = i,
			.burst = burst,
			.chained = strcmp(how, "chain") == 0,
			.out = out.at,
			.ready = &ready,
		};
		if (pthread_create(&threads[i], NULL, work, &parts[i]) != 0) {
			/* Those that wait at the barrier wait for ever: there is no way on. */
			SAY("error pass: cannot start thread %u", i);
			exit(1);
		}
	}
	printf("ok");
	for (unsigned int i = 0; i < number; i++) {
		pthread_join(threads[i], NULL);
		printf(" %zu:%.9f", parts[i].last - parts[i].first, parts[i].seconds);
	}
	SAY("%s", "");
	pthread_barrier_destroy(&ready);
	unmap(&out);
}

/* change FILE: makes all changes of a file. */
static void changes(const char *path)
{
	struct map list;
	size_t count;
	double start;
	int error;

	if (fib4 == NULL && fib6 == NULL) {
		SAY("error change: a table comes first");
		return;
	}
	if (!map(path, false, &list))
		return;
	start = now(CLOCK_THREAD_CPUTIME_ID);
	error = change(&list, &count);
	if (error == 0)
		SAY("ok %zu %.6f", count, now(CLOCK_THREAD_CPUTIME_ID) - start);
	else
		SAY("error at change %zu: %s", count, rte_strerror(-error));
	unmap(&list);
}

int main(int argc, char **argv)
{
	char line[512], prefix[32];
	/* No devices, no files of its own, no huge pages set aside; wide vectors are
	 * allowed, which they are not by default. */
	char *eal[] = {
		argv[0], "--no-huge", "--no-pci", "--no-telemetry", "--file-prefix", prefix,
		"--no-shconf", "--log-level=error", "--force-max-simd-bitwidth=512",
		"-l", "0", "-m", argc > 1 ? argv[1] : "1024", NULL,
	};
	pid_t parent = getppid();

	snprintf(prefix, sizeof(prefix), "fingerpost-%d", (int)getpid());
	if (rte_eal_init(sizeof(eal) / sizeof(*eal) - 1, eal) < 0) {
		SAY("error starting DPDK: %s", rte_strerror(rte_errno));
		return 1;
	}
	/* The folder it makes for files it was told not to keep. */
	snprintf(line, sizeof(line), "%s", rte_eal_get_runtime_dir());
	rmdir(line);
	rmdir(dirname(line));
	/* From now on nothing is left when we are killed, and whoever started us may be
	 * killed in the middle of a pass, or may have been meanwhile. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		return 1;
	rte_memseg_list_walk(advise, NULL);
	SAY("ok %s", rte_version());
	while (fgets(line, sizeof(line), stdin) != NULL) {
		char *words = strchr(line, ' ');

		line[strcspn(line, "\n")] = '\0';
		if (words != NULL)
			*words++ = '\0';
		else
			words = line + strlen(line);
		if (strcmp(line, "table") == 0) {
			table(words);
		} else if (strcmp(line, "lookup") == 0) {
			lookup(words);
		} else if (strcmp(line, "keys") == 0) {
			unmap(&keys);
			if (map(words, false, &keys))
				SAY("ok %zu", keys.bytes);
		} else if (strcmp(line, "pass") == 0) {
			pass(words);
		} else if (strcmp(line, "change") == 0) {
			changes(words);
		} else {
			SAY("error no such command: %s", line);
		}
	}
	rte_fib_free(fib4);
	rte_fib6_free(fib6);
	rte_eal_cleanup();
	return 0;
}
