"""Packets over the next link's MTU, drawn at random, and what arrives of them.

    fragments_packets.py send SEED COUNT DESTINATION      sends packets from the namespace source, then an end
    fragments_packets.py receive INTERFACE                prints the frames that arrive, by packet, until the end
"""

import collections
import random
import socket
import sys
import time

from scapy.all import Ether, raw
from scapy.layers.inet import IP, UDP

OURS, ROUTERS = "02:00:00:00:01:02", "02:00:00:00:01:01"
END = b"end of packets"
# Of the types that Linux does not change: some are copied to all fragments, some are not.
OPTIONS = [b"\x01", b"\x94\x04\x00\x00", b"\x1e\x03\x07", b"\x1e\x06\x01\x02\x03\x04", b"\x9e\x05\x01\x02\x03",
           b"\x82\x0b" + bytes(9)]


def packet(rng, number, to):
    """A packet of any length, as a whole or a fragment, with options in some cases."""
    options = b"".join(rng.choices(OPTIONS, k=rng.choice([0, 0, 0, 1, 2, 3])))
    # An end of options fills the last word; Linux would zero what is behind it.
    options += bytes(-len(options) % 4)
    length = rng.choice([rng.randrange(0, 1400), rng.randrange(1300, 1441 - len(options))])
    offset = rng.choice([0, 0, rng.randrange(8000)])
    flags = rng.choice([0, 0, 0, 1, 1, 2, 4, 5])
    head = bytearray(raw(IP(src="10.0.0.2", dst=to, id=number, ttl=rng.randrange(2, 256), tos=rng.randrange(256),
                            proto=rng.choice([17, 253]), flags=flags, frag=offset, len=20 + len(options) + length,
                            ihl=5 + len(options) // 4, chksum=0)))
    head += options
    total = sum(int.from_bytes(head[at:at + 2], "big") for at in range(0, len(head), 2))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    head[10:12] = (~total & 0xffff).to_bytes(2, "big")
    return bytes(head) + rng.randbytes(length)


def send(seed, count, to):
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    link.bind(("s0", 0))
    ether = raw(Ether(src=OURS, dst=ROUTERS, type=0x800))
    rng = random.Random(seed)
    # The first packet resolves the neighbor.
    end = ether + raw(IP(src="10.0.0.2", dst=to, id=0) / UDP(sport=9, dport=9) / END)
    link.send(end.replace(END, b"the beginning."))
    time.sleep(1.5)
    for number in range(1, count + 1):
        link.send(ether + packet(rng, number, to))
        time.sleep(0.0004)
    time.sleep(0.5)
    link.send(end)


def receive(interface):
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x800))
    link.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    link.bind((interface, 0x800))
    print("ready", file=sys.stderr, flush=True)
    link.settimeout(60)
    arrived = collections.defaultdict(list)
    while True:
        frame, address = link.recvfrom(65535)
        if address[2] == socket.PACKET_OUTGOING or frame[26:30] != bytes([10, 0, 0, 2]):
            continue
        if frame.endswith(END):
            break
        arrived[int.from_bytes(frame[18:20], "big")].append(frame.hex())
    for number, frames in sorted(arrived.items()):
        if number:
            print(number, len(frames), *frames)


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    else:
        receive(sys.argv[2])
