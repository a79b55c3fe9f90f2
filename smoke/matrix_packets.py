"""A matrix of packets for matrix_test.sh, by scapy: what each program does with each of them.

matrix_packets.py PREFIX PROGRAM WORK, within the gate's namespace. The rows say what docs/guide/programs.md says of
the programs, and nothing of their sources or of the gate's code is here. Each row is sent three times, as
flows of their own: with room in both limits (`open`), with none in the second one (`narrow`), and with
room and to go directly (`direct`).
"""

import select
import socket
import struct
import sys
import time

from checks import PATIENCE, wait_until
from control import Control
from decisions import udp, v2
from frames import BACK, CLIENT, FRONT, GRANTOR, PROTECTED
from netns import Tap, in_namespace
from scapy.compat import raw
from scapy.layers.dns import DNS, DNSQR
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, ICMPv6ND_RA, ICMPv6PacketTooBig, IPv6, IPv6ExtHdrDestOpt, PadN
from scapy.packet import Raw

prefix, program, work = sys.argv[1:4]
control = Control(program, f"{work}/sock")
PROTECTED6 = "2001:db8:2::7"
KEY, SENDER, GATE = b"\x11" * 32, 7, ("10.2.0.1", 45233)
GRANTED_, DECLINED, GRANTEDV2, WEB, SERVICES, DNS_ = range(6)
ECN = 2
# The fate of a packet: it is sent, it is sent if the second limit has room too, or it is dropped.
GO, SECOND, NO = "goes", "goes by the second limit", "does not go"


def four(payload, **fields):
    return lambda src: IP(src=src, dst=PROTECTED, ttl=17, id=99, tos=0x28 | ECN, **fields) / payload


def six(payload, options=False):
    head = lambda src: IPv6(src=src, dst=PROTECTED6, hlim=33, fl=0xABCDE, tc=0x28 | ECN)
    between = IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)])
    return lambda src: head(src) / between / payload if options else head(src) / payload


def tcp(dport, flags="A", sport=4000):
    return TCP(sport=sport, dport=dport, flags=flags) / Raw(b"some bytes of a stream")


def query(kind="A", sport=4000, dport=53, **fields):
    return UDP(sport=sport, dport=dport) / DNS(**{"rd": 1, "qd": DNSQR(qname="www.example.org", qtype=kind), **fields})


two = raw(query())
two = Raw(two[:12] + b"\0\2" + two[14:])
points = raw(query())
points = Raw(points[:20] + b"\xc0" + points[21:])
# A payload that has its checksum wrong is a program's business as little as the gate's.
later = {"frag": 9, "proto": 6}

ROWS = {
    GRANTEDV2: [
        ("TCP", four(tcp(9)), GO),
        ("UDP", four(UDP(dport=9) / b"x"), GO),
        ("UDP over IPv6", six(UDP(dport=9) / b"x"), GO),
        ("a first fragment", four(UDP(dport=9) / Raw(bytes(64)), flags="MF"), SECOND),
        ("a later fragment", four(Raw(bytes(64)), **later), SECOND),
        ("an echo request", four(ICMP()), SECOND),
        ("GRE", four(Raw(bytes(8)), proto=47), SECOND),
    ],
    WEB: [
        ("HTTP", four(tcp(80)), GO),
        ("HTTPS over IPv6", six(tcp(443)), GO),
        ("HTTPS behind options", six(tcp(443), True), GO),
        ("SSH", four(tcp(22)), GO),
        ("FTP", four(tcp(21)), GO),
        ("passive FTP, the first port", four(tcp(51_000)), GO),
        ("passive FTP, the last port", four(tcp(51_999)), GO),
        ("before it", four(tcp(50_999)), NO),
        ("beyond it", four(tcp(52_000)), NO),
        ("another port", four(tcp(8080, sport=80)), NO),
        ("a new connection", four(tcp(80, "S")), SECOND),
        ("a new connection over IPv6", six(tcp(443, "S")), SECOND),
        ("a reflected answer", four(tcp(80, "SA")), NO),
        ("half a header", four(Raw(raw(tcp(80))[:12]), proto=6), NO),
        ("a first fragment", four(tcp(80), flags="MF"), SECOND),
        ("one to another port", four(tcp(25), flags="MF"), NO),
        ("a later fragment", four(Raw(bytes(40)), **later), SECOND),
        ("a later fragment of UDP", four(Raw(bytes(40)), frag=9, proto=17), NO),
        ("UDP", four(UDP(dport=443) / b"x"), NO),
        ("an echo request", four(ICMP()), SECOND),
        ("unreachable", four(ICMP(type=3, code=1) / Raw(bytes(28))), SECOND),
        ("a redirect", four(ICMP(type=5) / Raw(bytes(28))), NO),
        ("too big, IPv6", six(ICMPv6PacketTooBig(mtu=1280) / Raw(bytes(48))), SECOND),
        ("a router's advertisement", six(ICMPv6ND_RA()), NO),
    ],
    SERVICES: [
        ("to a port that listens", four(tcp(25)), GO),
        ("to the last of them, IPv6", six(tcp(993)), GO),
        ("a new connection", four(tcp(25, "S")), SECOND),
        ("a reflected answer", four(tcp(25, "SA", 443)), NO),
        ("from a port elsewhere", four(tcp(4000, "A", 443)), GO),
        ("its answer", four(tcp(4000, "SA", 443)), GO),
        ("a connection from there", four(tcp(4000, "S", 443)), NO),
        ("from a port that listens here", four(tcp(4000, "A", 25)), NO),
        ("to a port elsewhere", four(tcp(443)), NO),
        ("a later fragment", four(Raw(bytes(40)), **later), SECOND),
        ("UDP", four(UDP(dport=25) / b"x"), NO),
        ("out of hops", four(ICMP(type=11) / Raw(bytes(28))), SECOND),
    ],
    DNS_: [
        ("a query", four(query()), GO),
        ("a query over IPv6", six(query("AAAA")), GO),
        ("for everything", four(query("ALL")), SECOND),
        ("for a zone", four(query("AXFR")), SECOND),
        ("an answer", four(query(qr=1)), NO),
        ("an update", four(query(opcode=5)), NO),
        ("two questions", four(two, proto=17), NO),
        ("a name that points", four(points, proto=17), NO),
        ("half a name", four(Raw(raw(query())[:30]), proto=17), NO),
        ("no message", four(UDP(dport=53)), NO),
        ("to another port", four(query(sport=53, dport=4000)), NO),
        ("a fragment", four(query(), flags="MF"), NO),
        ("TCP", four(tcp(53)), GO),
        ("a new connection", four(tcp(53, "S")), SECOND),
        ("a reflected answer by TCP", four(tcp(53, "SA")), NO),
        ("an echo request, IPv6", six(ICMPv6EchoRequest()), SECOND),
    ],
}


def limits(first, second, direct, renewal=240_000):
    return struct.pack("<4IB", first, second, renewal, 3_000, direct)


def services(rate):
    """25, 587 and 993 listen here, 443 and 80 elsewhere."""
    ports = (25, 587, 993, 443, 80)
    return struct.pack("<3I", rate, 240_000, 3_000 | (3 | 2 << 4) << 24) + struct.pack("<5H", *ports)


def cookie(number, how):
    if number == SERVICES:
        # Its second limit is a twentieth: of a KiB 51 bytes, less than any packet.
        return services(1 if how == "narrow" else 1000)
    return limits(1000, 0 if how == "narrow" else 1000, int(how == "direct"))


def cases():
    """Yields the packets, each with its program and cookie, and where it arrives with which DSCP."""
    for number, rows in ROWS.items():
        for how in ("open", "narrow", "direct"):
            for name, packet, verdict in rows:
                goes = verdict == GO or verdict == SECOND and how != "narrow"
                direct = how == "direct" or number == SERVICES
                where = None if not goes else "direct" if direct else "tunnel"
                yield f"{number} {name}, {how}", number, cookie(number, how), packet, where, 1
    of = lambda rate, renewal: struct.pack("<3I", rate, renewal, 1000)
    yield "0 with room", GRANTED_, of(1000, 50_000), four(tcp(9)), "tunnel", 1
    yield "0 over IPv6", GRANTED_, of(1000, 50_000), six(tcp(9)), "tunnel", 1
    yield "0 without", GRANTED_, of(0, 50_000), four(tcp(9)), None, 0
    yield "0 that is to be renewed", GRANTED_, of(1000, 0), four(tcp(9)), "tunnel", 2
    yield "1", DECLINED, b"", four(tcp(9)), None, 0
    yield "1 over IPv6", DECLINED, b"", six(tcp(9)), None, 0
    yield "2 without room in the first limit", GRANTEDV2, limits(0, 1000, 0), four(tcp(9)), None, 0
    yield "2 that is to be renewed, direct or not", GRANTEDV2, limits(1000, 1000, 1, 0), four(tcp(9)), "tunnel", 2


def item(src, number, terms):
    words = (len(terms) + 3) // 4
    six = ":" in src
    family, bits = (socket.AF_INET6, 128) if six else (socket.AF_INET, 32)
    pair = socket.inet_pton(family, src) + socket.inet_pton(family, PROTECTED6 if six else PROTECTED)
    head = bytes([3, 6 if six else 4, bits, bits]) + pair
    return head + struct.pack(">IBHB", 600, number, 0, words) + terms.ljust(words * 4, b"\0")


def expected(packet, where, dscp):
    """The frame at the grantor: of a tunnel without its outer header, which gate_test.sh looks at."""
    if where == "tunnel":
        return dscp, raw(packet)
    # As scapy has it: DSCP 1 with the ECN it came with, a hop less, checksums from nothing.
    packet = packet.copy()
    if IPv6 in packet:
        packet[IPv6].hlim -= 1
        packet[IPv6].tc = 1 << 2 | ECN
    else:
        packet[IP].ttl -= 1
        packet[IP].tos = 1 << 2 | ECN
        packet[IP].chksum = None
    return None, raw(packet)


def read(frame):
    """Returns the DSCP of the tunnel, or None, and the inner packet of a frame at the grantor."""
    kind, packet = frame[12:14], frame[14:]
    if kind == b"\x08\x00":
        total = struct.unpack(">H", packet[2:4])[0]
        return (packet[1] >> 2, packet[20:total]) if packet[9] in (4, 41) else (None, packet[:total])
    if kind == b"\x86\xdd":
        total = 40 + struct.unpack(">H", packet[4:6])[0]
        traffic = (packet[0] << 4 | packet[1] >> 4) & 255
        return (traffic >> 2, packet[40:total]) if packet[6] in (4, 41) else (None, packet[:total])
    return None, b""


def source(packet):
    return packet[8:24] if packet[:1] and packet[0] >> 4 == 6 else packet[12:16]


def decide(items):
    """Has the gate take decisions, by version 2."""
    hand = in_namespace(prefix, "grantor", lambda: udp("10.2.0.2", 0))
    number = int(time.time()) << 22 | 1
    hand.sendto(v2(1, 0, number, b"", SENDER, KEY), GATE)
    session = struct.unpack(">Q", hand.recv(2048)[8:16])[0]
    for begin in range(0, len(items), 12):
        number += 1
        hand.sendto(v2(1, session, number, b"".join(items[begin : begin + 12]), SENDER, KEY), GATE)
        reply = hand.recv(2048)
        if reply[1] != 2:
            sys.exit(f"decisions are not taken: {reply.hex()}")
    if not wait_until(lambda: control.gate()["decisions"]["decided"] >= len(items)):
        sys.exit(f"not all of {len(items)} decisions are in force: {control.gate()['decisions']}")


def main():
    client, grantor = Tap(f"{prefix}client", "c0"), Tap(f"{prefix}grantor", "t0")
    sent, items = [], []
    for at, (name, number, terms, make, where, dscp) in enumerate(cases()):
        is_six = make(None).version == 6
        src = f"fd07::{at + 1:x}" if is_six else f"10.7.{at >> 8}.{at & 255}"
        packet = make(src)
        sent.append((name, packet, where, dscp))
        items.append(item(src, number, terms))
    decide(items)
    before = control.gate()["packets"]
    grantor.take()
    grantor.seen.clear()
    for _, packet, _, _ in sent:
        kind = b"\x86\xdd" if IPv6 in packet else b"\x08\x00"
        client.send(FRONT + CLIENT + kind + raw(packet))
        time.sleep(0.001)
        grantor.take()
    # Packets may overtake each other: the classes have queues of their own. Dropped packets are counted below.
    awaited = {source(raw(packet)) for _, packet, where, _ in sent if where}
    until = time.monotonic() + PATIENCE
    arrived = {}
    while not awaited <= arrived.keys() and time.monotonic() < until:
        select.select([grantor.socket], [], [], 0.05)
        grantor.take()
        arrived = {}
        for frame in grantor.seen:
            if frame[:12] == GRANTOR + BACK:
                dscp, packet = read(frame)
                arrived.setdefault(source(packet), []).append((dscp, packet))
    wrong, ways = [], {"tunnel": 0, "direct": 0, None: 0}
    for name, packet, where, dscp in sent:
        got = arrived.get(source(raw(packet)), [])
        want = [] if where is None else [expected(packet, where, dscp)]
        ways[where] += 1
        if got != want:
            wrong.append(f"{name}: {[(d, p.hex()) for d, p in got]}, not {[(d, p.hex()) for d, p in want]}")
        if where == "direct" and got and IPv6 not in packet:
            # And by arithmetic, which scapy has no part in: all words of the header add up to ones.
            words = sum(struct.unpack(">10H", got[0][1][:20]))
            while words >> 16:
                words = (words & 0xFFFF) + (words >> 16)
            if words != 0xFFFF:
                wrong.append(f"{name}: the header's checksum is wrong: {got[0][1][:20].hex()}")
    names = ("granted", "direct", "program", "program_error", "request")
    while True:
        after = control.gate()["packets"]
        more = {name: after[name] - before[name] for name in names}
        if more["granted"] + more["program"] >= len(sent) or time.monotonic() > until:
            break
        time.sleep(0.02)
    # Direct packets were granted too.
    granted = ways["tunnel"] + ways["direct"]
    want = {"granted": granted, "direct": ways["direct"], "program": ways[None], "program_error": 0, "request": 0}
    if more != want:
        wrong.append(f"counters {more}, not {want}")
    if wrong:
        sys.exit("\n".join(f"BAD {entry}" for entry in wrong))
    print(f"   {len(sent)} packets: {ways['tunnel']} in the tunnel, {ways['direct']} directly, {ways[None]} dropped, as the table says")


main()
