/*
 * libfingerpost: longest-prefix-match tables small enough for a CPU's cache.
 *
 *   insert, withdraw -> fp_table -> fp_table_commit -> readers, one a thread -> lookups
 *
 * Units and byte order. Lengths are in bits, sizes in bytes. An address is a host-order uint32_t or its bytes in
 * network order, as each function states; fp_prefix has bytes in network order.
 *
 * Labels. A route has a label: a number from 1 on, or a pointer (fp_table_new). Every lookup returns a number;
 * FP_NO_ROUTE (0) is the answer where no route matches. Small and dense numbers make small tables. The number of a
 * pointer is the library's own; fp_table_pointer and fp_reader_pointer return the pointer.
 *
 * Threads. A function that takes `fp_table *` or `fp_reader *` needs that object for itself; functions that take it
 * as `const` may run at the same time as one another. Different objects are independent: readers look up while
 * another thread changes and commits the table. A thread that sleeps for long calls fp_reader_idle before.
 *
 * Ownership. Each `fp_*_free` takes NULL. A reader may outlive its table. The library keeps no argument after a
 * call, but for the pointers of labels.
 *
 * Errors. A call that fails has changed nothing, unless it states otherwise, and fp_error_message returns the
 * reason. No function unwinds into C; the library aborts only if memory is exhausted.
 */


#ifndef FINGERPOST_H
#define FINGERPOST_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>

// The label of an address that no route matches.
#define FP_NO_ROUTE 0

// The counts of lookups by their loads.
#define FP_LOADS 32

// The most arrays of an engine.
#define FP_PARTS 8

// The result of a call.
typedef enum fp_status {
  // Done.
  FP_STATUS_OK = 0,
  // There is no such route.
  FP_STATUS_NOT_FOUND = 1,
  // Readers still use the two tables that exist: commit again later. The changes are kept.
  FP_STATUS_BUSY = 2,
  // An argument is null, out of range, or does not suit the table.
  FP_STATUS_ARGUMENT = -1,
  // A prefix is malformed: its family, its length, or a bit that is set beyond the length.
  FP_STATUS_PREFIX = -2,
  // The routes exceed a limit of the engine. They are kept; the readers' table is unchanged.
  FP_STATUS_FULL = -3,
  // The system refused to open, read or write a file.
  FP_STATUS_SYSTEM = -4,
  // A file is damaged, or in no known format.
  FP_STATUS_FORMAT = -5,
  // A defect of the library. The object may be freed only.
  FP_STATUS_INTERNAL = -6,
} fp_status;

// The labels of a table's routes.
typedef enum fp_label_kind {
  // Numbers of the caller, from 1 on.
  FP_LABEL_KIND_NUMBER = 0,
  // Pointers of the caller, none of them NULL. Equal pointers have one number.
  FP_LABEL_KIND_POINTER = 1,
} fp_label_kind;

// The texts of a file's labels, such as next hops; the most frequent one has the number 1.
typedef struct fp_labels fp_labels;

// Looks addresses up for one thread.
typedef struct fp_reader fp_reader;

// Routes of IPv4 and IPv6.
typedef struct fp_table fp_table;

// A block of addresses.
typedef struct fp_prefix {
  // The first address, in network order: 4 bytes of IPv4, or 16 of IPv6. No bit beyond the length is set.
  uint8_t address[16];
  // The number of bits that the addresses share: at most 32, or 128.
  uint8_t length;
  // AF_INET or AF_INET6.
  uint8_t family;
} fp_prefix;

// A change of one route.
typedef struct fp_change {
  // The route.
  struct fp_prefix prefix;
  // The label, if the table's labels are numbers; FP_NO_ROUTE withdraws the route.
  uint32_t label;
  // The label, if they are pointers; NULL withdraws the route.
  void *pointer;
} fp_change;

// A function that gets a route and its label; the visit ends when it returns another value than 0. It must
// return, and may call functions that take the table as `const`.
typedef int (*fp_visit)(const struct fp_prefix *prefix, uint32_t label, void *argument);

// An address of IPv6 in host order.
typedef struct fp_address6 {
  // The first 64 bits.
  uint64_t high;
  // The last 64 bits.
  uint64_t low;
} fp_address6;

// An array that lookups read.
typedef struct fp_part {
  // The name in the engine's paper, such as "direct" or "ranges"; "" if there is no further one.
  char name[32];
  // The number of items.
  size_t items;
  // Their bytes.
  size_t bytes;
} fp_part;

// Statistics of the committed table of one family.
typedef struct fp_statistics {
  // The number of routes, with those that are not yet committed.
  size_t routes;
  // The share of the addresses that a route holds, 0 to 1.
  double coverage;
  // The number of commits that gave readers another table.
  uint64_t commits;
  // The bytes that lookups may read.
  size_t bytes;
  // The engine's name.
  char engine[32];
  // The arrays that lookups read.
  struct fp_part parts[FP_PARTS];
  // The routes whose first address is found by so many loads from memory. The last count has those with
  // more, too.
  size_t loads[FP_LOADS];
} fp_statistics;

// The chunks of a DXR table ("D16R", "D12X8R/64": of the upper halves), before and after equal ones are
// stored once. All is 0 with another engine.
typedef struct fp_chunks {
  // The share of the address space that needs no chunk, 0 to 1.
  double direct_coverage;
  // The number of chunks.
  size_t chunks;
  // The ranges of them all.
  size_t ranges;
  // The number of different chunks, which are stored.
  size_t stored_chunks;
  // The ranges of the different chunks.
  size_t stored_ranges;
  // The ranges of the longest chunk.
  size_t longest;
} fp_chunks;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the reason of this thread's last failure (FP_STATUS_BUSY, and each below zero), in English; "" before
// it. The text is valid until this thread's next call of the library.
const char *fp_error_message(void);

// Returns the version of the library, such as "0.1.0".
const char *fp_version(void);

// Reads a prefix: "192.0.2.0/24", "2001:db8::/32", or an address alone, which is one of full length.
// FP_STATUS_PREFIX if the text is none.
//
// `text` ends with a zero.
enum fp_status fp_prefix_parse(const char *text,
                               struct fp_prefix *prefix);

// Writes a prefix as text with a zero at its end; 44 bytes suffice for every prefix. FP_STATUS_ARGUMENT if
// `size` is too small.
//
// `text` has `size` bytes.
enum fp_status fp_prefix_format(const struct fp_prefix *prefix,
                                char *text,
                                size_t size);

// Creates an empty table with labels of a kind (fp_label_kind), whose engines are chosen by size. Free it by
// fp_table_free.
enum fp_status fp_table_new(int kind,
                            struct fp_table **table);

// The same with engines for IPv4 and IPv6 by name ("auto", "D18R", "flat", …; docs/guide/engines.md lists
// them), and with this number of threads for whole builds, 1 to 256.
//
// The texts end with a zero.
enum fp_status fp_table_new_with(int kind,
                                 const char *engine4,
                                 const char *engine6,
                                 size_t threads,
                                 struct fp_table **table);

// Frees a table. Its readers keep the last committed one.
void fp_table_free(struct fp_table *table);

// Adds a route or changes its label, from the next commit on, and stores the former label in `former` unless
// that is NULL: FP_NO_ROUTE for a new route. O(length of the prefix).
enum fp_status fp_table_insert(struct fp_table *table,
                               const struct fp_prefix *prefix,
                               uint32_t label,
                               uint32_t *former);

// The same for a table whose labels are pointers. The pointer may be freed when the route has another label or
// is withdrawn, the table is committed, and fp_table_passed returns true after it.
enum fp_status fp_table_insert_pointer(struct fp_table *table,
                                       const struct fp_prefix *prefix,
                                       void *pointer,
                                       uint32_t *former);

// Removes a route, from the next commit on, and stores its label in `former` unless that is NULL.
// FP_STATUS_NOT_FOUND if there is none. O(length of the prefix).
enum fp_status fp_table_withdraw(struct fp_table *table,
                                 const struct fp_prefix *prefix,
                                 uint32_t *former);

// Makes all these changes, from the next commit on, or none of them if one is wrong. A route that is withdrawn
// need not exist.
//
// `changes` has `count` items.
enum fp_status fp_table_apply(struct fp_table *table,
                              const struct fp_change *changes,
                              size_t count);

// Gives all changes since the last commit to readers, as one: each has them with its next lookup.
// FP_STATUS_FULL if the routes exceed a limit of the engine; FP_STATUS_BUSY if readers still use the two
// tables before. O(routes of the changed blocks), or O(all routes) after many changes.
enum fp_status fp_table_commit(struct fp_table *table);

// Returns whether every reader has left all tables but the last committed one: each has looked up since then,
// or is idle.
bool fp_table_passed(const struct fp_table *table);

// Finds the route of exactly this prefix, committed or not, and stores its label. FP_STATUS_NOT_FOUND if there
// is none.
enum fp_status fp_table_get(const struct fp_table *table,
                            const struct fp_prefix *prefix,
                            uint32_t *label);

// Finds the longest route, committed or not, that holds all addresses of `prefix`, and stores it and its
// label; either place may be NULL. FP_STATUS_NOT_FOUND if there is none.
enum fp_status fp_table_longest(const struct fp_table *table,
                                const struct fp_prefix *prefix,
                                struct fp_prefix *route,
                                uint32_t *label);

// Returns the number of routes of a family (AF_INET, AF_INET6), committed or not; 0 for NULL and other
// families.
size_t fp_table_count(const struct fp_table *table,
                      int family);

// Returns the pointer of a number that a function of this table has returned; NULL for FP_NO_ROUTE, and if the
// labels are numbers.
void *fp_table_pointer(const struct fp_table *table,
                       uint32_t label);

// Calls `visit` with each route of a family (AF_INET, AF_INET6), committed or not, in the order of addresses,
// the shorter prefix first. FP_STATUS_OK also if `visit` has ended it.
//
// `visit` accepts `argument`.
enum fp_status fp_table_visit(const struct fp_table *table,
                              int family,
                              fp_visit visit,
                              void *argument);

// The same for the routes within `within`, itself included.
//
// `visit` accepts `argument`.
enum fp_status fp_table_visit_covered(const struct fp_table *table,
                                      const struct fp_prefix *within,
                                      fp_visit visit,
                                      void *argument);

// The same for the routes that hold all addresses of `prefix`, itself included, the shortest first.
//
// `visit` accepts `argument`.
enum fp_status fp_table_visit_covering(const struct fp_table *table,
                                       const struct fp_prefix *prefix,
                                       fp_visit visit,
                                       void *argument);

// Returns the number of labels, which are 1 to this; 0 for NULL.
size_t fp_labels_count(const struct fp_labels *labels);

// Returns the text of a label, which is valid as long as `labels`; NULL if there is none of this number.
const char *fp_labels_text(const struct fp_labels *labels,
                           uint32_t label);

// Frees the texts.
void fp_labels_free(struct fp_labels *labels);

// Adds the routes of a file, from the next commit on: an MRT dump or stream of updates (RFC 6396), lines of
// "PREFIX LABEL", `bgpdump -m`, `ip -j route`, a Click configuration, or a MaxMind database; gzip, bzip2, or
// neither. The table's labels must be numbers.
// Those of the file are 1 to fp_labels_count, by their number of routes, the most frequent one first; their
// texts are stored in `labels`, unless that is NULL, to be freed by fp_labels_free. With `partial` the routes
// before damage are added, else none of a damaged file.
//
// `path` ends with a zero.
enum fp_status fp_table_load(struct fp_table *table,
                             const char *path,
                             bool partial,
                             struct fp_labels **labels);

// Creates a reader for one thread. It has no table until its first lookup. Free it by fp_reader_free.
enum fp_status fp_reader_new(const struct fp_table *table,
                             struct fp_reader **reader);

// Creates another reader of the same tables, for another thread.
enum fp_status fp_reader_clone(const struct fp_reader *reader, struct fp_reader **other);

// Frees a reader.
void fp_reader_free(struct fp_reader *reader);

// Lets go of the table until the next lookup: for a thread that sleeps, for which commits would else wait.
void fp_reader_idle(struct fp_reader *reader);

// Returns the pointer of a number that this reader's last lookup has returned; NULL for FP_NO_ROUTE, and if
// the labels are numbers.
void *fp_reader_pointer(const struct fp_reader *reader,
                        uint32_t label);

// Returns the label of the longest route that holds an address of IPv4, in host order; FP_NO_ROUTE if there is
// none, or `reader` is NULL.
uint32_t fp_reader_lookup4(struct fp_reader *reader,
                           uint32_t address);

// The same for an address of IPv6: 16 bytes in network order.
uint32_t fp_reader_lookup6(struct fp_reader *reader, const uint8_t (*address)[16]);

// Looks up `count` addresses of IPv4, in host order: `labels[i]` becomes that of `addresses[i]`, FP_NO_ROUTE
// without a route. From some dozen addresses on several times as fast as one by one. All answers are of one
// commit. The arrays must not overlap.
//
// The arrays have `count` items.
enum fp_status fp_reader_lookup_many4(struct fp_reader *reader,
                                      const uint32_t *addresses,
                                      uint32_t *labels,
                                      size_t count);

// The same for addresses in network order, such as those of `struct in_addr`.
//
// The arrays have `count` items.
enum fp_status fp_reader_lookup_many4_network(struct fp_reader *reader,
                                              const uint32_t *addresses,
                                              uint32_t *labels,
                                              size_t count);

// The same for addresses of IPv6 in host order.
//
// The arrays have `count` items.
enum fp_status fp_reader_lookup_many6(struct fp_reader *reader,
                                      const struct fp_address6 *addresses,
                                      uint32_t *labels,
                                      size_t count);

// The same for addresses of IPv6 in network order, 16 bytes each, such as those of `struct in6_addr`.
//
// The arrays have `count` items.
enum fp_status fp_reader_lookup_many6_network(struct fp_reader *reader,
                                              const uint8_t (*addresses)[16],
                                              uint32_t *labels,
                                              size_t count);

// Writes the committed tables of both families to a file, whole or not at all. The table's labels must be
// numbers.
//
// `path` ends with a zero.
enum fp_status fp_table_save(const struct fp_table *table,
                             const char *path);

// Creates a reader of a file that fp_table_save has written, or `fingerpost table save`. The file is read and
// checked whole, and may then change. FP_STATUS_FORMAT if it is damaged.
//
// `path` ends with a zero.
enum fp_status fp_reader_open(const char *path,
                              struct fp_reader **reader);

// Computes the statistics of a family (AF_INET, AF_INET6). O(routes).
enum fp_status fp_table_statistics(const struct fp_table *table,
                                   int family,
                                   struct fp_statistics *statistics);

// Counts the chunks of the committed table of a family (AF_INET, AF_INET6). O(2^K).
enum fp_status fp_table_chunks(const struct fp_table *table, int family, struct fp_chunks *chunks);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FINGERPOST_H */
