"""Sends UDP packets from the client of a gate.

    candidate_packets.py PREFIX [DESTINATION SOURCE COUNT]...
"""

import sys

from netns import Tap
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

tap = Tap(sys.argv[1] + "client", "c0")
arguments = iter(sys.argv[2:])
for destination, source, count in zip(arguments, arguments, arguments):
    packet = IP(src=source, dst=destination) / UDP(sport=9, dport=9) / b"x"
    for _ in range(int(count)):
        tap.send(bytes(Ether(src="02:00:00:00:01:02", dst="02:00:00:00:01:01") / packet))
