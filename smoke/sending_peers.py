"""Packets, and programs by another hand, for sending_test.sh.

sending_peers.py PREFIX PROGRAM WORK, within the gate's namespace, and then one of

    asks SRC             packets from SRC are requests, and no program decides of them
    goes SRC PORT        the flow runs program 9: UDP to PORT arrives, to the other one nothing
    lies HOSTILE SOUND   messages of version 2 by `struct` and `hmac`, as docs/decision-protocol.md
                         has them: forged, cut, of strangers, of programs that must not be taken

Nothing of the gate's code is here.
"""

import hashlib
import socket
import struct
import sys
import time

from checks import PATIENCE, check_at_once as check, wait_until
from control import Control
from decisions import code, udp, v2
from frames import PROTECTED
from netns import in_namespace

prefix, program, work, what = sys.argv[1:5]
arguments = sys.argv[5:]
control = Control(program, f"{work}/gate.sock")
KEY, SENDER, GATE = b"\x3c" * 32, 8, ("10.2.0.1", 45233)
PORTS = (7, 8)


def client(src):
    def make():
        entry = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # No checksum: veths do not compute it.
        entry.setsockopt(socket.SOL_SOCKET, 11, 1)
        entry.bind((src, 0))
        return entry

    return in_namespace(prefix, "client", make)


def awaits(name, holds):
    check(name, wait_until(holds))


def asks(src):
    before = control.gate()["decisions"]["invalid_program"]
    flow = client(src)

    def named():
        flow.sendto(b"asks", (PROTECTED, 7))
        return control.gate()["decisions"]["invalid_program"] > before

    awaits("decisions that name what is not there are counted", named)
    result = control.explain(src, PROTECTED)
    check("the flow asks", result["state"] == "request", result)


def goes(src, port):
    servers = {status: in_namespace(prefix, "server", lambda status=status: udp(PROTECTED, status)) for status in PORTS}
    flow = client(src)

    def runs():
        flow.sendto(b"asks", (PROTECTED, 9))
        result = control.explain(src, PROTECTED)
        return (result["state"], result.get("program")) == ("program", 9)

    awaits("the program decides of the flow", runs)
    for number in range(20):
        for to in PORTS:
            flow.sendto(b"%d" % number, (PROTECTED, to))
        time.sleep(0.002)
    time.sleep(0.3)
    got = {}
    for to, server in servers.items():
        server.setblocking(False)
        got[to] = 0
        try:
            while server.recv(100) != b"":
                got[to] += 1
        except BlockingIOError:
            pass
    want = {to: 20 if to == port else 0 for to in PORTS}
    check(f"packets of {src} go by the program", got == want, got)


def piece(number, data, offset, part, digest=None):
    digest = digest or hashlib.sha256(data).digest()
    return struct.pack(">B3xII", number, len(data), offset) + digest + part


class Hand:
    """A grantor of version 2, as far as this needs one."""

    def __init__(self):
        self.socket = in_namespace(prefix, "grantor", lambda: udp("10.2.0.2", 0))
        self.number = int(time.time()) << 22 | 1
        self.session = 0
        self.socket.sendto(self.make(1, b""), GATE)
        reply = self.socket.recv(2048)
        check("a hello says the session", reply[1] == 3, reply)
        self.session = struct.unpack(">Q", reply[8:16])[0]

    def make(self, kind, body, sender=SENDER, key=KEY):
        self.number += 1
        return v2(kind, self.session, self.number, body, sender, key)

    def deliver(self, body):
        """Sends a message of a program, and takes its acknowledgement."""
        self.socket.sendto(self.make(4, body), GATE)
        reply = self.socket.recv(2048)
        check("it is acknowledged", reply[1] == 2, reply)

    def stands(self, number, data, digest=None):
        """Offers a program: state, reason and words of the answer."""
        self.deliver(piece(number, data, 0, b"", digest))
        reply = self.socket.recv(2048)
        check("an offer is answered", reply[1] == 5 and reply[-16:] == code(KEY, reply[:-16]), reply)
        body = reply[24:-16]
        check("about what was offered", body[0] == number and body[4:36] == (digest or hashlib.sha256(data).digest()), body)
        return body[1], body[2], body[36:].decode()

    def send(self, number, data, digest=None):
        for offset in range(0, len(data), 1024):
            self.deliver(piece(number, data, offset, data[offset : offset + 1024], digest))
        until = time.monotonic() + PATIENCE
        while (now := self.stands(number, data, digest))[0] == 2 and time.monotonic() < until:
            time.sleep(0.02)
        return now


def lies(hostile, sound):
    hostile, sound = (open(path, "rb").read() for path in (hostile, sound))
    before = control.gate()["decisions"]
    programs = [entry for entry in control.show("programs") if entry["state"] == "active"]
    hand = Hand()
    WANTED, REFUSED = 1, 4
    check("its own is its own", hand.stands(1, hostile)[:2] == (REFUSED, 2))
    check("the number of another grantor is refused", hand.stands(9, sound)[:2] == (REFUSED, 3))
    check("a free number is free", hand.stands(10, hostile)[0] == WANTED)
    state, reason, words = hand.send(10, hostile)
    check("what never ends is refused with the reason", (state, reason) == (REFUSED, 4) and "infinite loop" in words, words)
    check("and not wanted again", hand.stands(10, hostile)[:2] == (REFUSED, 4))
    check("what is not what was announced is refused", hand.send(10, sound, b"\x05" * 32)[:2] == (REFUSED, 5))
    result = [entry for entry in control.show("programs") if entry["number"] == 10]
    check("no object is left of it", all(entry["state"] != "active" for entry in result), result)
    # Messages that are malformed, forged or from unknown senders are refused and counted.
    whole = piece(11, sound, 0, sound[:1024])
    silent = [
        ("forged", hand.make(4, whole, key=b"\x12" * 32)),
        ("unknown_source", hand.make(4, whole, sender=77)),
        ("malformed", hand.make(4, whole[:-1])),
        ("malformed", hand.make(4, piece(11, sound, 512, sound[512:1536]))),
        ("malformed", hand.make(4, piece(11, bytes(300_000), 0, bytes(1024)))),
        ("malformed", hand.make(4, whole[:40])),
        ("malformed", hand.make(9, whole)),
    ]
    good = hand.make(4, whole)
    flipped = bytearray(good)
    flipped[60] ^= 1
    silent.append(("forged", bytes(flipped)))
    silent.extend(("malformed" if cut < 40 else "forged", good[:cut]) for cut in (10, 39, 41, 100, len(good) - 1))
    refused = {"forged": 0, "unknown_source": 0, "malformed": 0}
    for name, data in silent:
        hand.socket.sendto(data, GATE)
        refused[name] += 1
    stranger = in_namespace(prefix, "grantor", lambda: udp("192.0.2.1", 0))
    stranger.sendto(good, GATE)
    refused["unknown_source"] += 1
    now = lambda: control.gate()["decisions"]
    more = lambda: {name: now()[name] - before[name] for name in refused}
    awaits(f"all of it is counted: {refused}", lambda: more() == refused)
    hand.socket.settimeout(0.2)
    try:
        check("none of it is answered", False, hand.socket.recv(2048))
    except TimeoutError:
        pass
    hand.socket.settimeout(PATIENCE)
    check("nothing is in the making", all(entry["number"] != 11 for entry in control.show("programs")))
    after = [entry for entry in control.show("programs") if entry["state"] == "active"]
    check("what was in force is", after == programs, after)
    print(f"   {sum(refused.values())} messages that are none refused and counted, hostile and lying ones refused with reasons")


{"asks": asks, "goes": lambda src, port: goes(src, int(port)), "lies": lies}[what](*arguments)
