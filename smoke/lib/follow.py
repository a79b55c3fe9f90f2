"""Sends packets through the router of bird_test.sh and looks where they come out.

follow.py PREFIX FILE SIDES: FILE has the prefixes, those on odd lines by a and on even ones
by b; SIDES is both, or the one that is there. The way of an address is found here, by
comparing it with every prefix, and by nothing of the router's. A packet must come out
where its longest prefix says, once, from the router's MAC, and nowhere else; where SIDES
does not have the prefix, where the longest of the rest says.
"""

import ipaddress
import random
import sys
import time

from netns import Tap
from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from prefixes import Prefixes

COUNT = 1000
MACS = {"a": ("02:00:00:00:02:02", "02:00:00:00:02:01"), "b": ("02:00:00:00:03:02", "02:00:00:00:03:01")}


def main():
    prefix, path, sides = sys.argv[1:4]
    prefixes = Prefixes(path, ("a", "b") if sides == "both" else (sides,))
    dice = random.Random(7)
    want = {}
    while len(want) < COUNT:
        # Another test is about addresses that a router must not forward to.
        address = prefixes.draw(dice)
        want[address] = prefixes.of(address)

    source = Tap(f"{prefix}source", "s0")
    sinks = {"a": Tap(f"{prefix}a", "a0"), "b": Tap(f"{prefix}b", "b0")}
    mark = b"%016x" % random.getrandbits(64)
    ether = Ether(src="02:00:00:00:01:02", dst="02:00:00:00:01:01")
    for number, address in enumerate(want):
        to = IP(src="10.0.0.2", dst=str(ipaddress.ip_address(address)), ttl=9)
        source.send(raw(ether / to / UDP(sport=9, dport=9) / Raw(mark)))
        if number % 50 == 49:
            time.sleep(0.002)
            # Frames beyond the capacity of a tap's buffer are lost.
            for tap in sinks.values():
                tap.take()
    until = time.monotonic() + 3
    arrived = {}
    while time.monotonic() < until and sum(map(len, arrived.values())) < COUNT:
        time.sleep(0.01)
        for side, tap in sinks.items():
            tap.take()
            for frame in tap.seen:
                if mark in frame:
                    arrived.setdefault(int.from_bytes(frame[30:34], "big"), []).append((side, frame))
            tap.seen.clear()
    wrong = []
    for address, side in want.items():
        came = arrived.get(address, [])
        shown = ipaddress.ip_address(address)
        if [there for there, _ in came] != [side]:
            wrong.append(f"{shown}: to {side}, and came out at {[there for there, _ in came]}")
        elif Ether(came[0][1]).dst != MACS[side][0] or came[0][1][22] != 8:
            wrong.append(f"{shown}: came out as {Ether(came[0][1]).summary()}, TTL {came[0][1][22]}")
    for line in wrong[:5]:
        print(line)
    print(f"   {COUNT} packets, {len(wrong)} not where they should be ({sides})")
    sys.exit(1 if wrong else 0)


main()
