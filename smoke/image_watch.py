"""Watches a router start by an image: when its first packet comes out, and what after it.

image_watch.py PREFIX FILE START END: FILE has the prefixes, those on odd lines by a and on even
ones by b. A packet a millisecond goes in from before the start, whose moment the test
writes to the file START, until the file END is there. The file END.ready says that packets are sent. From the first that comes out on,
all must, once, where their longest prefix says: also while the tables of the image give
way to those of the kernel's routes.
"""

import ipaddress
import os
import random
import sys
import time

from netns import Tap
from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from prefixes import Prefixes

COUNT = 200


def main():
    prefix, path, start, end = sys.argv[1:5]
    prefixes = Prefixes(path)
    dice = random.Random(11)
    mark = b"%016x" % random.getrandbits(64)
    ether = Ether(src="02:00:00:00:01:02", dst="02:00:00:00:01:01")
    frames = []
    while len(frames) < COUNT:
        address = prefixes.draw(dice)
        to = IP(src="10.0.0.2", dst=str(ipaddress.ip_address(address)), ttl=9)
        frame = raw(ether / to / UDP(sport=9, dport=9, chksum=0) / Raw(mark + bytes(8)))
        frames.append((frame[:-8], prefixes.of(address)))

    source = Tap(f"{prefix}source", "s0")
    sinks = {"a": Tap(f"{prefix}a", "a0"), "b": Tap(f"{prefix}b", "b0")}
    arrived, first, sent = {}, None, 0

    def take():
        nonlocal first
        for side, tap in sinks.items():
            tap.take()
            for frame in tap.seen:
                if mark in frame:
                    first = first or time.time()
                    number = int.from_bytes(frame[frame.index(mark) + 16 :][:8], "big")
                    arrived.setdefault(number, []).append(side)
            tap.seen.clear()

    begin = time.monotonic()
    open(f"{end}.ready", "w").close()
    while not os.path.exists(end):
        assert time.monotonic() < begin + 60, f"no end within 60 s; {len(arrived)} came out"
        source.send(frames[sent % COUNT][0] + sent.to_bytes(8, "big"))
        sent += 1
        take()
        time.sleep(max(0, begin + sent / 1000 - time.monotonic()))
    until = time.monotonic() + 1
    while time.monotonic() < until:
        time.sleep(0.01)
        take()
    assert arrived, "nothing came out"
    lowest = min(arrived)
    wrong = [n for n in range(lowest, sent) if arrived.get(n) != [frames[n % COUNT][1]]]
    with open(start, encoding="ascii") as file:
        took = (first - float(file.read())) * 1000
    print(f"   the first packet {took:.0f} ms after the start, then {sent - lowest}, {len(wrong)} not where they should be")
    for number in wrong[:5]:
        print(f"   {number - lowest}: to {frames[number % COUNT][1]}, and came out at {arrived.get(number)}")
    sys.exit(1 if wrong else 0)


main()
