#!/usr/bin/env python3
"""Version 2 of the decision protocol by hand, for tests/decision_v2.rs.

Written from docs/decision-protocol.md with Python's struct and hmac; it knows nothing of
the gate's code. `python3 v2.py > v2.hex`: a name and a message a line.
"""
import hashlib
import hmac
import ipaddress
import struct

SECRET = bytes(range(32))
FIRST = (1_700_000_000 << 22) | 1
SESSION = 0x1122334455667788


def prefix(text):
    network = ipaddress.ip_network(text)
    return network.network_address.packed, network.prefixlen


def item(kind, src, dst, parameters=b""):
    (src, src_len), (dst, dst_len) = prefix(src), prefix(dst)
    family = 4 if len(src) == 4 else 6
    return struct.pack("!BBBB", kind, family, src_len, dst_len) + src + dst + parameters


def message(name, kind, session, number, body):
    text = struct.pack("!BBHIQQ", 2, kind, 7, 99, session, number) + body
    print(name, (text + hmac.new(SECRET, text, hashlib.sha256).digest()[:16]).hex())


DECISIONS = (
    item(1, "192.0.2.1/32", "198.51.100.7/32", struct.pack("!I", 600))
    + item(2, "2001:db8::1/128", "2001:db8:ffff::2/128",
           struct.pack("!IIII", 1024, 300, 240000, 3000))
    + item(3, "192.0.2.1/32", "198.51.100.7/32",
           struct.pack("!IBHB", 60, 3, 0, 2) + bytes(range(1, 7)) + bytes(2))
    + item(1, "192.0.2.0/24", "0.0.0.0/0", struct.pack("!I", 30))
    + item(4, "::/0", "2001:db8::/32")
)
message("probe", 1, 0, FIRST, DECISIONS)
message("hello", 3, SESSION, FIRST, b"")
message("decisions", 1, SESSION, FIRST, DECISIONS)
message("acknowledgement", 2, SESSION, FIRST, struct.pack("!QQQQ", 1, 0, 0, 0))

# A program of 1500 bytes: offered, wanted, its second chunk, and refused with a reason.
OBJECT = bytes(n % 251 for n in range(1500))
DIGEST = hashlib.sha256(OBJECT).digest()


def chunk(offset, data):
    return struct.pack("!B3xII", 3, len(OBJECT), offset) + DIGEST + data


def standing(state, reason, words=b""):
    return struct.pack("!BBBB", 3, state, reason, 0) + DIGEST + words


message("offer", 4, SESSION, FIRST + 1, chunk(0, b""))
message("wanted", 5, SESSION, FIRST + 1, standing(1, 0))
message("chunk", 4, SESSION, FIRST + 3, chunk(1024, OBJECT[1024:]))
message("refused", 5, SESSION, FIRST + 1, standing(4, 4, "pkt: it would never end".encode()))
