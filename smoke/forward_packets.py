"""The packets of forward_test.sh: what a router must forward, and what it must not.

RFC 1812 section 5 for IPv4, RFC 8200 for IPv6. Called with the prefix of the
namespaces and a file, into which it writes what the router must have counted.
"""

import json
import sys
from collections import Counter

from checks import Checks
from forward_cases import Case, Testbed
from netns import Tap
from scapy.compat import raw
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_LSRR, IPOption_NOP, IPOption_RR
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    PadN,
)
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

SOURCE, ROUTER = "02:00:00:00:01:02", "02:00:00:00:01:01"

# Routes of forward_test.sh: 11/8 and 2001:4::/32 to a, 12/8 and 2001:5::/32 to b, and
# within a's blocks 11.1.2.0/24 and 2001:4:1::/48 to b. No route to 13/8, 2001:6::/32.
BLACKHOLE = "14.0.0.1"
VIA_A, VIA_B, VIA_A_BUT_B, NOWHERE = "11.9.8.7", "12.0.0.1", "11.1.2.3", "13.0.0.1"
VIA_A6, VIA_B6 = "2001:4::7", "2001:5:ffff::1"
VIA_A6_BUT_B6, NOWHERE6 = "2001:4:1::9", "2001:6::1"
FROM, FROM6 = "10.7.7.7", "2001:3::7"


def ether(**fields):
    return Ether(**{"src": SOURCE, "dst": ROUTER, **fields})


def v4(dst, **fields):
    return ether() / IP(**{"src": FROM, "dst": dst, "ttl": 17, "id": 4711, "tos": 0x2E, **fields})


def v6(dst, **fields):
    return ether() / IPv6(
        **{"src": FROM6, "dst": dst, "hlim": 33, "tc": 0xB8, "fl": 0xABCDE, **fields}
    )


def udp(size=40):
    return UDP(sport=5000, dport=6000) / Raw(bytes(i & 0xFF for i in range(size)))


def probes(marker):
    for name, dst in (("a", VIA_A), ("b", VIA_B)):
        yield Case("probe", "sent", v4(dst) / UDP(sport=1, dport=2) / Raw(marker), name)


def tagged(packet):
    return ether() / Dot1Q(vlan=5) / packet[IP]


def broken(packet, at, value):
    """The packet with one byte of its frame changed and nothing recomputed."""
    frame = bytearray(raw(packet))
    frame[at] = value
    return Ether(bytes(frame))


def forwarded():
    fragmented = v4(VIA_A, flags="MF") / udp(64)
    yield Case("v4 udp to a", "sent", v4(VIA_A) / udp(), "a")
    yield Case("v4 udp to b", "sent", v4(VIA_B) / udp(), "b")
    yield Case("v4 longest prefix wins", "sent", v4(VIA_A_BUT_B) / udp(), "b")
    yield Case("v4 last address before the longer prefix", "sent", v4("11.1.1.255") / udp(), "a")
    yield Case("v4 first address after the longer prefix", "sent", v4("11.1.3.0") / udp(), "a")
    yield Case("v4 tcp", "sent", v4(VIA_B) / TCP(sport=1, dport=80, flags="S", options=[("MSS", 1460)]), "b")
    yield Case("v4 echo request", "sent", v4(VIA_A) / ICMP(id=1, seq=2) / Raw(b"ping"), "a")
    yield Case("v4 do not fragment, at the MTU", "sent", v4(VIA_A, flags="DF") / udp(1500 - 28), "a")
    yield Case("v4 empty payload", "sent", v4(VIA_A, proto=253), "a")
    yield Case("v4 first fragment", "sent", fragmented, "a")
    yield Case("v4 last fragment", "sent", v4(VIA_A, frag=9, proto=17) / Raw(b"tail" * 5), "a")
    yield Case("v4 ttl 2", "sent", v4(VIA_A, ttl=2) / udp(), "a")
    # As Linux.
    yield Case("v4 from 0.0.0.0/8", "sent", v4(VIA_A, src="0.1.2.3") / udp(), "a")
    yield Case("v4 from link local", "sent", v4(VIA_A, src="169.254.1.1") / udp(), "a")
    yield Case("v4 from class e", "sent", v4(VIA_A, src="240.0.0.1") / udp(), "a")
    yield Case("v4 ttl 255", "sent", v4(VIA_B, ttl=255) / udp(), "b")
    # The one's complement has two zeros; these sums sit at the edge of RFC 1624.
    for ident in (0, 0xFFFF, 0x8000, 1):
        yield Case(f"v4 id {ident:#06x}", "sent", v4(VIA_B, id=ident, ttl=1 + 0x80) / udp(8), "b")
    yield Case("v4 options", "sent", v4(VIA_A, options=[IPOption_NOP(), IPOption_NOP(), IPOption_RR(length=7)]) / udp(), "a")
    yield Case("v4 a route of the configuration", "sent", v4("15.1.1.1") / udp(), "b")
    yield Case("v6 udp to a", "sent", v6(VIA_A6) / udp(), "a")
    yield Case("v6 udp to b", "sent", v6(VIA_B6) / udp(), "b")
    yield Case("v6 longest prefix wins", "sent", v6(VIA_A6_BUT_B6) / udp(), "b")
    yield Case("v6 tcp", "sent", v6(VIA_B6) / TCP(sport=1, dport=443, flags="SA"), "b")
    yield Case("v6 echo request", "sent", v6(VIA_A6) / ICMPv6EchoRequest(id=3, seq=4, data=b"ping"), "a")
    yield Case("v6 fragment", "sent", v6(VIA_A6) / IPv6ExtHdrFragment(offset=5, m=1, id=9, nh=17) / Raw(b"x" * 32), "a")
    yield Case("v6 destination options", "sent", v6(VIA_A6) / IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)]) / udp(), "a")
    yield Case("v6 no next header", "sent", v6(VIA_B6, nh=59), "b")
    yield Case("v6 hop limit 2", "sent", v6(VIA_A6, hlim=2) / udp(), "a")
    yield Case("v6 at the MTU", "sent", v6(VIA_B6) / udp(1500 - 48), "b")


def refused():
    """Frames that do not come out, and the counter that says why."""
    yield Case("v4 no route", "drop.no_route", v4(NOWHERE) / udp())
    yield Case("v4 bad checksum", "drop.bad_checksum", v4(VIA_A, chksum=0x1234) / udp())
    yield Case("v4 ttl 1", "pass.expiring", v4(VIA_A, ttl=1) / udp())
    yield Case("v4 ttl 0", "pass.expiring", v4(VIA_A, ttl=0) / udp())
    yield Case("v4 version 5", "pass.unparsed", broken(v4(VIA_A) / udp(), 14, 0x55))
    yield Case("v4 header length 4", "pass.unparsed", broken(v4(VIA_A) / udp(), 14, 0x44))
    yield Case("v4 longer than the frame", "drop.truncated", v4(VIA_A, len=200) / udp())
    yield Case("v4 shorter than its header", "drop.bad_total_length", v4(VIA_A, len=19) / udp())
    yield Case("v4 from loopback", "drop.loopback", v4(VIA_A, src="127.0.0.1") / udp())
    yield Case("v4 from multicast", "drop.multicast_source", v4(VIA_A, src="224.0.0.5") / udp())
    yield Case("v4 from broadcast", "drop.martian_source", v4(VIA_A, src="255.255.255.255") / udp())
    yield Case("v4 from no address", "drop.martian_source", v4(VIA_A, src="0.0.0.0") / udp())
    yield Case("v4 to loopback", "drop.loopback", v4("127.9.9.9") / udp())
    yield Case("v4 to the host's loopback address", "pass.local", v4("127.0.0.1") / udp())
    yield Case("v4 to the router", "pass.local", v4("10.0.0.1") / udp())
    yield Case("v4 to class e", "drop.no_route", v4("240.0.0.1") / udp())
    yield Case("v4 to link local", "pass.link_local", v4("169.254.1.1") / udp())
    yield Case("v4 to multicast", "pass.multicast", v4("224.0.0.5") / udp())
    yield Case("v4 to broadcast", "pass.multicast", v4("255.255.255.255") / udp())
    yield Case("v4 to another's MAC", "pass.other_mac", ether(dst="02:00:00:00:09:09") / v4(VIA_A)[IP] / udp())
    yield Case("v4 to the broadcast MAC", "pass.group_mac", ether(dst="ff:ff:ff:ff:ff:ff") / v4(VIA_A)[IP] / udp())
    yield Case("v4 blackhole", "drop.blackhole", v4(BLACKHOLE) / udp())
    yield Case("v4 source route", "drop.source_route", v4(VIA_A, options=[IPOption_LSRR(routers=["11.0.0.1"])]) / udp())
    yield Case("v4 with a tag", "pass.tagged", tagged(v4(VIA_A) / udp()))
    yield Case("v6 from an IPv4-mapped address", "drop.martian_source", v6(VIA_A6, src="::ffff:11.0.0.1") / udp())
    yield Case("v6 no route", "drop.no_route", v6(NOWHERE6) / udp())
    yield Case("v6 hop limit 1", "pass.expiring", v6(VIA_A6, hlim=1) / udp())
    yield Case("v6 hop limit 0", "pass.expiring", v6(VIA_A6, hlim=0) / udp())
    yield Case("v6 version 5", "pass.unparsed", broken(v6(VIA_A6) / udp(), 14, 0x50))
    yield Case("v6 longer than the frame", "drop.truncated", v6(VIA_A6, plen=500) / udp())
    yield Case("v6 from loopback", "drop.loopback", v6(VIA_A6, src="::1") / udp())
    yield Case("v6 from nowhere", "drop.martian_source", v6(VIA_A6, src="::") / udp())
    yield Case("v6 from multicast", "drop.multicast_source", v6(VIA_A6, src="ff0e::1") / udp())
    yield Case("v6 from link local", "drop.link_local", v6(VIA_A6, src="fe80::1") / udp())
    yield Case("v6 to the host's loopback address", "pass.local", v6("::1") / udp())
    yield Case("v6 to link local", "pass.link_local", v6("fe80::99") / udp())
    yield Case("v6 to multicast", "pass.multicast", v6("ff0e::1") / udp())
    yield Case("v6 to another's MAC", "pass.other_mac", ether(dst="02:00:00:00:09:09") / v6(VIA_A6)[IPv6] / udp())
    yield Case("a frame of 14 bytes", "pass.unparsed", Ether(raw(ether(type=0x0800))))
    yield Case("an unknown protocol", "pass.not_ip", ether(type=0x88CC) / Raw(b"\0" * 50))


def main():
    prefix = sys.argv[1]
    source = Tap(prefix + "source", "s0")
    sinks = {"a": Tap(prefix + "a", "a0"), "b": Tap(prefix + "b", "b0")}
    macs = {
        "a": ("02:00:00:00:02:01", "02:00:00:00:02:02"),
        "b": ("02:00:00:00:03:01", "02:00:00:00:03:02"),
    }
    testbed, check = Testbed(source, sinks, macs), Checks()
    cases = [*forwarded(), *refused()]
    testbed.run(cases, lambda marker: list(probes(marker)), check)
    counters = Counter(case.counter for case in cases)
    # A good frame to each sink follows every case.
    counters["sent"] += len(sinks) * len(cases)
    with open(sys.argv[2], "w", encoding="ascii") as file:
        json.dump(counters, file)
    print(f"{len(cases)} cases, {len(check.complaints)} wrong")
    check.finish()


main()
