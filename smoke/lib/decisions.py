"""What scripts about gates share: sockets in other namespaces, frames, and messages of grantors.

Nothing of the gate's code is here: version 1 is packed by `struct` as Gatekeeper's grantors pack it,
version 2 signed by `hmac` as docs/decision-protocol.md does.
"""

import hashlib
import hmac
import json
import os
import socket
import struct
import subprocess

PROTECTED = "192.0.2.7"
# The MACs of the client, of the gate's two sides and of the grantor.
CLIENT, FRONT, BACK, GRANTOR = (bytes.fromhex(f"02000000{n}") for n in ("0102", "0101", "0201", "0202"))
# Preamble, check sequence and gap between frames, in bytes.
FRAMING = 24
PATIENCE = 8.0


def in_namespace(prefix, name, make):
    """Makes a socket in another namespace, as Tap does."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{prefix}{name}", os.O_RDONLY)
    try:
        os.setns(there, 0) if hasattr(os, "setns") else setns(there)
        return make()
    finally:
        os.setns(home, 0) if hasattr(os, "setns") else setns(home)
        os.close(there)
        os.close(home)


def setns(descriptor):
    import ctypes

    if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")


def show(program, work, *words):
    """Returns what `fingerpost show -j` prints for these words, by the socket in the scratch folder."""
    command = [program, "show", "-j", *words, "--socket", f"{work}/sock"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def udp(address, port):
    it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    it.bind((address, port))
    it.settimeout(PATIENCE)
    return it


def pair(src, dst):
    return socket.inet_aton(src) + socket.inet_aton(dst)


# Version 1, as Gatekeeper's grantors send it.
def v1(*decisions):
    return bytes([1, 0, 0, 0]) + b"".join(decisions)


def v1_granted(src, rate, expire, renew, step, dst=PROTECTED):
    return bytes([2, 0, 0, 0]) + pair(src, dst) + struct.pack(">4I", rate, expire, renew, step)


def v1_declined(src, expire, dst=PROTECTED):
    return bytes([0, 0, 0, 0]) + pair(src, dst) + struct.pack(">I", expire)


# Version 2: a whole message, with its code.
def v2(kind, session, number, body, sender, key):
    text = struct.pack(">BBHIQQ", 2, kind, 1, sender, session, number) + body
    return text + hmac.new(key, text, hashlib.sha256).digest()[:16]


def folded(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


class Template:
    """A UDP packet in a frame, whose source is filled in with the checksum that goes with it."""

    def __init__(self, dst=PROTECTED, size=64):
        total = 28 + size
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, total, 0, 0, 17, 17, 0, bytes(4), socket.inet_aton(dst))
        self.sum = folded(ip)
        self.frame = bytearray(FRONT + CLIENT + b"\x08\x00" + ip + struct.pack(">HHHH", 5000, 6000, 8 + size, 0) + bytes(size))

    def of(self, src):
        total = self.sum + (src >> 16) + (src & 0xFFFF)
        total = (total & 0xFFFF) + (total >> 16)
        total = (total & 0xFFFF) + (total >> 16)
        struct.pack_into(">H", self.frame, 24, ~total & 0xFFFF)
        struct.pack_into(">I", self.frame, 26, src)
        return self.frame


def address(text):
    return struct.unpack(">I", socket.inet_aton(text))[0]
