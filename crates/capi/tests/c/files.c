/* A file of routes, its labels, an image of the table, and the same answers from the image. */
#include "check.h"

int main(int count, char **arguments) {
    CHECK(count == 3);
    char image[4096];
    snprintf(image, sizeof image, "%s/image", arguments[1]);
    fp_table *table;
    fp_labels *labels;
    fp_reader *reader, *stored, *other;
    CHECK(fp_table_new(FP_LABEL_KIND_NUMBER, &table) == FP_STATUS_OK);
    CHECK(fp_table_load(table, arguments[2], false, &labels) == FP_STATUS_OK);
    CHECK(fp_table_commit(table) == FP_STATUS_OK && fp_table_save(table, image) == FP_STATUS_OK);
    CHECK(fp_reader_new(table, &reader) == FP_STATUS_OK && fp_reader_open(image, &stored) == FP_STATUS_OK);
    CHECK(fp_reader_clone(stored, &other) == FP_STATUS_OK);
    size_t routes = fp_table_count(table, AF_INET) + fp_table_count(table, AF_INET6);
    CHECK(routes > 0 && fp_labels_count(labels) > 0);
    uint32_t found = 0, random = 1;
    for (int i = 0; i < 1000000; i++) {
        random = random * 1664525 + 1013904223;
        uint32_t label = fp_reader_lookup4(reader, random);
        CHECK(label == fp_reader_lookup4(i % 2 ? stored : other, random));
        CHECK((label == FP_NO_ROUTE) == !fp_labels_text(labels, label));
        found += label != FP_NO_ROUTE;
    }
    printf("%zu routes, %zu labels, %u of 1000000 addresses found\n", routes, fp_labels_count(labels), found);
    fp_table_free(table);
    fp_reader_free(reader), fp_reader_free(stored), fp_reader_free(other);
    fp_labels_free(labels);
    return 0;
}
