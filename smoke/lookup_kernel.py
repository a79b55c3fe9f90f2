"""Asks this namespace's kernel for the route to many addresses.

Takes the file of the routes, and prints `ADDRESS PREFIX NEXTHOP` or `ADDRESS - -`: for
every prefix its first and last address and the ones just outside, and random ones.
"""

import ipaddress
import random
import subprocess
import sys

random.seed(4)


def addresses(path):
    with open(path, encoding="ascii") as lines:
        prefixes = [ipaddress.ip_network(line.split()[0]) for line in lines if line[0] != "#"]
    for prefix in prefixes:
        first, last = int(prefix[0]), int(prefix[-1])
        make = type(prefix[0])
        near = [first - 1, first, last, last + 1, random.randint(first, last)]
        yield from (make(a) for a in near if 0 <= a < 1 << prefix.max_prefixlen)


def forwardable(address):
    """Whether a kernel looks the address up at all."""
    if address.version == 4:
        return 0x0B000000 <= int(address) < 0xE0000000 and not address.is_loopback
    return int(address) >> 124 in (2, 3)


def kernel_route(address):
    family = "-4" if address.version == 4 else "-6"
    found = subprocess.run(
        ["ip", family, "route", "get", "fibmatch", str(address)], capture_output=True, text=True
    )
    if found.returncode:
        return "- -"
    words = found.stdout.split()
    prefix = words[0] if "/" in words[0] else f"{words[0]}/{address.max_prefixlen}"
    return f"{prefix} {words[words.index('via') + 1]}"


for address in sorted(set(filter(forwardable, addresses(sys.argv[1]))), key=lambda a: (a.version, a)):
    print(address, kernel_route(address))
