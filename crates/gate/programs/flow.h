/* The interface of flow programs; docs/guide/programs.md explains it.
 *
 * A program is one C file with two functions:
 *
 *     SECTION("init") uint64_t on_decision(struct gk_bpf_init_ctx *ctx);   with a decision
 *     SECTION("pkt")  uint64_t pkt(struct gk_bpf_pkt_ctx *ctx);     with every packet
 *
 * of any names, compiled by: clang -target bpfel -O2 -ffreestanding -c FILE.c
 *
 * The cookie, 64 bytes a flow, is the only memory between packets. The decision has its initial
 * value, which init may change. A comparison with `end` has to precede every read of the packet's
 * bytes; loops have to end; divisors must not be zero; functions have to be inlined. A program
 * that violates a rule is rejected when it is loaded, with the instruction and the reason.
 */
#ifndef FINGERPOST_FLOW_H
#define FINGERPOST_FLOW_H

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef signed long long int64_t;
typedef _Bool bool;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

/* Results of init. */
enum { INIT_OK = 0, INIT_ERROR = 1 };
/* Results of pkt: a forwarded packet has to be prepared. */
enum { FORWARD = 0, DECLINE = 1, ERROR = 2 };
/* Priorities: DSCPs. From 3 to 63 a packet is a request, and shares the requests' bandwidth. */
enum { GRANTED = 1, RENEW = 2 };

struct gk_bpf_init_ctx {
	uint64_t now;
};

struct gk_bpf_pkt_ctx {
	uint64_t now;
	uint64_t expire_at;
	uint16_t l3_proto;  /* EtherType, 0x0800 or 0x86dd */
	uint8_t l4_proto;   /* after IPv6's extension headers */
	bool fragmented;
};

struct packet {
	const uint8_t *l3;  /* the IP header */
	const uint8_t *l4;  /* the transport header; the end in fragments after the first */
	const uint8_t *end;
	uint32_t pkt_len;   /* of the frame, with its Ethernet header */
	uint8_t l2_len, l4_len;
	uint16_t l3_len;
};

/* The rates of `now`. */
extern const uint64_t cycles_per_sec, cycles_per_ms;

extern void *init_ctx_to_cookie(struct gk_bpf_init_ctx *ctx);
extern void *pkt_ctx_to_cookie(struct gk_bpf_pkt_ctx *ctx);
extern const struct packet *pkt_ctx_to_pkt(struct gk_bpf_pkt_ctx *ctx);
/* Prepares the packet for transmission with a priority. With `direct`, which only priority GRANTED
 * may have, it goes unchanged, without the grantor. Returns 0, or another value on an error. */
extern int64_t gk_bpf_prep_for_tx(struct gk_bpf_pkt_ctx *ctx, int64_t priority, int64_t direct);

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define PROTOCOL_ICMP 1
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define PROTOCOL_ICMP6 58

#define TCP_SYN 0x02
#define TCP_ACK 0x10

/* 16 bits in network order. */
INLINE uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

#endif
