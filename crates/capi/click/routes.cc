#include "routes.hh"

#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>

namespace fingerpost {

NextHop::NextHop(const void *bytes, size_t size, int output) : output(output) {
    memset(gateway, 0, sizeof gateway);
    memcpy(gateway, bytes, size);
}

bool NextHop::operator<(const NextHop &other) const {
    int order = memcmp(gateway, other.gateway, sizeof gateway);
    return order < 0 || (order == 0 && output < other.output);
}

RouteTable::RouteTable(int family, const char *engine, size_t threads) : _family(family) {
    const char *engine4 = family == AF_INET ? engine : "auto";
    const char *engine6 = family == AF_INET6 ? engine : "auto";
    if (fp_table_new_with(FP_LABEL_KIND_POINTER, engine4, engine6, 1, &_table)) {
        _error = fp_error_message();
        return;
    }
    size_t space = (threads + 1) * sizeof(Reader);
    _memory = calloc(1, space);
    void *aligned = _memory;
    bool is_whole = std::align(alignof(Reader), threads * sizeof(Reader), aligned, space);
    _readers = static_cast<Reader *>(aligned);
    while (is_whole && _threads < threads) {
        Reader *place = new (&_readers[_threads]) Reader();
        is_whole = !fp_reader_new(_table, &place->reader);
        _threads++;
    }
    if (!is_whole) {
        _error = "no memory for the readers of all threads";
        fp_table_free(_table);
        _table = nullptr;
    }
}

RouteTable::~RouteTable() {
    for (size_t i = 0; i < _threads; i++) {
        fp_reader_free(_readers[i].reader);
        _readers[i].~Reader();
    }
    free(_memory);
    fp_table_free(_table);
}

int RouteTable::failed(fp_status status) {
    _error = fp_error_message();
    switch (status) {
    case FP_STATUS_NOT_FOUND:
        return -ENOENT;
    case FP_STATUS_FULL:
        return -ENOMEM;
    case FP_STATUS_BUSY:
        return -EBUSY;
    default:
        return -EINVAL;
    }
}

int RouteTable::publish() {
    if (_is_deferred)
        return 0;
    const time_t limit = time(nullptr) + 1;
    fp_status status;
    while ((status = fp_table_commit(_table)) == FP_STATUS_BUSY && time(nullptr) <= limit)
        sched_yield();
    return status == FP_STATUS_OK ? 0 : failed(status);
}

const NextHop *RouteTable::find(const fp_prefix &prefix) const {
    uint32_t label;
    if (fp_table_get(_table, &prefix, &label))
        return nullptr;
    return static_cast<const NextHop *>(fp_table_pointer(_table, label));
}

void RouteTable::restore(const fp_prefix &prefix, const NextHop *next_hop) {
    if (next_hop)
        fp_table_insert_pointer(_table, &prefix, const_cast<NextHop *>(next_hop), nullptr);
    else
        fp_table_withdraw(_table, &prefix, nullptr);
}

int RouteTable::add(const fp_prefix &prefix, const NextHop &next_hop, bool replace, const NextHop **former) {
    std::lock_guard<std::mutex> lock(_changes);
    *former = find(prefix);
    if (*former && !replace)
        return -EEXIST;
    const NextHop *label = &*_next_hops.insert(next_hop).first;
    fp_status status = fp_table_insert_pointer(_table, &prefix, const_cast<NextHop *>(label), nullptr);
    if (status)
        return failed(status);
    if (_is_deferred)
        _undo.push_back(Undo{prefix, *former});
    int result = publish();
    // Readers have the routes before: so has the table.
    if (result == -ENOMEM)
        restore(prefix, *former);
    return result;
}

int RouteTable::remove(const fp_prefix &prefix, const NextHop *next_hop, const NextHop **former) {
    std::lock_guard<std::mutex> lock(_changes);
    *former = find(prefix);
    if (!*former || (next_hop && !(**former == *next_hop)))
        return -ENOENT;
    fp_status status = fp_table_withdraw(_table, &prefix, nullptr);
    if (status)
        return failed(status);
    if (_is_deferred)
        _undo.push_back(Undo{prefix, *former});
    return publish();
}

int RouteTable::clear() {
    std::vector<fp_change> changes;
    visit([&](const fp_prefix &prefix, const NextHop &) { changes.push_back(fp_change{prefix, 0, nullptr}); });
    std::lock_guard<std::mutex> lock(_changes);
    fp_status status = fp_table_apply(_table, changes.data(), changes.size());
    return status ? failed(status) : publish();
}

void RouteTable::begin() {
    std::lock_guard<std::mutex> lock(_changes);
    _is_deferred = true;
    _undo.clear();
}

int RouteTable::commit() {
    std::lock_guard<std::mutex> lock(_changes);
    _is_deferred = false;
    int result = publish();
    if (result == -ENOMEM)
        undo();
    return result;
}

void RouteTable::rollback() {
    std::lock_guard<std::mutex> lock(_changes);
    _is_deferred = false;
    undo();
}

void RouteTable::undo() {
    for (; !_undo.empty(); _undo.pop_back())
        restore(_undo.back().prefix, _undo.back().former);
}

template <typename Lookup> const NextHop *RouteTable::lookup(size_t thread, Lookup lookup) {
    assert(thread < _threads);
    fp_reader *reader = _readers[thread].reader;
    const void *next_hop = fp_reader_pointer(reader, lookup(reader));
    fp_reader_idle(reader);
    return static_cast<const NextHop *>(next_hop);
}

const NextHop *RouteTable::lookup4(size_t thread, uint32_t address) {
    return lookup(thread, [=](fp_reader *reader) { return fp_reader_lookup4(reader, ntohl(address)); });
}

const NextHop *RouteTable::lookup6(size_t thread, const uint8_t (&address)[16]) {
    return lookup(thread, [&](fp_reader *reader) { return fp_reader_lookup6(reader, &address); });
}

template <typename Lookup>
void RouteTable::lookup_many(size_t thread, const NextHop **next_hops, size_t count, Lookup lookup) {
    assert(thread < _threads);
    Reader &own = _readers[thread];
    if (own.labels.size() < count)
        own.labels.resize(count);
    lookup(own.reader, own.labels.data());
    for (size_t i = 0; i < count; i++)
        next_hops[i] = static_cast<const NextHop *>(fp_reader_pointer(own.reader, own.labels[i]));
    fp_reader_idle(own.reader);
}

void RouteTable::lookup_many4(size_t thread, const uint32_t *addresses, const NextHop **next_hops, size_t count) {
    lookup_many(thread, next_hops, count, [=](fp_reader *reader, uint32_t *labels) {
        fp_reader_lookup_many4_network(reader, addresses, labels, count);
    });
}

void RouteTable::lookup_many6(size_t thread, const uint8_t (*addresses)[16], const NextHop **next_hops, size_t count) {
    lookup_many(thread, next_hops, count, [=](fp_reader *reader, uint32_t *labels) {
        fp_reader_lookup_many6_network(reader, addresses, labels, count);
    });
}

namespace {

struct Visit {
    fp_table *table;
    const std::function<void(const fp_prefix &, const NextHop &)> *each;
};

int visit_route(const fp_prefix *prefix, uint32_t label, void *argument) {
    const Visit *visit = static_cast<const Visit *>(argument);
    (*visit->each)(*prefix, *static_cast<const NextHop *>(fp_table_pointer(visit->table, label)));
    return 0;
}

} // namespace

void RouteTable::visit(const std::function<void(const fp_prefix &, const NextHop &)> &each) {
    std::lock_guard<std::mutex> lock(_changes);
    Visit visit = {_table, &each};
    fp_table_visit(_table, _family, visit_route, &visit);
}

std::string RouteTable::statistics() {
    std::lock_guard<std::mutex> lock(_changes);
    fp_statistics all;
    if (fp_table_statistics(_table, _family, &all))
        return std::string(fp_error_message()) + "\n";
    char line[160];
    snprintf(line, sizeof line, "%s: %zu routes, %zu next hops, %zu bytes (%.1f bytes/route)\n", all.engine, all.routes,
             _next_hops.size(), all.bytes, all.routes ? double(all.bytes) / double(all.routes) : 0);
    std::string text = line;
    snprintf(line, sizeof line, "Routes hold %.1f%% of the addresses\n", 100 * all.coverage);
    text += line;
    for (int i = 0; i < FP_PARTS && all.parts[i].name[0]; i++) {
        snprintf(line, sizeof line, "Array %s: %zu items, %zu bytes\n", all.parts[i].name, all.parts[i].items,
                 all.parts[i].bytes);
        text += line;
    }
    fp_chunks chunks;
    if (!fp_table_chunks(_table, _family, &chunks) && chunks.chunks) {
        snprintf(line, sizeof line, "The first stage resolves %.1f%% of the addresses\n",
                 100 * chunks.direct_coverage);
        text += line;
        snprintf(line, sizeof line, "Chunks: %zu with %zu ranges, of which %zu with %zu are stored; the longest has %zu\n",
                 chunks.chunks, chunks.ranges, chunks.stored_chunks, chunks.stored_ranges,
                 chunks.longest);
        text += line;
    }
    for (int i = 0; i < FP_LOADS; i++) {
        if (!all.loads[i])
            continue;
        snprintf(line, sizeof line, "Found by %d loads: %zu routes\n", i, all.loads[i]);
        text += line;
    }
    return text;
}

} // namespace fingerpost
