"""Sends frames into a place and says what came out, all by scapy's reckoning.

Used by the smoke tests with Debian's scapy; nothing here is ours but the questions.
A `Tap` is a raw socket on one interface in one namespace. A `Case` is one frame and
what must become of it. The expected frame is made by scapy from the sent one: new
MACs, TTL or hop limit one less, header checksum computed anew from nothing. It must
equal what arrives byte for byte, so every field is checked, and the payload with it.

That a frame does *not* come out is shown without waiting: a good frame to each sink is
sent after it, and when those have arrived, the bad one would have.
"""

import ctypes
import os
import select
import socket
import sys
import time

from scapy.compat import raw
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

CLONE_NEWNET = 0x40000000
ETH_P_ALL = 0x0003
PATIENCE = 5.0
SO_RCVBUFFORCE = 33  # from asm-generic/socket.h: Python has no name for it


class Tap:
    """A raw socket on an interface of a namespace."""

    def __init__(self, namespace, interface):
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(there, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"entering the namespace {namespace}")
        try:
            # A socket stays in the namespace it was made in.
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            # A gate releases more packets at once than the default buffer holds.
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 25)
            self.socket.bind((interface, 0))
        finally:
            libc.setns(home, CLONE_NEWNET)
            os.close(there)
            os.close(home)
        self.name = interface
        self.seen = []

    def send(self, frame):
        self.socket.send(frame)

    def take(self):
        """Takes in what has arrived, without waiting."""
        while select.select([self.socket], [], [], 0)[0]:
            frame, where = self.socket.recvfrom(65535)
            if where[2] != socket.PACKET_OUTGOING:
                self.seen.append(frame)


class Case:
    """A frame that goes in, the counter it must end in, and the name of the tap where it
    must come out, if any."""

    def __init__(self, name, counter, packet, out=None):
        self.name, self.counter, self.packet, self.out = name, counter, packet, out
        self.frame = raw(packet)


class Place:
    """The interfaces around a router, and what a forwarded frame looks like."""

    def __init__(self, source, sinks, macs):
        """`macs[name]` are the source and destination MAC of frames to that sink."""
        self.source, self.sinks, self.macs = source, sinks, macs
        self.taps = [source, *sinks.values()]

    def expected(self, packet, out):
        """What scapy says must arrive."""
        packet = Ether(raw(packet))
        packet.src, packet.dst = self.macs[out]
        if IPv6 in packet:
            packet[IPv6].hlim -= 1
        else:
            packet[IP].ttl -= 1
            del packet[IP].chksum
        return raw(packet)

    def run(self, cases, probes):
        """Runs every case; `probes` makes a good case for each sink of a marker, as a
        router keeps order on each link only. Returns complaints."""
        wrong = []
        for number, case in enumerate(cases):
            for tap in self.taps:
                tap.take()
                tap.seen.clear()
            self.source.send(case.frame)
            marker = b"probe-%08d." % number
            awaited = probes(marker)
            for probe in awaited:
                self.source.send(probe.frame)
            until = time.monotonic() + PATIENCE
            while missing := [probe.out for probe in awaited if not self.has_arrived(probe)]:
                if time.monotonic() > until:
                    wrong.append(f"{case.name}: the good frame after it did not arrive at {missing}")
                    break
                select.select([tap.socket for tap in self.taps], [], [], 0.05)
                for tap in self.taps:
                    tap.take()
            verdict = self.judge(case, marker)
            print(f"   {'ok  ' if verdict is None else 'BAD '} {case.name}", flush=True)
            if verdict is not None:
                wrong.append(f"{case.name}: {verdict}")
        return wrong

    def has_arrived(self, case):
        """Whether a case's frame has come out, with or without padding."""
        want = self.expected(case.packet, case.out)
        return want in [frame[: len(want)] for frame in self.sinks[case.out].seen]

    def judge(self, case, marker):
        """What is wrong with what came out, or None."""
        for name, tap in self.sinks.items():
            frames = [f for f in tap.seen if marker not in f and not chatter(f)]
            if name != case.out:
                if frames:
                    return f"came out at {name}: {Ether(frames[0]).summary()}"
                continue
            want = self.expected(case.packet, name)
            if not frames:
                return f"did not come out at {name}"
            if len(frames) > 1:
                return f"came out {len(frames)} times at {name}"
            got = frames[0]
            # A short frame may come with padding.
            if got[: len(want)] != want or any(got[len(want) :]):
                return f"not as expected at {name}:\n{difference(want, got)}"
        return None


def chatter(frame):
    """Whether a frame is what kernels say to each other: ARP, ND, MLD."""
    packet = Ether(frame)
    if packet.type == 0x0806:
        return True
    return IPv6 in packet and packet[IPv6].dst.startswith("ff02:")


def difference(want, got):
    """The two frames by scapy's fields, where they differ."""
    a = Ether(want).show2(dump=True).splitlines()
    b = Ether(got).show2(dump=True).splitlines()
    lines = [f"   want {x.strip()}   got {y.strip()}" for x, y in zip(a, b) if x != y]
    return "\n".join(lines) or f"   want {want.hex()}\n   got  {got.hex()}"


class Checks:
    """Prints the result of each check, and keeps a complaint for each that failed."""

    def __init__(self):
        self.complaints = []

    def __call__(self, name, holds, detail=""):
        print(f"   {'ok  ' if holds else 'BAD '} {name}", flush=True)
        if not holds:
            self.complaints.append(f"{name}: {detail}")

    def finish(self):
        finish(self.complaints)


def finish(wrong):
    """Ends the program with the complaints."""
    for complaint in wrong:
        print(f"WRONG {complaint}", file=sys.stderr)
    sys.exit(1 if wrong else 0)
