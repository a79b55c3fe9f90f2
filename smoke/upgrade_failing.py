#!/usr/bin/python3
"""A successor that fails, for upgrade_test.sh, which installs it in place of the program.

It speaks the messages of crates/control/src/succession as far as the file `failure` beside it says:

    start        ends at once, as the launcher of the program would
    format       reads another format only
    role         is a gate
    ready        ends after its tables would be ready, when the workers of the predecessor have stopped
    silent       does not answer then
    bound        the same, and has bound the first queue of the first interface
"""

import ctypes
import json
import mmap
import os
import socket
import struct
import sys
import time

failure = open(os.path.join(os.path.dirname(sys.argv[0]), "failure")).read().strip()
if failure == "start":
    sys.exit("this program fails at its start")
channel = socket.socket(fileno=0)


def send(message):
    text = json.dumps(message).encode()
    channel.sendall(struct.pack("<I", len(text)) + text)


def receive():
    head, descriptors, _, _ = socket.recv_fds(channel, 4, 253)
    length = struct.unpack("<I", head)[0]
    text = b""
    while len(text) < length:
        text += channel.recv(length - len(text))
    return json.loads(text), descriptors


def bind_first_queue(interface):
    AF_XDP, SOL_XDP = 44, 283
    RX_RING, UMEM_REG, FILL_RING, COMPLETION_RING = 2, 4, 5, 6
    length = 1 << 20
    memory = mmap.mmap(-1, length)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    queue = socket.socket(AF_XDP, socket.SOCK_RAW)
    queue.setsockopt(SOL_XDP, UMEM_REG, struct.pack("QQIIII", address, length, 2048, 0, 0, 0))
    for ring in (FILL_RING, COMPLETION_RING, RX_RING):
        queue.setsockopt(SOL_XDP, ring, struct.pack("I", 64))
    place = struct.pack("HHIII", AF_XDP, 0, interface, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    # The kernel releases a closed socket of the predecessor a moment later.
    for _ in range(200):
        if libc.bind(queue.fileno(), place, len(place)) == 0:
            held.append((queue, memory))
            return
        time.sleep(0.01)
    sys.exit(os.strerror(ctypes.get_errno()))


held = []
send({"hello": {
    "formats": [99] if failure == "format" else [1],
    "version": "9.9",
    "role": "gate" if failure == "role" else "router",
    "pid": os.getpid(),
}})
answer, descriptors = receive()
if "refused" in answer:
    sys.exit(answer["refused"]["reason"])
welcome = answer["welcome"]
# The links, the TAP device, the control socket, the metrics.
assert len(descriptors) == len(welcome["interfaces"]) + 3, answer
send("ready")
suspended, _ = receive()
assert suspended["suspended"]["workers"][0]["verdicts"]["sent"] > 0, suspended
if failure == "bound":
    bind_first_queue(welcome["interfaces"][0]["index"])
if failure in ("silent", "bound"):
    time.sleep(60)
