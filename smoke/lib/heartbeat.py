"""Flows that send a packet each 5 ms, and what of them arrives: how long was a flow silent?

    heartbeat.py send SOURCE...          from each address to 192.0.2.7, port 7, without an end
    heartbeat.py receive FILE            at 192.0.2.7: source and time of each packet, a line each
    heartbeat.py gaps FILE FROM TO N     the longest silence of each flow between two times, as JSON;
                                         N flows must have been heard of before

Times are of this machine's monotonic clock, the same in all its namespaces.
"""

import json
import socket
import sys
import time

SERVER = ("192.0.2.7", 7)
SO_NO_CHECK = 11


def send(sources):
    sockets = []
    for source in sources:
        flow = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # No checksum: veths do not compute it.
        flow.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        flow.bind((source, 0))
        sockets.append(flow)
    while True:
        for flow in sockets:
            try:
                flow.sendto(b"a packet of a granted flow", SERVER)
            except OSError:
                pass  # No route for the moment: that is a silence too.
        time.sleep(0.005)


def receive(path):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(SERVER)
    with open(path, "w", encoding="ascii") as out:
        print("ready", file=out, flush=True)
        while True:
            _, source = server.recvfrom(100)
            print(f"{source[0]} {time.monotonic():.4f}", file=out, flush=True)


def gaps(path, begin, end, count):
    last, longest = {}, {}
    with open(path, encoding="ascii") as lines:
        next(lines)
        for line in lines:
            # The last line may be half written.
            if not line.endswith("\n"):
                break
            flow, at = line.split()
            at = float(at)
            if flow in last and at > begin and last[flow] < end:
                longest[flow] = max(longest.get(flow, 0), at - max(last[flow], begin))
            last[flow] = at
    heard = [flow for flow in last if flow in longest]
    assert len(last) == count, f"{len(last)} of {count} flows were heard of at all"
    for flow, at in last.items():
        # A flow without further packets is silent to the end.
        longest[flow] = max(longest.get(flow, 0), end - max(at, begin))
    assert heard, "no flow was heard in that time"
    print(json.dumps(sorted(longest.values())))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["send", *sources]:
            send(sources)
        case ["receive", path]:
            receive(path)
        case ["gaps", path, begin, end, count]:
            gaps(path, float(begin), float(end), int(count))
        case _:
            sys.exit(__doc__)
