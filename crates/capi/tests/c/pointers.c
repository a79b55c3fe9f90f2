/* Labels that are pointers: freed when readers have passed, as a caller would. */
#include "check.h"

int main(void) {
    fp_table *table;
    fp_reader *reader;
    CHECK(fp_table_new(FP_LABEL_KIND_POINTER, &table) == FP_STATUS_OK);
    CHECK(fp_reader_new(table, &reader) == FP_STATUS_OK);
    fp_prefix route = prefix("192.0.2.0/24"), other = prefix("198.51.100.0/24");
    uint32_t former, label = v4("192.0.2.7");
    char *last = NULL;
    for (int round = 0; round < 200; round++) {
        char *name = malloc(16);
        CHECK(name && snprintf(name, 16, "gateway %d", round) > 0);
        CHECK(fp_table_insert_pointer(table, &route, name, &former) == FP_STATUS_OK);
        CHECK(fp_table_insert_pointer(table, &other, name, NULL) == FP_STATUS_OK);
        CHECK(fp_table_pointer(table, former) == (void *)last);
        /* The reader has the former pointer until the commit. */
        CHECK(fp_reader_pointer(reader, fp_reader_lookup4(reader, label)) == (void *)last);
        CHECK(fp_table_commit(table) == FP_STATUS_OK);
        CHECK(!last || !fp_table_passed(table));
        const char *found = fp_reader_pointer(reader, fp_reader_lookup4(reader, label));
        CHECK(!strcmp(found, name));
        CHECK(fp_table_passed(table));
        free(last);
        last = name;
    }
    CHECK(fp_table_withdraw(table, &route, &former) == FP_STATUS_OK);
    CHECK(fp_table_pointer(table, former) == (void *)last && fp_table_pointer(table, 0) == NULL);
    CHECK(fp_table_commit(table) == FP_STATUS_OK && fp_reader_lookup4(reader, label) == FP_NO_ROUTE);
    CHECK(fp_reader_pointer(reader, FP_NO_ROUTE) == NULL);
    fp_table_free(table);
    fp_reader_free(reader);
    free(last);
    return 0;
}
