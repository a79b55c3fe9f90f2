"""A client of the echo server, and forged packets with the client's source address, for forged_test.sh.

    forged_connection.py ADDRESS    sends and receives for three lifetimes of a grant, while forged packets
                                    are sent from ADDRESS; fails if the connection ends
"""

import socket
import sys
import threading
import time

SERVER = "192.0.2.7"
LASTS = 3.0
PATIENCE = 8.0


def frames(source):
    """Builds the forged packets: one for each reason why a policy might decline a flow."""
    from scapy.compat import raw
    from scapy.layers.inet import ICMP, IP, TCP, UDP
    from scapy.layers.l2 import Ether
    from scapy.packet import Raw

    ether = Ether(src="02:00:00:00:01:66", dst="02:00:00:00:01:01")
    ip = IP(src=source, dst=SERVER)
    made = []
    for port in 80, 23, 81, 443, 53:
        made.append(ip / UDP(sport=53, dport=port) / Raw(b"forged"))
        for flags in "S", "SA", "R", "FPU", "A":
            made.append(ip / TCP(sport=6000 + port, dport=port, flags=flags, seq=7, ack=9))
    made += [ip / ICMP(), IP(src=source, dst=SERVER, proto=47) / Raw(b"12345678")]
    made.append(IP(src=source, dst=SERVER, proto=17, frag=5) / Raw(b"a later fragment"))
    made.append(IP(src=source, dst=SERVER, tos=3) / TCP(sport=1, dport=80, flags="A"))
    return [raw(ether / packet) for packet in made]


def connect(source):
    """Sends and receives, first alone and then among forged packets."""
    forged = frames(source)
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    tap.bind(("c0", 0))
    over, sent = threading.Event(), [0]

    def forge():
        while not over.wait(0.02):
            tap.send(forged[sent[0] % len(forged)])
            sent[0] += 1

    with socket.create_connection((SERVER, 80), PATIENCE, (source, 0)) as connection:
        connection.settimeout(PATIENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def echo(number):
            begin = time.monotonic()
            message = b"%08d" % number
            connection.sendall(message)
            got = b""
            while len(got) < len(message):
                part = connection.recv(64)
                if not part:
                    sys.exit("the connection is closed")
                got += part
            if got != message:
                sys.exit(f"{got} came back for {message}")
            return time.monotonic() - begin

        [echo(number) for number in range(5)]
        forger = threading.Thread(target=forge)
        forger.start()
        begin, echoes, longest = time.monotonic(), 0, 0.0
        try:
            while time.monotonic() < begin + LASTS:
                longest = max(longest, echo(echoes))
                echoes += 1
                time.sleep(0.05)
        except TimeoutError:
            print(f"no answer for {PATIENCE:.0f} s, after {echoes} answers and {sent[0]} forged packets")
            sys.exit(1)
        finally:
            over.set()
            forger.join()
    print(f"{echoes} answers among {sent[0]} forged packets, the slowest after {longest:.2f} s")


connect(sys.argv[1])
