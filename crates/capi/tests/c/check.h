/* Checks for the tests of the C interface: each failure is printed with its line, and ends the test with status 1. */
#ifndef CHECK_H
#define CHECK_H

#include <arpa/inet.h>
#include <fingerpost.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: %s; last message: %s\n", __FILE__, __LINE__, #condition,      \
                    fp_error_message());                                                          \
            exit(1);                                                                              \
        }                                                                                         \
    } while (0)

static inline fp_prefix prefix(const char *text) {
    fp_prefix read;
    CHECK(fp_prefix_parse(text, &read) == FP_STATUS_OK);
    return read;
}

static inline uint32_t v4(const char *text) {
    struct in_addr address;
    CHECK(inet_pton(AF_INET, text, &address) == 1);
    return ntohl(address.s_addr);
}

static inline uint32_t find6(fp_reader *reader, const char *text) {
    uint8_t address[16];
    CHECK(inet_pton(AF_INET6, text, address) == 1);
    return fp_reader_lookup6(reader, (const uint8_t(*)[16])address);
}
#endif
