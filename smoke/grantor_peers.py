"""A gate for grantor_test.sh, by scapy and the standard library.

Nothing of the grantor's code is here: tunnels are made and packets computed by scapy, decisions
unpacked by `struct` as Gatekeeper's grantors lay them out. Called within the gate's namespace
with the prefix of the namespaces, the scratch folder and the grantor's process; writes what must
have been counted to expected.json there.
"""

import json
import os
import signal
import socket
import struct
import sys
import time

from checks import PATIENCE, Checks
from netns import Tap
from scapy.compat import raw
from scapy.layers.inet import IP, TCP, UDP, fragment
from scapy.layers.l2 import Ether
from scapy.packet import Raw

prefix, work, process = sys.argv[1], sys.argv[2], int(sys.argv[3])
GATE, GRANTOR, INSIDE, SERVER = (f"02:00:00:00:0{n}" for n in ("2:01", "2:02", "3:01", "3:02"))
check = Checks()
want = {"declined": 0, "spoofed": 0, "link_full": 0, "requests": 0, "over_time": 0, "items": 0}

gate, server = Tap(f"{prefix}gate", "g0"), Tap(f"{prefix}server", "v0")
decisions = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
decisions.bind(("10.2.0.1", 45232))
decisions.settimeout(PATIENCE)


def inner(src, port=80, tos=0):
    ip = IP(src=src, dst="192.0.2.7", ttl=17, id=99, tos=tos)
    return ip / TCP(sport=4000, dport=port, flags="S") / Raw(b"inner bytes of some length")


def send(packet, dscp, ecn=0, source="10.2.0.1"):
    outer = IP(src=source, dst="10.9.1.100", ttl=64, id=0, flags="DF", tos=dscp << 2 | ecn, proto=4)
    gate.send(raw(Ether(src=GATE, dst=GRANTOR) / outer / packet))


def arrives(packet, tos=None):
    """Whether the inner packet comes out at the server, as forwarded once."""
    packet = IP(raw(packet))
    packet.ttl -= 1
    if tos is not None:
        packet.tos = tos
    del packet.chksum
    expected = raw(Ether(src=INSIDE, dst=SERVER) / packet)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        server.take()
        if any(frame[: len(expected)] == expected for frame in server.seen):
            return True
        time.sleep(0.005)
    return False


def came(packet):
    server.take()
    return any(frame[26:34] == raw(packet)[12:20] for frame in server.seen)


def decided(src):
    """The next decision, which must be about this source."""
    message, where = decisions.recvfrom(2048)
    if where != ("10.2.0.2", 41120) or message[:4] != b"\1\0\0\0":
        return f"from {where}: {message.hex()}"
    if message[8:16] != socket.inet_aton(src) + socket.inet_aton("192.0.2.7"):
        return f"about another flow: {message.hex()}"
    if message[4] == 2:
        return ("granted", *struct.unpack(">4I", message[16:]))
    return ("declined", *struct.unpack(">I", message[16:]))


def send_request(what, src, expect, delivered, dscp=41, port=80):
    packet = inner(src, port)
    send(packet, dscp)
    want["requests"] += 1
    want["items"] += 1
    want["declined"] += not delivered
    got = decided(src)
    there = arrives(packet) if delivered else not came(packet)
    check(what, got == expect and there, f"{got}, {'not ' * (not there)}as expected at the server")


send_request("a request is granted and delivered", "198.51.100.20", ("granted", 100, 60, 50_000, 1000), True)
send_request("by the list that knows its source", "198.51.100.3", ("granted", 777, 60, 50_000, 1000), True)
send_request("a source on the other list is declined", "198.51.100.77", ("declined", 600), False)
send_request("DSCP 2 requests a renewal", "198.51.100.77".replace("77", "21"), ("granted", 2000, 300, 240_000, 3000), True, dscp=2)

packet = inner("198.51.100.22")
send(packet, 1)
check("a granted packet comes out without a decision", arrives(packet))
packet = inner("198.51.100.23", tos=2)
send(packet, 1, ecn=3)
check("a congestion mark is copied to a packet with ECN", arrives(packet, tos=3))

# In UDP to the configured port, with a checksum and without; and not otherwise.
outer = {"src": "10.2.0.1", "dst": "10.9.1.100", "ttl": 64, "id": 0, "flags": "DF", "tos": 1 << 2}
for at, fields in enumerate(({"chksum": 0}, {}, {"chksum": 0x1234}, {"dport": 6081})):
    packet = inner(f"198.51.100.{180 + at}")
    datagram = UDP(**{"sport": 50_000, "dport": 6080, **fields})
    gate.send(raw(Ether(src=GATE, dst=GRANTOR) / IP(**outer) / datagram / packet))
    if at < 2:
        check(f"a packet in UDP comes out, {'with' if at else 'without'} a checksum", arrives(packet))
    else:
        mark = inner(f"198.51.100.{190 + at}")
        send(mark, 1)
        check(f"not {('with a wrong one', 'at another port')[at - 2]}", arrives(mark) and not came(packet))
want["bad_checksum"] = 1

lost, spoofed = inner("198.51.100.24"), inner("198.51.100.25")
send(lost, 1, ecn=3)
send(spoofed, 1, source="10.2.0.99")
want["link_full"] += 1
want["spoofed"] += 1
packet = inner("198.51.100.26")
send(packet, 1)
check("a packet without ECN is dropped instead; another source than a gate's is refused", arrives(packet) and not came(lost) and not came(spoofed))

send_request("a policy that never ends gets the fallback", "198.51.100.30", ("declined", 5), False, port=666)
want["over_time"] += 1
send_request("and the next one is decided of", "198.51.100.31", ("granted", 100, 60, 50_000, 1000), True)

# The fragments of a packet are judged together, by the one with the ports, whatever their order.
datagram = IP(src="198.51.100.34", dst="192.0.2.7", ttl=17, id=7) / UDP(dport=53) / Raw(b"0123456789" * 12)
pieces = fragment(datagram, fragsize=48)
for piece in reversed(pieces):
    send(piece, 41)
want["requests"] += 1
want["items"] += 1
got = decided("198.51.100.34")
check(
    "fragments get what their packet gets",
    len(pieces) == 3 and got == ("granted", 100, 60, 50_000, 1000) and all(arrives(entry) for entry in pieces),
    f"{got} for {len(pieces)} pieces",
)
lone = fragment(IP(src="198.51.100.35", dst="192.0.2.7", id=8) / UDP(dport=53) / Raw(b"x" * 100), fragsize=48)
for piece in lone[:2]:
    send(piece, 41)
want["items"] += 1
want["declined"] += 2
got = decided("198.51.100.35")
check("a source that sends incomplete packets is declined", got == ("declined", 77) and not came(lone[0]), f"{got}")


def reloads(text):
    """Sends SIGHUP and waits for what it says."""
    def lines():
        with open(f"{work}/grantor.log", encoding="utf-8") as log:
            return sum(text in line for line in log)

    before = lines()
    os.kill(process, signal.SIGHUP)
    until = time.monotonic() + PATIENCE
    while lines() == before and time.monotonic() < until:
        time.sleep(0.02)
    return lines() > before


with open(f"{work}/deny.txt", "a", encoding="ascii") as listed:
    listed.write("198.51.100.32/32\n")
check("other lists are taken over", reloads("reloaded: the policy, 2 lists, 3 prefixes"))
send_request("and decided by", "198.51.100.32", ("declined", 600), False)
with open(f"{work}/policy.lua", encoding="ascii") as policy:
    good = policy.read()
with open(f"{work}/policy.lua", "w", encoding="ascii") as policy:
    policy.write("function decide(")
check("a policy that is none is not", reloads("not reloaded"))
send_request("and what there was goes on", "198.51.100.33", ("granted", 100, 60, 50_000, 1000), True)
with open(f"{work}/policy.lua", "w", encoding="ascii") as policy:
    policy.write(good)

with open(f"{work}/expected.json", "w", encoding="ascii") as out:
    json.dump(want, out)
check.finish()
