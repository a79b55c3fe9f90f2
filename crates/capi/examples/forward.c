/*
 * A forwarder of IPv4: opens a TUN device for each label of a table, and sends each packet to the device of the longest
 * route that holds its destination.
 *
 *   cc forward.c -o forward $(pkg-config --cflags --libs fingerpost)
 *   printf '10.0.0.0/24 west\n10.1.0.0/24 east\n' > routes && ./forward routes     (root; then `ip addr`, `ip link`)
 */
#include <fcntl.h>
#include <fingerpost.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void fail(const char *what) {
    fprintf(stderr, "forward: %s\n", what);
    exit(1);
}

static int open_tun(const char *name) {
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    snprintf(request.ifr_name, IFNAMSIZ, "%s", name);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) < 0) fail(name);
    return fd;
}

int main(int count, char **arguments) {
    fp_table *table;
    fp_labels *labels;
    fp_reader *reader;
    if (count != 2) fail("usage: forward FILE");
    if (fp_table_new(FP_LABEL_KIND_NUMBER, &table) || fp_table_load(table, arguments[1], false, &labels) ||
        fp_table_commit(table) || fp_reader_new(table, &reader))
        fail(fp_error_message());
    nfds_t devices = fp_labels_count(labels);
    struct pollfd *ready = calloc(devices, sizeof *ready);
    for (nfds_t i = 0; i < devices; i++)
        ready[i] = (struct pollfd){.fd = open_tun(fp_labels_text(labels, i + 1)), .events = POLLIN};
    printf("forwarding by %zu routes\n", fp_table_count(table, AF_INET));
    fflush(stdout);
    while (poll(ready, devices, -1) > 0) {
        for (nfds_t i = 0; i < devices; i++) {
            uint8_t packet[65536];
            ssize_t length;
            while ((length = read(ready[i].fd, packet, sizeof packet)) >= 20) {
                if (packet[0] >> 4 != 4 || packet[8] <= 1) continue; /* other versions; the TTL is used up */
                uint32_t to = (uint32_t)packet[16] << 24 | packet[17] << 16 | packet[18] << 8 | packet[19];
                uint32_t label = fp_reader_lookup4(reader, to);
                uint32_t sum = (uint32_t)(packet[10] << 8 | packet[11]) + 0x100; /* RFC 1624, for the TTL */
                sum = (sum & 0xffff) + (sum >> 16);
                packet[8]--, packet[10] = sum >> 8, packet[11] = sum & 0xff;
                if (label != FP_NO_ROUTE && write(ready[label - 1].fd, packet, length) < 0) perror("write");
            }
        }
    }
    return 0;
}
