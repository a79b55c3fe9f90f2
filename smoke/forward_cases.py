"""Frames that go through a router, and what must arrive, computed by scapy.

A `Case` is one frame and what must become of it. scapy makes the expected frame of the sent one: new
MAC addresses, TTL or hop limit one less, the header checksum computed from nothing. The expected frame
must equal what arrives byte for byte, so that every field is checked, and the payload with it.

A frame that must not come out needs no waiting: a good frame to each sink follows it, and when those
have arrived, it would have arrived too.
"""

import select
import time

from scapy.compat import raw
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

PATIENCE = 5.0


class Case:
    """A frame that goes in, the counter it must end in, and the name of the tap where it
    must come out, if any."""

    def __init__(self, name, counter, packet, out=None):
        self.name, self.counter, self.packet, self.out = name, counter, packet, out
        self.frame = raw(packet)


class Testbed:
    """The interfaces around a router, and what a forwarded frame looks like."""

    def __init__(self, source, sinks, macs):
        """`macs[name]` are the source and destination MAC of frames to that sink."""
        self.source, self.sinks, self.macs = source, sinks, macs
        self.taps = [source, *sinks.values()]

    def expected(self, packet, out):
        """Returns the frame that must arrive, by scapy."""
        packet = Ether(raw(packet))
        packet.src, packet.dst = self.macs[out]
        if IPv6 in packet:
            packet[IPv6].hlim -= 1
        else:
            packet[IP].ttl -= 1
            del packet[IP].chksum
        return raw(packet)

    def run(self, cases, probes, check):
        """Runs every case; `probes` makes a good case for each sink of a marker, as a
        router keeps order on each link only."""
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
                    check(f"{case.name}: the good frame after it arrives", False, missing)
                    break
                select.select([tap.socket for tap in self.taps], [], [], 0.05)
                for tap in self.taps:
                    tap.take()
            difference = self.difference(case, marker)
            check(case.name, difference is None, difference)

    def has_arrived(self, case):
        """Whether a case's frame has come out, with or without padding."""
        want = self.expected(case.packet, case.out)
        return want in [frame[: len(want)] for frame in self.sinks[case.out].seen]

    def difference(self, case, marker):
        """Returns how the frames that came out differ from the expected ones, or None."""
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
                return f"not as expected at {name}:\n{fields_that_differ(want, got)}"
        return None


def chatter(frame):
    """Whether a frame is what kernels say to each other: ARP, ND, MLD."""
    packet = Ether(frame)
    if packet.type == 0x0806:
        return True
    return IPv6 in packet and packet[IPv6].dst.startswith("ff02:")


def fields_that_differ(want, got):
    """The two frames by scapy's fields, where they differ."""
    a = Ether(want).show2(dump=True).splitlines()
    b = Ether(got).show2(dump=True).splitlines()
    lines = [f"   want {x.strip()}   got {y.strip()}" for x, y in zip(a, b) if x != y]
    return "\n".join(lines) or f"   want {want.hex()}\n   got  {got.hex()}"
