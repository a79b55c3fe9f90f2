"""Measures how long a change of the kernel's takes to be what workers forward by.

visible_latency.py PREFIX COUNT: while packets go to 203.0.113.1, its route leads to a and to b in
turn, COUNT times, by a netlink message each. From before the message is sent until the
first packet arrives the other way, by the kernel's time of arrival: so the way through the
router, and the time from one packet to the next, are in it. Writes the median and the
99th percentile; exit status 1 if a change did not become visible within a second.
"""

import os
import socket
import struct
import sys
import threading
import time

from netns import enter

SO_TIMESTAMPNS = 35
RTM_NEWROUTE, NLM_F_REQUEST, NLM_F_ACK, NLM_F_REPLACE, NLM_F_CREATE = 24, 1, 4, 0x100, 0x400
ADDRESS = "203.0.113.1"


def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value


def route(gateway, sequence):
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, 24, 0, 0, 254, 4, 0, 1, 0)
    body += attribute(1, socket.inet_aton("203.0.113.0")) + attribute(5, socket.inet_aton(gateway))
    flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_REPLACE | NLM_F_CREATE
    return struct.pack("=IHHII", 16 + len(body), RTM_NEWROUTE, flags, sequence, 0) + body


def send(prefix, stop):
    """Packets in a process of its own, some ten thousand a second, until `stop` is readable."""
    enter(prefix + "source")
    mouth = socket.socket(socket.AF_INET, socket.SOCK_RAW, 253)
    mouth.connect((ADDRESS, 0))
    os.set_blocking(stop, False)
    while True:
        for _ in range(64):
            mouth.send(b"12345678")
            until = time.perf_counter() + 60e-6
            while time.perf_counter() < until:
                pass
        try:
            os.read(stop, 1)
            return
        except BlockingIOError:
            pass


class Sink:
    """Where packets come out one way; knows when the first arrived since `since`."""

    def __init__(self, namespace):
        enter(namespace)
        self.tap = socket.socket(socket.AF_INET, socket.SOCK_RAW, 253)
        self.tap.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.tap.bind((ADDRESS, 0))
        self.since, self.first, self.came = None, None, threading.Event()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        while True:
            _, ancillary, _, _ = self.tap.recvmsg(64, 64)
            seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
            at = seconds + nanoseconds * 1e-9
            if self.since is not None and at > self.since:
                self.since, self.first = None, at
                self.came.set()


def main():
    prefix, count = sys.argv[1], int(sys.argv[2])
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        send(prefix, reading)
        os._exit(0)
    sinks = {"10.0.1.2": Sink(prefix + "a"), "10.0.2.2": Sink(prefix + "b")}
    enter(prefix + "router")
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    kernel.bind((0, 0))
    took, late = [], 0
    for number in range(count):
        gateway = list(sinks)[number % 2]
        sink = sinks[gateway]
        time.sleep(0.01)
        sink.came.clear()
        begin = time.time()
        sink.since = begin
        kernel.send(route(gateway, number))
        error = struct.unpack("=i", kernel.recv(4096)[16:20])[0]
        if error:
            raise OSError(-error, "the kernel refuses the route")
        if sink.came.wait(1):
            took.append(sink.first - begin)
        else:
            late += 1
    os.write(writing, b"x")
    os.waitpid(child, 0)
    # The first change has nothing to change from.
    took = sorted(took[1:])
    middle, most = took[len(took) // 2], took[len(took) * 99 // 100]
    print(f"{len(took)} changes: median {middle * 1e3:.2f} ms, 99th percentile {most * 1e3:.2f} ms, longest {took[-1] * 1e3:.2f} ms, {late} not seen")
    sys.exit(1 if late else 0)


main()
