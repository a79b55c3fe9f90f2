"""Frames of the gate's topologies, built without scapy, which is too slow for floods."""

import socket
import struct

PROTECTED = "192.0.2.7"
# The MAC addresses of the client, of the gate's two sides and of the grantor.
CLIENT, FRONT, BACK, GRANTOR = (bytes.fromhex(f"02000000{n}") for n in ("0102", "0101", "0201", "0202"))
# Preamble, check sequence and gap between frames, in bytes.
FRAMING = 24


def address(text):
    """Returns an IPv4 address as an integer."""
    return struct.unpack(">I", socket.inet_aton(text))[0]


def ones_sum(data):
    """Returns the one's complement sum of 16-bit words (RFC 1071), not inverted."""
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


class Template:
    """A UDP packet in a frame whose source is filled in, with the checksum that goes with it."""

    def __init__(self, dst=PROTECTED, size=64):
        total = 28 + size
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, total, 0, 0, 17, 17, 0, bytes(4), socket.inet_aton(dst))
        self.sum = ones_sum(ip)
        self.frame = bytearray(FRONT + CLIENT + b"\x08\x00" + ip + struct.pack(">HHHH", 5000, 6000, 8 + size, 0) + bytes(size))

    def of(self, src):
        total = self.sum + (src >> 16) + (src & 0xFFFF)
        total = (total & 0xFFFF) + (total >> 16)
        total = (total & 0xFFFF) + (total >> 16)
        struct.pack_into(">H", self.frame, 24, ~total & 0xFFFF)
        struct.pack_into(">I", self.frame, 26, src)
        return self.frame
