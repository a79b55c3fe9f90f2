"""Sends frames of every kind to a gate's front and watches for those that reach a protected host, for passage_test.sh.

passage_test.sh calls it within the client's namespace with the prefix of the namespaces, the program, the scratch
folder and the case: `off` (no gate runs), `on`, `changes` (the front changes meanwhile).
"""

import logging
import random
import socket
import sys
import time

# scapy warns of each address that this namespace has no route to.
logging.getLogger("scapy.runtime").setLevel(logging.ERROR)

from scapy.compat import raw
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import GRE, ICMP, IP, TCP, UDP, IPOption_LSRR, IPOption_NOP, IPOption_SSRR
from scapy.layers.inet6 import (
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

from checks import Checks
from frames import FRONT, PROTECTED
from netns import Tap

prefix, program, work, case = sys.argv[1:5]
check = Checks()
FRAMES = 3000
MAC = ":".join(f"{byte:02x}" for byte in FRONT)
rng = random.Random(16)

CLIENTS = [f"203.0.113.{n}" for n in range(1, 9)]
SPECIAL = ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "169.254.1.1"]
# The gate, the grantor, protected hosts.
BEHIND = ["10.1.0.1", "10.2.0.1", "10.2.0.2", PROTECTED, "192.0.2.200"]
CLIENTS6 = [f"2001:db9::{n}" for n in range(1, 9)]
SPECIAL6 = ["::", "::1", "ff02::1", "fe80::1", "::ffff:192.0.2.7", "2002:c000:207::1"]
BEHIND6 = ["fd01::1", "fd02::1", "fd02::2", "2001:db8:2::7", "2001:db8:2::200"]


def address(six, to):
    clients, special, behind = (CLIENTS6, SPECIAL6, BEHIND6) if six else (CLIENTS, SPECIAL, BEHIND)
    draw = rng.random()
    if to and draw < 0.5:
        return behind[3]
    return rng.choice(clients if draw < 0.75 else behind if draw < 0.95 else special)


def payload(deep):
    tail = Raw(bytes(rng.randrange(1, 200)))
    ports = dict(sport=rng.randrange(65536), dport=rng.choice([53, 80, 6080, 4789, 9]))
    inside = lambda: packet(rng.random() < 0.5, deep - 1)
    choices = [
        lambda: UDP(**ports) / tail,
        lambda: TCP(**ports, flags=rng.choice(["S", "SA", "A", "R", "F"])) / tail,
        lambda: ICMP() / tail,
        lambda: tail,
    ]
    if deep:
        choices += [
            inside,
            lambda: GRE() / inside(),
            # GUE, both variants, and VXLAN.
            lambda: UDP(sport=9, dport=6080) / Raw(raw(inside())),
            lambda: UDP(sport=9, dport=6080) / Raw(b"\x00\x04\x00\x00" + raw(inside())),
            lambda: UDP(sport=9, dport=4789) / VXLAN(vni=1) / Ether(dst=MAC) / inside(),
        ]
    return rng.choice(choices)()


def packet(six, deep):
    hops = 64 if rng.random() < 0.9 else rng.randrange(3)
    below = payload(deep)
    if six:
        for _ in range(rng.choice([0, 0, 0, 1, 2])):
            extensions = [
                IPv6ExtHdrHopByHop(),
                IPv6ExtHdrDestOpt(),
                IPv6ExtHdrRouting(type=rng.choice([0, 2, 4]), addresses=[address(True, True)]),
                IPv6ExtHdrFragment(offset=rng.choice([0, 0, 100]), m=rng.randrange(2), id=rng.randrange(1 << 32)),
            ]
            below = rng.choice(extensions) / below
        return IPv6(src=address(True, False), dst=address(True, True), hlim=hops) / below
    options = []
    if rng.random() < 0.1:
        route = rng.choice([IPOption_LSRR, IPOption_SSRR])
        options = [route(pointer=4, routers=[address(False, True), PROTECTED]), IPOption_NOP()]
    fragment = dict(flags=rng.choice([0, 1, 2]), frag=rng.choice([0, 0, 0, 8]))
    head = IP(src=address(False, False), dst=address(False, True), ttl=hops, options=options, **fragment)
    return head / below


def frame():
    six = rng.random() < 0.4
    to = MAC if rng.random() < 0.9 else rng.choice(["ff:ff:ff:ff:ff:ff", "33:33:00:00:00:01", "02:00:00:00:01:77"])
    whole = Ether(dst=to, src="02:00:00:00:01:02")
    for _ in range(rng.choice([0, 0, 0, 0, 1, 2, 4, 5])):
        vlan = 0 if rng.random() < 0.9 else rng.randrange(4095)
        whole = whole / rng.choice([Dot1Q, Dot1AD])(vlan=vlan, prio=rng.randrange(8))
    if rng.random() < 0.05:
        whole = whole / MPLS(label=rng.randrange(1 << 20), s=1)
    data = bytearray(raw(whole / packet(six, 2)))
    if rng.random() < 0.1:
        at = rng.randrange(12, min(len(data), 60))
        data[at] ^= 1 << rng.randrange(8)
    if rng.random() < 0.05:
        del data[rng.randrange(14, len(data)) :]
    return bytes(data[:1400])


def is_undecided(seen):
    """Whether a frame at the grantor is for a protected host, in no tunnel of the gate's."""
    if seen[12:14] == b"\x08\x00":
        return socket.inet_ntoa(seen[30:34]).startswith("192.0.2.")
    if seen[12:14] == b"\x86\xdd":
        return socket.inet_ntop(socket.AF_INET6, seen[38:54]).startswith("2001:db8:2:")
    return False


def is_tunneled(seen):
    # Destinations 10.2.0.2 and fd02::2, from the gate's own addresses.
    return seen[26:34] == socket.inet_aton("10.2.0.1") + socket.inet_aton("10.2.0.2") or seen[22:54] == (
        socket.inet_pton(socket.AF_INET6, "fd02::1") + socket.inet_pton(socket.AF_INET6, "fd02::2")
    )


beyond = Tap(f"{prefix}grantor", "t0")
here = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
here.bind(("c0", 0))
frames = [frame() for _ in range(FRAMES)]
sent = 0
for each in frames:
    try:
        here.send(each)
        sent += 1
    except OSError:
        # The interface is down for the moment.
        pass
    if case == "changes":
        time.sleep(0.002)
    if sent % 16 == 0:
        beyond.take()
# A packet of a new client at the end; requests leave in no order, so that the watch goes on for a while.
last = Ether(dst=MAC, src="02:00:00:00:01:02") / IP(src="203.0.113.99", dst=PROTECTED) / UDP(sport=1, dport=2) / b"last"
until = time.monotonic() + 10
arrived = lambda: any(b"last" in seen for seen in beyond.seen)
while not arrived() and time.monotonic() < until:
    try:
        here.send(raw(last))
    except OSError:
        pass
    time.sleep(0.2)
    beyond.take()
check("the way is open at the end", arrived())
quiet = time.monotonic() + 1
while time.monotonic() < quiet:
    beyond.take()
    time.sleep(0.05)

undecided = [seen for seen in beyond.seen if is_undecided(seen) and not is_tunneled(seen)]
tunneled = [seen for seen in beyond.seen if is_tunneled(seen)]
what = f"{sent} frames: {len(undecided)} reach a protected host undecided, {len(tunneled)} go to the grantor"
if case == "off":
    check(what, len(undecided) > FRAMES / 10, len(undecided))
else:
    check(what, not undecided, [seen.hex() for seen in undecided[:3]])
    # While the front has another MAC or is down, no frame is for it.
    least = FRAMES / 10 if case == "on" else 30
    check("and many are requests", len(tunneled) > least, len(tunneled))
check.finish()
