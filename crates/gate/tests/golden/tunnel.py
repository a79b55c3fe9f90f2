#!/usr/bin/env python3
"""Sealed tunnels by hand, for tests/tunnel.rs.

Written from docs/decision-protocol.md, section 4, with Python's struct and hmac, and SipHash from its
paper; it knows nothing of the gate's code. `python3 tunnel.py > tunnel.hex`: a name and the bytes a line.
"""
import hashlib
import hmac
import ipaddress
import struct

SECRET = bytes(range(32))
SESSION = 0x1122334455667788
MASK = (1 << 64) - 1


def rotate(word, by):
    return (word << by | word >> 64 - by) & MASK


def siphash128(key, text):
    """SipHash-2-4 with 128 bits of output (Aumasson and Bernstein; the reference code's outlen 16)."""
    k0, k1 = struct.unpack("<QQ", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    v[1] ^= 0xEE

    def rounds(count):
        for _ in range(count):
            v[0] = (v[0] + v[1]) & MASK
            v[1] = rotate(v[1], 13) ^ v[0]
            v[0] = rotate(v[0], 32)
            v[2] = (v[2] + v[3]) & MASK
            v[3] = rotate(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) & MASK
            v[3] = rotate(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) & MASK
            v[1] = rotate(v[1], 17) ^ v[2]
            v[2] = rotate(v[2], 32)

    whole = len(text) // 8 * 8
    last = text[whole:] + bytes(7 - len(text) % 8) + bytes([len(text) % 256])
    for (word,) in struct.iter_unpack("<Q", text[:whole] + last):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xEE
    rounds(4)
    low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    rounds(4)
    return struct.pack("<QQ", low, v[0] ^ v[1] ^ v[2] ^ v[3])


# The first and the last vector of the reference code (vectors_sip128).
assert siphash128(bytes(range(16)), b"").hex() == "a3817f04ba25a8e66df67214c7550293"
assert siphash128(bytes(range(16)), bytes(range(63))).hex() == "5150d1772f50834a503e069a973fbd7c"


def private(source, destination, ports, number, dscp, stream, time, sequence, inner, secret=SECRET, session=SESSION):
    key = hmac.new(secret, b"fingerpost tunnel 1" + struct.pack("!Q", session), hashlib.sha256).digest()[:16]
    mark = struct.pack("!HBBHHIQ", number, dscp, 1, session & 0xFFFF, stream, time, sequence)
    addresses = [ipaddress.ip_address(text) for text in (source, destination)]
    six = inner[0] >> 4 == 6
    head = struct.pack("!BBHHH", addresses[0].version, 41 if six else 4, len(inner), *ports)
    text = head + mark + b"".join(address.packed for address in addresses) + inner[: 60 if six else 40]
    return mark + siphash128(key, text)


def inner(version, length):
    rest = bytes(i * 7 & 255 for i in range(length))
    return (bytes([0x45]) if version == 4 else bytes([0x60])) + rest[1:]


def golden():
    for name, ends, version, length in (
        ("4in4", ("10.2.0.1", "10.9.1.100"), 4, 300),
        ("short", ("10.2.0.1", "10.9.1.100"), 4, 20),
        ("6in4", ("10.2.0.1", "10.9.1.100"), 6, 61),
        ("4in6", ("fd02::1", "fd09::100"), 4, 39),
        ("6in6", ("fd02::1", "fd09::100"), 6, 1400),
    ):
        packet = inner(version, length)
        print(name, private(*ends, (0xC123, 6080), 7, 41, 3, 0x01020304, 0x1122334455, packet).hex())


if __name__ == "__main__":
    golden()
