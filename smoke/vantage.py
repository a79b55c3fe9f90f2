"""What scripts about gates share: sockets in other namespaces, and decisions by version 1.

Nothing of the gate's code is here: decisions are packed by `struct` as the study's section 4 says.
"""

import os
import socket
import struct

PROTECTED = "192.0.2.7"
PATIENCE = 8.0


def in_namespace(prefix, name, make):
    """Makes a socket in another namespace, as Tap does."""
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{prefix}{name}", os.O_RDONLY)
    try:
        os.setns(there, 0) if hasattr(os, "setns") else setns(there)
        return make()
    finally:
        os.setns(home, 0) if hasattr(os, "setns") else setns(home)
        os.close(there)
        os.close(home)


def setns(descriptor):
    import ctypes

    if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")


def udp(address, port):
    it = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    it.bind((address, port))
    it.settimeout(PATIENCE)
    return it


def pair(src, dst):
    return socket.inet_aton(src) + socket.inet_aton(dst)


# Version 1, as the study's section 4 has it.
def v1(*decisions):
    return bytes([1, 0, 0, 0]) + b"".join(decisions)


def v1_granted(src, rate, expire, renew, step, dst=PROTECTED):
    return bytes([2, 0, 0, 0]) + pair(src, dst) + struct.pack(">4I", rate, expire, renew, step)


def v1_declined(src, expire, dst=PROTECTED):
    return bytes([0, 0, 0, 0]) + pair(src, dst) + struct.pack(">I", expire)
