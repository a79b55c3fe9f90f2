"""Sends packets from each port of a router to each other one, and checks every byte of what arrives.

    ports_packets.py GROUP...

A group is a list of ends that can reach each other: NAMESPACE:DEVICE:ROUTER'S MAC:NETWORK,... The host at an
end has the addresses 10.2.NETWORK.2 and fd02:NETWORK::2 on its device. Each packet must arrive once, with the MAC
addresses of the last link, one hop less, and nothing else changed. Runs outside the namespaces.
"""

import ctypes
import os
import socket
import sys
import time

# Less than scapy.all, which takes twice as long to load: some ten seconds on an emulated processor.
from scapy.compat import raw
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

SIZES = [64, 1500, 9000]
PATTERN = bytes(range(256)) * 37
MARK = 253  # a protocol for experiments (RFC 3692)
libc = ctypes.CDLL(None, use_errno=True)


def enter(path):
    with open(path) as namespace:
        if libc.setns(namespace.fileno(), 0x40000000):  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), f"cannot enter {path}")


class End:
    """A host's end of a link: a socket on its device."""

    def __init__(self, text):
        namespace, self.device, rest = text.split(":", 2)
        self.router, self.network = rest.rsplit(":", 1)
        enter(f"/run/netns/{namespace}")
        self.link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.link.bind((self.device, 3))
        with os.popen(f"ip -o link show dev {self.device}") as words:
            self.mac = words.read().split("link/ether ")[1].split()[0]

    def address(self, six):
        return f"fd02:{self.network}::2" if six else f"10.2.{self.network}.2"

    def forget(self):
        """Drops the frames so far: those of a VLAN device pass the device below, too."""
        self.link.setblocking(False)
        try:
            while True:
                self.link.recv(65535)
        except BlockingIOError:
            pass

    def received(self, wanted, seconds):
        """The frames of this test until `wanted` has arrived, and for a moment after it."""
        found, until = [], time.time() + seconds
        while (left := until - time.time()) > 0:
            self.link.settimeout(left)
            try:
                frame, where = self.link.recvfrom(65535)
            except TimeoutError:
                break
            if where[2] == socket.PACKET_OUTGOING or MARK not in (frame[23], frame[20]):
                continue
            found.append(frame)
            if frame == wanted:
                until = min(until, time.time() + 0.02)
        return found


def packet(start, end, six, size, number):
    """A packet as `start` sends it, and as `end` receives it; `size` is its length with headers."""
    head = IPv6(src=start.address(True), dst=end.address(True), nh=MARK, hlim=64, tc=number % 256, fl=number) if six else \
        IP(src=start.address(False), dst=end.address(False), proto=MARK, ttl=64, id=number, tos=number % 4)
    load = Raw(PATTERN[number % 256:][:size - len(head)])
    sent = Ether(src=start.mac, dst=start.router) / head / load
    after = head.copy()
    if six:
        after.hlim = 63
    else:
        after.ttl = 63
    return raw(sent), raw(Ether(src=end.router, dst=end.mac) / after / load)


def main():
    groups = [[End(text) for text in group.split(",")] for group in sys.argv[1:]]
    number = wrong = 0
    for group in groups:
        for start, end in ((start, end) for start in group for end in group if start is not end):
            for six in (False, True):
                for size in SIZES:
                    number += 1
                    sent, wanted = packet(start, end, six, size, number)
                    end.forget()
                    start.link.setblocking(True)
                    start.link.send(sent)
                    found = end.received(wanted, 3)
                    if found != [wanted]:
                        wrong += 1
                        print(f"{start.device} to {end.device}, {'IPv6' if six else 'IPv4'}, {size} bytes: {len(found)} arrived",
                              *(Ether(frame).summary() for frame in found[:2]))
    print(f"{number} packets, {wrong} wrong")
    sys.exit(wrong > 0)


main()
