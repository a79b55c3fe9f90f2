"""Clients of the server behind a gate and a grantor, for bundle_test.sh.

    stream FOLDER    a connection that sends and receives until FOLDER/enough is there; creates
                     FOLDER/streaming when it is connected, and prints how many exchanges there were and
                     how long the longest took
    request PORT     a packet from each of 50 sources that have sent none before
"""

import os
import socket
import sys
import time

SERVER = "192.0.2.7"


def stream(folder):
    with socket.create_connection((SERVER, 80), 8) as connection:
        connection.settimeout(5)
        open(f"{folder}/streaming", "w").close()
        count, longest = 0, 0.0
        while not os.path.exists(f"{folder}/enough"):
            begin = time.monotonic()
            connection.sendall(b"x%07d" % count)
            got = b""
            while len(got) < 8:
                more = connection.recv(8 - len(got))
                assert more, "the connection ended"
                got += more
            assert got == b"x%07d" % count, got
            longest, count = max(longest, time.monotonic() - begin), count + 1
            time.sleep(0.02)
    print(count, f"{longest:.3f}")


def request(port):
    for number in range(50, 100):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.bind((f"10.1.0.{number}", 0))
            client.sendto(b"please", (SERVER, int(port)))
        time.sleep(0.02)


{"stream": stream, "request": request}[sys.argv[1]](sys.argv[2])
