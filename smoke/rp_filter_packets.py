"""Sends packets from a to source with sources of all kinds, and prints those that arrive; then packets whose
TTL is used up, and prints the sources that get an ICMP error.

    rp_filter_packets.py PREFIX
"""

import sys
import time

from scapy.all import ICMP, IP, UDP, Ether, raw
from scapy.layers.inet import IPerror, UDPerror
from scapy.layers.inet6 import IPv6

from netns import Tap

ROUTER, A = "02:00:00:00:02:01", "02:00:00:00:02:02"
# By the route of each: over r1, the link of r1, over r2, over both, a blackhole, none; and over r2 with IPv6.
SOURCES = ["11.0.0.1", "10.0.1.2", "12.0.0.1", "13.0.0.1", "14.0.0.1", "203.0.113.9", "fd12::1"]
# Those of packets whose TTL is used up: the error for the second leaves by r2.
EXPIRED = ["11.0.0.1", "12.0.0.1"]
# Sources that always pass.
LAST, LAST_V6 = "10.0.1.2", "fd00:1::2"
PORT = 9


def packet(source, port=PORT, ttl=64):
    ip = IPv6(src=source, dst="fd00:0::2") if ":" in source else IP(src=source, dst="10.0.0.2", ttl=ttl)
    return raw(Ether(src=A, dst=ROUTER) / ip / UDP(sport=PORT, dport=port) / b"source")


def arrived(tap):
    """Returns the sources and ports of the packets that have arrived."""
    tap.take()
    for frame in tap.seen:
        ether = Ether(frame)
        if UDP in ether and ether[UDP].sport == PORT:
            layer = IPv6 if IPv6 in ether else IP
            yield ether[layer].src, ether[UDP].dport


def answered(taps):
    """Returns the sources and ports of the packets about which an error has arrived."""
    for tap in taps:
        tap.take()
        for frame in tap.seen:
            ether = Ether(frame)
            if ICMP in ether and ether[ICMP].type == 11:
                yield ether[IPerror].src, ether[UDPerror].dport


def send_until(sender, frame, is_done):
    """Sends a packet until a condition holds: those before it have arrived then, or been dropped."""
    deadline = time.monotonic() + 10
    while not is_done():
        assert time.monotonic() < deadline, f"{Ether(frame).summary()} does not arrive"
        sender.send(frame)
        time.sleep(0.02)


def main(prefix):
    sender, receiver, b = Tap(prefix + "a", "a0"), Tap(prefix + "source", "s0"), Tap(prefix + "b", "b0")

    def await_last(port):
        for source in LAST, LAST_V6:
            send_until(sender, packet(source, port), lambda: (source, port) in set(arrived(receiver)))

    # The router resolves its neighbors.
    await_last(1000)
    for _ in range(3):
        for source in SOURCES:
            sender.send(packet(source))
    await_last(1001)
    passed = [source for source, port in arrived(receiver) if port == PORT]
    for source in SOURCES:
        assert passed.count(source) in (0, 3), (source, passed)
        if source in passed:
            print(source)

    for source in EXPIRED:
        sender.send(packet(source, ttl=1))
    send_until(sender, packet(LAST, 1002, ttl=1), lambda: (LAST, 1002) in set(answered([sender])))
    errors = set(answered([sender, b]))
    for source in EXPIRED:
        if (source, PORT) in errors:
            print("expired", source)


main(sys.argv[1])
