"""Writes a capture with one second of a patient client and of a hundred that send one packet each.

    grantor_capture.py FILE
"""

import sys
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

packets = []
for at in range(100):
    for src, port in ("10.1.0.2", 80), (f"198.51.100.{at}", 81):
        packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src=src, dst="192.0.2.7") / TCP(dport=port)
        packet.time = 1_800_000_000 + at / 100
        packets.append(packet)
wrpcap(sys.argv[1], packets)
