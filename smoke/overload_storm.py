"""A storm of ARP requests and neighbor solicitations for the router's address, from senders that it does not know.

    overload_storm.py INTERFACE    sends until SIGTERM, then prints the number of frames a second
"""

import random
import signal
import socket
import sys
import time

from scapy.all import ARP, Ether, raw
from scapy.layers.inet6 import ICMPv6ND_NS, ICMPv6NDOptSrcLLAddr, IPv6

ROUTERS4, ROUTERS6 = "10.0.2.1", "fd00:2::1"
SOLICITED, SOLICITED_MAC = "ff02::1:ff00:1", "33:33:ff:00:00:01"


def frames(rng):
    for number in range(500):
        mac = f"02:00:00:01:{number >> 8:02x}:{number & 255:02x}"
        yield raw(Ether(src=mac, dst="ff:ff:ff:ff:ff:ff") / ARP(op=1, hwsrc=mac, psrc=f"10.0.2.{rng.randrange(3, 255)}", pdst=ROUTERS4))
        sender = IPv6(src=f"fd00:2::{rng.randrange(3, 65536):x}", dst=SOLICITED, hlim=255)
        yield raw(Ether(src=mac, dst=SOLICITED_MAC) / sender / ICMPv6ND_NS(tgt=ROUTERS6) / ICMPv6NDOptSrcLLAddr(lladdr=mac))


def main(interface):
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    link.bind((interface, 0))
    all_frames = list(frames(random.Random(1)))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    sent, begin = 0, time.monotonic()
    try:
        while True:
            for _ in range(20):
                link.send(all_frames[sent % len(all_frames)])
                sent += 1
            time.sleep(0.001)
    finally:
        print(f"{sent / (time.monotonic() - begin):.0f}")


main(sys.argv[1])
