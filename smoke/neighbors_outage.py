"""neighbors.py PREFIX ADDRESS MAC: sends packets from source to an address of b, changes the MAC of b0
meanwhile, and measures for how long no packet arrives. b sends nothing, so that no packet announces
the new MAC."""

import subprocess
import sys
import threading
import time

from checks import wait_until
from netns import datagram, in_namespace

PORT, EVERY = 5009, 0.02
# 3 s REACHABLE, 1 s DELAY, 3 probes of 0.2 s; 1 s until the router reports the use to the kernel, 1 s
# until it publishes the new MAC, and 4 s for a busy machine.
MOST = 3 + 1 + 3 * 0.2 + 2 + 4

prefix, address, mac = sys.argv[1:4]
sender, receiver = in_namespace(prefix, "source", datagram), in_namespace(prefix, "b", datagram)
receiver.bind((address, PORT))
receiver.settimeout(0.1)
arrived, over = [], threading.Event()


def send():
    while not over.is_set():
        sender.sendto(b"one way", (address, PORT))
        time.sleep(EVERY)


def receive():
    while not over.is_set():
        try:
            receiver.recv(100)
            arrived.append(time.time())
        except TimeoutError:
            pass


for work in (send, receive):
    threading.Thread(target=work, daemon=True).start()
if not wait_until(lambda: len(arrived) > 20, 10):
    sys.exit("FAIL: nothing arrives")
subprocess.run(["ip", "-n", f"{prefix}b", "link", "set", "b0", "address", mac], check=True)
changed = time.time()
# Packets already sent to the old MAC arrive within this time.
time.sleep(0.1)
count = len(arrived)
found = wait_until(lambda: len(arrived) > count, MOST, 0.01)
took = (arrived[count] if found else time.time()) - changed
over.set()
print(f"   {took:.1f} s without packets, at most {MOST:.1f}")
sys.exit(0 if found else 1)
