"""Prints the frames that a router sends, for a comparison with those that the kernel alone sends.

    random_arrivals.py INTERFACE STOP    until the file STOP exists: sorted, in hexadecimal, without the fields that the
                                         kernel chooses at random; writes "ready" to standard error when it receives
"""

import os
import socket
import sys

LOCALS = {"10.0.0.1", "10.0.1.1", "10.0.2.1", "fd00::1", "fd00:1::1", "fd00:2::1"}


def comparable(data):
    """The frame without the fields that a kernel chooses for its own packets; None: not of interest."""
    data, kind = bytearray(data), data[12:14]
    # Without the padding of short frames.
    if kind == b"\x08\x00":
        data = data[:14 + int.from_bytes(data[16:18], "big")]
        if socket.inet_ntoa(bytes(data[26:30])) in LOCALS:
            data[18:20] = data[24:26] = b"\0\0"
        protocol, header = data[23], 14 + (data[14] & 15) * 4
        message = bytes(data[header:header + 2]) if protocol == 1 else b""
        # IGMP, fragments that were not reassembled in time, and the router's echo requests.
        if protocol == 2 or message == b"\x0b\x01" or message[:1] == b"\x08" and data[18:20] == b"\0\0":
            return None
        return bytes(data)
    if kind == b"\x86\xdd":
        data = data[:54 + int.from_bytes(data[18:20], "big")]
        if socket.inet_ntop(socket.AF_INET6, bytes(data[22:38])) in LOCALS or data[22] == 0xfe:
            data[15:18] = bytes([data[15] & 0xf0, 0, 0])
        header, message = data[20], bytes(data[54:56])
        # Multicast listener reports, behind a hop-by-hop header.
        if header == 0 and (data[38:54] == bytes.fromhex("ff020000000000000000000000000016") or data[62:63] == b"\x8f"):
            return None
        # Reassembly that took too long, neighbor discovery, and the router's echo requests.
        if header == 58 and (message == b"\3\1" or message[:1] in (b"\x85", b"\x86", b"\x87", b"\x88", b"\x89")
                             or message[:1] == b"\x80" and data[15:18] == bytes(3)):
            return None
        return bytes(data)
    return None


def receive(interface, stop):
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    link.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    link.bind((interface, 3))
    print("ready", file=sys.stderr, flush=True)
    link.settimeout(0.5)
    found = []
    while True:
        try:
            data, address = link.recvfrom(65535)
        except TimeoutError:
            if os.path.exists(stop):
                break
            continue
        if address[2] != socket.PACKET_OUTGOING and (data := comparable(data)):
            found.append(data.hex())
    print("\n".join(sorted(found)))


receive(*sys.argv[1:])
