/* Readers look up on their threads while the table changes: a batch has the answers of one commit. */
#include "check.h"

#include <pthread.h>
#include <stdatomic.h>

enum { READERS = 3, COMMITS = 300, COUNT = 256 };
static atomic_bool done;

static void *look_up(void *argument) {
    fp_reader *reader = argument;
    uint32_t addresses[COUNT], labels[COUNT];
    size_t batches = 0;
    for (uint32_t i = 0; i < COUNT; i++) addresses[i] = v4("10.0.0.0") + (i << 16);
    while (!atomic_load(&done) || batches < 10) {
        CHECK(fp_reader_lookup_many4(reader, addresses, labels, COUNT) == FP_STATUS_OK);
        for (int i = 1; i < COUNT; i++) CHECK(labels[i] == labels[0]);
        batches++;
    }
    fp_reader_free(reader);
    return NULL;
}

int main(void) {
    fp_table *table;
    pthread_t threads[READERS];
    CHECK(fp_table_new(FP_LABEL_KIND_NUMBER, &table) == FP_STATUS_OK);
    for (int i = 0; i < READERS; i++) {
        fp_reader *reader;
        CHECK(fp_reader_new(table, &reader) == FP_STATUS_OK);
        CHECK(pthread_create(&threads[i], NULL, look_up, reader) == 0);
    }
    for (uint32_t commit = 1; commit <= COMMITS; commit++) {
        fp_change changes[COUNT];
        for (uint32_t i = 0; i < COUNT; i++) {
            changes[i] = (fp_change){.prefix = prefix("10.0.0.0/16"), .label = commit};
            changes[i].prefix.address[1] = (uint8_t)i;
        }
        CHECK(fp_table_apply(table, changes, COUNT) == FP_STATUS_OK);
        fp_status status;
        while ((status = fp_table_commit(table)) == FP_STATUS_BUSY) sched_yield();
        CHECK(status == FP_STATUS_OK);
    }
    atomic_store(&done, true);
    for (int i = 0; i < READERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(fp_table_passed(table));
    fp_table_free(table);
    return 0;
}
