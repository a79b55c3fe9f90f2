/* Wrong arguments: each is a status and a message, and changes nothing. */
#include "check.h"

static void fails(fp_status got, fp_status wanted, const char *text, int line) {
    if (got != wanted || !strstr(fp_error_message(), text)) {
        fprintf(stderr, "line %d: status %d, not %d; \"%s\" without \"%s\"\n", line, got, wanted,
                fp_error_message(), text);
        exit(1);
    }
}
#define FAILS(call, wanted, text) fails(call, wanted, text, __LINE__)

static int never(const fp_prefix *route, uint32_t label, void *argument) {
    (void)route, (void)label, (void)argument;
    abort();
}

int main(int count, char **arguments) {
    CHECK(count >= 2);
    const char *folder = arguments[1];
    fp_table *table = NULL, *pointers = NULL;
    fp_reader *reader = NULL;
    fp_labels *labels = NULL;
    fp_prefix route, good = prefix("10.0.0.0/8");
    char text[64], path[4096];
    uint32_t label = 0;

    FAILS(fp_table_new(FP_LABEL_KIND_NUMBER, NULL), FP_STATUS_ARGUMENT, "table is NULL");
    FAILS(fp_table_new(7, &table), FP_STATUS_ARGUMENT, "kind 7");
    FAILS(fp_table_new_with(0, "D99R", "auto", 1, &table), FP_STATUS_ARGUMENT, "D99R");
    FAILS(fp_table_new_with(0, NULL, "auto", 1, &table), FP_STATUS_ARGUMENT, "engine4 is NULL");
    FAILS(fp_table_new_with(0, "auto", "\xff", 1, &table), FP_STATUS_ARGUMENT, "engine6");
    CHECK(table == NULL);
    CHECK(fp_table_new(FP_LABEL_KIND_NUMBER, &table) == FP_STATUS_OK);
    CHECK(fp_table_new(FP_LABEL_KIND_POINTER, &pointers) == FP_STATUS_OK);

    FAILS(fp_prefix_parse("10.0.0.1/8", &route), FP_STATUS_PREFIX, "10.0.0.1/8");
    FAILS(fp_prefix_parse("10.0.0.0/33", &route), FP_STATUS_PREFIX, "10.0.0.0/33");
    FAILS(fp_prefix_parse("2001:db8::/129", &route), FP_STATUS_PREFIX, "2001:db8::/129");
    FAILS(fp_prefix_parse("nowhere", &route), FP_STATUS_PREFIX, "nowhere");
    FAILS(fp_prefix_parse("", &route), FP_STATUS_PREFIX, "");
    FAILS(fp_prefix_parse(NULL, &route), FP_STATUS_ARGUMENT, "text is NULL");
    FAILS(fp_prefix_parse("10.0.0.0/8", NULL), FP_STATUS_ARGUMENT, "prefix is NULL");
    FAILS(fp_prefix_format(&good, text, 10), FP_STATUS_ARGUMENT, "11 bytes");
    FAILS(fp_prefix_format(&good, NULL, 64), FP_STATUS_ARGUMENT, "text is NULL");
    CHECK(fp_prefix_format(&good, text, 11) == FP_STATUS_OK && !strcmp(text, "10.0.0.0/8"));

    FAILS(fp_table_insert(NULL, &good, 1, NULL), FP_STATUS_ARGUMENT, "table is NULL");
    FAILS(fp_table_insert(table, NULL, 1, NULL), FP_STATUS_ARGUMENT, "prefix is NULL");
    FAILS(fp_table_insert(table, &good, 0, NULL), FP_STATUS_ARGUMENT, "label 0");
    FAILS(fp_table_insert(pointers, &good, 1, NULL), FP_STATUS_ARGUMENT, "are pointers");
    FAILS(fp_table_insert_pointer(table, &good, text, NULL), FP_STATUS_ARGUMENT, "are numbers");
    FAILS(fp_table_insert_pointer(pointers, &good, NULL, NULL), FP_STATUS_ARGUMENT, "pointer is NULL");
    route = good, route.length = 7;
    CHECK(fp_table_insert(table, &route, 1, NULL) == FP_STATUS_OK);
    route.length = 4;
    FAILS(fp_table_insert(table, &route, 1, NULL), FP_STATUS_PREFIX, "10.0.0.0/4");
    route.family = 99;
    FAILS(fp_table_get(table, &route, &label), FP_STATUS_PREFIX, "family 99");
    FAILS(fp_table_apply(table, NULL, 1), FP_STATUS_ARGUMENT, "changes is NULL");
    FAILS(fp_table_commit(NULL), FP_STATUS_ARGUMENT, "table is NULL");
    FAILS(fp_table_visit(table, 99, never, NULL), FP_STATUS_ARGUMENT, "family 99");
    FAILS(fp_table_visit(table, AF_INET, NULL, NULL), FP_STATUS_ARGUMENT, "visit is NULL");
    FAILS(fp_table_statistics(table, -1, NULL), FP_STATUS_ARGUMENT, "statistics is NULL");
    FAILS(fp_table_chunks(table, AF_INET, NULL), FP_STATUS_ARGUMENT, "chunks is NULL");
    fp_chunks chunks;
    FAILS(fp_table_chunks(table, 99, &chunks), FP_STATUS_ARGUMENT, "family");
    CHECK(fp_table_count(table, AF_INET) == 1 && fp_table_count(table, 99) == 0 && !fp_table_passed(NULL));

    /* More labels than the engine's layout has: the routes stay, and the reader's table. */
    fp_table *small;
    CHECK(fp_table_new_with(FP_LABEL_KIND_NUMBER, "lulea", "auto", 1, &small) == FP_STATUS_OK);
    CHECK(fp_table_insert(small, &good, 5, NULL) == FP_STATUS_OK && fp_table_commit(small) == FP_STATUS_OK);
    CHECK(fp_table_insert(small, &good, UINT32_MAX, NULL) == FP_STATUS_OK);
    FAILS(fp_table_commit(small), FP_STATUS_FULL, "the table is full");
    CHECK(fp_table_get(small, &good, &label) == FP_STATUS_OK && label == UINT32_MAX);
    CHECK(fp_reader_new(small, &reader) == FP_STATUS_OK && fp_reader_lookup4(reader, v4("10.0.0.1")) == 5);
    CHECK(fp_table_insert(small, &good, 6, NULL) == FP_STATUS_OK && fp_table_commit(small) == FP_STATUS_OK);
    CHECK(fp_reader_lookup4(reader, v4("10.0.0.1")) == 6);

    FAILS(fp_reader_new(NULL, &reader), FP_STATUS_ARGUMENT, "table is NULL");
    FAILS(fp_reader_lookup_many4(reader, NULL, &label, 1), FP_STATUS_ARGUMENT, "addresses is NULL");
    FAILS(fp_reader_lookup_many4(reader, &label, NULL, 1), FP_STATUS_ARGUMENT, "labels is NULL");
    FAILS(fp_reader_lookup_many4(reader, &label, &label, SIZE_MAX), FP_STATUS_ARGUMENT, "too large");
    FAILS(fp_reader_lookup_many6(NULL, NULL, NULL, 0), FP_STATUS_ARGUMENT, "reader is NULL");
    CHECK(fp_reader_lookup_many4(reader, NULL, NULL, 0) == FP_STATUS_OK);
    CHECK(fp_reader_lookup4(NULL, 1) == FP_NO_ROUTE && fp_reader_lookup6(reader, NULL) == FP_NO_ROUTE);
    CHECK(fp_reader_pointer(reader, 1) == NULL && fp_table_pointer(NULL, 1) == NULL);

    /* Files. */
    FAILS(fp_table_load(table, "/nowhere/table", false, &labels), FP_STATUS_SYSTEM, "/nowhere/table");
    FAILS(fp_table_load(table, NULL, false, NULL), FP_STATUS_ARGUMENT, "path is NULL");
    FAILS(fp_table_save(table, "/nowhere/table"), FP_STATUS_SYSTEM, "/nowhere/table");
    FAILS(fp_table_save(pointers, "/tmp/x"), FP_STATUS_ARGUMENT, "pointers");
    FAILS(fp_table_load(pointers, "/tmp/x", false, NULL), FP_STATUS_ARGUMENT, "pointers");
    FAILS(fp_reader_open("/nowhere/image", &reader), FP_STATUS_SYSTEM, "/nowhere/image");
    snprintf(path, sizeof path, "%s/damaged", folder);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs("10.0.0.0/8 west\n10.0.0.0/99 east\n", file) > 0 && fclose(file) == 0);
    FAILS(fp_table_load(table, path, false, &labels), FP_STATUS_FORMAT, "damaged");
    CHECK(labels == NULL && fp_table_count(table, AF_INET) == 1);
    FAILS(fp_reader_open(path, &reader), FP_STATUS_FORMAT, path);
    CHECK(fp_table_load(table, path, true, &labels) == FP_STATUS_OK && fp_labels_count(labels) == 1);
    CHECK(!strcmp(fp_labels_text(labels, 1), "west") && !fp_labels_text(labels, 0) && !fp_labels_text(labels, 2));

    fp_labels_free(labels), fp_labels_free(NULL);
    fp_reader_free(reader), fp_reader_free(NULL), fp_reader_idle(NULL);
    fp_table_free(table), fp_table_free(pointers), fp_table_free(small), fp_table_free(NULL);
    return 0;
}
