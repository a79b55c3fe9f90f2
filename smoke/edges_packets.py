"""Odd packets for edges_test.sh, by scapy.

Called within the client's namespace with the prefix of the namespaces, the program, the scratch
folder, and how tunnels are: `direct` or `udp`.
"""

import select
import sys
import time

from checks import Checks, wait_until
from control import Control
from netns import Tap
from scapy.compat import raw
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_LSRR, IPOption_RR
from scapy.layers.inet6 import (
    ICMPv6PacketTooBig,
    ICMPv6TimeExceeded,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
    PadN,
)
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Raw

CLIENT, FRONT = "02:00:00:00:01:02", "02:00:00:00:01:01"
FOUR, SIX = "192.0.2.7", "2001:db8:2::7"
SOURCE4, SOURCE6 = "10.1.0.2", "fd01::2"
PATIENCE = 5.0
ANSWERS = 20
check = Checks()


def pad(size):
    return Raw(bytes(i & 255 for i in range(size)))


def v4(size=40, **fields):
    return IP(**{"src": SOURCE4, "dst": FOUR, "ttl": 17, "id": 99, **fields}) / UDP(sport=5000, dport=6000) / pad(size)


def v6(size=40, **fields):
    return IPv6(**{"src": SOURCE6, "dst": SIX, "hlim": 33, **fields}) / UDP(sport=5000, dport=6000) / pad(size)


def behind(*headers, size=40, **fields):
    packet = IPv6(**{"src": SOURCE6, "dst": SIX, "hlim": 33, **fields})
    for header in headers:
        packet = packet / header
    return packet / UDP(sport=5000, dport=6000) / pad(size)


def send(packet, *tags):
    frame = Ether(src=CLIENT, dst=FRONT)
    for tag in tags:
        frame = frame / tag
    if isinstance(packet, bytes):
        frame.type = 0x0800 if packet[0] >> 4 == 4 else 0x86DD
        packet = Raw(packet)
    client.send(raw(frame / packet))


def tunneled(frame):
    """Returns the inner packet of a frame from a tunnel that is as it has to be."""
    outer = Ether(frame)
    ip = outer[IP] if outer.type == 0x0800 else outer[IPv6] if outer.type == 0x86DD else None
    if ip is None or outer.src != "02:00:00:00:02:01":
        return None
    proto, head = (ip.proto, 20) if ip.version == 4 else (ip.nh, 40)
    end = 14 + (ip.len if ip.version == 4 else 40 + ip.plen)
    if (ip.src, ip.dst) not in (("10.2.0.1", "10.2.0.2"), ("fd02::1", "fd02::2")):
        return None
    if tunnels == "direct":
        return frame[14 + head : end] if proto in (4, 41) else None
    if proto != 17 or ip[UDP].dport != 6080 or ip[UDP].sport < 49152:
        return None
    # Byte for byte what scapy makes of it: lengths, and the checksum, which over IPv4 is none.
    datagram, inner = ip[UDP], frame[14 + head + 8 : end]
    again = UDP(sport=datagram.sport, dport=6080, **({"chksum": 0} if ip.version == 4 else {})) / Raw(inner)
    if ip.version == 4:
        built = IP(src=ip.src, dst=ip.dst, tos=ip.tos, flags="DF", id=0, ttl=64, proto=17) / again
    else:
        built = IPv6(src=ip.src, dst=ip.dst, tc=ip.tc, fl=ip.fl, hlim=64, nh=17) / again
    return inner if raw(built) == frame[14:end] else None


def comes_out(packet, patience=PATIENCE):
    """Says whether a packet comes out of a tunnel, its bytes as they were."""
    until = time.monotonic() + patience
    want = raw(packet)
    while time.monotonic() < until:
        grantor.take()
        if any(tunneled(frame) == want for frame in grantor.seen):
            return True
        select.select([grantor.socket], [], [], 0.05)
    return False


def nothing_came(packet):
    """A good packet after it has come out, and it has not."""
    mark = v4(12, id=nothing_came.count)
    nothing_came.count += 1
    send(mark)
    came = comes_out(mark)
    return came and not any(raw(packet)[-24:] in frame for frame in grantor.seen if raw(mark) not in frame)


nothing_came.count = 1000


def forget():
    """Forgets what has come."""
    for tap in (client, grantor):
        tap.take()
        tap.seen.clear()


def pauses():
    """Lets the bucket of answers fill again, and forgets what has come."""
    time.sleep(0.5)
    forget()


def answers(kind):
    """Returns the ICMP messages that have come to the client, of one kind."""
    client.take()
    return [frame[kind] for frame in map(Ether, client.seen) if kind in frame and frame.dst == CLIENT and (kind != ICMP or frame[ICMP].type in (3, 11))]


def sound(answer, packet, src):
    """Says whether an answer has the right ends and checksums, and quotes the packet."""
    ip = answer.underlayer
    built = ip.copy()
    if ICMP in built:
        del built[ICMP].chksum
        del built.chksum
    else:
        del built[ICMPv6PacketTooBig].cksum
    quoted, most = raw(answer)[8:], 576 if ICMP in built else 1280
    return ip.src == src and ip.dst in (SOURCE4, SOURCE6) and raw(built) == raw(ip) and raw(packet).startswith(quoted) and len(raw(ip)) <= most and len(quoted) >= min(len(raw(packet)), 28)


def hops():
    """Out of hops: the kernel's, which answers, and nothing of it passes."""
    for packet, kind, gate_address, name in (
        (v4(ttl=1), ICMP, "10.1.0.1", "TTL 1"),
        (v6(hlim=1), ICMPv6TimeExceeded, "fd01::1", "hop limit 1"),
    ):
        pauses()
        before = control.steered("g0")["expiring"]
        send(packet)
        wait_until(lambda: answers(kind))
        got = answers(kind)
        check(f"{name}: Time Exceeded from the gate", len(got) == 1 and got[0].underlayer.src == gate_address and got[0].code == 0 and (kind != ICMP or got[0].type == 11), got)
        check(f"{name}: left to the kernel, and nothing comes out", control.steered("g0")["expiring"] == before + 1 and nothing_came(packet))
    for packet, name in ((v4(ttl=2), "TTL 2"), (v6(hlim=2), "hop limit 2"), (v4(ttl=255), "TTL 255")):
        send(packet)
        check(f"{name} goes on as it is", comes_out(packet))


def oversize():
    """Too big by one byte, in both families, whatever it is a part of."""
    outer4, outer6 = (20, 40) if tunnels == "direct" else (28, 48)
    most4, most6 = 1500 - outer4, 1500 - outer6
    for fits, name in ((v4(most4 - 28, flags="DF"), "IPv4"), (v6(most6 - 48), "IPv6")):
        send(fits)
        check(f"{name} of {len(raw(fits))} bytes just fits", comes_out(fits))
    cases = [
        ("IPv4, DF", v4(most4 - 27, flags="DF"), ICMP, most4, "10.1.0.1"),
        # The gate fragments nothing, so it answers packets that could be fragmented too.
        ("IPv4 without DF", v4(most4 - 27), ICMP, most4, "10.1.0.1"),
        ("an IPv4 first fragment", v4(most4 - 27, flags="MF"), ICMP, most4, "10.1.0.1"),
        ("IPv4 with options", v4(most4 - 31, flags="DF", options=IPOption_RR(length=3)), ICMP, most4, "10.1.0.1"),
        ("IPv6", v6(most6 - 47), ICMPv6PacketTooBig, most6, "fd01::1"),
        ("an IPv6 first fragment", behind(IPv6ExtHdrFragment(offset=0, m=1, id=7), size=most6 - 55), ICMPv6PacketTooBig, most6, "fd01::1"),
        ("IPv6 behind options", behind(IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)]), size=most6 - 55), ICMPv6PacketTooBig, most6, "fd01::1"),
    ]
    for name, packet, kind, mtu, src in cases:
        pauses()
        before = control.counters()["dropped"]["too_big"]
        send(packet)
        wait_until(lambda: answers(kind))
        got = answers(kind)
        reply = got and (got[0].nexthopmtu if kind == ICMP else got[0].mtu)
        right = len(got) == 1 and reply == mtu and (kind != ICMP or (got[0].type, got[0].code) == (3, 4)) and sound(got[0], packet, src)
        check(f"{name}, {len(raw(packet))} bytes: answered once, with MTU {mtu}, correctly", right, (reply, got))
        check(f"{name}: dropped as too_big", control.counters()["dropped"]["too_big"] == before + 1)
    silent = [
        ("a later IPv4 fragment", IP(src=SOURCE4, dst=FOUR, frag=100, proto=17) / pad(most4 - 19)),
        ("a later IPv6 fragment", IPv6(src=SOURCE6, dst=SIX) / IPv6ExtHdrFragment(offset=100, nh=17, id=7) / pad(most6 - 47)),
        ("an ICMP error", IP(src=SOURCE4, dst=FOUR) / ICMP(type=3, code=1) / pad(most4 - 27)),
        ("an ICMPv6 error", IPv6(src=SOURCE6, dst=SIX) / ICMPv6TimeExceeded() / pad(most6 - 47)),
    ]
    for name, packet in silent:
        pauses()
        before = control.counters()["dropped"]["too_big"]
        send(packet)
        dropped = wait_until(lambda: control.counters()["dropped"]["too_big"] == before + 1)
        quiet = nothing_came(packet) and not answers(ICMP) and not answers(ICMPv6PacketTooBig)
        check(f"{name} that is too big: dropped, and not answered", dropped and quiet, (dropped, quiet))


def rate():
    """A flood of what is too big: answers at the configured rate, and no more."""
    pauses()
    before, begin, sent = control.counters(), time.monotonic(), 0
    link = control.gate()["link"]
    frames = [raw(Ether(src=CLIENT, dst=FRONT) / packet) for packet in (v4(1464, flags="DF"), v6(1440))]
    while time.monotonic() < begin + 3:
        for frame in frames * 5:
            client.send(frame)
            sent += 1
        time.sleep(0.005)
    took = time.monotonic() - begin
    wait_until(lambda: control.counters()["dropped"]["too_big"] >= before["dropped"]["too_big"] + sent, 2)
    now = control.gate()["link"]
    got = len(answers(ICMP)) + len(answers(ICMPv6PacketTooBig))
    counted = now["icmp_sent"] - link["icmp_sent"]
    # A bucket holds nine of them.
    # Half of the answers are for granted flows, and these packets are of none; of the rest each of the
    # two sources has a tenth of all, and what its own bucket held.
    most, least = ANSWERS / 2, 2 * ANSWERS / 10
    check(f"{sent} in {took:.1f} s: {got} answers, at most {most:.0f} a second", least * took * 0.8 <= got <= most * (took + 0.5) + 10, got)
    check("each of them counted, and those that were spared", counted == got and now["icmp_rate_limited"] > link["icmp_rate_limited"], (counted, got))


def fragments():
    """Every piece of a packet is of the flow, in order and as it is."""
    whole = v4(1200, id=4242, src="10.1.0.77")
    body = raw(whole)[20:]
    pieces = [IP(src="10.1.0.77", dst=FOUR, ttl=17, id=4242, proto=17, flags="MF" if at + 400 < len(body) else 0, frag=at // 8) / Raw(body[at : at + 400]) for at in range(0, len(body), 400)]
    flows = lambda: control.gate()["table"]["inserted"]
    before = flows()
    for piece in reversed(pieces):
        send(piece)
    check(f"{len(pieces)} IPv4 fragments, the last first", all(comes_out(piece) for piece in pieces))
    body = raw(UDP(sport=5000, dport=6000) / pad(1200))
    six = [IPv6(src="fd01::77", dst=SIX, hlim=33) / IPv6ExtHdrFragment(nh=17, offset=at // 8, m=int(at + 400 < len(body)), id=9) / Raw(body[at : at + 400]) for at in range(0, len(body), 400)]
    for piece in six:
        send(piece)
    check(f"{len(six)} IPv6 fragments", all(comes_out(piece) for piece in six))
    check("are one flow each", flows() == before + 2, flows() - before)
    atomic = behind(IPv6ExtHdrFragment(offset=0, m=0, id=11))
    send(atomic)
    check("an atomic fragment (RFC 6946)", comes_out(atomic))


def tags():
    """Tagged frames are the host's, which has no such interface: nothing passes. A tag with a
    priority only (VLAN 0) is none to the host, which would forward what is under it, past the gate;
    so the gate judges that. The host forwards all the while."""
    cases = [
        ("802.1Q", v4(41), [Dot1Q(vlan=5)]),
        ("802.1Q behind a priority", v4(42), [Dot1Q(vlan=0, prio=6), Dot1Q(vlan=5)]),
        ("802.1Q with IPv6", v6(43), [Dot1Q(vlan=4094)]),
        ("802.1ad and 802.1Q", v4(44), [Dot1AD(vlan=7), Dot1Q(vlan=5)]),
    ]
    for name, packet, tag in cases:
        forget()
        before = control.steered("g0")
        send(packet, *tag)
        left = wait_until(lambda: control.steered("g0")["tagged"] == before["tagged"] + 1)
        check(f"{name}: left to the kernel, and nothing comes out", left and nothing_came(packet), (before, control.steered("g0")))
    priorities = [Dot1Q(vlan=0, prio=6), Dot1AD(vlan=0), Dot1Q(vlan=0), Dot1AD(vlan=0, prio=1)]
    for count in range(1, 5):
        for packet in (v4(50 + count), v6(50 + count)):
            forget()
            before = control.steered("g0")["taken"]
            send(packet, *priorities[:count])
            judged = comes_out(packet) and nothing_came(v4(99))
            ways = [frame for frame in grantor.seen if raw(packet)[-44 - count :] in frame]
            check(f"{count} with a priority only, IPv{packet.version}: handled by the gate alone", judged and len(ways) == 1 and control.steered("g0")["taken"] == before + 2, (judged, ways))
    forget()
    before, packet = control.steered("g0")["nested_tags"], v4(61)
    send(packet, *priorities, Dot1Q(vlan=0))
    check("five of them: dropped and counted", nothing_came(packet) and control.steered("g0")["nested_tags"] == before + 1, control.steered("g0"))


def extensions():
    """Options and extension headers stay, and are looked past."""
    pad4 = [PadN(optdata=b"\0" * 4)]
    chain = [IPv6ExtHdrHopByHop(options=pad4), IPv6ExtHdrDestOpt(options=pad4), IPv6ExtHdrRouting(type=0, segleft=0, addresses=["2001:db8::9"])]
    cases = [
        ("hop-by-hop options", behind(chain[0])),
        ("destination options", behind(chain[1])),
        ("a routing header that is used up", behind(chain[2])),
        ("all of them and a fragment header", behind(*chain, IPv6ExtHdrFragment(offset=0, m=1, id=3))),
        ("nothing behind it (59)", IPv6(src=SOURCE6, dst=SIX, nh=59, hlim=9)),
        ("a protocol that is none yet (253)", IPv6(src=SOURCE6, dst=SIX, nh=253, hlim=9) / pad(30)),
        ("options that end in the middle", IPv6(src=SOURCE6, dst=SIX, nh=60, hlim=9) / Raw(b"\x11\x09\x01\x04\0\0\0\0")),
        ("ten headers", behind(*[IPv6ExtHdrDestOpt(options=pad4) for _ in range(10)])),
        ("IPv4 options", v4(options=IPOption_RR(length=7))),
        ("TCP without data", IP(src=SOURCE4, dst=FOUR, ttl=9) / TCP(sport=1, dport=2)),
        ("a protocol of IPv4 that is none yet", IP(src=SOURCE4, dst=FOUR, proto=253, ttl=9) / pad(30)),
    ]
    for name, packet in cases:
        send(packet)
        check(f"{name}: comes out as it was", comes_out(packet), control.counters()["dropped"])


def broken():
    """Packets that no router forwards, each dropped for its reason."""
    cases = [
        ("bad_checksum", raw(v4(45, chksum=0x1234))),
        ("truncated", raw(v4(46, len=2000))),
        ("truncated", raw(v6(46, plen=2000))),
        ("bad_total_length", raw(v4(46, len=19))),
        ("source_route", raw(v4(47, options=IPOption_LSRR(routers=["10.9.9.9"])))),
        ("martian_source", raw(v4(48, src="0.0.0.0"))),
        ("martian_source", raw(v6(48, src="::"))),
        ("multicast_source", raw(v4(49, src="224.0.0.9"))),
        ("loopback", raw(v4(50, src="127.0.0.1"))),
        ("loopback", raw(v6(50, src="::1"))),
        ("link_local", raw(v6(52, src="fe80::9"))),
    ]
    for reason, packet in cases:
        forget()
        before = control.counters()["dropped"][reason]
        send(packet)
        dropped = wait_until(lambda: control.counters()["dropped"][reason] == before + 1)
        check(f"IPv{packet[0] >> 4}: dropped as {reason}", dropped and nothing_came(packet), control.counters()["dropped"])


def main():
    hops()
    oversize()
    rate()
    fragments()
    tags()
    extensions()
    broken()
    check.finish()


prefix, program, work, tunnels = sys.argv[1:5]
control = Control(program, f"{work}/sock")
client, grantor = Tap(f"{prefix}client", "c0"), Tap(f"{prefix}grantor", "t0")
main()
