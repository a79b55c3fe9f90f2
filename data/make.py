"""Makes nested.txt: a small table in which everything nests. Repeatable.

    python3 data/make.py > data/nested.txt

Blocks are drawn at random, then more-specific ones within them, down to single
addresses, at either end and in the middle, with next hops drawn from a few, so that
neighbouring and nested routes often share theirs. Both families have a default route
in one half of the space only (as two routes of length 1 would): the other half is
empty but for what is drawn.
"""

import ipaddress
import random

random.seed(20261121)


def family(bits, make, first, last, hops):
    space = (1 << bits) - 1
    routes = {}

    def add(value, length):
        value &= space ^ ((1 << (bits - length)) - 1)
        # Only what a router may forward: global unicast.
        if first <= value >> (bits - 16) <= last:
            routes[make((value, length))] = random.choice(hops)

    for _ in range(24):
        value = random.randrange(first, last + 1) << (bits - 16) | random.getrandbits(bits - 16)
        length = random.randrange(8, 17)
        add(value, length)
        for _ in range(random.randrange(12)):
            length = min(bits, length + random.randrange(1, bits // 6))
            inside = (1 << (bits - length)) - 1
            # The lower end, the upper end, or anywhere below the last one drawn.
            value = random.choice([value, value | inside, value ^ random.getrandbits(bits - length)])
            add(value, length)
    return sorted(routes.items())


def v4(pair):
    return ipaddress.IPv4Network(pair)


def v6(pair):
    return ipaddress.IPv6Network(pair)


print("# Made by data/make.py. PREFIX NEXTHOP")
print("128.0.0.0/1 10.255.0.1")
for prefix, hop in family(32, v4, 0x0B00, 0xDFFF, [f"10.255.0.{n}" for n in (1, 2, 3, 4)]):
    if prefix.overlaps(v4((0x7F000000, 8))) or prefix.overlaps(v4((0xA9FE0000, 16))):
        continue
    print(prefix, hop)
print("2000::/4 fd00:ff::1")
for prefix, hop in family(128, v6, 0x2000, 0x3FFF, [f"fd00:ff::{n}" for n in (1, 2, 3, 4)]):
    print(prefix, hop)
