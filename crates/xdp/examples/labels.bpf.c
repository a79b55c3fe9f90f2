// An XDP program of another project: it counts the packets of each label, and passes all to Linux.
//
//   clang -O2 -g -target bpf -c labels.bpf.c -o labels.bpf.o
//
// The two functions are replaced by the lookups, and until then know no route. `asm` uses their arguments and makes their
// answer, which the compiler would otherwise leave out.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define LABELS 256

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, LABELS);
    __type(key, __u32);
    __type(value, __u64);
} packets SEC(".maps");

__attribute__((noinline)) __u32 fingerpost_lookup4(__u32 address) {
    __u32 label = 0;
    asm volatile("" : "+r"(label) : "r"(address));
    return label;
}

__attribute__((noinline)) __u32 fingerpost_lookup6(__u64 upper, __u64 lower) {
    __u32 label = 0;
    asm volatile("" : "+r"(label) : "r"(upper), "r"(lower));
    return label;
}

static __always_inline __u64 half(const __be32 *words) {
    return (__u64)bpf_ntohl(words[0]) << 32 | bpf_ntohl(words[1]);
}

SEC("xdp")
int count_labels(struct xdp_md *context) {
    void *end = (void *)(long)context->data_end;
    struct ethhdr *frame = (void *)(long)context->data;
    __u32 label;
    if ((void *)(frame + 1) > end)
        return XDP_PASS;
    if (frame->h_proto == bpf_htons(ETH_P_IP)) {
        struct iphdr *packet = (void *)(frame + 1);
        if ((void *)(packet + 1) > end)
            return XDP_PASS;
        label = fingerpost_lookup4(bpf_ntohl(packet->daddr));
    } else if (frame->h_proto == bpf_htons(ETH_P_IPV6)) {
        struct ipv6hdr *packet = (void *)(frame + 1);
        if ((void *)(packet + 1) > end)
            return XDP_PASS;
        const __be32 *words = packet->daddr.in6_u.u6_addr32;
        label = fingerpost_lookup6(half(words), half(words + 2));
    } else {
        return XDP_PASS;
    }
    __u64 *count = bpf_map_lookup_elem(&packets, &label);
    if (count)
        ++*count;
    return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
