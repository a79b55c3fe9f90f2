"""Sends numbered packets through the router until standard input has something, and counts arrivals.

stream.py PREFIX SINK: from the namespace source to 203.0.113.1 and 2001:db8::1, which are in
the namespace SINK, some thousand a second, until standard input has something. Exit status
0 if every one came, once. Of an experimental protocol (RFC 3692), which has no checksum
that would be left to a device.
"""

import select
import socket
import struct
import sys
import threading
import time

from netns import enter


prefix, sink = sys.argv[1:3]
enter(prefix + sink)
taps = []
for family, address in ((socket.AF_INET, "203.0.113.1"), (socket.AF_INET6, "2001:db8::1")):
    tap = socket.socket(family, socket.SOCK_RAW, 253)
    tap.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)
    tap.bind((address, 0))
    taps.append(tap)
enter(prefix + "source")
mouths = []
for family, address in ((socket.AF_INET, "203.0.113.1"), (socket.AF_INET6, "2001:db8::1")):
    mouth = socket.socket(family, socket.SOCK_RAW, 253)
    mouth.connect((address, 0))
    mouths.append(mouth)
seen = [[], []]


def listen(which):
    while True:
        seen[which].append(taps[which].recv(64)[-8:])


for which in (0, 1):
    threading.Thread(target=listen, args=(which,), daemon=True).start()
number = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    for mouth in mouths:
        for _ in range(2):
            mouth.send(struct.pack("!Q", number))
            number += 1
    time.sleep(0.001)
time.sleep(1)
came = seen[0] + seen[1]
print(f"{number} sent, {len(set(came))} came, {len(came) - len(set(came))} twice")
sys.exit(0 if len(set(came)) == number == len(came) else 1)
