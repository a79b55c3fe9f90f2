"""Packets of the same pairs by both queues of a veth, for steering_test.sh.

A veth spreads by ports, so that packets of a pair with many ports go by both. Called within the
client's namespace with the prefix of the namespaces, the program, the scratch folder, and `software` or
`card`, which steers; or `again`, software at a gate that knows the flows from before.
"""

import socket
import struct
import sys
import time
from collections import Counter

from checks import Checks, wait_until
from control import Control
from decisions import udp, v1, v1_granted
from frames import Template, address
from netns import in_namespace

FLOWS = 60
# Ports of each: that all go by one queue happens to one pair in eight million.
PORTS = range(5000, 5024)
# Of the granted flow: KiB a second, and the bytes and number of its packets.
RATE, SIZE, PACKETS = 64, 1000, 240

prefix, program, work, by = sys.argv[1:]
check, control = Checks(), Control(program, f"{work}/sock")


def packets():
    return control.gate()["packets"]


def awaits(lacks, what):
    check(what, wait_until(lambda: not lacks()), packets())


raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(("c0", 0))


def send(template, source, port):
    frame = bytearray(template.of(address(source)))
    struct.pack_into(">H", frame, 34, port)
    raw.send(frame)


small, large = Template(), Template(size=SIZE)
sources = [f"10.1.0.{n}" for n in range(10, 10 + FLOWS)]
times = 2 if by == "card" else 1

# A grant goes to the workers that may receive the flow: its own worker, or each of them.
speak = in_namespace(prefix, "grantor", lambda: udp("10.2.0.2", 41120))
if by != "again":
    for source in sources:
        speak.sendto(v1(v1_granted(source, RATE, 600, 500_000, 1000)), ("10.2.0.1", 45232))
    awaits(lambda: control.gate()["decisions"]["decided"] < FLOWS * times, "the decisions are known")
flows = Counter(flow["source"] for flow in control.show("flows"))
check(f"there are {FLOWS} flows, each in {times} of 2 tables", flows == Counter(sources * times), flows)

# The spent part of a flow's second survives a restart, which may take less than a second.
time.sleep(1)
for port in PORTS:
    for source in sources:
        send(small, source, port)
sent = len(PORTS) * FLOWS
awaits(lambda: packets()["received"] < sent, f"{sent} packets have come")
now = packets()
check("every one was known to be granted", now["granted"] == sent and now["request"] == 0, now)

# The rate is that of the flow, not of each worker.
while time.time() % 1 > 0.3:
    time.sleep(0.01)
for n in range(PACKETS):
    send(large, sources[0], PORTS[n % len(PORTS)])
both = lambda: sum(packets()[name] - now[name] for name in ("granted", "over_rate"))
awaits(lambda: both() < PACKETS, f"{PACKETS} packets of one flow have come")
granted = packets()["granted"] - now["granted"]
most = RATE * 1024 // SIZE
print(f"   {granted} of {PACKETS} were within the rate of {most} a second")
# A second may end between two of them.
if times == 1:
    check("the rate is that of one worker", 0 < granted <= 2 * most and granted < PACKETS, granted)
else:
    check("each worker has the rate", granted > most, granted)
check.finish()
