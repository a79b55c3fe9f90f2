"""Forged SYNs, honest clients and a grantor for cookie_test.sh; scapy says what an answer must be.

Called within the client's namespace with the prefix of the namespaces, the program, the scratch
folder, and how the gate lets flows prove themselves.
"""

import random
import socket
import struct
import sys
import threading
import time

from flood import Flood, Grantor, connect
from checks import PATIENCE, Checks, wait_until
from control import Control
from decisions import udp, v1, v1_granted
from frames import CLIENT, FRONT, PROTECTED, address, ones_sum
from netns import Tap, in_namespace
from scapy.compat import raw
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

PROTECTED6 = "2001:db8:2::7"
ENTRIES = 2048
COOKIES = 5000
check = Checks()


class Segment:
    """A TCP segment without options in a frame, whose source, numbers and flags are filled in with
    the checksums that go with them."""

    def __init__(self, dst=PROTECTED):
        dst = socket.inet_aton(dst)
        ip = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 40, 0, 0x4000, 63, 6, 0, bytes(4), dst)
        tcp = struct.pack(">HHIIBBHHH", 4000, 80, 0, 0, 0x50, 0, 65535, 0, 0)
        self.ip, self.tcp = ones_sum(ip), ones_sum(dst + struct.pack(">HH", 6, 20) + tcp)
        self.frame = bytearray(FRONT + CLIENT + b"\x08\x00" + ip + tcp)

    def of(self, src, flags=2, seq=1):
        more = (src >> 16) + (src & 0xFFFF)
        struct.pack_into(">I", self.frame, 26, src)
        struct.pack_into(">I", self.frame, 38, seq)
        self.frame[47] = flags
        for at, total in ((24, self.ip + more), (50, self.tcp + more + (seq >> 16) + (seq & 0xFFFF) + flags)):
            total = (total & 0xFFFF) + (total >> 16)
            struct.pack_into(">H", self.frame, at, ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF)
        return self.frame


def forged(seed):
    """Random sources, each of which sends its SYN twice."""
    template, draw = Segment(), random.Random(seed)
    while True:
        src = 0x14000000 + draw.getrandbits(27)
        yield template.of(src)
        yield template.of(src)


def flood(seed, rate=None):
    return Flood(prefix, forged(seed), rate)


def answer(tap, syn, patience=PATIENCE):
    """Sends a SYN, and returns what scapy reads of the answer to it."""
    tap.take()
    tap.seen.clear()
    tap.send(raw(syn))
    until = time.monotonic() + patience
    while time.monotonic() < until:
        tap.take()
        for frame in tap.seen:
            if frame[:6] == CLIENT and frame[6:12] == FRONT:
                got = Ether(frame)
                if TCP in got and got[TCP].dport == syn[TCP].sport:
                    return got, frame
        time.sleep(0.01)
    return None, b""


def layers(src, flags="S", seq=7_000_000, **more):
    front = Ether(src="02:00:00:00:01:02", dst="02:00:00:00:01:01")
    ip = IPv6(src=src, dst=PROTECTED6, hlim=9) if ":" in src else IP(src=src, dst=PROTECTED, ttl=9)
    return front / ip / TCP(sport=4321, dport=80, flags=flags, seq=seq, **more)


def answers(tap):
    """Checks the answer to a SYN in both families, and the effect of the reset for it."""
    for src, dst in (("198.51.100.7", PROTECTED), ("2001:db8:9::7", PROTECTED6)):
        syn = layers(src, options=[("MSS", 1460), ("SAckOK", b""), ("WScale", 7)])
        got, frame = answer(tap, syn)
        if not got:
            check(f"a SYN from {src} is answered", False, control.gate())
            continue
        own = got[TCP]
        ip = got[IPv6] if IPv6 in got else got[IP]
        wanted = (dst, src, 80, 4321, "SA", 0, [])
        check(f"a SYN from {src} is answered", (ip.src, ip.dst, own.sport, own.dport, own.flags, own.window, own.options) == wanted, got)
        # scapy builds the same fields, with lengths and checksums computed from nothing.
        again = got.copy()
        for layer in (again[TCP], again[IP] if IP in again else again[IPv6]):
            for field in ("chksum", "len", "plen", "dataofs"):
                if field in layer.fields:
                    delattr(layer, field)
        check("byte for byte as scapy would write it", raw(again) == frame, (raw(again).hex(), frame.hex()))
        check("no longer than the SYN", len(frame) <= len(raw(syn)), len(frame))
        beyond = (own.ack - 7_000_000) & 0xFFFFFFFF
        check("and not acceptable to the sender", beyond != 1, beyond)
        result = control.run("flow", "explain", src, dst).stdout
        check("explain says so", "last dropped packet: syn_cookie" in result and "for TCP with the reply to a SYN cookie" in result, result)
        before = control.gate()["table"]
        for step in (1, -1, 1 << 31):
            tap.send(raw(layers(src, "R", (own.ack + step) & 0xFFFFFFFF)))
        tap.send(raw(layers(src, "R", own.ack)))
        wait_until(lambda: control.gate()["table"]["validated"] != before["validated"])
        now = control.gate()["table"]
        check("its reset makes the entry, and those beside it nothing", (now["validated"], now["invalid_cookies"], now["flows"]) == (before["validated"] + 1, before["invalid_cookies"] + 3, before["flows"] + 1), (before, now))
        result = control.run("flow", "explain", src, dst).stdout
        check("which explain prints", f"{src} > {dst} request" in result and "syn_cookie" not in result and "cookie_reset" in result, result)
        again, _ = answer(tap, syn, 0.3)
        check("the SYN goes on and is not answered again", again is None, again)


def press(say):
    """Has half of the table granted, so that flows have to show themselves from now on."""
    names = [f"10.77.{n >> 8}.{n & 255}" for n in range(ENTRIES // 2)]
    before = control.gate()["decisions"]["decided"]
    for at in range(0, len(names), 32):
        say(v1(*(v1_granted(name, 1000, 600, 500_000, 1000) for name in names[at : at + 32])))
    wait_until(lambda: control.gate()["decisions"]["decided"] >= before + len(names))
    check("half of the table is granted", control.gate()["table"]["granted"] == ENTRIES // 2, control.gate()["table"])


def besieged(grantor):
    """Clients of the kernel's, while each forged SYN comes twice."""
    before, begin = control.gate(), time.monotonic()
    stream = flood(1, 8000)
    time.sleep(1.0)
    clients, results = [f"10.1.0.{n}" for n in range(10, 20)], []
    threads = [threading.Thread(target=connect, args=(name, results)) for name in clients]
    grantor.grants.update(address(name) for name in clients)
    most = 0
    for thread in threads:
        thread.start()
        time.sleep(0.3)
        most = max(most, control.gate()["table"]["flows"])
    for thread in threads:
        thread.join()
    stream.stop()
    now, took = control.gate(), time.monotonic() - begin
    more = lambda part, name: now[part][name] - before[part][name]
    times = sorted(took for took, syns in results if isinstance(syns, int))
    syns = [syns for _, syns in results]
    print(f"   {more('packets', 'received')} packets in {took:.1f} s, {more('packets', 'syn_cookie')} answered; clients' SYNs: {syns}")
    check(f"all connect, in {times[0]:.3f} to {times[-1]:.3f} s, median {times[len(times) // 2]:.3f}" if times else "all connect", len(times) == 10 and times[5] < 3, results)
    if proof == "second-packet":
        # The flood's second packets have made entries, until there was no room but that of others.
        check(f"without cookies the flood fills the table: {most} of {ENTRIES}", most >= 0.95 * ENTRIES and more("table", "readmitted") > 1000, now["table"])
        return
    check(f"no forged source has an entry: {most} of {ENTRIES}", most <= ENTRIES // 2 + 10 + len(clients) and (more("table", "readmitted"), more("table", "evicted")) == (0, 0), now["table"])
    check("and every client has by its answer, or by a grant", more("table", "validated") >= 8 and more("table", "invalid_cookies") <= 10, now["table"])


def bounds(tap):
    """A flood beyond the rate of answers; and resets that are guessed."""
    before, begin = control.gate(), time.monotonic()
    stream = flood(2)
    time.sleep(3.0)
    stream.stop()
    now, took = control.gate(), time.monotonic() - begin
    more = lambda part, name: now[part][name] - before[part][name]
    sent, came = more("link", "cookies_sent"), more("packets", "received")
    # A bucket of 20 ms, and the time of the questions.
    check(f"at most {COOKIES} answers a second: {sent / took:.0f} of {came / took:.0f} packets", 0 < sent <= COOKIES * (took + 0.1), (sent, took))
    check("what is beyond that goes on, and has no entry", more("link", "cookies_rate_limited") > 0 and now["table"]["flows"] <= ENTRIES // 2 + 50, now)
    template, draw = Segment(), random.Random(3)
    before, sent = control.gate()["table"], 0
    while (now := control.gate()["table"])["invalid_cookies"] < before["invalid_cookies"] + 20_000 and sent < 200_000:
        for _ in range(2000):
            src = 0x14000000 + draw.getrandbits(27)
            # Cookies have to be awaited for resets to be looked at.
            tap.send(template.of(src, 2) if sent % 100 == 0 else template.of(src, 4, draw.getrandbits(32)))
            sent += 1
    check("of 20000 guessed resets none proves anything", now["validated"] == before["validated"] and now["invalid_cookies"] >= before["invalid_cookies"] + 20_000, (before, now))


def main():
    tap = Tap(f"{prefix}client", "c0")
    speaker = in_namespace(prefix, "grantor", lambda: udp("10.2.0.2", 41120))
    say = lambda message: speaker.sendto(message, ("10.2.0.1", 45232))
    grantor = Grantor(Tap(f"{prefix}grantor", "t0"), say)
    press(say)
    if proof == "syn-cookie":
        answers(tap)
    besieged(grantor)
    if proof == "syn-cookie":
        bounds(tap)
    check.finish()


prefix, program, work, proof = sys.argv[1:5]
control = Control(program, f"{work}/sock")
main()
