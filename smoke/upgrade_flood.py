"""A flood for upgrade-gate_test.sh: UDP packets from ever new sources to 192.0.2.9, without an end.

    upgrade_flood.py INTERFACE
"""

import itertools
import socket
import struct
import sys
import time

RATE = 5000
HEADER = bytes.fromhex("020000000101020000000102 0800")


def frame(number):
    source = bytes([172, 16 + (number >> 16 & 15), number >> 8 & 255, number & 255])
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 60, 0, 0x4000, 64, 17, 0) + source + bytes([192, 0, 2, 9])
    total = sum(struct.unpack(">10H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    ip = ip[:10] + struct.pack(">H", ~total & 0xFFFF) + ip[12:]
    return HEADER + ip + struct.pack(">HHHH", 7, 7, 40, 0) + bytes(32)


link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind((sys.argv[1], 0))
begin = time.monotonic()
for sent in itertools.count():
    link.send(frame(sent))
    ahead = begin + sent / RATE - time.monotonic()
    if ahead > 0.005:
        time.sleep(ahead)
