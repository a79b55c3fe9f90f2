"""A client and a grantor for gate_test.sh, by scapy and the standard library.

It uses none of the gate's code: outer headers are read by scapy, decisions are packed
by `struct` and signed by `hmac` as docs/decision-protocol.md says, priorities are
computed from gaps. Called within the gate's namespace with the prefix of the namespaces,
the program, the scratch folder and the gate's process; writes what must have been
counted to expected.json there.
"""

import hashlib
import hmac
import json
import math
import os
import re
import select
import signal
import socket
import struct
import sys
import threading
import time
import urllib.request

from checks import PATIENCE, Checks, wait_until
from control import Control
from decisions import pair, udp, v1, v1_declined, v1_granted
from frames import PROTECTED
from netns import Tap, in_namespace
from scapy.compat import raw
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import ICMPv6PacketTooBig, IPv6, IPv6ExtHdrDestOpt, PadN
from scapy.layers.l2 import Ether
from scapy.packet import Raw

CLIENT, FRONT, BACK, GRANTOR = (f"02:00:00:00:0{n}" for n in ("1:02", "1:01", "2:01", "2:02"))
PROTECTED6 = "2001:db8:2::7"
KEY, SENDER = b"\x11" * 32, 7
check = Checks()
counted = {"program": 0, "direct": 0, "received": 0, "tunneled": 0, "declined": 0, "policy": 0, "too_big": 0, "originated": 0, "back": 0, "front": 0}


def v4(src, dst=PROTECTED, size=40, **fields):
    ip = IP(**{"src": src, "dst": dst, "ttl": 17, "id": 99, **fields})
    return raw(ip / UDP(sport=5000, dport=6000) / Raw(bytes(i & 255 for i in range(size))))


def v6(src, dst=PROTECTED6, size=40, **fields):
    ip = IPv6(**{"src": src, "dst": dst, "hlim": 33, "fl": 0xABCDE, **fields})
    return raw(ip / UDP(sport=5000, dport=6000) / Raw(bytes(i & 255 for i in range(size))))


class Grantor:
    """The packets that come out at the back interface: inner packets by source, with their times."""

    def __init__(self, tap):
        self.tap, self.seen, self.others, self.lock = tap, [], [], threading.Lock()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            select.select([self.tap.socket], [], [])
            now = time.monotonic()
            frame, where = self.tap.socket.recvfrom(65535)
            if where[2] == socket.PACKET_OUTGOING:
                continue
            kind, packet = frame[12:14], frame[14:]
            four = kind == b"\x08\x00" and packet[9] in (4, 41)
            six = kind == b"\x86\xdd" and packet[6] in (4, 41)
            with self.lock:
                if four:
                    total = struct.unpack(">H", packet[2:4])[0]
                    self.seen.append((now, packet[1] >> 2, packet[20:total], frame))
                elif six:
                    total = 40 + struct.unpack(">H", packet[4:6])[0]
                    tos = (packet[0] << 4 | packet[1] >> 4) & 255
                    self.seen.append((now, tos >> 2, packet[40:total], frame))
                else:
                    self.others.append(frame)

    def of(self, src):
        """The tunneled packets of a source: time, DSCP, inner bytes, frame."""
        six = ":" in src
        key = socket.inet_pton(socket.AF_INET6 if six else socket.AF_INET, src)
        with self.lock:
            return [entry for entry in self.seen if (entry[2][8:24] if six else entry[2][12:16]) == key]

    def wait(self, src, count, patience=PATIENCE):
        until = time.monotonic() + patience
        while len(got := self.of(src)) < count and time.monotonic() < until:
            time.sleep(0.005)
        return got

    def wait_other(self, frame, patience=PATIENCE):
        until = time.monotonic() + patience
        while time.monotonic() < until:
            with self.lock:
                if any(entry[: len(frame)] == frame for entry in self.others):
                    return True
            time.sleep(0.005)
        return False


def send(tap, packet):
    kind = b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd"
    mac = lambda text: bytes.fromhex(text.replace(":", ""))
    tap.send(mac(FRONT) + mac(CLIENT) + kind + packet)
    counted["received"] += 1


def awaits(what, holds, patience=PATIENCE):
    """Waits until something is so of the gate, and returns it then."""
    until = time.monotonic() + patience
    while not holds(now := control.gate()) and time.monotonic() < until:
        time.sleep(0.02)
    if not holds(now):
        check.complaints.append(f"{what}: {now['decisions']}")
    return now


# Version 2, as docs/decision-protocol.md has it.
def v2(session, number, items, key=KEY, kind=1, sender=SENDER):
    message = struct.pack(">BBHIQQ", 2, kind, 1, sender, session, number) + b"".join(items)
    return message + hmac.new(key, message, hashlib.sha256).digest()[:16]


def v2_granted(src, rate=1000, expire=600, dst=PROTECTED):
    return bytes([2, 4, 32, 32]) + pair(src, dst) + struct.pack(">4I", rate, expire, 50_000, 1000)


def first_packets(client, grantor):
    """The outer header, and the inner bytes."""
    packet = v4("10.1.0.2", tos=0x02)
    send(client, packet)
    got = grantor.wait("10.1.0.2", 1)
    check("a first IPv4 packet comes out", len(got) == 1, len(got))
    frame = Ether(got[0][3])
    outer = frame[IP]
    check("inner bytes identical", got[0][2] == packet)
    check("MACs", (frame.src, frame.dst) == (BACK, GRANTOR), frame.summary())
    fields = (outer.src, outer.dst, outer.proto, outer.tos >> 2, outer.tos & 3, int(outer.flags), outer.id, outer.ttl)
    check("outer IPv4 header", fields == ("10.2.0.1", "10.2.0.2", 4, 41, 2, 2, 0, 64), fields)
    built = IP(raw(IP(src=outer.src, dst=outer.dst, tos=outer.tos, flags="DF", id=0, ttl=64, proto=4) / Raw(packet)))
    check("outer checksum and length", built.chksum == outer.chksum and built.len == outer.len)
    packet = v6("fd01::2")
    send(client, packet)
    got = grantor.wait("fd01::2", 1)
    check("a first IPv6 packet comes out, inner bytes identical", len(got) == 1 and got[0][2] == packet)
    outer = Ether(got[0][3])[IPv6]
    fields = (outer.src, outer.dst, outer.nh, outer.tc >> 2, outer.tc & 3, outer.hlim, outer.plen)
    check("outer IPv6 header", fields == ("fd02::1", "fd02::2", 41, 41, 0, 64, len(packet)), fields)
    check("a flow label of its own", outer.fl not in (0, 0xABCDE), outer.fl)
    odd = raw(IPv6(src="fd01::4", dst=PROTECTED6) / IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)]) / UDP(sport=1, dport=2))
    send(client, odd)
    got = grantor.wait("fd01::4", 1)
    check("IPv6 extension headers stay", len(got) == 1 and got[0][2] == odd)
    part = raw(IP(src="10.1.0.5", dst=PROTECTED, flags="MF", frag=3, proto=17) / Raw(b"x" * 64))
    send(client, part)
    got = grantor.wait("10.1.0.5", 1)
    check("a fragment is of its flow", len(got) == 1 and got[0][2] == part)


def patience(client, grantor):
    """Tests 2 and 3: priorities by gaps. The patient one goes on beside all the others."""

    def patient():
        for gap in (0, 0.8, 1.6, 3.2):
            time.sleep(gap)
            send(client, v4("10.1.0.20"))

    thread = threading.Thread(target=patient)
    thread.start()
    # A gate that stands still for a millisecond, as on a busy machine, sees no gap: then another asks.
    for source in (f"10.1.0.{n}" for n in range(21, 29)):
        sent = []
        for _ in range(10):
            send(client, v4(source))
            sent.append(time.monotonic())
            time.sleep(0.001)
        got = [entry[1] for entry in grantor.wait(source, 10)]
        gaps = [max(b - a, 1e-6) for a, b in zip(sent[6:], sent[7:])]
        fits = all(abs(d - (math.floor(math.log2(gap * 1e12)) + 3)) <= 2 for d, gap in zip(got[7:], gaps))
        if got[:7] == [41] * 7 and fits:
            break
    check("seven at 41, then by the gap of a millisecond", got[:7] == [41] * 7 and fits, (got, gaps))
    return thread


def patient_end(thread, grantor):
    thread.join()
    got = [entry[1] for entry in grantor.wait("10.1.0.20", 4)]
    check("a patient sender: 41, 42, 43, 44", got == [41, 42, 43, 44], got)


def granted(client, grantor, speak1):
    """Test 6: the rate, and renewals."""
    speak1(v1(v1_granted("10.1.0.30", 100, 60, 50_000, 1000), v1_granted("10.1.0.31", 10_000, 60, 500, 300)))
    awaits("v1 is taken", lambda status: status["decisions"]["decided"] >= 2)
    start = time.monotonic()
    sent = 0
    while (now := time.monotonic() - start) < 2.5:
        while sent < now * 512:
            send(client, v4("10.1.0.30", size=1000 - 42))
            if sent % 10 == 0:
                send(client, v4("10.1.0.31"))
            sent += 1
        time.sleep(0.002)
    time.sleep(0.2)
    got = grantor.of("10.1.0.30")
    # A window of a second begins with the decision, or the first packet after the last's end.
    windows = 3
    goodput = len(got) * 1000 / (windows * 102_400)
    check("100 KiB/s of five times as much", 0.95 <= goodput <= 1.0, (len(got), sent))
    check("granted packets have DSCP 1", {entry[1] for entry in got} == {1}, {entry[1] for entry in got})
    renewals = [entry[0] for entry in grantor.of("10.1.0.31") if entry[1] == 2]
    gaps = [b - a for a, b in zip(renewals, renewals[1:])]
    first = renewals[0] - start if renewals else 0
    check("renewal asked for after 0.5 s, then every 0.3 s", 0.3 <= first <= 0.9 and len(gaps) >= 3 and all(0.28 <= gap <= 0.6 for gap in gaps), (first, gaps))
    result = control.explain("10.1.0.30", PROTECTED)
    check(
        "explain: state, rule, version, budget, why dropped",
        (result["state"], result["rule"], result["version"], result["action"], result["dropped"]) == ("granted", "192.0.2.0/24", "first", "grantors site", "over_rate")
        and result["budget"] <= 102_400
        and 40 < result["renewal"] < 51,
        result,
    )


def declined(client, grantor, speak1):
    """Test 7: nothing leaks, and a request when it is over."""
    before = control.gate()["decisions"]["decided"]
    speak1(v1(v1_declined("10.1.0.40", 2)))
    result = time.monotonic()
    awaits("v1 decline is taken", lambda status: status["decisions"]["decided"] > before)
    taken = time.monotonic()
    sent = 0
    while time.monotonic() < taken + 2.4:
        send(client, v4("10.1.0.40"))
        sent += 1
        time.sleep(0.02)
    got = grantor.wait("10.1.0.40", 1)
    check("declined: nothing leaks for 2 s", bool(got) and result + 2 <= got[0][0] <= taken + 2.3, [entry[0] - result for entry in got[:1]])
    check("and then it sends a request again", bool(got) and got[0][1] == 41, got[:1])
    time.sleep(0.1)
    counted["declined"] += sent - len(grantor.of("10.1.0.40"))
    early = control.gate()["packets"]["xdp_dropped"]
    check("most of them died in the kernel", early >= counted["declined"] // 2, (early, counted["declined"]))
    speak1(v1(v1_declined("10.1.0.41", 60)))
    awaits("declined in the kernel", lambda status: status["table"]["xdp_flows"] >= 1 and control.explain("10.1.0.41", PROTECTED)["xdp_dropped"])
    for _ in range(5):
        send(client, v4("10.1.0.41"))
    counted["declined"] += 5
    now = awaits("and counted", lambda status: status["packets"]["xdp_dropped"] >= early + 5)
    check("counted as if the gate had dropped them", now["packets"]["xdp_dropped"] == early + 5 and now["packets"]["declined"] == counted["declined"], now["packets"])
    result = control.explain("10.1.0.41", PROTECTED)
    check("explain prints why", (result["state"], result["dropped"], result["xdp_dropped"]) == ("declined", "declined", True), result)
    speak1(v1(v1_granted("10.1.0.41", 1000, 60, 50_000, 1000)))
    awaits("granted after all", lambda status: not control.explain("10.1.0.41", PROTECTED)["xdp_dropped"])
    send(client, v4("10.1.0.41"))
    got = grantor.wait("10.1.0.41", 1)
    check("a grant lets it through again", [entry[1] for entry in got] == [1], got)


def refused_v1(client, grantor, speak1, stranger):
    """Test 10: truncated messages, and messages of unknown senders."""
    before = control.gate()["decisions"]
    whole = v1(v1_granted("10.1.0.50", 100, 60, 1000, 1000))
    # Of length 4 it is a message without decisions.
    cuts = [cut for cut in range(len(whole)) if cut != 4]
    for cut in cuts:
        speak1(whole[:cut])
    speak1(b"\x03" + whole[1:])
    speak1(whole[:5] + b"\x01" + whole[6:])
    stranger.sendto(whole, ("10.2.0.1", 45232))
    now = awaits("v1 refusals are counted", lambda status: status["decisions"]["v1_malformed"] >= before["v1_malformed"] + len(cuts) + 2 and status["decisions"]["v1_unknown_source"] > before["v1_unknown_source"])
    check("every truncation refused", now["decisions"]["v1_malformed"] == before["v1_malformed"] + len(cuts) + 2, now["decisions"])
    check("version 1 from another address is refused", now["decisions"]["v1_unknown_source"] == before["v1_unknown_source"] + 1, now["decisions"])
    check("no state changed", control.explain("10.1.0.50", PROTECTED)["state"] == "unknown" and now["decisions"]["decided"] == before["decided"])


def version2(client, grantor, socket2, stranger):
    """Test 11: hello, acknowledged, forged, replayed, strangers."""
    to = ("10.2.0.1", 45233)
    number = int(time.time()) << 22 | 1
    before = control.gate()["decisions"]
    socket2.sendto(v2(0, number, [v2_granted("10.1.0.60")]), to)
    reply = socket2.recv(2048)
    version, kind, _, sender, session, of = struct.unpack(">BBHIQQ", reply[:24])
    check("a message with an unknown session is answered by a hello", (version, kind, sender, of) == (2, 3, SENDER, number) and session != 0)
    check("which is signed", reply[-16:] == hmac.new(KEY, reply[:-16], hashlib.sha256).digest()[:16])
    message = v2(session, number + 1, [v2_granted("10.1.0.60"), v2_granted("10.1.0.61")])
    socket2.sendto(message, to)
    ack = socket2.recv(2048)
    check("decisions are acknowledged", ack[1] == 2 and struct.unpack(">Q", ack[16:24])[0] == number + 1 and ack[31] & 1 == 1)
    send(client, v4("10.1.0.60"))
    got = grantor.wait("10.1.0.60", 1)
    check("and in force", [entry[1] for entry in got] == [1], got)
    socket2.sendto(v2(session, number + 2, [bytes([4, 4, 32, 32]) + pair("10.1.0.61", PROTECTED)]), to)
    socket2.recv(2048)
    socket2.sendto(message, to)
    check("a replay is acknowledged again", socket2.recv(2048)[1] == 2)
    socket2.sendto(v2(session, number + 3, [v2_granted("10.1.0.62")], key=b"\x12" * 32), to)
    socket2.sendto(v2(session, number + 3, [v2_granted("10.1.0.62")], sender=8), to)
    broken = bytearray(v2(session, number + 3, [v2_granted("10.1.0.62")]))
    broken[40] ^= 1
    socket2.sendto(bytes(broken), to)
    stranger.sendto(v2(session, number + 4, [v2_granted("10.1.0.62")]), to)
    want = {"replayed": 1, "forged": 2, "unknown_source": 2, "other_session": 1, "messages": 2, "items": 3}
    more = lambda status: {name: status["decisions"][name] - before[name] for name in want}
    now = awaits("v2 refusals are counted", lambda status: more(status) == want)
    check("forged, replayed and strangers refused and counted", more(now) == want, more(now))
    check("and without effect", control.explain("10.1.0.61", PROTECTED)["state"] == "unknown" and control.explain("10.1.0.62", PROTECTED)["state"] == "unknown")
    socket2.settimeout(0.2)
    try:
        check("nothing of it answered", False, socket2.recv(2048))
    except TimeoutError:
        check("nothing of it answered", True)
    result = control.explain("10.1.0.60", PROTECTED)
    check("explain names the decision", (result["sender"], result["decision"]) == (SENDER, number + 1 << 10), result)


def v2_program(src, number, cookie=b"", expire=60, dst=PROTECTED):
    words = (len(cookie) + 3) // 4
    head = bytes([3, 4, 32, 32]) + pair(src, dst) + struct.pack(">IBHB", expire, number, 0, words)
    return head + cookie.ljust(words * 4, b"\0")


def programs(client, grantor, socket2):
    """Test 8 as far as it is the gate's: programs by clang decide, and one lets packets go directly."""
    to = ("10.2.0.1", 45233)
    socket2.settimeout(PATIENCE)
    number = int(time.time()) << 22 | 1000
    socket2.sendto(v2(0, number, []), to)
    session = struct.unpack(">Q", socket2.recv(2048)[8:16])[0]
    before = control.gate()["decisions"]
    terms = lambda direct: struct.pack("<4IB", 1000, 50, 50_000, 1000, direct)
    items = [
        v2_program("10.1.0.90", 1),
        v2_program("10.1.0.91", 2, terms(0)),
        v2_program("10.1.0.92", 2, terms(1)),
        v2_program("10.1.0.93", 9),
    ]
    socket2.sendto(v2(session, number + 1, items), to)
    socket2.recv(2048)
    now = awaits("programs are begun", lambda status: status["decisions"]["invalid_program"] > before["invalid_program"])
    check("one that is not there is counted", now["decisions"]["invalid_program"] == before["invalid_program"] + 1)
    declined, limited, direct = (v4(f"10.1.0.9{n}", tos=2) for n in range(3))
    for packet in (declined, limited, direct):
        send(client, packet)
    counted["program"] += 1
    counted["direct"] += 1
    got = grantor.wait("10.1.0.91", 1)
    check("grantedv2 lets go with DSCP 1", [(entry[1], entry[2]) for entry in got] == [(1, limited)], got)
    want = IP(direct)
    want.ttl -= 1
    want.tos = 1 << 2 | 2
    del want.chksum
    check("directly: no tunnel, DSCP 1, a hop less", grantor.wait_other(raw(Ether(src=BACK, dst=GRANTOR) / want)))
    result = control.explain("10.1.0.90", PROTECTED)
    check("declined declines, and explain prints it", not grantor.of("10.1.0.90") and (result["state"], result["program"], result["dropped"]) == ("program", 1, "program"), result)
    check("a flow without its program asks", control.explain("10.1.0.93", PROTECTED)["state"] == "unknown")


def edges(client, grantor, tap):
    """Test 15 as far as it goes, and what is not protected."""
    tap.take()
    tap.seen.clear()
    big = v4("10.1.0.2", size=1490 - 28, flags="DF")
    send(client, big)
    big6 = v6("fd01::2", size=1490 - 48)
    send(client, big6)
    counted["too_big"] += 2
    counted["originated"] += 2
    fits = v4("10.1.0.70", size=1480 - 28, flags="DF")
    send(client, fits)
    fits6 = v6("fd01::70", size=1460 - 48)
    send(client, fits6)
    check("what just fits goes through", [len(grantor.wait(src, 1)) for src in ("10.1.0.70", "fd01::70")] == [1, 1])
    expired = v4("10.1.0.2", ttl=1)
    send(client, expired)
    counted["received"] -= 1  # the kernel's
    until = time.monotonic() + PATIENCE
    found = {}
    while time.monotonic() < until and len(found) < 3:
        select.select([tap.socket], [], [], 0.05)
        tap.take()
        for frame in map(Ether, tap.seen):
            if ICMP in frame and frame[ICMP].type == 3:
                found["v4"] = frame
            if ICMP in frame and frame[ICMP].type == 11:
                found["ttl"] = frame
            if ICMPv6PacketTooBig in frame:
                found["v6"] = frame
    check("all three are answered", len(found) == 3, list(found))
    if "v4" in found:
        answer = found["v4"]
        fields = (answer[IP].src, answer[IP].dst, answer[ICMP].code, answer[ICMP].nexthopmtu)
        check("Fragmentation Needed with the tunnel's MTU", fields == ("10.1.0.1", "10.1.0.2", 4, 1480), fields)
        quoted = raw(answer[ICMP])[8:]
        check("it quotes the packet", big.startswith(quoted) and len(quoted) >= 500, len(quoted))
        same = IP(raw(answer[IP]))
        del same.chksum
        del same[ICMP].chksum
        again = IP(raw(same))
        check("its checksums are right", (again.chksum, again[ICMP].chksum) == (answer[IP].chksum, answer[ICMP].chksum))
    if "v6" in found:
        answer = found["v6"]
        fields = (answer[IPv6].src, answer[IPv6].dst, answer[ICMPv6PacketTooBig].mtu)
        check("Packet Too Big with the tunnel's MTU", fields == ("fd01::1", "fd01::2", 1460), fields)
        same = IPv6(raw(answer[IPv6]))
        del same[ICMPv6PacketTooBig].cksum
        check("its checksum is right", IPv6(raw(same))[ICMPv6PacketTooBig].cksum == answer[ICMPv6PacketTooBig].cksum)
    exempt = v4("10.1.0.80", dst="192.0.2.9")
    send(client, exempt)
    counted["back"] += 1
    want = IP(exempt)
    want.ttl -= 1
    del want.chksum
    check("what is exempt goes back as it is", grantor.wait_other(raw(Ether(src=BACK, dst=GRANTOR) / want)))
    send(client, v4("10.1.0.81", dst="192.0.2.66"))
    counted["policy"] += 1
    there = v4("10.1.0.82", dst="172.16.0.1")
    send(client, there)
    counted["front"] += 1
    reply = IP(src=PROTECTED, dst="10.1.0.2", ttl=9) / UDP(sport=6000, dport=5000) / Raw(b"from the server")
    grantor.tap.send(raw(Ether(src=GRANTOR, dst=BACK) / reply))
    wants = []
    for packet in (IP(there), IP(raw(reply))):
        packet.ttl -= 1
        del packet.chksum
        wants.append(raw(Ether(src=FRONT, dst=CLIENT) / packet))
    until = time.monotonic() + PATIENCE
    missing = wants
    while missing and time.monotonic() < until:
        select.select([tap.socket], [], [], 0.05)
        tap.take()
        missing = [want for want in wants if not any(frame[: len(want)] == want for frame in tap.seen)]
    check("front and back to front are plain routing", not missing, missing)


def others(metrics):
    """Flows, metrics, another policy, and one that is bad."""
    flows = control.show("flows")
    states = {entry["source"]: entry["state"] for entry in flows}
    check("show flows", (states.get("10.1.0.30"), states.get("10.1.0.60")) == ("granted", "granted"), states)
    page = urllib.request.urlopen(metrics, timeout=PATIENCE).read().decode()
    found = dict(re.findall(r'fingerpost_gate_packets_total{verdict="(\w+)"} (\d+)', page))
    now = control.gate()["packets"]
    check("metrics equal what show prints", {name: str(value) for name, value in now.items()} == found, (now, found))
    path = f"{work}/gate.toml"
    whole = open(path, encoding="ascii").read()

    def reload(text, said):
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.kill(process, signal.SIGHUP)
        return wait_until(lambda: said in open(f"{work}/gate.log", encoding="utf-8").read())

    check("a bad file is refused", reload(whole.replace('grantors = "site6"', 'grantors = "unknown"'), 'no [[grantors]] is named "unknown"'))
    check("so is another table", reload(whole.replace("65536", "1024"), "restart the gate"))
    kept = control.gate()
    check("and nothing is lost", (kept["generation"], kept["version"], kept["reloads_refused"]) == (1, "first", 2), kept)
    check("the flows neither", control.explain("10.1.0.60", PROTECTED)["state"] == "granted")
    check("another policy is taken", reload(whole.replace('"first"', '"second"'), "reloaded: policy generation 2"))
    result = control.explain("10.1.0.60", PROTECTED)
    check("explain prints it", (result["state"], result["generation"], result["version"], result["stale"]) == ("granted", 2, "second", True), result)


def main():
    client = Tap(f"{prefix}client", "c0")
    tap = Tap(f"{prefix}client", "c0")
    grantor = Grantor(Tap(f"{prefix}grantor", "t0"))
    socket1 = in_namespace(prefix, "grantor", lambda: udp("10.2.0.2", 41120))
    socket2 = in_namespace(prefix, "grantor", lambda: udp("10.2.0.2", 50000))
    stranger = in_namespace(prefix, "grantor", lambda: udp("10.2.0.3", 41120))
    speak1 = lambda message: socket1.sendto(message, ("10.2.0.1", 45232))
    first_packets(client, grantor)
    thread = patience(client, grantor)
    granted(client, grantor, speak1)
    declined(client, grantor, speak1)
    patient_end(thread, grantor)
    refused_v1(client, grantor, speak1, stranger)
    version2(client, grantor, socket2, stranger)
    programs(client, grantor, socket2)
    edges(client, grantor, tap)
    others("http://127.0.0.1:9274/metrics")
    time.sleep(0.2)
    with grantor.lock:
        counted["tunneled"] = len(grantor.seen)
    with open(f"{work}/expected.json", "w", encoding="ascii") as file:
        json.dump(counted, file)
    check.finish()


prefix, program, work, process = sys.argv[1:4] + [int(sys.argv[4])]
control = Control(program, f"{work}/sock")
main()
