/*
 * The table as a node of DPDK's graph library (rte_graph, DPDK 22.11): label n is the node's edge n, no route is edge 0.
 *
 *   fp_source ─► fp_lookup ─┬─► fp_none     edge 0
 *   (makes packets)         ├─► fp_west     edge 1
 *                           └─► fp_east     edge 2
 *
 *   cc dpdk_node.c -o dpdk_node $(pkg-config --cflags --libs fingerpost libdpdk)
 *   ./dpdk_node --no-huge --no-pci -m 128
 */
#define ALLOW_EXPERIMENTAL_API
#include <fingerpost.h>
#include <rte_eal.h>
#include <rte_ether.h>
#include <rte_graph.h>
#include <rte_graph_worker.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <stdio.h>
#include <stdlib.h>

enum { BURST = 64, WALKS = 1000, WEST = 1, EAST = 2, ENDS = 3 };
static fp_table *table;
static struct rte_mempool *pool;
static size_t ended[ENDS];

static void fail(const char *why) {
    fprintf(stderr, "dpdk_node: %s\n", why);
    exit(1);
}

/* Each graph, which one thread walks, has a reader of its own, in the context of its node. */
static int open_reader(const struct rte_graph *graph, struct rte_node *node) {
    (void)graph;
    return fp_reader_new(table, (fp_reader **)node->ctx) == FP_STATUS_OK ? 0 : -1;
}

static void close_reader(const struct rte_graph *graph, struct rte_node *node) {
    (void)graph;
    fp_reader_free(*(fp_reader **)node->ctx);
}

static uint16_t look_up(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count) {
    fp_reader *reader = *(fp_reader **)node->ctx;
    for (uint16_t done = 0; done < count; done += RTE_GRAPH_BURST_SIZE) {
        uint32_t addresses[RTE_GRAPH_BURST_SIZE], labels[RTE_GRAPH_BURST_SIZE];
        rte_edge_t edges[RTE_GRAPH_BURST_SIZE];
        uint16_t now = RTE_MIN(count - done, RTE_GRAPH_BURST_SIZE);
        for (uint16_t i = 0; i < now; i++)
            addresses[i] = rte_pktmbuf_mtod_offset((struct rte_mbuf *)packets[done + i], struct rte_ipv4_hdr *,
                                                   sizeof(struct rte_ether_hdr))->dst_addr;
        fp_reader_lookup_many4_network(reader, addresses, labels, now);
        for (uint16_t i = 0; i < now; i++) edges[i] = labels[i];
        rte_node_enqueue_next(graph, node, edges, packets + done, now);
    }
    return count;
}

static struct rte_node_register lookup = {
    .name = "fp_lookup",
    .process = look_up,
    .init = open_reader,
    .fini = close_reader,
    .nb_edges = ENDS,
    .next_nodes = {"fp_none", "fp_west", "fp_east"},
};
RTE_NODE_REGISTER(lookup);

/* The rest stands for the ports of a real program. */
static uint16_t make(struct rte_graph *graph, struct rte_node *node, void **none, uint16_t count) {
    static uint32_t random = 1;
    struct rte_mbuf *packets[BURST];
    (void)none, (void)count;
    if (rte_pktmbuf_alloc_bulk(pool, packets, BURST) != 0) return 0;
    for (int i = 0; i < BURST; i++) {
        random = random * 1664525 + 1013904223;
        struct rte_ipv4_hdr *header = rte_pktmbuf_mtod_offset(packets[i], struct rte_ipv4_hdr *,
                                                              sizeof(struct rte_ether_hdr));
        /* 10.0 to 10.3, a quarter each */
        header->dst_addr = rte_cpu_to_be_32(RTE_IPV4(10, 0, 0, 0) | random >> 14);
    }
    rte_node_enqueue(graph, node, 0, (void **)packets, BURST);
    return BURST;
}

#define END(end, index)                                                                                    \
    static uint16_t end(struct rte_graph *graph, struct rte_node *node, void **packets, uint16_t count) { \
        (void)graph, (void)node;                                                                           \
        ended[index] += count;                                                                             \
        rte_pktmbuf_free_bulk((struct rte_mbuf **)packets, count);                                         \
        return count;                                                                                      \
    }                                                                                                      \
    static struct rte_node_register end##_node = {.name = "fp_" #end, .process = end};                     \
    RTE_NODE_REGISTER(end##_node);
END(none, 0)
END(west, WEST)
END(east, EAST)
static struct rte_node_register source = {
    .name = "fp_source", .process = make, .flags = RTE_NODE_SOURCE_F, .nb_edges = 1, .next_nodes = {"fp_lookup"}};
RTE_NODE_REGISTER(source);

static void route(const char *text, uint32_t label) {
    fp_prefix prefix;
    if (fp_prefix_parse(text, &prefix) || fp_table_insert(table, &prefix, label, NULL)) fail(fp_error_message());
}

int main(int count, char **arguments) {
    if (rte_eal_init(count, arguments) < 0) fail("DPDK does not start");
    pool = rte_pktmbuf_pool_create("packets", 4095, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, rte_socket_id());
    if (pool == NULL) fail("no memory for packets");
    if (fp_table_new(FP_LABEL_KIND_NUMBER, &table)) fail(fp_error_message());
    route("10.0.0.0/16", WEST);
    route("10.1.0.0/16", EAST);
    if (fp_table_commit(table)) fail(fp_error_message());

    const char *nodes[] = {"fp_*"};
    struct rte_graph_param parameters = {.socket_id = SOCKET_ID_ANY, .nb_node_patterns = 1, .node_patterns = nodes};
    rte_graph_t id = rte_graph_create("worker", &parameters);
    if (id == RTE_GRAPH_ID_INVALID) fail("no graph");
    struct rte_graph *graph = rte_graph_lookup("worker");
    for (int walk = 0; walk < WALKS; walk++) {
        /* Another thread would do this; the graph's next burst has the route. */
        if (walk == WALKS / 2) {
            route("10.2.0.0/15", EAST);
            if (fp_table_commit(table)) fail(fp_error_message());
        }
        rte_graph_walk(graph);
    }
    printf("west %zu, east %zu, no route %zu of %d\n", ended[WEST], ended[EAST], ended[0], WALKS * BURST);
    rte_graph_destroy(id);
    fp_table_free(table);
    rte_eal_cleanup();
    return 0;
}
