"""Sends packets that a router punts, and checks the kernel's answers; runs in the namespace source.

    punts_packets.py answers MTU            packets that are too long for the next link, and packets without a route
    punts_packets.py redirects NAMESPACE    packets whose next hop is on the link that they arrive on
    punts_packets.py silent ADDRESS         packets without any answer
"""

import sys
import time

from scapy.all import AsyncSniffer, Ether, conf, raw, sendp
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import ICMPv6DestUnreach, ICMPv6ND_Redirect, ICMPv6PacketTooBig, IPv6

from netns import Tap

OURS, ROUTERS = "02:00:00:00:01:02", "02:00:00:00:01:01"
conf.verb = 0


def fail(words):
    sys.exit(f"FAIL: {words}")


def answer(packet, to, which):
    """Sends `packet` until the router sends a frame that `which` accepts, and returns that frame."""
    sniffer = AsyncSniffer(iface="s0", lfilter=lambda frame: frame[Ether].src == ROUTERS, store=True,
                           stop_filter=lambda frame: frame[Ether].src == ROUTERS and which(frame))
    sniffer.start()
    while not getattr(sniffer, "stop_cb", None):
        time.sleep(0.01)
    frame = Ether(src=OURS, dst=to) / packet
    for _ in range(10):
        sendp(frame, iface="s0")
        sniffer.join(timeout=1)
        if not sniffer.running:
            break
    else:
        sniffer.stop()
    found = [frame for frame in sniffer.results or [] if which(frame)]
    return found[0] if found else None


def quotes(frame, layer, packet):
    """Checks that an ICMP error quotes the packet's first bytes, except the fields that a router
    changes."""
    quoted, sent = bytes(raw(frame[layer]))[8:], bytes(raw(packet))
    return len(quoted) >= 28 and quoted[12:28] == sent[12:28]


def answers(mtu):
    source, here, there = "10.0.0.2", "10.0.0.1", "11.0.0.1"
    big = IP(src=source, dst=there, flags="DF", id=7) / UDP(sport=1, dport=9) / bytes(mtu - 28 + 1)
    got = answer(big, ROUTERS, lambda frame: ICMP in frame and frame[ICMP].type == 3 and frame[ICMP].code == 4)
    if not got or (got[IP].src, got[IP].dst, got[ICMP].nexthopmtu) != (here, source, mtu) or not quotes(got, ICMP, big):
        fail(f"Fragmentation Needed: {got!r}")
    big6 = IPv6(src="fd00:0::2", dst="2001:db8::1") / UDP(sport=1, dport=9) / bytes(mtu - 48 + 1)
    got = answer(big6, ROUTERS, lambda frame: ICMPv6PacketTooBig in frame)
    if not got or (got[IPv6].src, got[IPv6].dst, got[ICMPv6PacketTooBig].mtu) != ("fd00::1", "fd00::2", mtu):
        fail(f"Packet Too Big: {got!r}")
    if not quotes(got, ICMPv6PacketTooBig, big6):
        fail(f"Packet Too Big quotes something else: {got!r}")
    print("   Fragmentation Needed and Packet Too Big arrive, with the MTU and the packet")
    nowhere = IP(src=source, dst="198.51.100.1") / UDP(sport=1, dport=9) / b"nowhere"
    got = answer(nowhere, ROUTERS, lambda frame: ICMP in frame and frame[ICMP].type == 3 and frame[ICMP].code == 0)
    if not got or (got[IP].src, got[IP].dst) != (here, source) or not quotes(got, ICMP, nowhere):
        fail(f"Network Unreachable: {got!r}")
    nowhere = IPv6(src="fd00:0::2", dst="2001:db8:ffff::1") / UDP(sport=1, dport=9) / b"nowhere"
    got = answer(nowhere, ROUTERS, lambda frame: ICMPv6DestUnreach in frame and frame[ICMPv6DestUnreach].code == 0)
    if not got or got[IPv6].src != "fd00::1" or not quotes(got, ICMPv6DestUnreach, nowhere):
        fail(f"No Route To Destination: {got!r}")
    print("   packets without a route are answered as unreachable")


def redirects(namespace):
    packet = IP(src="10.0.0.2", dst="13.0.0.1") / UDP(sport=1, dport=9) / b"shorter"
    got = answer(packet, ROUTERS, lambda frame: ICMP in frame and frame[ICMP].type == 5)
    if not got or (got[IP].src, got[ICMP].gw) != ("10.0.0.1", "10.0.0.3") or not quotes(got, ICMP, packet):
        fail(f"Redirect: {got!r}")
    packet = IPv6(src="fd00:0::2", dst="2001:db8:13::1") / UDP(sport=1, dport=9) / b"shorter"
    got = answer(packet, ROUTERS, lambda frame: ICMPv6ND_Redirect in frame)
    if not got or got[ICMPv6ND_Redirect].dst != "2001:db8:13::1":
        fail(f"IPv6 Redirect: {got!r}")
    print("   Redirects name the shorter way")
    # Each packet arrives once, whether the kernel forwards it or the router.
    tap = Tap(namespace, "s0")
    sendp([Ether(src=OURS, dst=ROUTERS) / IP(src="10.0.0.2", dst="13.0.0.1", id=n) / UDP(sport=1, dport=77)
           for n in range(1, 301)], iface="s0")
    returned, until = [], time.time() + 5
    while len(returned) < 300 and time.time() < until:
        time.sleep(0.1)
        tap.take()
        frames = map(Ether, tap.seen)
        returned = [frame[IP] for frame in frames if frame.src == ROUTERS and UDP in frame and frame[UDP].dport == 77
                    and ICMP not in frame]
    ids = sorted(packet.id for packet in returned)
    if ids != list(range(1, 301)) or {packet.ttl for packet in returned} != {63}:
        fail(f"{len(ids)} packets of 300 arrived, {len(set(ids))} of them once")
    print("   every packet is forwarded once, with one hop less")


def silent(address):
    packet = IP(src="10.0.0.2", dst=address) / UDP(sport=1, dport=9) / b"leak"
    sendp([Ether(src=OURS, dst=ROUTERS) / packet] * 20, iface="s0")


if __name__ == "__main__":
    {"answers": lambda: answers(int(sys.argv[2])), "redirects": lambda: redirects(sys.argv[2]),
     "silent": lambda: silent(sys.argv[2])}[sys.argv[1]]()
