"""Sends packets to the router from source, and from a, and prints the outcome of each: forwarded, an ICMP error, an
echo reply, or none.

    forwarding_packets.py PREFIX
"""

import sys
import time

from scapy.all import ICMP, IP, UDP, Ether, raw
from scapy.layers.inet import IPerror, UDPerror
from scapy.layers.inet6 import (
    ICMPv6DestUnreach,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6TimeExceeded,
    IPerror6,
    IPv6,
)

from netns import Tap

SOURCE = ("02:00:00:00:01:02", "02:00:00:00:01:01", "10.0.0.2", "fd00:0::2")
A = ("02:00:00:00:02:02", "02:00:00:00:02:01", "11.0.0.1", "2001:db8::1")


def packet(side, destination, port, ttl):
    own, router, v4, v6 = side
    ether = Ether(src=own, dst=router)
    if ":" in destination:
        return raw(ether / IPv6(src=v6, dst=destination, hlim=ttl) / UDP(sport=port, dport=port, chksum=0))
    return raw(ether / IP(src=v4, dst=destination, ttl=ttl) / UDP(sport=port, dport=port, chksum=0))


def probes(family, near, far, without_route, blackhole, unreachable):
    """Returns the probes of a family by name: the sender, destination and TTL of each."""
    probed = {
        "": (SOURCE, far, 64),
        " back": (A, near, 64),
        " expired": (SOURCE, far, 1),
        " without a route": (SOURCE, without_route, 64),
        " to a blackhole": (SOURCE, blackhole, 64),
        " unreachable": (SOURCE, unreachable, 64),
    }
    return {family + name: probe for name, probe in probed.items()}


PROBES = probes("IPv4", SOURCE[2], A[2], "203.0.113.1", "20.0.0.1", "20.1.0.1") | probes(
    "IPv6", SOURCE[3], A[3], "2001:db9::1", "2001:db8:20::1", "2001:db8:21::1"
)


def outcome(ether):
    """Returns the port of the probe that a frame is about, and what has become of it."""
    if IPerror in ether and UDPerror in ether:
        return ether[UDPerror].dport, f"ICMP {ether[ICMP].type}/{ether[ICMP].code}"
    if IPerror6 in ether and UDPerror in ether:
        for error in ICMPv6DestUnreach, ICMPv6TimeExceeded:
            if error in ether:
                return ether[UDPerror].dport, f"ICMPv6 {ether[error].type}/{ether[error].code}"
    if UDP in ether:
        return ether[UDP].dport, "forwarded"
    return None, None


def replies(taps):
    """Returns the families of which the router has answered an echo request."""
    frames = [Ether(frame) for frame in taps[0].seen]
    v4 = any(ICMP in ether and ether[ICMP].type == 0 for ether in frames)
    return v4 and any(ICMPv6EchoReply in ether for ether in frames)


def main(prefix):
    taps = [Tap(prefix + "source", "s0"), Tap(prefix + "a", "a0")]
    own, router, v4, v6 = SOURCE
    echo = [IP(src=v4, dst="10.0.1.1") / ICMP(id=7), IPv6(src=v6, dst="fd00:1::1") / ICMPv6EchoRequest(id=7)]
    for port, (side, destination, ttl) in enumerate(PROBES.values(), 5000):
        taps[side is A].send(packet(side, destination, port, ttl))
    # The router's own addresses always answer: the probes before have been processed by the kernel then.
    deadline = time.monotonic() + 10
    while not replies(taps):
        assert time.monotonic() < deadline, "the router does not answer an echo request"
        for request in echo:
            taps[0].send(raw(Ether(src=own, dst=router) / request))
        time.sleep(0.05)
        for tap in taps:
            tap.take()
    # A refused packet does not arrive later either.
    time.sleep(0.3)
    outcomes = {}
    for tap, mac in zip(taps, (SOURCE[0], A[0])):
        tap.take()
        for ether in map(Ether, tap.seen):
            port, what = outcome(ether)
            if port is not None and ether.dst == mac:
                outcomes.setdefault(port, set()).add(what)
    for port, name in enumerate(PROBES, 5000):
        print(f"{name}: {', '.join(sorted(outcomes.get(port, {'none'})))}")


main(sys.argv[1])
