"""Sends the packets that linux_packets.py has written, without scapy, which an emulated processor loads in ten seconds.

    send_packets.py INTERFACE FILE
"""

import socket
import sys
import time

link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
link.bind((sys.argv[1], 0))
for line in open(sys.argv[2]):
    link.send(bytes.fromhex(line))
    time.sleep(0.0015)  # so that no queue on the way fills
