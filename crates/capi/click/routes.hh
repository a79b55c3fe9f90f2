// The routes of a Click element, over libfingerpost; nothing here needs Click.
//
//   add, remove -> RouteTable -> commit -> a reader a thread -> NextHop
//
// Next hops are the labels, by pointer. Each pair of gateway and output exists once, and as long as its table: readers
// may hold a pointer for any time, and pairs are few beside routes.
//
// Threads. Changes wait for one another. Lookups wait for nothing; each thread has a reader of its own, which is idle
// between calls, so that a commit never waits for a thread that has no packets.

#ifndef FINGERPOST_CLICK_ROUTES_HH
#define FINGERPOST_CLICK_ROUTES_HH

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <fingerpost.h>

namespace fingerpost {

/// Where a route sends packets.
struct NextHop {
    /// The gateway in network order, 4 bytes of IPv4 or 16 of IPv6, the rest zero; all zero without a gateway.
    uint8_t gateway[16];
    /// The output of the element.
    int output;

    NextHop(const void *bytes, size_t size, int output);
    bool operator<(const NextHop &other) const;
    bool operator==(const NextHop &other) const { return !(*this < other) && !(other < *this); }
};

/// Routes of one family. Calls that change return 0, or an error: -EEXIST, -ENOENT, -EINVAL for a malformed prefix,
/// -ENOMEM if the engine is full, -EBUSY if a reader has kept an earlier table for a second (the change is made with
/// the next one). `error` is the reason of the last failure.
class RouteTable {
  public:
    /// Creates an empty table of AF_INET or AF_INET6 for lookups on threads 0 to `threads` - 1. `is_valid` returns
    /// whether it exists: `engine` may be no engine's name.
    RouteTable(int family, const char *engine, size_t threads);
    ~RouteTable();
    RouteTable(const RouteTable &) = delete;
    RouteTable &operator=(const RouteTable &) = delete;

    bool is_valid() const { return _table; }
    const std::string &error() const { return _error; }

    /// Adds a route. One of the same prefix is stored in `*former`, and replaced if `replace`, else -EEXIST.
    int add(const fp_prefix &prefix, const NextHop &next_hop, bool replace, const NextHop **former);

    /// Removes a route, and stores it in `*former`; with `next_hop` only one that has it, else -ENOENT.
    int remove(const fp_prefix &prefix, const NextHop *next_hop, const NextHop **former);

    /// Removes all routes.
    int clear();

    /// Defers added and removed routes until `commit`, which gives all of them to readers at once, or `rollback`, which
    /// undoes them.
    void begin();
    int commit();
    void rollback();

    /// Looks up an address of IPv4 in network order, or 16 bytes of IPv6; null without a route.
    const NextHop *lookup4(size_t thread, uint32_t address);
    const NextHop *lookup6(size_t thread, const uint8_t (&address)[16]);

    /// The same for `count` addresses; all answers are of one commit. Faster than one by one from some dozen on.
    void lookup_many4(size_t thread, const uint32_t *addresses, const NextHop **next_hops, size_t count);
    void lookup_many6(size_t thread, const uint8_t (*addresses)[16], const NextHop **next_hops, size_t count);

    /// Calls `each` with all routes, in order of addresses.
    void visit(const std::function<void(const fp_prefix &, const NextHop &)> &each);

    /// Describes the table in lines of text.
    std::string statistics();

  private:
    // On a cache line of its own.
    struct alignas(64) Reader {
        fp_reader *reader;
        std::vector<uint32_t> labels;
    };

    // What a deferred change has replaced: null for no route.
    struct Undo {
        fp_prefix prefix;
        const NextHop *former;
    };

    int failed(fp_status status);
    int publish();
    void restore(const fp_prefix &prefix, const NextHop *next_hop);
    void undo();
    const NextHop *find(const fp_prefix &prefix) const;
    template <typename Lookup> const NextHop *lookup(size_t thread, Lookup lookup);
    template <typename Lookup>
    void lookup_many(size_t thread, const NextHop **next_hops, size_t count, Lookup lookup);

    const int _family;
    std::mutex _changes;
    fp_table *_table = nullptr;
    bool _is_deferred = false;
    std::vector<Undo> _undo;
    std::string _error;
    std::set<NextHop> _next_hops;
    // Raw memory from a vector would lack the alignment before C++17.
    Reader *_readers = nullptr;
    size_t _threads = 0;
    void *_memory = nullptr;
};

} // namespace fingerpost

#endif
