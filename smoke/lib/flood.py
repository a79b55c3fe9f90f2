"""Traffic around a gate: floods, patient clients, and a grantor that is the server as well.

Frames are made by hand and sent by raw sockets: scapy is too slow for floods. Clients are
sockets of the kernel, whose SYNs go by its own timers; TCP_INFO has how many it took. The grantor takes packets out of the tunnel, answers SYNs, and grants by version 1.
Times of packets are the kernel's.
"""

import os
import signal
import socket
import struct
import threading
import time

from decisions import v1, v1_granted
from frames import BACK, GRANTOR, PROTECTED, ones_sum
from netns import Tap

SO_TIMESTAMPNS = 35


class Grantor:
    """The packets that come out of tunnels, by inner source: times, DSCPs and lengths. It grants the flows of
    the sources in `grants`, and answers their SYNs as a server would."""

    def __init__(self, tap, say):
        self.tap, self.say, self.lock = tap, say, threading.Lock()
        self.all, self.of, self.grants = [], {}, set()
        tap.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            frame, more, _, where = self.tap.socket.recvmsg(2048, 64)
            if where[2] == socket.PACKET_OUTGOING or frame[12:14] != b"\x08\x00" or frame[23] != 4:
                continue
            seconds, nanoseconds = struct.unpack("qq", more[0][2][:16])
            src = struct.unpack_from(">I", frame, 46)[0]
            with self.lock:
                seen = (seconds + nanoseconds / 1e9, frame[15] >> 2, len(frame))
                self.all.append(seen)
                self.of.setdefault(src, []).append(seen)
            if src in self.grants and frame[43] == 6 and frame[34 + 20 + 13] & 0x12 == 2:
                self.serve(frame[34:], src)

    def serve(self, syn, src):
        self.say(v1(v1_granted(socket.inet_ntoa(struct.pack(">I", src)), 1000, 60, 50_000, 1000)))
        sport, dport, number = struct.unpack(">HHI", syn[20:28])
        tcp = struct.pack(">HHIIBBHHH", dport, sport, 7, (number + 1) & 0xFFFFFFFF, 0x50, 0x12, 65535, 0, 0)
        pair = syn[16:20] + syn[12:16]
        tcp = tcp[:16] + struct.pack(">H", ~ones_sum(pair + struct.pack(">HH", 6, 20) + tcp) & 0xFFFF) + tcp[18:]
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 40, 0, 0x4000, 64, 6, 0) + pair
        ip = ip[:10] + struct.pack(">H", ~ones_sum(ip) & 0xFFFF) + ip[12:]
        self.tap.send(BACK + GRANTOR + b"\x08\x00" + ip + tcp)

    def clear(self):
        with self.lock:
            self.all, self.of = [], {}

    def seen(self, src):
        with self.lock:
            return list(self.of.get(src, []))


class Flood:
    """A process that sends these frames until `stop`, or until there are none left."""

    def __init__(self, prefix, frames, rate=None):
        self.pid = os.fork()
        if self.pid:
            return
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            sink = Tap(f"{prefix}client", "c0").socket
            begin = time.monotonic()
            for at, frame in enumerate(frames):
                if rate and at & 31 == 0:
                    ahead = begin + at / rate - time.monotonic()
                    if ahead > 0:
                        time.sleep(ahead)
                try:
                    sink.send(frame)
                except OSError:
                    pass
        finally:
            os._exit(0)

    def over(self):
        return self.pid is None or os.waitpid(self.pid, os.WNOHANG)[0] != 0 and self.gone()

    def gone(self):
        self.pid = None
        return True

    def stop(self):
        if self.pid:
            os.kill(self.pid, signal.SIGTERM)
            os.waitpid(self.pid, 0)
            self.pid = None


def connect(source, results):
    """Connects as any client does, and notes how long it took and how many SYNs."""
    client = socket.socket()
    client.settimeout(20)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.bind((source, 0))
    begin = time.monotonic()
    try:
        client.connect((PROTECTED, 80))
        again = struct.unpack_from("I", client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192), 100)[0]
        results.append((time.monotonic() - begin, 1 + again))
    except OSError as error:
        results.append((time.monotonic() - begin, str(error)))
    client.close()
