"""Packets drawn at random, sound and damaged, for a router; random_arrivals.py prints what becomes of them.

    linux_packets.py write SEED COUNT          prints packets, each as a line of hexadecimal digits
    linux_packets.py explain FILE              prints frames in words, for a failed test

FINGERPOST_FILTERED: without packets that a filter of Linux and an access list do not examine alike: those with options,
which Linux examines before its filter, those to link-local addresses, which are left to Linux, and those with several
fragment headers, of which nftables reads the first.
"""

import os
import random
import sys

# Less than scapy.all, which takes twice as long to load: some ten seconds on an emulated processor.
from scapy.compat import raw
from scapy.config import conf
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

OURS, ROUTERS = "02:00:00:00:01:02", "02:00:00:00:01:01"
conf.verb = 0

# Not among these: the destination ::, IPv4-mapped addresses (docs/decisions/0027), and neighbors that do not
# answer, for which Linux waits longer.
SOURCES4 = ["10.0.0.2", "10.0.0.1", "10.0.1.1", "127.0.0.1", "0.0.0.0", "0.1.2.3", "224.0.0.5", "255.255.255.255",
            "169.254.1.1", "10.0.0.255", "10.0.1.255", "11.0.0.7", "12.0.0.7", "10.0.1.7"]
DESTINATIONS4 = ["20.0.1.1", "20.1.1.1", "20.2.1.1", "198.51.100.1", "10.0.0.1", "10.0.1.1", "10.0.1.255", "255.255.255.255",
                 "224.0.0.1", "239.1.2.3", "127.0.0.1", "0.0.0.0", "0.1.2.3", "169.254.7.7", "240.0.0.1", "10.0.0.255"]
OPTIONS = "FINGERPOST_FILTERED" not in os.environ
if not OPTIONS:
    DESTINATIONS4.remove("169.254.7.7")
SOURCES6 = ["fd00::2", "fd00::1", "fd00:1::1", "::", "::1", "ff02::5", "fe80::77", "2001:db8::7", "::1.2.3.4"]
DESTINATIONS6 = ["2001:db8:20::1", "2001:db8:21::1", "2001:db8:22::1", "2001:db8:ffff::1", "fd00::1", "fd00:1::1", "ff02::1",
                 "ff05::2", "ff0e::1", "::1", "::11.0.0.1", "2002:b00:1::1"]
# Record Route, Timestamp, Router Alert, source routes, a security label, unknown ones, and wrong ones.
OPTIONS4 = ["01", "00", "070704000000000", "4408090000000000", "94040000", "8307040a00010200", "8907040a00010200",
            "820b000000000000000000", "1e03ff", "9e050102ff", "07", "0703", "0700", "4404", "1eff", "070b0400000000000000"]


def upper(rng, payload):
    """A packet of an upper layer with its protocol."""
    ports = {"sport": rng.randrange(1, 65536), "dport": rng.choice([9, 80, rng.randrange(1, 65536)])}
    kind = rng.choice(["udp", "udp", "tcp", "icmp", "other"])
    if kind == "udp":
        return 17, UDP(**ports) / Raw(payload)
    if kind == "tcp":
        return 6, TCP(**ports, flags=rng.choice(["S", "A", "SA", "R", "F"])) / Raw(payload)
    if kind == "icmp":
        return 1, ICMP(type=rng.choice([0, 3, 4, 5, 8, 11, 12, 17, 40, 200]), code=rng.choice([0, 0, 1, 4])) / Raw(payload)
    return rng.choice([0, 2, 4, 41, 47, 50, 51, 89, 253, 255]), Raw(payload)


def length(rng):
    return rng.choice([0, 8, rng.randrange(64), rng.randrange(64), rng.randrange(1300), rng.randrange(1320, 1420)])


def v4(rng, number):
    protocol, above = upper(rng, rng.randbytes(length(rng)))
    # A source of its own, because Linux limits errors about routes by their sender once more (docs/decisions/0047).
    source = f"10.66.{number >> 8 & 255}.{number & 255}"
    to = f"{rng.choice([11, 11, 11, 12])}.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}"
    if rng.random() < 0.35:
        to = rng.choice(DESTINATIONS4)
    elif rng.random() < 0.3:
        source = rng.choice(SOURCES4)
    options = b""
    if rng.random() < 0.12 and OPTIONS:
        for _ in range(rng.choice([1, 1, 2, 3])):
            text = rng.choice(OPTIONS4)
            options += bytes.fromhex(text + "0" * (len(text) % 2))
        options = options[:40]
        options += rng.choice([b"\0", b"\1"]) * (-len(options) % 4)
    fields = {}
    if rng.random() < 0.2:
        fields = {"flags": rng.randrange(8), "frag": rng.choice([0, 1, rng.randrange(8000)])}
    above = raw(above)
    head = bytearray(raw(IP(src=source, dst=to, ttl=rng.choice([0, 1, 1, 2, 3, 64, 64, 64, 255]), tos=rng.randrange(256),
                            id=rng.randrange(1, 65536), proto=protocol, ihl=5 + len(options) // 4, chksum=0,
                            len=20 + len(options) + len(above), **fields))) + options
    if rng.random() < 0.06:
        damage = rng.choice(["ihl", "version", "long", "short"])
        if damage == "ihl":
            head[0] = 0x40 | rng.randrange(16 if OPTIONS else 6)
        elif damage == "version":
            head[0] = rng.randrange(16) << 4 | 5
        else:
            wrong = len(head) + len(above) + (rng.randrange(1, 99) if damage == "long" else -rng.randrange(1, 40))
            head[2:4] = (wrong & 0xffff).to_bytes(2, "big")
    head[10:12] = (~fold(head) & 0xffff).to_bytes(2, "big")
    if rng.random() < 0.04:
        head[rng.randrange(10, 12)] ^= 1 << rng.randrange(8)
    return 0x800, bytes(head) + above


def fold(data):
    total = sum(int.from_bytes(data[at:at + 2].ljust(2, b"\0"), "big") for at in range(0, len(data), 2))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def extension(rng):
    """An extension header: its number, and its bytes from the second on."""
    def options():
        some = b""
        while rng.random() < 0.6 and len(some) < 30:
            some += rng.choice([b"\0", b"\1\0", b"\1\3\0\0\0", b"\5\2\0\0", b"\x1e\1\7", b"\x5e\1\7", b"\x9e\1\7", b"\xde\1\7",
                                b"\xc2\4\0\1\0\0", b"\4\1\1", b"\1\x63"])
        some += b"\1" + bytes([(-len(some) - 4) % 8]) + bytes((-len(some) - 4) % 8)
        return bytes([(len(some) + 2) // 8 - 1]) + some
    number = rng.choice([0, 0, 60, 43, 44, 51, 135] if OPTIONS else [60, 43, 44, 51])
    if number in (0, 60, 135):
        return number, options()
    if number == 43:
        return 43, bytes([2, rng.choice([0, 2, 4, 253]), rng.randrange(3)]) + bytes(4) + rng.randbytes(16)
    if number == 44:
        return 44, bytes([0]) + rng.choice([0, 1, 8, rng.randrange(65536)]).to_bytes(2, "big") + rng.randbytes(4)
    return 51, bytes([1]) + bytes(10)


def v6(rng):
    protocol, above = upper(rng, rng.randbytes(length(rng)))
    if protocol == 0:
        # An empty hop-by-hop header would mean a jumbogram.
        protocol = 253
    if protocol == 1:
        protocol = 58
        above = Raw(bytes([rng.choice([1, 2, 3, 4, 127, 128, 129, 144, 200]), 0, 1, 2, 0, 0, 0, 0]) + rng.randbytes(length(rng)))
    source = f"fd77::{rng.randrange(1, 65536):x}:{rng.randrange(65536):x}"
    if rng.random() < 0.2:
        source = rng.choice(SOURCES6)
    to = f"2001:db8::{rng.randrange(2, 65536):x}:{rng.randrange(65536):x}"
    if rng.random() < 0.35:
        to = rng.choice(DESTINATIONS6)
    above = raw(above)
    if rng.random() < 0.2:
        fragment = False
        for _ in range(rng.choice([1, 1, 2, 3])):
            number, rest = extension(rng)
            if OPTIONS or number != 44 or not fragment:
                above, protocol = bytes([protocol]) + rest + above, number
            fragment |= number == 44
    head = bytearray(raw(IPv6(src=source, dst=to, hlim=rng.choice([0, 1, 1, 2, 3, 64, 64, 64, 255]), tc=rng.randrange(256),
                              fl=rng.randrange(1 << 20), nh=protocol, plen=len(above))))
    if rng.random() < 0.06:
        damage = rng.choice(["version", "long", "short"])
        if damage == "version":
            head[0] = rng.randrange(256)
        else:
            wrong = len(above) + (rng.randrange(1, 99) if damage == "long" else -rng.randrange(1, 40))
            # Not 0, which a jumbogram has: Linux would take the length of the frame.
            head[4:6] = (wrong & 0xffff or 1).to_bytes(2, "big")
    return 0x86dd, bytes(head) + above


def frame(rng, number):
    kind, packet = v4(rng, number) if rng.random() < 0.55 else v6(rng)
    to = ROUTERS
    if rng.random() < 0.05:
        to = rng.choice(["02:00:00:00:09:09", "ff:ff:ff:ff:ff:ff", "01:00:5e:00:00:01", "33:33:00:00:00:01"])
    if rng.random() < 0.02:
        kind = rng.choice([0x800, 0x86dd, 0x88cc, 0x0805])
    if rng.random() < 0.1:
        packet += bytes(rng.randrange(60))
    if rng.random() < 0.02:
        packet = packet[:rng.randrange(len(packet))]
    data = raw(Ether(src=OURS, dst=to, type=kind)) + packet
    return data[:1514]


def write(seed, count):
    rng = random.Random(seed)
    for number in range(count):
        print(frame(rng, number).hex())


def explain(path):
    for line in open(path):
        if line[:1] in "<>":
            print(line[:1], Ether(bytes.fromhex(line.split()[-1])).__repr__()[:400])


if __name__ == "__main__":
    {"write": lambda: write(int(sys.argv[2]), int(sys.argv[3])),
     "explain": lambda: explain(sys.argv[2])}[sys.argv[1]]()
