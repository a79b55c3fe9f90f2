#!/usr/bin/env python3
"""Version 1 of the decision protocol by hand, for tests/decision_v1.rs.

Written with nothing but struct from the layout of Gatekeeper's messages; it shares no code with
the gate. `python3 v1.py > v1.hex`: a name and a message a line.
"""
import ipaddress
import struct


def address(text):
    return ipaddress.ip_address(text).packed


def decision(kind, src, dst, parameters):
    src, dst = address(src), address(dst)
    kind += 1 if len(src) == 16 else 0
    return struct.pack("!BBH", kind, 0, 0) + src + dst + parameters


def declined(src, dst, expire):
    return decision(0, src, dst, struct.pack("!I", expire))


def granted(src, dst, rate, expire, following, step):
    return decision(2, src, dst, struct.pack("!IIII", rate, expire, following, step))


def program(src, dst, expire, number, cookie):
    while cookie[-4:] == b"\0\0\0\0":
        cookie = cookie[:-4]
    head = struct.pack("!IBHB", expire, number, 0, len(cookie) // 4)
    return decision(4, src, dst, head + cookie)


def message(name, *decisions):
    print(name, (struct.pack("!BBH", 1, 0, 0) + b"".join(decisions)).hex())


V4 = ("192.0.2.1", "198.51.100.7")
V6 = ("2001:db8::1", "2001:db8:ffff::2")
message("empty")
message("declined4", declined(*V4, 600))
message("declined6", declined(*V6, 0xFFFFFFFF))
message("granted4", granted(*V4, 1024, 300, 240000, 3000))
message("granted6", granted(*V6, 1, 2, 3, 4))
message("program4", program(*V4, 60, 3, bytes(range(1, 7)) + bytes(58)))
message("program6", program(*V6, 60, 255, bytes(range(64))))
message("none4", program(*V4, 60, 0, bytes(64)))
message("all", declined(*V4, 1), granted(*V6, 1024, 300, 240000, 3000),
        program(*V4, 60, 3, bytes(range(1, 7)) + bytes(58)))
