"""Replays a file of BGP updates as the peers that sent them: a session each.

replay_speakers.py NAMESPACE CONFIG FILE ROUTER: first, with CONFIG, writes the protocols that the
router's BIRD takes for these peers; each has an address of its own, from 10.0.1.10 on,
and its own AS. Then, when the file CONFIG.go is there, connects, says everything as fast
as it is taken, writes a line, and keeps the sessions until standard input ends.

An update is sent as it is in the file (MRT, RFC 6396; BGP-4, RFC 4271, four-byte AS
numbers, RFC 6793), but for the next hop, which is the speaker; what is of another family
or another shape is left out and counted.
"""

import bz2
import os
import select
import socket
import struct
import sys
import time

from netns import enter

MARKER = b"\xff" * 16
NEXT_HOP, MP_REACH, MP_UNREACH = 3, 14, 15


def records(path):
    with bz2.open(path) as file:
        while head := file.read(12):
            _, kind, subtype, length = struct.unpack("!IHHI", head)
            body = file.read(length)
            if kind == 17:
                body = body[4:]
            if kind in (16, 17):
                yield subtype, body


def updates(path):
    """Yields (AS, peer, message) of what can be replayed, and None for what cannot."""
    for subtype, body in records(path):
        if subtype != 4:
            yield None
            continue
        peer_as, _, _, family = struct.unpack("!IIHH", body[:12])
        peer, body = (body[12:16], body[20:]) if family == 1 else (body[12:28], body[44:])
        if family != 1 or len(body) < 23 or body[18] != 2:
            yield None
            continue
        yield peer_as, peer, body


def attributes(data):
    at = 0
    while at < len(data):
        flags, kind = data[at], data[at + 1]
        wide = flags & 0x10
        length = struct.unpack("!H", data[at + 2 : at + 4])[0] if wide else data[at + 2]
        start = at + (4 if wide else 3)
        yield kind, start, length
        at = start + length


def through(message, address):
    """Returns the message with this next hop; nothing if it is of another family."""
    withdrawn = struct.unpack("!H", message[19:21])[0]
    at = 21 + withdrawn
    length = struct.unpack("!H", message[at : at + 2])[0]
    data = bytearray(message)
    for kind, start, size in attributes(message[at + 2 : at + 2 + length]):
        if kind in (MP_REACH, MP_UNREACH):
            return None
        if kind == NEXT_HOP and size == 4:
            data[at + 2 + start : at + 2 + start + 4] = address
    return bytes(data)


def message(kind, body=b""):
    return MARKER + struct.pack("!HB", 19 + len(body), kind) + body


def opening(asn, address):
    four = struct.pack("!BBI", 65, 4, asn)
    unicast = struct.pack("!BBHBB", 1, 4, 1, 0, 1)
    capabilities = unicast + four
    options = struct.pack("!BB", 2, len(capabilities)) + capabilities
    short = asn if asn < 65536 else 23456
    return message(1, struct.pack("!BHH4sB", 4, short, 90, address, len(options)) + options)


def main():
    namespace, config, path, router = sys.argv[1:5]
    peers, said, left = {}, {}, 0
    for update in updates(path):
        if update is None:
            left += 1
            continue
        asn, peer, body = update
        number = peers.setdefault((asn, peer), len(peers))
        changed = through(body, bytes([10, 0, 1, 10 + number]))
        if changed is None:
            left += 1
        else:
            said.setdefault((asn, peer), []).append(changed)
    with open(config, "w", encoding="ascii") as file:
        for (asn, _), number in peers.items():
            file.write(
                f"protocol bgp peer{number} {{ local {router} as 65000; neighbor 10.0.1.{10 + number} as {asn};"
                " passive; hold time 90; ipv4 { import all; export none; }; }\n"
            )
    while not os.path.exists(config + ".go"):
        time.sleep(0.05)
    enter(namespace)
    sessions, begun, count = {}, time.monotonic(), 0
    for (asn, peer), number in peers.items():
        address = bytes([10, 0, 1, 10 + number])
        session = socket.create_connection((router, 179), 10, (socket.inet_ntoa(address), 0))
        session.sendall(opening(asn, address) + message(4))
        session.setblocking(False)
        updates_of = said.get((asn, peer), [])
        count += len(updates_of)
        sessions[session] = memoryview(b"".join(updates_of))
    answer = False
    beat = time.monotonic()
    while True:
        talking = [session for session, rest in sessions.items() if rest]
        if not talking and not answer:
            answer = True
            took = time.monotonic() - begun
            print(f"{count} updates of {len(peers)} peers in {took:.1f} s, {left} left out", flush=True)
        readable, writable, _ = select.select([*sessions, sys.stdin], talking, [], 1)
        if sys.stdin in readable:
            return
        for session in readable:
            if not session.recv(65536):
                raise ConnectionError(f"{session.getpeername()} has ended the session")
        for session in writable:
            sessions[session] = sessions[session][session.send(sessions[session][:65536]) :]
        if time.monotonic() - beat > 20:
            beat = time.monotonic()
            for session, rest in sessions.items():
                if not rest:
                    session.send(message(4))


main()
