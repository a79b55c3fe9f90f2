"""Checks which packets pass a router whose threads are stopped, for stalled_test.sh.

    stalled_threads.py listen SOCKET FILE                   writes the service's sd_notify(3) messages to a file,
                                                    a line each
    stalled_threads.py test PREFIX PROGRAM WORK PROCESS     tests the router with this process

ptrace(2) stops one thread; the others continue.
"""

import ctypes
import os
import signal
import socket
import sys
import threading
import time

from checks import Checks, wait_until
from control import Control
from netns import datagram, in_namespace

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000
PATIENCE = 15.0
# The bytes that TCP transfers in each direction.
LOAD = os.urandom(1 << 20)

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
check = Checks()


def listen(path, file):
    at = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    at.bind(path)
    with open(file, "w", encoding="ascii") as out:
        while True:
            print(at.recv(4096).decode("ascii"), file=out, flush=True)


def ptrace(request, thread):
    if libc.ptrace(request, thread, None, None) == -1:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x} of {thread}")


class Held:
    """Stops a thread for the time of a `with` block."""

    def __init__(self, process, name):
        threads = [int(thread) for thread in os.listdir(f"/proc/{process}/task")]
        called = lambda thread: open(f"/proc/{process}/task/{thread}/comm", encoding="ascii").read().strip()
        self.thread = next(thread for thread in threads if called(thread) == name)

    def __enter__(self):
        ptrace(PTRACE_SEIZE, self.thread)
        ptrace(PTRACE_INTERRUPT, self.thread)
        os.waitpid(self.thread, WALL)

    def __exit__(self, *_):
        ptrace(PTRACE_DETACH, self.thread)


class Stopped:
    """Stops a process for the time of a `with` block."""

    def __init__(self, process):
        self.process = process

    def __enter__(self):
        os.kill(self.process, signal.SIGSTOP)

    def __exit__(self, *_):
        os.kill(self.process, signal.SIGCONT)


class Stream:
    """Numbered packets from client to server, one every millisecond or two."""

    def __init__(self, prefix):
        self.out, self.into = in_namespace(prefix, "client", datagram), in_namespace(prefix, "server", datagram)
        self.into.bind(("10.2.0.2", 7))
        self.sent, self.came, self.latest = 0, 0, -1
        threading.Thread(target=self.send, daemon=True).start()
        threading.Thread(target=self.take, daemon=True).start()

    def send(self):
        while True:
            self.out.sendto(self.sent.to_bytes(8, "big"), ("10.2.0.2", 7))
            self.sent += 1
            time.sleep(0.001)

    def take(self):
        while True:
            self.latest = max(self.latest, int.from_bytes(self.into.recv(64), "big"))
            self.came += 1


def transfer(prefix, family, address):
    """Sends the load to the server and back by TCP; the kernels leave checksums to their devices."""
    make = lambda: socket.socket(family, socket.SOCK_STREAM)
    server, client = in_namespace(prefix, "server", make), in_namespace(prefix, "client", make)
    server.bind((address, 8000))
    server.listen()
    for end in (server, client):
        end.settimeout(PATIENCE)

    def echo():
        one, _ = server.accept()
        one.settimeout(PATIENCE)
        left = len(LOAD)
        while left:
            data = one.recv(1 << 16)
            left -= len(data)
            one.sendall(data)

    thread = threading.Thread(target=echo, daemon=True)
    thread.start()
    try:
        client.connect((address, 8000))
        got = bytearray()
        sender = threading.Thread(target=client.sendall, args=(LOAD,), daemon=True)
        sender.start()
        while len(got) < len(LOAD):
            got += client.recv(1 << 16)
        return bytes(got) == LOAD
    except TimeoutError:
        return False


def test(prefix, program, work, process):
    control = Control(program, f"{work}/sock")
    steered = lambda name: control.steered("r0")[name]
    signs = lambda: open(f"{work}/signs", encoding="ascii").read().count("WATCHDOG=1")

    for family, address in ((socket.AF_INET, "10.2.0.2"), (socket.AF_INET6, "fd02::2")):
        before = steered("taken")
        check(f"TCP to {address} and back, checksums left to the devices", transfer(prefix, family, address))
        check("the router's workers forwarded it", steered("taken") > before + 200, steered("taken"))

    stream = Stream(prefix)
    check("a stream of UDP passes", wait_until(lambda: stream.came > 100, PATIENCE), stream.came)
    check("the watchdog is fed", wait_until(lambda: signs() >= 2, PATIENCE), signs())

    with Held(process, "worker-0"):
        # Packets already in its ring wait for it; after 100 ms the kernel forwards new packets.
        here, came = stream.sent, stream.came
        check("the worker is stopped: the kernel forwards", wait_until(lambda: stream.latest > here and stream.came > came + 200, PATIENCE))
        check("these packets are counted as stalled", steered("stalled") > 0)
        fed = signs()
        time.sleep(2.5)
        check("the watchdog is not fed", signs() <= fed + 1, (fed, signs()))
    taken = steered("taken")
    check("it continues: packets are taken", wait_until(lambda: steered("taken") > taken + 200, PATIENCE), steered("taken"))
    fed = signs()
    check("the watchdog is fed", wait_until(lambda: signs() > fed + 1, PATIENCE), signs())

    with Held(process, "control"):
        fed = signs()
        time.sleep(2.5)
        check("the control thread is stopped: the watchdog is not fed", signs() <= fed + 1, (fed, signs()))
    fed = signs()
    check("it continues: the watchdog is fed", wait_until(lambda: signs() > fed + 1, PATIENCE), signs())

    with Stopped(process):
        here, came = stream.sent, stream.came
        check("the process is stopped: the kernel forwards", wait_until(lambda: stream.latest > here and stream.came > came + 200, PATIENCE))
    taken = steered("taken")
    check("it continues: packets are taken", wait_until(lambda: steered("taken") > taken + 200, PATIENCE), steered("taken"))

    def adds_up():
        lost = lambda interface: sum(interface["lost"][name] for name in ("rx_ring_full", "fill_empty", "rx_dropped", "undelivered"))
        return all(interface["steered"]["taken"] >= interface["received"] + lost(interface) for interface in control.show("interfaces"))

    check("received and lost packets are no more than were taken", adds_up(), control.show("interfaces"))
    check.finish()


if sys.argv[1] == "listen":
    listen(*sys.argv[2:])
else:
    test(*sys.argv[2:5], int(sys.argv[5]))
