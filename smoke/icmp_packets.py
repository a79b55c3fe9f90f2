"""Sends packets that a router cannot forward, and prints the errors that it returns; runs in the namespace
source.

    icmp_packets.py ask [quick]   sends each kind of packet once, and prints what comes back, a line each;
                                  quick: without those that wait for a neighbor
    icmp_packets.py flood SECONDS sends 200,000 packets a second whose TTL expires, from 64 sources; the processors
                                  of a test machine are shared, and a full load loses packets at random
"""

import socket
import sys
import time

from scapy.all import Ether, IPOption_RR, Raw, conf, raw
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (ICMPv6DestUnreach, ICMPv6EchoReply, ICMPv6EchoRequest, IPv6, IPv6ExtHdrDestOpt,
                                IPv6ExtHdrFragment)

OURS, ROUTERS = "02:00:00:00:01:02", "02:00:00:00:01:01"
conf.verb = 0


def packets():
    """Yields each packet with its name. All have payloads of their own, so that errors can be assigned."""
    far, here = "11.0.0.1", "10.0.0.2"
    udp = UDP(sport=1234, dport=33434) / Raw(b"0123456789" * 4)
    ttl = {"ttl": 1}
    for name, destination, fields in [
        # First, because the kernel limits these by a bucket that each other error empties.
        ("no route", "198.51.100.1", {}), ("unreachable route", "20.0.0.1", {}), ("prohibit route", "20.1.0.1", {}),
        ("ttl without route", "198.51.100.1", ttl), ("ttl, unreachable", "20.0.0.1", ttl),
        ("blackhole route", "20.2.0.1", {}), ("ttl, blackhole", "20.2.0.1", ttl), ("ttl", far, ttl),
        ("ttl 0", far, {"ttl": 0}), ("no neighbor", "10.0.1.99", {}), ("ttl on the link", "10.0.1.99", ttl),
        ("tos", far, {"tos": 255, **ttl}),
        ("from another network", far, {"src": "10.9.0.2", **ttl}), ("from a secondary", far, {"src": "10.0.0.3", **ttl}),
        ("from behind a gateway", far, {"src": "10.77.0.5", **ttl}),
        ("by a route with a source", far, {"src": "10.78.0.5", **ttl}),
        ("from the router", far, {"src": "10.0.0.1", **ttl}), ("from loopback", far, {"src": "127.0.0.1", **ttl}),
        ("from no address", far, {"src": "0.0.0.0", **ttl}), ("from a group", far, {"src": "224.0.0.5", **ttl}),
        ("record route", far, {"options": IPOption_RR(length=11, routers=["0.0.0.0"] * 2), **ttl}),
        ("first fragment", far, {"flags": "MF", **ttl}), ("later fragment", far, {"frag": 100, **ttl}),
    ]:
        yield name, IP(**{"src": here, "dst": destination, "id": 7, **fields}) / udp
    yield "tcp", IP(src=here, dst=far, id=7, **ttl) / TCP(sport=1, dport=80, flags="S")
    times = {"ts_ori": 1, "ts_rx": 2, "ts_tx": 3}
    for kind in [0, 3, 5, 8, 11, 12, 13, 14, 17, 40]:
        yield f"icmp {kind}", IP(src=here, dst=far, id=7, **ttl) / ICMP(type=kind, **times) / Raw(b"x" * 36)
    yield "long", IP(src=here, dst=far, id=7, **ttl) / UDP(sport=1, dport=2) / Raw(b"y" * 1372)
    yield "too big", IP(src=here, dst=far, id=7, flags="DF") / UDP(sport=1, dport=2) / Raw(b"z" * 1472)
    yield "too big from behind a gateway", IP(src="10.77.0.5", dst=far, id=7, flags="DF") / Raw(b"z" * 1480)

    far, here = "2001:db8::1", "fd00::2"
    hop = {"hlim": 1}
    for name, destination, fields in [
        ("hop limit", far, hop), ("hop limit 0", far, {"hlim": 0}), ("no route", "2001:db8:ffff::1", {}),
        ("unreachable route", "2001:db8:20::1", {}), ("prohibit route", "2001:db8:21::1", {}),
        ("blackhole route", "2001:db8:22::1", {}), ("hop limit, prohibit", "2001:db8:21::1", hop),
        ("hop limit, blackhole", "2001:db8:22::1", hop), ("hop limit on the link", "fd00:1::99", hop), ("no neighbor", "fd00:1::99", {}), ("class", far, {"tc": 255, **hop}),
        ("flow label", far, {"fl": 0x12345, **hop}), ("from another network", far, {"src": "fd09::2", **hop}),
        ("from a global network", far, {"src": "2001:db8:a::2", **hop}),
        ("from behind a gateway", far, {"src": "fd77::5", **hop}), ("global, behind a gateway", far, {"src": "2001:db8:77::5", **hop}),
        ("from no address", far, {"src": "::", **hop}), ("from loopback", far, {"src": "::1", **hop}),
        ("from a group", far, {"src": "ff02::5", **hop}),
    ]:
        yield f"IPv6 {name}", IPv6(**{"src": here, "dst": destination, **fields}) / udp
    yield "IPv6 tcp", IPv6(src=here, dst=far, **hop) / TCP(sport=1, dport=80, flags="S")
    yield "IPv6 echo", IPv6(src=here, dst=far, **hop) / ICMPv6EchoRequest(data=b"x" * 40)
    yield "IPv6 echo reply", IPv6(src=here, dst=far, **hop) / ICMPv6EchoReply(data=b"x" * 40)
    yield "IPv6 error", IPv6(src=here, dst=far, **hop) / ICMPv6DestUnreach() / Raw(b"x" * 40)
    yield "IPv6 options", IPv6(src=here, dst=far, **hop) / IPv6ExtHdrDestOpt() / udp
    yield "IPv6 error behind options", IPv6(src=here, dst=far, **hop) / IPv6ExtHdrDestOpt() / ICMPv6DestUnreach() / Raw(b"x" * 40)
    yield "IPv6 first fragment", IPv6(src=here, dst=far, **hop) / IPv6ExtHdrFragment(m=1) / udp
    yield "IPv6 later fragment", IPv6(src=here, dst=far, **hop) / IPv6ExtHdrFragment(offset=10, nh=17) / Raw(b"x" * 40)
    yield "IPv6 long", IPv6(src=here, dst=far, **hop) / UDP(sport=1, dport=2) / Raw(b"y" * 1352)
    yield "IPv6 too big", IPv6(src=here, dst=far) / UDP(sport=1, dport=2) / Raw(b"z" * 1452)


def error(frame):
    """Returns a frame that is an ICMP error of the router, without what may differ: the identification and
    the checksum of the IPv4 header, the flow label."""
    data = bytearray(frame)
    if data[6:12] != bytes.fromhex(ROUTERS.replace(":", "")):
        return None
    if data[12:14] == b"\x08\x00" and data[14] == 0x45 and data[23] == 1 and data[34] in (3, 4, 5, 11, 12):
        data[18:20] = data[24:26] = b"\0\0"
    elif data[12:14] == b"\x86\xdd" and data[20] == 58 and data[54] < 128:
        data[15:18] = bytes([data[15] & 0xF0, 0, 0])
    else:
        return None
    return bytes(data)


def received(link, seconds):
    """Receives frames until none has arrived for this time, and returns the errors among them."""
    link.settimeout(seconds)
    found = []
    try:
        while True:
            found.append(error(link.recv(65535)))
    except TimeoutError:
        return [frame for frame in found if frame]


def ask(quick):
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    link.bind(("s0", 3))
    for name, packet in packets():
        if quick and "no neighbor" in name:
            continue
        link.send(raw(Ether(src=OURS, dst=ROUTERS) / packet))
        # The kernel gives up a neighbor after three seconds, the router after one.
        found = received(link, 3.5 if "no neighbor" in name else 0.1)
        print(f"{name}: {len(found)} {' '.join(frame.hex() for frame in found)}")


def flood(seconds):
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    link.bind(("s0", 0))
    frames = [raw(Ether(src=OURS, dst=ROUTERS) / IP(src=f"10.66.0.{n}", dst="11.0.0.1", ttl=1) / UDP() / Raw(b"f" * 18))
              for n in range(1, 65)]
    begun, sent = time.time(), 0
    while (now := time.time()) < begun + seconds:
        if sent > (now - begun) * 200_000:
            time.sleep(0.0005)
            continue
        for frame in frames:
            try:
                link.send(frame)
                sent += 1
            except OSError:
                pass
    print(f"{sent / seconds:.0f}")


if __name__ == "__main__":
    {"ask": lambda: ask("quick" in sys.argv), "flood": lambda: flood(float(sys.argv[2]))}[sys.argv[1]]()
