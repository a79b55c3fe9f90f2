"""Sockets in other network namespaces.

A socket stays in the namespace in which it was created, so that one script can send and receive in
several. `/run/netns` has the namespaces of ip-netns(8).
"""

import ctypes
import os
import select
import socket

CLONE_NEWNET = 0x40000000
ETH_P_ALL = 0x0003
SO_RCVBUFFORCE = 33  # from asm-generic/socket.h: Python has no name for it


def set_namespace(descriptor):
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def enter(namespace):
    """Moves the process into a namespace."""
    with open(f"/run/netns/{namespace}", "rb") as target:
        set_namespace(target.fileno())


def in_namespace(prefix, name, make):
    """Returns what `make` returns when it is called in another namespace, usually a socket."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        enter(prefix + name)
        return make()
    finally:
        set_namespace(home)
        os.close(home)


def datagram():
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


class Tap:
    """A raw socket on an interface of a namespace."""

    def __init__(self, namespace, interface):
        def make():
            # A gate releases more packets at once than the default buffer holds.
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
            made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 25)
            made.bind((interface, 0))
            return made

        self.socket = in_namespace("", namespace, make)
        self.name = interface
        self.seen = []

    def send(self, frame):
        self.socket.send(frame)

    def take(self):
        """Appends the frames that have arrived to `seen`, without waiting."""
        while select.select([self.socket], [], [], 0)[0]:
            frame, where = self.socket.recvfrom(65535)
            if where[2] != socket.PACKET_OUTGOING:
                self.seen.append(frame)
