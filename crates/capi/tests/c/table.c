/* Routes of a table, and what a reader finds after each commit. */
#include "check.h"

static void insert(fp_table *table, const char *text, uint32_t label) {
    fp_prefix route = prefix(text);
    CHECK(fp_table_insert(table, &route, label, NULL) == FP_STATUS_OK);
}

struct seen {
    char text[8][64];
    uint32_t labels[8];
    int count, limit;
};

static int note(const fp_prefix *route, uint32_t label, void *argument) {
    struct seen *seen = argument;
    CHECK(fp_prefix_format(route, seen->text[seen->count], 64) == FP_STATUS_OK);
    seen->labels[seen->count++] = label;
    return seen->count == seen->limit;
}

static void lookups(void) {
    fp_table *table;
    fp_reader *reader, *other;
    uint32_t label = 9;
    CHECK(fp_table_new(FP_LABEL_KIND_NUMBER, &table) == FP_STATUS_OK);
    CHECK(fp_reader_new(table, &reader) == FP_STATUS_OK);
    CHECK(fp_reader_lookup4(reader, v4("192.0.2.1")) == FP_NO_ROUTE);
    insert(table, "0.0.0.0/0", 1);
    insert(table, "192.0.2.0/24", 2);
    insert(table, "192.0.2.128/25", 3);
    insert(table, "2001:db8::/32", 4);
    CHECK(fp_reader_lookup4(reader, v4("192.0.2.1")) == FP_NO_ROUTE);
    CHECK(fp_table_commit(table) == FP_STATUS_OK);
    CHECK(fp_reader_clone(reader, &other) == FP_STATUS_OK);
    CHECK(fp_reader_lookup4(reader, v4("192.0.2.1")) == 2);
    CHECK(fp_reader_lookup4(other, v4("192.0.2.255")) == 3);
    CHECK(fp_reader_lookup4(reader, v4("198.51.100.1")) == 1);
    CHECK(find6(reader, "2001:db8::7") == 4);
    CHECK(find6(reader, "2001:db9::7") == FP_NO_ROUTE);

    /* Batches, in both byte orders, longer than one conversion. */
    enum { COUNT = 1000 };
    uint32_t host[COUNT], network[COUNT], found[COUNT];
    uint8_t bytes[COUNT][16];
    fp_address6 pairs[COUNT];
    for (uint32_t i = 0; i < COUNT; i++) {
        host[i] = v4("192.0.1.0") + i;
        network[i] = htonl(host[i]);
        memset(bytes[i], 0, 16);
        CHECK(inet_pton(AF_INET6, i % 3 ? "2001:db8::" : "2001:db9::", bytes[i]) == 1);
        bytes[i][15] = (uint8_t)i;
        pairs[i].high = (uint64_t)(i % 3 ? 0x20010db8 : 0x20010db9) << 32;
        pairs[i].low = i;
    }
    CHECK(fp_reader_lookup_many4(reader, host, found, COUNT) == FP_STATUS_OK);
    for (int i = 0; i < COUNT; i++) CHECK(found[i] == fp_reader_lookup4(other, host[i]));
    CHECK(found[0] == 1 && found[256] == 2 && found[511] == 3);
    memset(found, 0xff, sizeof found);
    CHECK(fp_reader_lookup_many4_network(reader, network, found, COUNT) == FP_STATUS_OK);
    for (int i = 0; i < COUNT; i++) CHECK(found[i] == fp_reader_lookup4(other, host[i]));
    CHECK(fp_reader_lookup_many6_network(reader, (const uint8_t(*)[16])bytes, found, COUNT) == FP_STATUS_OK);
    for (int i = 0; i < COUNT; i++) CHECK(found[i] == (i % 3 ? 4 : FP_NO_ROUTE));
    memset(found, 0xff, sizeof found);
    CHECK(fp_reader_lookup_many6(reader, pairs, found, COUNT) == FP_STATUS_OK);
    for (int i = 0; i < COUNT; i++) CHECK(found[i] == (i % 3 ? 4 : FP_NO_ROUTE));

    /* Exact, longest, withdrawals. */
    fp_prefix route = prefix("192.0.2.128/25"), longest;
    CHECK(fp_table_get(table, &route, &label) == FP_STATUS_OK && label == 3);
    CHECK(fp_table_withdraw(table, &route, &label) == FP_STATUS_OK && label == 3);
    CHECK(fp_table_withdraw(table, &route, &label) == FP_STATUS_NOT_FOUND && label == FP_NO_ROUTE);
    CHECK(fp_table_get(table, &route, NULL) == FP_STATUS_NOT_FOUND);
    CHECK(fp_table_longest(table, &route, &longest, &label) == FP_STATUS_OK && label == 2);
    CHECK(longest.length == 24 && longest.family == AF_INET);
    CHECK(fp_table_count(table, AF_INET) == 2 && fp_table_count(table, AF_INET6) == 1);
    CHECK(fp_reader_lookup4(reader, v4("192.0.2.255")) == 3);
    CHECK(fp_table_commit(table) == FP_STATUS_OK);
    CHECK(!fp_table_passed(table));
    CHECK(fp_reader_lookup4(reader, v4("192.0.2.255")) == 2);
    fp_reader_idle(other);
    CHECK(fp_table_passed(table));

    /* A reader of one family does not hold up commits of the other. */
    for (uint32_t i = 1; i < 6; i++) {
        insert(table, "2001:db8::/32", i);
        CHECK(fp_table_commit(table) == FP_STATUS_OK);
        CHECK(fp_reader_lookup4(reader, v4("192.0.2.255")) == 2 && fp_table_passed(table));
    }
    CHECK(find6(reader, "2001:db8::7") == 5);

    /* A reader outlives its table. */
    fp_table_free(table);
    CHECK(fp_reader_lookup4(other, v4("192.0.2.255")) == 2);
    fp_reader_free(reader);
    fp_reader_free(other);
}

static void visits(void) {
    fp_table *table;
    CHECK(fp_table_new_with(FP_LABEL_KIND_NUMBER, "D16R", "flat", 2, &table) == FP_STATUS_OK);
    insert(table, "10.1.0.0/16", 2);
    insert(table, "10.0.0.0/8", 1);
    insert(table, "10.1.2.0/24", 3);
    insert(table, "11.0.0.0/8", 4);
    insert(table, "2001:db8::/32", 5);
    struct seen seen = {.count = 0};
    CHECK(fp_table_visit(table, AF_INET, note, &seen) == FP_STATUS_OK && seen.count == 4);
    CHECK(!strcmp(seen.text[0], "10.0.0.0/8") && !strcmp(seen.text[2], "10.1.2.0/24"));
    CHECK(seen.labels[1] == 2 && seen.labels[3] == 4);
    seen.count = 0;
    CHECK(fp_table_visit(table, AF_INET6, note, &seen) == FP_STATUS_OK && seen.count == 1);
    CHECK(!strcmp(seen.text[0], "2001:db8::/32"));
    seen = (struct seen){.limit = 2};
    CHECK(fp_table_visit(table, AF_INET, note, &seen) == FP_STATUS_OK && seen.count == 2);
    fp_prefix one = prefix("10.1.0.0/16");
    seen = (struct seen){.count = 0};
    CHECK(fp_table_visit_covered(table, &one, note, &seen) == FP_STATUS_OK && seen.count == 2);
    seen = (struct seen){.count = 0};
    CHECK(fp_table_visit_covering(table, &one, note, &seen) == FP_STATUS_OK && seen.count == 2);
    CHECK(!strcmp(seen.text[0], "10.0.0.0/8"));

    fp_statistics statistics;
    CHECK(fp_table_commit(table) == FP_STATUS_OK);
    CHECK(fp_table_statistics(table, AF_INET, &statistics) == FP_STATUS_OK);
    CHECK(statistics.routes == 4 && statistics.coverage == 2.0 / 256 && statistics.commits == 1);
    CHECK(!strcmp(statistics.engine, "D16R") && statistics.bytes > 0 && statistics.parts[0].name[0]);
    size_t loads = 0;
    for (int i = 0; i < FP_LOADS; i++) loads += statistics.loads[i];
    CHECK(loads == 4 && statistics.loads[0] == 0);
    // 10.1.0.0/16 has a chunk of three ranges.
    fp_chunks chunks;
    CHECK(fp_table_chunks(table, AF_INET, &chunks) == FP_STATUS_OK);
    CHECK(chunks.chunks == 1 && chunks.ranges == 3 && chunks.longest == 3);
    CHECK(chunks.stored_chunks == 1 && chunks.stored_ranges == 3 && chunks.direct_coverage == 65535.0 / 65536);
    // The engine of IPv6 has none.
    CHECK(fp_table_chunks(table, AF_INET6, &chunks) == FP_STATUS_OK && !chunks.chunks && !chunks.direct_coverage);
    fp_table_free(table);
}

static void changes(void) {
    fp_table *table;
    CHECK(fp_table_new(FP_LABEL_KIND_NUMBER, &table) == FP_STATUS_OK);
    insert(table, "11.0.0.0/8", 7);
    fp_change all[3] = {{.prefix = prefix("10.0.0.0/8"), .label = 1},
                        {.prefix = prefix("11.0.0.0/8")},
                        {.prefix = prefix("12.0.0.0/8"), .label = 2}};
    all[2].prefix.length = 1;
    CHECK(fp_table_apply(table, all, 3) == FP_STATUS_PREFIX);
    CHECK(!strncmp(fp_error_message(), "change 2: ", 10));
    CHECK(fp_table_get(table, &all[0].prefix, NULL) == FP_STATUS_NOT_FOUND);
    all[2].prefix.length = 8;
    CHECK(fp_table_apply(table, all, 3) == FP_STATUS_OK && fp_table_apply(table, NULL, 0) == FP_STATUS_OK);
    CHECK(fp_table_count(table, AF_INET) == 2);
    CHECK(fp_table_get(table, &all[1].prefix, NULL) == FP_STATUS_NOT_FOUND);
    fp_table_free(table);
}

int main(void) {
    CHECK(!strcmp(fp_error_message(), "") && fp_version()[0] == '0');
    lookups();
    visits();
    changes();
    return 0;
}
