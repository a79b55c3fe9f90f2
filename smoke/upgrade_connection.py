"""A TCP connection to the echo server at 192.0.2.7 that lasts until SIGINT.

Each number that is sent must come back, in order. Prints "connected", and at the end how many came back and how long the
longest of them took.
"""

import signal
import socket
import struct
import sys
import time

ended = []
signal.signal(signal.SIGINT, lambda *_: ended.append(True))
connection = socket.create_connection(("192.0.2.7", 80), timeout=10)
print("connected", flush=True)
number, longest = 0, 0.0
while not ended:
    time.sleep(0.01)
    begin = time.monotonic()
    connection.sendall(struct.pack(">Q", number))
    reply = b""
    while len(reply) < 8:
        part = connection.recv(8 - len(reply))
        if not part:
            sys.exit(f"the server closed the connection after {number} numbers")
        reply += part
    if reply != struct.pack(">Q", number):
        sys.exit(f"{reply.hex()} came back in place of {number}")
    longest = max(longest, time.monotonic() - begin)
    number += 1
print(f"{number} numbers came back, the slowest after {longest:.2f} s")
sys.exit(0 if number > 100 else "too few numbers came back")
