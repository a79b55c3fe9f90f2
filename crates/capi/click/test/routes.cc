// RouteTable beside a scan of all routes: random changes of both families; readers on threads of their own during them,
// which see all lines of a transaction or none.

#include "../routes.hh"

#include <arpa/inet.h>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <thread>

using fingerpost::NextHop;
using fingerpost::RouteTable;

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

using Address = std::vector<uint8_t>;
using Key = std::pair<Address, int>;

static bool holds(const Key &prefix, const Address &address) {
    for (int i = 0; i < prefix.second; i++)
        if ((prefix.first[i / 8] ^ address[i / 8]) & (0x80 >> i % 8))
            return false;
    return true;
}

static fp_prefix to_prefix(const Key &key) {
    fp_prefix prefix = {};
    memcpy(prefix.address, key.first.data(), key.first.size());
    prefix.length = uint8_t(key.second);
    prefix.family = key.first.size() == 4 ? AF_INET : AF_INET6;
    return prefix;
}

static const NextHop *scan(const std::map<Key, NextHop> &routes, const Address &address) {
    const NextHop *longest = nullptr;
    int length = -1;
    for (const auto &route : routes)
        if (route.first.second > length && holds(route.first, address)) {
            longest = &route.second;
            length = route.first.second;
        }
    return longest;
}

static bool are_equal(const NextHop *a, const NextHop *b) { return a && b ? *a == *b : a == b; }

struct Random {
    std::mt19937 bits{1};

    unsigned below(unsigned limit) { return bits() % limit; }

    // Few distinct bits, so that prefixes nest.
    Address address(size_t size) {
        Address address(size);
        for (size_t i = 0; i < size; i++)
            address[i] = uint8_t(below(4) << (i % 2 ? 6 : 0));
        return address;
    }

    Key prefix(size_t size) {
        Key key(address(size), int(below(unsigned(size) * 8 + 1)));
        for (int i = key.second; i < int(size) * 8; i++)
            key.first[i / 8] &= uint8_t(~(0x80 >> i % 8));
        return key;
    }
};

static void compare(RouteTable &table, const std::map<Key, NextHop> &routes, size_t size, Random &random) {
    const size_t count = 100;
    std::vector<Address> addresses;
    std::vector<uint32_t> network;
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < count; i++) {
        addresses.push_back(random.address(size));
        uint32_t word;
        memcpy(&word, addresses[i].data(), 4);
        network.push_back(word);
        bytes.insert(bytes.end(), addresses[i].begin(), addresses[i].end());
    }
    const auto *wide = reinterpret_cast<const uint8_t(*)[16]>(bytes.data());
    std::vector<const NextHop *> found(count);
    if (size == 4)
        table.lookup_many4(1, network.data(), found.data(), count);
    else
        table.lookup_many6(1, wide, found.data(), count);
    size_t some = 0;
    for (size_t i = 0; i < count; i++) {
        const NextHop *expected = scan(routes, addresses[i]);
        CHECK(are_equal(found[i], expected));
        CHECK(are_equal(size == 4 ? table.lookup4(0, network[i]) : table.lookup6(0, wide[i]), expected));
        some += expected != nullptr;
    }
    CHECK(routes.size() < 20 || some > 0);
}

static void changes_equal_a_scan(size_t size, const char *engine) {
    Random random;
    RouteTable table(size == 4 ? AF_INET : AF_INET6, engine, 2);
    CHECK(table.is_valid());
    std::map<Key, NextHop> routes;
    for (int i = 0; i < 1500; i++) {
        const Key key = random.prefix(size);
        const Address gateway = random.address(size);
        const NextHop next_hop(gateway.data(), size, int(random.below(3)));
        const fp_prefix prefix = to_prefix(key);
        const auto known = routes.find(key);
        const bool is_known = known != routes.end();
        const bool is_equal = is_known && known->second == next_hop;
        const unsigned change = random.below(4);
        const NextHop *former = nullptr;
        int result;
        switch (change) {
        case 0:
            result = table.add(prefix, next_hop, false, &former);
            CHECK(result == (is_known ? -EEXIST : 0));
            break;
        case 1:
            result = table.add(prefix, next_hop, true, &former);
            CHECK(result == 0);
            break;
        case 2:
            result = table.remove(prefix, nullptr, &former);
            CHECK(result == (is_known ? 0 : -ENOENT));
            break;
        default:
            result = table.remove(prefix, &next_hop, &former);
            CHECK(result == (is_equal ? 0 : -ENOENT));
        }
        CHECK(are_equal(former, is_known ? &known->second : nullptr));
        if (result == 0 && is_known)
            routes.erase(known);
        if (result == 0 && change < 2)
            routes.emplace(key, next_hop);
        if (i % 50 == 0)
            compare(table, routes, size, random);
    }
    CHECK(routes.size() > 20);
    std::map<Key, NextHop> visited;
    table.visit([&](const fp_prefix &prefix, const NextHop &next_hop) {
        visited.emplace(Key(Address(prefix.address, prefix.address + size), prefix.length), next_hop);
    });
    CHECK(visited == routes);
    compare(table, routes, size, random);
    // A rollback leaves the routes as they were.
    table.begin();
    for (int i = 0; i < 100; i++) {
        const NextHop *former;
        const Address gateway = random.address(size);
        if (i % 2)
            CHECK(table.add(to_prefix(random.prefix(size)), NextHop(gateway.data(), size, 9), true, &former) == 0);
        else
            table.remove(to_prefix(std::next(routes.begin(), random.below(unsigned(routes.size())))->first), nullptr, &former);
    }
    table.rollback();
    compare(table, routes, size, random);
    CHECK(table.commit() == 0);
    compare(table, routes, size, random);
    CHECK(table.statistics().find(" routes, ") != std::string::npos);
    CHECK(table.clear() == 0);
    compare(table, {}, size, random);
}

// The routes of 10/8 and 11/8 change in one transaction, always to the same output.
static void transactions_are_whole() {
    const size_t threads = 2;
    RouteTable table(AF_INET, "auto", threads + 1);
    std::atomic<bool> has_ended{false};
    std::atomic<size_t> seen[2] = {};
    const Key west(Address{10, 0, 0, 0}, 8), east(Address{11, 0, 0, 0}, 8);
    const uint32_t addresses[2] = {htonl(0x0a010203), htonl(0x0b010203)};
    std::vector<std::thread> readers;
    for (size_t thread = 0; thread < threads; thread++)
        readers.emplace_back([&, thread] {
            while (!has_ended) {
                const NextHop *both[2];
                table.lookup_many4(thread, addresses, both, 2);
                CHECK(are_equal(both[0], both[1]));
                if (both[0])
                    seen[both[0]->output]++;
                table.lookup4(thread, addresses[0]);
            }
        });
    const NextHop *former;
    for (int i = 0; i < 2000 || !seen[0] || !seen[1]; i++) {
        const NextHop next_hop(addresses, 4, i % 2);
        table.begin();
        CHECK(table.add(to_prefix(west), next_hop, true, &former) == 0);
        CHECK(are_equal(table.lookup4(threads, addresses[0]), former));
        CHECK(table.add(to_prefix(east), next_hop, true, &former) == 0);
        CHECK(table.commit() == 0);
        CHECK(are_equal(table.lookup4(threads, addresses[0]), &next_hop));
    }
    has_ended = true;
    for (std::thread &reader : readers)
        reader.join();
}

int main() {
    changes_equal_a_scan(4, "auto");
    changes_equal_a_scan(4, "D18R");
    changes_equal_a_scan(16, "auto");
    transactions_are_whole();
    RouteTable unknown(AF_INET, "west", 1);
    CHECK(!unknown.is_valid() && unknown.error().find("west") != std::string::npos);
    RouteTable table(AF_INET, "auto", 1);
    const NextHop next_hop("\0\0\0\0", 4, 0);
    const NextHop *former;
    fp_prefix bad = to_prefix(Key(Address{10, 1, 2, 3}, 8));
    CHECK(table.add(bad, next_hop, true, &former) == -EINVAL && !table.error().empty());
    return 0;
}
