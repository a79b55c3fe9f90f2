"""Sends sealed and forged tunnel packets, for grantor_test.sh.

golden/tunnel.py makes the seals and decisions.py the messages of version 2 of the decision protocol;
neither uses the gate's code. Within the gate's namespace the script acts as a gate: it answers the
grantor's messages by a hello with a session of its own, and then sends packets through the tunnel, sealed
and unsealed. With `front`, within the client's namespace, it sends the same forged packets to the
front of a gate. It writes the counters that the grantor must report to expected.json.
"""

import json
import socket
import struct
import sys
import time

sys.path.insert(0, sys.argv[2])

from checks import Checks, PATIENCE
from decisions import udp, v2
from netns import Tap
from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from tunnel import private

prefix, work = sys.argv[1], sys.argv[3]
front = sys.argv[4:] == ["front"]
SECRET, SENDER, SESSION = b"\x2b" * 32, 7, 0x1122334455667788
PORTS = (50_000, 6080)
check = Checks()
want = {"tunnel_untagged": 0, "tunnel_key": 0, "tunnel_forged": 0, "tunnel_replayed": 0, "tunnel_interface": 0, "spoofed": 0}
server = Tap(f"{prefix}server", "v0")
if front:
    tap, source, target = Tap(f"{prefix}client", "c0"), "02:00:00:00:01:02", "02:00:00:00:01:01"
else:
    tap, source, target = Tap(f"{prefix}gate", "g0"), "02:00:00:00:02:01", "02:00:00:00:02:02"


def inner(number):
    ip = IP(src=f"203.0.113.{number}", dst="192.0.2.7", ttl=17, id=99)
    return raw(ip / UDP(sport=4000, dport=9) / Raw(b"inner bytes of some length"))


def send(payload, dscp=1, protocol=17, src="10.2.0.1", tap=tap, macs=None):
    outer = IP(src=src, dst="10.9.1.100", ttl=64, id=0, flags="DF", tos=dscp << 2, proto=protocol)
    to, at = macs or (target, source)
    tap.send(raw(Ether(src=at, dst=to) / outer / Raw(payload)))


def datagram(payload):
    return struct.pack("!HHHH", *PORTS, 8 + len(payload), 0) + payload


def came(number):
    server.take()
    address = socket.inet_aton(f"203.0.113.{number}")
    return sum(frame[26:30] == address for frame in server.seen)


def arrives(number, count=1):
    until = time.monotonic() + PATIENCE
    while came(number) < count and time.monotonic() < until:
        time.sleep(0.005)
    return came(number) == count


def plain(number, times, **where):
    """Sends forged packets in the formats of Gatekeeper and of our gate without seals."""
    for dscp in (0, 1):
        for _ in range(times):
            send(inner(number), dscp, protocol=4, **where)
            send(datagram(inner(number)), dscp, **where)
            send(datagram(b"\0\4\0\0" + inner(number)), dscp, **where)
            send(datagram(b"\x09\4\0\0" + bytes(36) + inner(number)), dscp, **where)


if front:
    plain(66, 10)
    # Packets of a granted flow pass. When one has arrived, all packets sent before it have been processed.
    mark = raw(IP(src="10.1.0.2", dst="192.0.2.7", ttl=17) / UDP(sport=4000, dport=9) / Raw(b"mark"))
    until = time.monotonic() + PATIENCE
    while not any(frame.endswith(b"mark") for frame in server.seen) and time.monotonic() < until:
        tap.send(raw(Ether(src=source, dst=target, type=0x800)) + mark)
        time.sleep(0.02)
        server.take()
    check("a packet of a granted flow passes the front", any(frame.endswith(b"mark") for frame in server.seen))
    check("0 of 80 forged tunnel packets do", came(66) == 0, came(66))
    check.finish()

decisions = udp("10.2.0.1", 45233)
begin = time.monotonic()
sequence = 0


def seal(packet, dscp=1, ago=0.0, key=1, secret=SECRET, session=SESSION, stream=0):
    global sequence
    sequence += 1
    clock = int((1000 + time.monotonic() - begin - ago) * 1e9) >> 24
    data = private("10.2.0.1", "10.9.1.100", PORTS, key, dscp, stream, clock, sequence, packet, secret, session)
    return datagram(b"\x09\4\0\0" + data + packet)


# The grantor accepts no tunnel packet before it knows the session.
send(seal(inner(1)))
want["tunnel_key"] += 1
received, grantor = decisions.recvfrom(2048)
kind, number = received[1], struct.unpack(">Q", received[16:24])[0]
check("the grantor sends its gate a message", received[0] == 2 and kind in (1, 4), received.hex())
decisions.sendto(v2(3, SESSION, number, b"", SENDER, SECRET), grantor)
# The grantor repeats the session in its next message.
until = time.monotonic() + PATIENCE
while time.monotonic() < until and struct.unpack(">Q", received[8:16])[0] != SESSION:
    received, grantor = decisions.recvfrom(2048)

good = seal(inner(2))
send(good)
check("a sealed packet is delivered", arrives(2))
other = seal(inner(3), dscp=1)
send(other, dscp=41)
check("its class is that of its seal, with any outer DSCP", arrives(3))
for _ in range(10):
    send(good)
want["tunnel_replayed"] += 10
send(seal(inner(4), ago=5.0))
want["tunnel_replayed"] += 1
late = seal(inner(5), ago=1.0)
early = seal(inner(6))
send(early)
send(late)
check("two packets in reverse order are delivered", arrives(6) and arrives(5))

plain(7, 10)
want["tunnel_untagged"] += 80
flipped = seal(inner(8))
# The header of UDP has 8 bytes and that of GUE 4. The test flips every bit of stream, time, number and tag,
# and every seventh bit of the inner packet that the tag covers, except its version. Flipped bits of key
# and epoch have another drop reason.
bits = (*range(8 * 18, 8 * 48), *range(8 * 49, 8 * 88, 7))
want["tunnel_forged"] += len(bits)
for bit in bits:
    bad = bytearray(flipped)
    bad[bit // 8] ^= 0x80 >> bit % 8
    send(bytes(bad))
send(seal(inner(9), secret=bytes(32)))
send(seal(inner(10), session=SESSION + (1 << 16)))
want["tunnel_forged"] += 2
send(seal(inner(11), session=SESSION + 1))
send(seal(inner(12), key=2))
want["tunnel_key"] += 2
send(seal(inner(13)), src="10.2.0.99")
want["spoofed"] += 1
# The grantor accepts no tunnel packet on the interface to the servers, sealed or not.
inside = ("02:00:00:00:03:01", "02:00:00:00:03:02")
send(seal(inner(14)), tap=server, macs=inside)
send(inner(15), protocol=4, tap=server, macs=inside)
want["tunnel_interface"] += 2
last = seal(inner(16))
send(last)
check("a sealed packet after all these is delivered", arrives(16))
send(flipped)
check("the packet whose bits were flipped is delivered unchanged", arrives(8))
check("0 of 10 replayed packets are delivered", came(2) == 1, came(2))
check("0 of 80 forged packets are delivered", came(7) == 0, came(7))
others = [number for number in (1, 4, 9, 10, 11, 12, 13, 14, 15) if came(number)]
check("no packet that is old, or of another key, session, source or interface, is delivered", not others, others)
with open(f"{work}/expected.json", "w", encoding="ascii") as out:
    json.dump(want, out)
check.finish()
