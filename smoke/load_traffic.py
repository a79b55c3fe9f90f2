"""Load, and changes under it, for load_test.sh.

Frames are made by hand and sent by a raw socket of another process. It counts arrivals at the grantor's end
of the link; packets that a busy machine does not take off the gate's front interface never arrive at the gate. Called within the client's namespace with the prefix of the namespaces, the
program, the scratch folder and the gate's process.
"""

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from checks import Checks, wait_until
from control import Control
from decisions import pair, udp, v1, v1_granted
from frames import FRAMING, PROTECTED, Template, address
from netns import Tap, datagram, in_namespace

LINK = 20e6
# The port that packets of the gate's own host are for.
DISCARD = (9).to_bytes(2, "big")
check = Checks()


def awaits(what, holds):
    check(what, wait_until(holds), control.gate())


class Sink:
    """Counts what arrives at the grantor: packets and bits by inner destination and by DSCP."""

    def __init__(self, tap):
        self.tap, self.lock = tap, threading.Lock()
        self.clear()
        threading.Thread(target=self.run, daemon=True).start()

    def clear(self):
        with self.lock:
            self.packets, self.bits, self.dscps = {}, {}, {}
            self.host_bits = 0

    def run(self):
        while True:
            frame, where = self.tap.socket.recvfrom(2048)
            if where[2] == socket.PACKET_OUTGOING or frame[12:14] != b"\x08\x00":
                continue
            at = 50 if frame[23] == 4 else 30
            dst = socket.inet_ntoa(frame[at : at + 4])
            if frame[23] == 17 and frame[36:38] == DISCARD:
                with self.lock:
                    self.host_bits += (len(frame) + FRAMING) * 8
            if not dst.startswith("192.0.2."):
                continue
            with self.lock:
                self.packets[dst] = self.packets.get(dst, 0) + 1
                self.bits[dst] = self.bits.get(dst, 0) + (len(frame) + FRAMING) * 8
                self.dscps[frame[15] >> 2] = self.dscps.get(frame[15] >> 2, 0) + 1


class Sender:
    """A process that sends frames at rates: (source, destination, bytes, packets a second)."""

    def __init__(self, streams):
        self.pid = os.fork()
        if self.pid:
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            sink = Tap(f"{prefix}client", "c0").socket
            ready = [(Template(dst, size), address(src), rate) for src, dst, size, rate in streams]
            sent, begin = [0] * len(ready), time.monotonic()
            while True:
                now = time.monotonic() - begin
                for at, (template, src, rate) in enumerate(ready):
                    while sent[at] < now * rate:
                        sink.send(template.of(src))
                        sent[at] += 1
                time.sleep(0.002)
        finally:
            os._exit(1)

    def stop(self):
        os.kill(self.pid, signal.SIGTERM)
        os.waitpid(self.pid, 0)


class Host:
    """A process of the gate's host that sends packets over the protected link by its kernel: of 1000 bytes, so many
    a second."""

    def __init__(self, rate):
        self.out = in_namespace(prefix, "gate", datagram)
        self.rate, self.ends = rate, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        sent, begin = 0, time.monotonic()
        while not self.ends.wait(0.002):
            while sent < (time.monotonic() - begin) * self.rate:
                self.out.sendto(bytes(1000), ("10.2.0.2", 9))
                sent += 1

    def stop(self):
        self.ends.set()
        self.thread.join()


def grant(say, flows, rate=100_000):
    before = control.gate()["decisions"]["decided"]
    for src, dst in flows:
        say(v1(v1_granted(src, rate, 300, 290_000, 1000, dst=dst)))
    awaits("the grants are in force", lambda: control.gate()["decisions"]["decided"] >= before + len(flows))


def run_program(say, sources):
    """Has program 1, grantedv2, decide of flows: 10,000 KiB/s for all, and for what is not TCP or UDP."""
    cookie = struct.pack("<4IB", 10_000, 10_000, 290_000, 1000, 0).ljust(20, b"\0")
    for src in sources:
        say(v1(bytes([4, 0, 0, 0]) + pair(src, PROTECTED) + struct.pack(">IBHB", 300, 1, 0, 5) + cookie))
    awaits("a program decides", lambda: all(control.explain(src, PROTECTED)["state"] == "program" for src in sources))


def within(*words):
    subprocess.run(["ip", "netns", "exec", f"{prefix}gate", *words], check=True)


def reload(edit):
    """Changes the policy's file and has it read; waits until it is in force."""
    path = f"{work}/gate.toml"
    with open(path, encoding="ascii") as file:
        text = edit(file.read())
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
    before = control.gate()["reloads"]
    os.kill(process, signal.SIGHUP)
    awaits("the policy is read", lambda: control.gate()["reloads"] > before)


def changes(say, sink):
    """Test 14: routes, grantors, policy and a program change under load."""
    sources = [f"30.0.0.{n}" for n in range(1, 41)]
    grant(say, [(src, PROTECTED) for src in sources[10:]])
    run_program(say, sources[:10])
    before, counters = control.gate(), control.counters()
    sink.clear()
    sender = Sender([(src, PROTECTED, 64, 50) for src in sources])
    time.sleep(0.5)
    one, two = '[{ address = "10.9.1.1" }]', '[{ address = "10.9.1.1" }, { address = "10.9.1.2", weight = 3 }]'
    further = '[[policy]]\nprefix = "192.0.2.128/25"\ngrantors = "site"\n'
    for _ in range(3):
        within("ip", "route", "replace", "10.9.1.0/24", "via", "10.2.0.3")
        reload(lambda text: text.replace(one, two))
        within("ip", "route", "replace", "10.9.1.2/32", "via", "10.2.0.2")
        # Another program as far as the gate can know.
        shutil.copy(f"{work}/program.o", f"{work}/next.o")
        os.replace(f"{work}/next.o", f"{work}/program.o")
        reload(lambda text: text + further)
        within("ip", "route", "replace", "10.9.1.0/24", "via", "10.2.0.2")
        reload(lambda text: text.replace(two, one).replace(further, ""))
        within("ip", "route", "del", "10.9.1.2/32")
    sender.stop()
    time.sleep(0.5)
    now, after = control.gate(), control.counters()
    more = lambda name: now["packets"][name] - before["packets"][name]
    dropped = {name: after["dropped"][name] - counters["dropped"][name] for name in after["dropped"]}
    dropped = {name: count for name, count in dropped.items() if count}
    with sink.lock:
        arrived, dscps = sum(sink.packets.values()), set(sink.dscps)
    answer = (arrived, more("granted"), more("received"), dropped)
    check(f"{now['reloads'] - before['reloads']} policies and 12 routes later, none of {more('received')} packets is lost", more("received") > 1000 and arrived == more("granted") == more("received") and not dropped and dscps == {1}, answer)
    # From another generation on a flow is looked up again, and keeps what it was granted.
    states = [control.explain(src, PROTECTED)["state"] for src in sources[5:15]]
    check("and every flow keeps its state", states == ["program"] * 5 + ["granted"] * 5, states)


def flooded(say, sink):
    """Test 17: more than the link for one destination; the others, and what is operational."""
    victim, others, session = "192.0.2.100", [f"192.0.2.{n}" for n in range(101, 106)], "192.0.2.9"
    source = "31.0.0.1"
    grant(say, [(source, dst) for dst in (victim, *others)])
    streams = [(source, dst, 900, 60) for dst in others] + [(source, session, 100, 50)]

    def arrive(streams):
        sender = Sender(streams)
        time.sleep(0.5)
        sink.clear()
        begin = time.monotonic()
        time.sleep(3)
        with sink.lock:
            seen, bits = dict(sink.packets), dict(sink.bits)
            host = sink.host_bits
        took = time.monotonic() - begin
        sender.stop()
        time.sleep(0.3)
        return {dst: count / took for dst, count in seen.items()}, sum(bits.values()) / took, host / took

    calm, *_ = arrive(streams)
    before = control.counters()["dropped"]
    storm, bits, _ = arrive([*streams, (source, victim, 900, 5000)])
    after = control.counters()["dropped"]
    full = after["link_full"] - before["link_full"]
    check(f"the link is full: {bits / 1e6:.1f} of 20 Mbit/s, {full} packets dropped", 0.85 * LINK < bits < 1.03 * LINK and full > 1000, (bits, full))
    # Two destinations may share a queue for a while: the median counts.
    kept = sorted(storm.get(dst, 0) / calm[dst] for dst in others)
    check(f"other destinations keep {kept[2]:.1%} (the worst {kept[0]:.1%})", kept[2] > 0.95 and kept[0] > 0.3, kept)
    share = storm.get(session, 0) / calm[session]
    check(f"and what is operational {share:.1%}", share > 0.95, (storm, calm))
    # The host's packets do not pass by the gate's workers, and go first.
    host = Host(1000)
    used = control.gate()["link"]["operational_bytes"]
    storm, bits, by_host = arrive([*streams, (source, victim, 900, 5000)])
    host.stop()
    used = control.gate()["link"]["operational_bytes"] - used
    check(f"with {by_host / 1e6:.1f} Mbit/s of the host itself the link carries {(bits + by_host) / 1e6:.1f}", 8e6 < by_host < 9e6 and 0.85 * LINK < bits + by_host < 1.03 * LINK, (bits, by_host))
    check("which are operational", used > 3 * 8e6 / 8, used)


def main():
    speaker = in_namespace(prefix, "grantor", lambda: udp("10.2.0.2", 41120))
    say = lambda message: speaker.sendto(message, ("10.2.0.1", 45232))
    sink = Sink(Tap(f"{prefix}grantor", "t0"))
    changes(say, sink)
    flooded(say, sink)
    check.finish()


prefix, program, work, process = sys.argv[1:4] + [int(sys.argv[4])]
control = Control(program, f"{work}/sock")
main()
