"""Sends packets from a to source with sources of all kinds, and prints those that arrive.

    rp_filter_packets.py PREFIX
"""

import sys
import time

from scapy.all import IP, UDP, Ether, raw
from scapy.layers.inet6 import IPv6

from netns import Tap

ROUTER, A = "02:00:00:00:02:01", "02:00:00:00:02:02"
# By the route of each: over r1, the link of r1, over r2, over both, a blackhole, none; and over r2 with IPv6.
SOURCES = ["11.0.0.1", "10.0.1.2", "12.0.0.1", "13.0.0.1", "14.0.0.1", "203.0.113.9", "fd12::1"]
# Sources that always pass.
LAST, LAST_V6 = "10.0.1.3", "fd00:1::2"
PORT = 9


def packet(source, port=PORT):
    ip = IPv6(src=source, dst="fd00:0::2") if ":" in source else IP(src=source, dst="10.0.0.2")
    return raw(Ether(src=A, dst=ROUTER) / ip / UDP(sport=PORT, dport=port) / b"source")


def arrived(tap):
    """Returns the sources and ports of the packets that have arrived."""
    tap.take()
    for frame in tap.seen:
        ether = Ether(frame)
        if UDP in ether and ether[UDP].sport == PORT:
            layer = IPv6 if IPv6 in ether else IP
            yield ether[layer].src, ether[UDP].dport


def await_packet(sender, receiver, source, port):
    """Sends a packet until it arrives: those before it have arrived then, or been dropped."""
    deadline = time.monotonic() + 10
    while (source, port) not in set(arrived(receiver)):
        assert time.monotonic() < deadline, f"no packet from {source} arrives"
        sender.send(packet(source, port))
        time.sleep(0.02)


def main(prefix):
    sender, receiver = Tap(prefix + "a", "a0"), Tap(prefix + "source", "s0")
    # The router resolves its neighbors.
    await_packet(sender, receiver, LAST, 1000)
    await_packet(sender, receiver, LAST_V6, 1000)
    for _ in range(3):
        for source in SOURCES:
            sender.send(packet(source))
    await_packet(sender, receiver, LAST, 1001)
    await_packet(sender, receiver, LAST_V6, 1001)
    passed = [source for source, port in arrived(receiver) if port == PORT]
    for source in SOURCES:
        assert passed.count(source) in (0, 3), (source, passed)
        if source in passed:
            print(source)


main(sys.argv[1])
