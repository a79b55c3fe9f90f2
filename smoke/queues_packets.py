"""Sends packets of many flows to a gate by all queues of a veth, for queues_test.sh.

queues_test.sh calls it within the client's namespace with the prefix of the namespaces, the program, the scratch
folder and the case: `all` (the gate serves every queue), `added` and `native` (queues are added while the gate
runs), `open` (the same at a gate that fails open); or `channels N`, which only sets the number of queues of
both ends.
"""

import array
import fcntl
import socket
import struct
import sys
import time

from checks import Checks, wait_until
from control import Control
from frames import PROTECTED, Template, address
from netns import Tap, datagram, in_namespace

PACKETS = 400
SIOCETHTOOL, GET_CHANNELS, SET_CHANNELS = 0x8946, 0x3C, 0x3D

prefix, program, work, case = sys.argv[1:5]
check, control = Checks(), Control(program, f"{work}/sock")


def set_channels(by, interface, rx, tx):
    """Sets the queues of an interface as `ethtool -L INTERFACE rx N tx N` does, by a socket of its namespace."""
    # struct ethtool_channels: the command, four maxima, rx, tx, other, combined.
    channels = array.array("I", [SET_CHANNELS, 0, 0, 0, 0, rx, tx, 0, 0])
    request = struct.pack("16sP", interface.encode(), channels.buffer_info()[0])
    fcntl.ioctl(by, SIOCETHTOOL, request)


here, gate = datagram(), in_namespace(prefix, "gate", datagram)
if case == "channels":
    count = int(sys.argv[5])
    # An end needs at least as many receive queues as its peer has transmit queues.
    set_channels(here, "c0", 4, count)
    set_channels(gate, "g0", count, count)
    sys.exit()

served = 4
if case != "all":
    served = 2
    set_channels(gate, "g0", 4, 2)
    set_channels(here, "c0", 4, 4)
    problem = lambda: next(link for link in control.show("interfaces") if link["name"] == "g0").get("problem") or ""
    wait_until(lambda: "receive queues" in problem())
    check(f"reported: {problem()}", "4 receive queues, of which 2 are served" in problem())

beyond = Tap(f"{prefix}grantor", "t0")
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
raw.bind(("c0", 0))
before = control.steered("g0")
for n in range(PACKETS):
    frame = bytearray(Template().of(address(f"10.1.0.{10 + n % 200}")))
    struct.pack_into(">H", frame, 34, 5000 + n)
    raw.send(frame)
    # The receive buffer of the tap is limited, so it is emptied after each packet.
    beyond.take()

ends = ["taken", "unserved", "no_socket"]
moved = lambda: {name: control.steered("g0").get(name, 0) - before.get(name, 0) for name in ends}
until = time.monotonic() + 8
while sum(moved().values()) < PACKETS and time.monotonic() < until:
    beyond.take()
    time.sleep(0.02)
now = moved()
check(f"{PACKETS} packets have arrived: {now}", sum(now.values()) == PACKETS, now)
if case == "all":
    check("the worker received all packets", now["taken"] == PACKETS, now)
else:
    end = "no_socket" if case == "open" else "unserved"
    check(f"some arrived by a queue that no worker serves: {end}", 0 < now[end] < PACKETS, now)
    check("the others by a queue that the worker serves", now["taken"] == PACKETS - now[end], now)

# The kernel forwards the packet itself; the gate forwards it in a tunnel.
to = lambda frame: socket.inet_ntoa(frame[30:34])
ipv4 = lambda: [frame for frame in beyond.seen if frame[12:14] == b"\x08\x00"]
undecided = lambda: sum(to(frame) == PROTECTED for frame in ipv4())
tunneled = lambda: sum(to(frame) == "10.2.0.2" for frame in ipv4())
want = now["no_socket"] if case == "open" else 0
while (undecided() < want or tunneled() < now["taken"]) and time.monotonic() < until:
    beyond.take()
    time.sleep(0.02)
check(f"{undecided()} of them arrived undecided", undecided() == want, want)
check(f"{tunneled()} of them arrived as requests", tunneled() == now["taken"], now)
check.finish()
