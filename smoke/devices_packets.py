"""Sends UDP packets from the client to the server, to a MAC address of the gate's front.

    devices_packets.py COUNT MAC LENGTH    each packet with a source port of its own
"""

import socket
import struct
import sys

from frames import ones_sum

count, mac, size = int(sys.argv[1]), bytes.fromhex(sys.argv[2].replace(":", "")), int(sys.argv[3])
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("c0", 0))
for n in range(count):
    udp = struct.pack("!HHHH", 4000 + n, 9, size - 20, 0) + bytes(size - 28)
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), n, 0x4000, 64, 17, 0, bytes([10, 1, 0, 2]), bytes([192, 0, 2, 7]))
    head = head[:10] + struct.pack("!H", 0xffff - ones_sum(head)) + head[12:]
    s.send(mac + bytes.fromhex("020000000102") + b"\x08\x00" + head + udp)
