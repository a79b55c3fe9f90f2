#!/usr/bin/env python3
"""Packets made by scapy, for tests/tunnel.rs.

`/usr/bin/python3 tunnel.py > tunnel.hex`: a name and the bytes a line. Scapy fills in all
lengths and checksums; nothing here knows the crate.
"""
from scapy.all import ICMP, IP, TCP, UDP, IPv6, Raw, raw
from scapy.layers.inet6 import (ICMPv6DestUnreach, ICMPv6EchoRequest, ICMPv6PacketTooBig,
                                ICMPv6TimeExceeded, IPv6ExtHdrFragment)


def show(name, packet):
    print(name, raw(packet).hex())


def four(size=40, **fields):
    return IP(src="192.0.2.1", dst="198.51.100.7", ttl=57, id=4711, **fields) / UDP(
        sport=1234, dport=53) / Raw((bytes(range(256)) * 8)[:size])


def six(size=40, **fields):
    return IPv6(src="2001:db8::1", dst="2001:db8:ffff::2", hlim=57, **fields) / UDP(
        sport=1234, dport=53) / Raw((bytes(range(256)) * 8)[:size])


# The inner packets: with ECT(0), and with congestion experienced.
inner4 = four(tos=0xB8 | 2)
inner6 = six(tc=0x28 | 3, fl=0x54321)
show("inner4", inner4)
show("inner6", inner6)
outer4 = {"src": "203.0.113.1", "dst": "203.0.113.9", "ttl": 64, "id": 0, "flags": "DF"}
outer6 = {"src": "2001:db8:1::1", "dst": "2001:db8:1::9", "hlim": 64, "fl": 0xABCDE}
show("4in4", IP(tos=41 << 2 | 2, proto=4, **outer4) / raw(inner4))
show("6in4", IP(tos=1 << 2 | 3, proto=41, **outer4) / raw(inner6))
show("4in6", IPv6(tc=2 << 2 | 2, nh=4, **outer6) / raw(inner4))
show("6in6", IPv6(tc=63 << 2 | 3, nh=41, **outer6) / raw(inner6))
# The same with UDP: without a checksum over IPv4, with one over IPv6.
gue4, gue6 = ({"sport": 0xC123, "dport": 6080, **more} for more in ({"chksum": 0}, {}))
show("4u4", IP(tos=41 << 2 | 2, proto=17, **outer4) / UDP(**gue4) / Raw(raw(inner4)))
show("6u4", IP(tos=1 << 2 | 3, proto=17, **outer4) / UDP(**gue4) / Raw(raw(inner6)))
show("4u6", IPv6(tc=2 << 2 | 2, nh=17, **outer6) / UDP(**gue6) / Raw(raw(inner4)))
show("6u6", IPv6(tc=63 << 2 | 3, nh=17, **outer6) / UDP(**gue6) / Raw(raw(inner6)))
# Packets congested on the path, and the results of decapsulation.
show("4in4ce", IP(tos=41 << 2 | 3, proto=4, **outer4) / raw(inner4))
show("inner4ce", four(tos=0xB8 | 3))
show("inner6ect1", six(tc=0x28 | 1))
show("inner6ce", six(tc=0x28 | 3))

# Answers: short packets are quoted whole, long ones up to the limits.
answer4 = {"src": "203.0.113.1", "dst": "192.0.2.1", "ttl": 64, "id": 0x1234, "tos": 0xC8}
answer6 = {"src": "2001:db8:1::1", "dst": "2001:db8::1", "hlim": 64}
for name, size in [("short", 40), ("long", 1472)]:
    # The answer copies some bits of the type of service: 0x08 of 0x28.
    packet = raw(four(size, flags="DF", tos=0x28))
    show(f"{name}4", packet)
    quoted = packet[:576 - 28]
    show(f"{name}4big", IP(**answer4) / ICMP(type=3, code=4, nexthopmtu=1400) / Raw(quoted))
    show(f"{name}4hops", IP(**answer4) / ICMP(type=11, code=0) / Raw(quoted))
    for what, code in [("none", 0), ("host", 1), ("route", 1), ("prohibit", 13)]:
        show(f"{name}4{what}", IP(**answer4) / ICMP(type=3, code=code) / Raw(quoted))
    packet = raw(six(size))
    show(f"{name}6", packet)
    quoted = packet[:1280 - 48]
    show(f"{name}6big", IPv6(**answer6) / ICMPv6PacketTooBig(mtu=1280) / Raw(quoted))
    show(f"{name}6hops", IPv6(**answer6) / ICMPv6TimeExceeded() / Raw(quoted))
    for what, code in [("none", 0), ("host", 3), ("route", 0), ("prohibit", 1)]:
        show(f"{name}6{what}", IPv6(**answer6) / ICMPv6DestUnreach(code=code) / Raw(quoted))

# Packets without an answer.
show("none4error", IP(src="192.0.2.1", dst="198.51.100.7") / ICMP(type=3, code=1) / Raw(bytes(28)))
show("some4echo", IP(src="192.0.2.1", dst="198.51.100.7") / ICMP(type=8) / Raw(bytes(28)))
show("none4fragment", IP(src="192.0.2.1", dst="198.51.100.7", frag=100) / Raw(bytes(64)))
show("none4multicast", IP(src="192.0.2.1", dst="224.0.0.5") / UDP())
show("none4nobody", IP(src="0.0.0.0", dst="198.51.100.7") / UDP())
show("none4loop", IP(src="127.0.0.1", dst="198.51.100.7") / UDP())
show("none6error", IPv6(src="2001:db8::1", dst="2001:db8::2") / ICMPv6PacketTooBig() / Raw(bytes(40)))
show("some6echo", IPv6(src="2001:db8::1", dst="2001:db8::2") / ICMPv6EchoRequest())
show("some6fragment", IPv6(src="2001:db8::1", dst="2001:db8::2")
     / IPv6ExtHdrFragment(offset=100, nh=17) / Raw(bytes(64)))
show("none6nobody", IPv6(src="::", dst="2001:db8::2") / UDP())
show("big6multicast", IPv6(src="2001:db8::1", dst="ff02::5") / UDP())

# SYNs, before and after: the option first, behind two NOPs, at an odd offset, and not there.
for name, options in [("plain", []), ("even", [("NOP", None)] * 2), ("odd", [("NOP", None)])]:
    for family, ip in [(4, IP(src="192.0.2.1", dst="198.51.100.7")),
                       (6, IPv6(src="2001:db8::1", dst="2001:db8::2"))]:
        for mss in (1460, 1360):
            tcp = TCP(sport=1024, dport=80, seq=7, flags="S",
                      options=options + [("MSS", mss), ("SAckOK", b"")])
            show(f"syn{family}{name}{mss}", ip / tcp)
show("syn4none", IP(src="192.0.2.1", dst="198.51.100.7") / TCP(flags="S"))
show("ack4", IP(src="192.0.2.1", dst="198.51.100.7") / TCP(flags="A", options=[("MSS", 1460)]))
