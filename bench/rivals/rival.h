/*
 * The shared code of the rivals in C: the protocol, the files, the threads, the clock.
 *
 *   fingerpost (bench/src/rival/)              a rival
 *     draws keys, compares answers, keeps turns  ── a line ──►   one command
 *     keys, routes, answers: files that both map          ◄── `ok …` or `error …` ──
 *
 * `README.md` defines the commands and the files. A rival includes this file and defines the
 * `rival_…` functions declared below; `main` is here.
 *
 * Time is the CPU time of the calling thread (CLOCK_THREAD_CPUTIME_ID), as for our engines;
 * every pass runs in threads of its own, each bound to one CPU and to its own section of
 * the keys. Answers of a timed pass go into one buffer as long as a burst, as in an
 * application; this is the cheapest place. The latency of single lookups is measured by the
 * monotonic clock, since a call of the other clock takes longer than a lookup.
 */

#ifndef RIVAL_H
#define RIVAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
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

/* The most keys per call. */
#define BURST_MAX 1024
/* The most threads. */
#define THREADS_MAX 64
/* The hop of no route; in a list of changes, a withdrawal. */
#define NONE 0
/* The bytes of an IPv6 address. */
#define ADDR6 16

/* A route or a change, in the format of the files. */
struct route4 {
	uint32_t addr; /* host order */
	uint32_t len;
	uint32_t hop;
};

struct route6 {
	uint8_t addr[ADDR6]; /* network order */
	uint32_t len;
	uint32_t hop;
};

/* A mapped file. */
struct map {
	void *at;
	size_t bytes;
	/* The size of the mapping, which may be larger. */
	size_t room;
};

/* One thread's part of a pass. */
struct part {
	size_t first, last;
	unsigned int cpu, burst;
	/* One key at a time, dependent on the last answer. */
	bool chained;
	/* The buffer of all answers, or NULL. */
	uint32_t *out;
	pthread_barrier_t *ready;
	double seconds;
};

/* The family of the table: 4 or 6, or 0 before there is one. */
static unsigned int family;
/* The keys of the next passes. */
static struct map keys;
/* Zero, which the compiler cannot know: masks each answer before it is mixed into the next key. */
static volatile uint32_t zero_mask;

/* Returns the name and version. */
static const char *rival_version(void);
/* Creates an empty table for these routes and some more; on failure prints an error line and
 * returns false. */
static bool rival_make(const struct map *routes);
/* Inserts, changes or (hop NONE) removes a route; returns 0 or a negative errno. */
static int rival_change4(const struct route4 *route);
static int rival_change6(const struct route6 *route);
/* Returns the bytes that lookups may touch. */
static size_t rival_bytes(void);
/* Selects one of several lookup functions; returns a negative errno for an unknown name. */
static int rival_lookup(const char *word);
/* Looks up the keys of a part. */
static void rival_pass(const struct part *part);

/* Makes the compiler assume that the memory at `place` is read: nothing else reads the answers of
 * a timed pass, and the compiler would remove an inlined lookup. */
static inline void used(const void *place)
{
	__asm__ volatile("" : : "r"(place) : "memory");
}

/* Prints one answer line. */
#define SAY(...) (printf(__VA_ARGS__), putchar('\n'), fflush(stdout))

static double now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Maps a file; on failure prints an error line and returns false. */
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
	to->bytes = to->room = (size_t)about.st_size;
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

/*
 * Moves a mapping to memory on huge pages. The hardware prefetcher stops at the end of a
 * page: keys on small pages are late every 4 KiB, which is no property of the table. Without
 * memory for the copy, the keys stay in the file's mapping.
 */
static void settle(struct map *which)
{
	const size_t page = 2 << 20;
	size_t room = (which->bytes + page - 1) / page * page;
	char *raw = mmap(NULL, room + page, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t before;

	if (raw == MAP_FAILED)
		return;
	before = (page - (uintptr_t)raw % page) % page;
	if (before > 0)
		munmap(raw, before);
	munmap(raw + before + room, page - before);
	madvise(raw + before, room, MADV_HUGEPAGE);
	memcpy(raw + before, which->at, which->bytes);
	munmap(which->at, which->room);
	which->at = raw + before;
	which->room = room;
}

static void unmap(struct map *which)
{
	if (which->at != NULL)
		munmap(which->at, which->room);
	which->at = NULL;
}

/* Returns how many routes or changes a file has. */
static size_t number(const struct map *routes)
{
	return routes->bytes / (family == 4 ? sizeof(struct route4) : sizeof(struct route6));
}

/* Makes all changes of a mapped file; returns 0, or the error with the change's number. */
static int change(const struct map *changes, size_t *count)
{
	const struct route4 *list4 = changes->at;
	const struct route6 *list6 = changes->at;
	size_t n = number(changes);
	int error = 0;

	for (*count = 0; *count < n && error == 0; *count += 1)
		error = family == 4 ? rival_change4(&list4[*count]) : rival_change6(&list6[*count]);
	return error;
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

/* table 4|6 FILE: fills a table. */
static void table(const char *words)
{
	unsigned int wanted;
	char path[256];
	struct map routes;
	size_t count;
	double start;
	int error;

	if (family != 0) {
		SAY("error there is a table already");
		return;
	}
	if (sscanf(words, "%u %255s", &wanted, path) != 2 || (wanted != 4 && wanted != 6)) {
		SAY("error table: 4 or 6, and a file");
		return;
	}
	if (!map(path, false, &routes))
		return;
	family = wanted;
	if (!rival_make(&routes)) {
		/* The table may be incomplete: nothing can follow. */
		exit(1);
	}
	start = now(CLOCK_THREAD_CPUTIME_ID);
	error = change(&routes, &count);
	if (error == 0) {
		double seconds = now(CLOCK_THREAD_CPUTIME_ID) - start;

		SAY("ok %zu %.6f %zu %zu", count, seconds, rival_bytes(), huge());
	} else if (error == -ENOSPC) {
		SAY("full at route %zu", count);
	} else {
		SAY("error at route %zu: %s", count, strerror(-error));
	}
	unmap(&routes);
}

static void *work(void *words)
{
	struct part *part = words;
	cpu_set_t cpus;
	double start;

	CPU_ZERO(&cpus);
	CPU_SET(part->cpu, &cpus);
	/* If the machine forbids it, the pass runs unpinned, as for our engines. */
	(void)pthread_setaffinity_np(pthread_self(), sizeof(cpus), &cpus);
	pthread_barrier_wait(part->ready);
	start = now(CLOCK_THREAD_CPUTIME_ID);
	rival_pass(part);
	part->seconds = now(CLOCK_THREAD_CPUTIME_ID) - start;
	return NULL;
}

/* Returns the number of keys, or 0 with an error line without a table or keys. */
static size_t prepared(const char *what)
{
	if (family == 0 || keys.at == NULL) {
		SAY("error %s: a table and keys come first", what);
		return 0;
	}
	return keys.bytes / (family == 4 ? sizeof(uint32_t) : ADDR6);
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
	count = prepared("pass");
	if (count == 0 || (path[0] != '\0' && !map(path, true, &out)))
		return;
	if (out.at != NULL && out.bytes < count * sizeof(uint32_t)) {
		SAY("error pass: no room for the answers");
		unmap(&out);
		return;
	}
	section = (count + number - 1) / number;
	pthread_barrier_init(&ready, NULL, number);
	for (unsigned int i = 0; i < number; i++) {
		size_t first = i * section, last = first + section;

		parts[i] = (struct part){
			.first = first < count ? first : count,
			.last = last < count ? last : count,
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

static int by_value(const void *one, const void *two)
{
	double a = *(const double *)one, b = *(const double *)two;

	return (a > b) - (a < b);
}

/* latency CHAIN: how long a lookup takes that waits for the one before it, on average
 * over each chain of so many; sorted, the chains at four places of every thousand. */
static void latency(const char *words)
{
	static const unsigned int places[] = { 500, 900, 990, 999 };
	size_t chain = strtoul(words, NULL, 10), count = prepared("latency"), chains;
	struct part part = { .burst = 1, .chained = true };
	double *times;
	cpu_set_t cpus;

	if (count == 0)
		return;
	chains = chain == 0 ? 0 : count / chain;
	times = chains == 0 ? NULL : malloc(chains * sizeof(*times));
	if (times == NULL) {
		SAY("error latency: a number of lookups, at most as many as keys");
		return;
	}
	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	(void)sched_setaffinity(0, sizeof(cpus), &cpus);
	for (size_t i = 0; i < chains; i++) {
		double start = now(CLOCK_MONOTONIC);

		part.first = i * chain;
		part.last = part.first + chain;
		rival_pass(&part);
		times[i] = (now(CLOCK_MONOTONIC) - start) / (double)chain * 1e9;
	}
	qsort(times, chains, sizeof(*times), by_value);
	printf("ok %zu", chains);
	for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
		printf(" %.3f", times[(chains - 1) * places[i] / 1000]);
	SAY("%s", "");
	free(times);
}

/* change FILE: makes all changes of a file. */
static void changes(const char *path)
{
	struct map list;
	size_t count;
	double start;
	int error;

	if (family == 0) {
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
		SAY("error at change %zu: %s", count, strerror(-error));
	unmap(&list);
}

int main(void)
{
	char line[512];
	pid_t parent = getppid();

	/* Nothing is left when we are killed, and whoever started us may be killed in the
	 * middle of a pass, or may have been meanwhile. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		return 1;
	SAY("ok %s", rival_version());
	while (fgets(line, sizeof(line), stdin) != NULL) {
		char *words = strchr(line, ' ');
		int error;

		line[strcspn(line, "\n")] = '\0';
		if (words != NULL)
			*words++ = '\0';
		else
			words = line + strlen(line);
		if (strcmp(line, "table") == 0) {
			table(words);
		} else if (strcmp(line, "lookup") == 0) {
			error = family == 0 ? -ENOENT : rival_lookup(words);
			if (error == 0)
				SAY("ok %s", words);
			else
				SAY("error no such lookup here: %s", strerror(-error));
		} else if (strcmp(line, "keys") == 0) {
			unmap(&keys);
			if (map(words, false, &keys)) {
				settle(&keys);
				SAY("ok %zu", keys.bytes);
			}
		} else if (strcmp(line, "pass") == 0) {
			pass(words);
		} else if (strcmp(line, "latency") == 0) {
			latency(words);
		} else if (strcmp(line, "change") == 0) {
			changes(words);
		} else {
			SAY("error no such command: %s", line);
		}
	}
	return 0;
}

#endif
