"""Messages of the decision protocol (docs/decision-protocol.md), built without the gate's code.

Version 1 is packed by `struct` as Gatekeeper's grantors pack it, version 2 signed by `hmac`.
"""

import hashlib
import hmac
import socket
import struct

from checks import PATIENCE
from frames import PROTECTED


def udp(address, port):
    """Returns a UDP socket that is bound to an address and gives up after a while."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind((address, port))
    bound.settimeout(PATIENCE)
    return bound


def pair(src, dst):
    return socket.inet_aton(src) + socket.inet_aton(dst)


# Version 1.
def v1(*decisions):
    return bytes([1, 0, 0, 0]) + b"".join(decisions)


def v1_granted(src, rate, expire, renew, step, dst=PROTECTED):
    return bytes([2, 0, 0, 0]) + pair(src, dst) + struct.pack(">4I", rate, expire, renew, step)


def v1_declined(src, expire, dst=PROTECTED):
    return bytes([0, 0, 0, 0]) + pair(src, dst) + struct.pack(">I", expire)


def code(key, text):
    """Returns the authentication code of a message of version 2."""
    return hmac.new(key, text, hashlib.sha256).digest()[:16]


def v2(kind, session, number, body, sender, key):
    """Returns a whole message of version 2, with its code."""
    text = struct.pack(">BBHIQQ", 2, kind, 1, sender, session, number) + body
    return text + code(key, text)
