"""Packets for the cases of the kernel's selftests.

    selftests_packets.py forward PREFIX FILE COUNT EXPECTED SOURCE DESTINATION [MAC]
                       sends COUNT UDP packets to the router's MAC address or to MAC, and prints at which hosts they
                       arrive, and the ICMP errors about them that source receives; waits for EXPECTED packets
    selftests_packets.py flows PREFIX FILE DESTINATION WEIGHT WEIGHT
                       sends FLOWS flows of a packet each, and prints how many arrive at a and b; fails unless
                       their ratio is that of the weights
    selftests_packets.py datagrams TOS LENGTH DESTINATION...
                       sends a datagram of this length from the present namespace to each destination, where
                       the port is closed, and waits for the errors
    selftests_packets.py multicast NAME=VALUE...
                       forwards groups by the kernel's multicast routes, until a signal ends it

FILE gets the number of the packets that were sent only to know that others have been processed. The checksum of
UDP is always wrong, so that the hosts answer no packet.
"""

import select
import signal
import socket
import struct
import sys
import time

from checks import wait_until
from frames import ones_sum
from netns import Tap

ROUTER_AND_SOURCE = "02000000010102000000" + "0102"
# Hosts whose packets always arrive, at a.
HOSTS = {False: ("10.0.0.2", "10.0.1.2"), True: ("fd00::2", "fd00:1::2")}
FLOWS = 8192
TOLERANCE = 0.15  # of the kernel's scripts


def packed(address):
    return socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)


def frame_of(source, destination, mark, port=12345, mac=None):
    """Returns a frame with a UDP packet whose payload is the mark."""
    udp = struct.pack(">HHHH", 1024, port, 8 + len(mark), 0xDEAD) + mark
    if ":" in destination:
        header = struct.pack(">IHBB16s16s", 6 << 28, len(udp), 17, 64, packed(source), packed(destination))
    else:
        fields = [0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, packed(source), packed(destination)]
        fields[7] = ~ones_sum(struct.pack(">BBHHHBBH4s4s", *fields)) & 0xFFFF
        header = struct.pack(">BBHHHBBH4s4s", *fields)
    macs = bytes.fromhex(ROUTER_AND_SOURCE)
    if mac:
        macs = bytes.fromhex(mac.replace(":", "")) + macs[6:]
    return macs + (b"\x86\xdd" if ":" in destination else b"\x08\x00") + header + udp


def new_mark():
    return b"%016x" % time.monotonic_ns()


def error_of(frame):
    """Describes a frame that is an ICMP error."""
    if frame[12:14] == b"\x08\x00" and frame[23] == 1 and frame[34] in (3, 5, 11, 12):
        return f"ICMP {frame[34]}/{frame[35]} from {socket.inet_ntop(socket.AF_INET, frame[26:30])}"
    if frame[12:14] == b"\x86\xdd" and frame[20] == 58 and frame[54] < 128:
        return f"ICMPv6 {frame[54]}/{frame[55]} from {socket.inet_ntop(socket.AF_INET6, frame[22:38])}"
    return None


class Receiver:
    """Counts the packets with a mark that arrive at each host."""

    def __init__(self, prefix):
        self.taps = {name: Tap(prefix + name, f"{name}0") for name in "ab"}

    def counts(self, mark, length):
        """Returns how many have arrived at each host, in the order of their names."""
        for tap in self.taps.values():
            tap.take()
        return [sum(len(f) == length and f.endswith(mark) for f in tap.seen) for tap in self.taps.values()]


def await_good(sender, receiver, v6, seconds=20):
    """Sends good packets until one arrives: those before it have been processed then. Returns how many."""
    mark, sent = new_mark(), 0
    frame = frame_of(*HOSTS[v6], mark, 12346)

    def arrives():
        nonlocal sent
        sender.send(frame)
        sent += 1
        return wait_until(lambda: receiver.counts(mark, len(frame))[0], 0.2, 0.002)

    if not wait_until(arrives, seconds):
        sys.exit("the good packet does not arrive")
    wait_until(lambda: receiver.counts(mark, len(frame))[0] == sent, 2)
    return sent


def forward(prefix, file, count, expected, source, destination, mac=None):
    sender, receiver = Tap(prefix + "source", "s0"), Receiver(prefix)
    v6 = ":" in destination
    good = await_good(sender, receiver, v6)
    mark = new_mark()
    frame = frame_of(source, destination, mark, mac=mac)
    for _ in range(count):
        sender.send(frame)
    # Packets that the kernel forwards for the router can arrive after the good one.
    wait_until(lambda: sum(receiver.counts(mark, len(frame))) >= expected > 0, 10 if expected else 0.3)
    good += await_good(sender, receiver, v6)
    counts = receiver.counts(mark, len(frame))
    ends = [f"{n} of {count} arrive at {name}" for name, n in zip("ab", counts, strict=True) if n]
    sender.take()
    errors = {error for f in sender.seen if mark in f and (error := error_of(f))}
    print(", ".join((ends or ["dropped"]) + sorted(errors)))
    write(file, good)


def write(file, number):
    with open(file, "w", encoding="ascii") as out:
        out.write(f"{number}\n")


def flow_frames(destination):
    """Returns frames that differ by their destination port, and their mark."""
    mark = new_mark()
    source = HOSTS[":" in destination][0]
    return [frame_of(source, destination, mark, port) for port in range(1024, 1024 + FLOWS)], mark


def flows(prefix, file, destination, first, second):
    sender, receiver = Tap(prefix + "source", "s0"), Receiver(prefix)
    counts = [0, 0]

    def take(mark, length):
        for i, number in enumerate(receiver.counts(mark, length)):
            counts[i] += number
        for tap in receiver.taps.values():
            tap.seen.clear()
        return counts

    # The router resolves both neighbors.
    frames, mark = flow_frames(destination)
    length = len(frames[0])
    others = 0

    def both_reached():
        nonlocal others
        sender.send(frames[others])
        others += 1
        return all(take(mark, length))

    if not wait_until(both_reached, 20):
        sys.exit(f"not both neighbors are reached: {counts}")
    wait_until(lambda: sum(take(mark, length)) == others, 2)
    frames, mark = flow_frames(destination)
    counts[:] = 0, 0
    for number, frame in enumerate(frames, 1):
        sender.send(frame)
        if number % 64 == 0:
            # Queues are short.
            wait_until(lambda sent=number: sum(take(mark, length)) > sent - 256, 2, 0.001)
    wait_until(lambda: sum(take(mark, length)) >= FLOWS, 5)
    larger, smaller = counts if first >= second else counts[::-1]
    want = max(first, second) / min(first, second)
    ratio = larger / smaller if smaller else float("inf")
    detail = f"of {first}:{second} ({counts[0]}:{counts[1]})"
    if abs(ratio - want) / want > TOLERANCE:
        sys.exit(f"not within 15 % {detail}")
    print(f"{sum(counts)} of {FLOWS} flows, within 15 % {detail}")
    write(file, others)


def datagrams(tos, length, *destinations):
    senders, errors = [], select.poll()
    for destination in destinations:
        v6 = ":" in destination
        sender = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM)
        level, received, discover = (socket.IPPROTO_IPV6, 25, 23) if v6 else (socket.IPPROTO_IP, 11, 10)
        sender.setsockopt(level, received, 1)  # IP_RECVERR, IPV6_RECVERR
        sender.setsockopt(level, discover, 1)  # IP_MTU_DISCOVER, IPV6_MTU_DISCOVER: IP_PMTUDISC_WANT
        if not v6:
            sender.setsockopt(level, socket.IP_TOS, tos)
        sender.sendto(bytes(length), (destination, 50000))
        errors.register(sender, 0)
        senders.append(sender)
    # The kernel learns a path MTU only by errors about open sockets; one of these, or of a closed port, comes for
    # each datagram.
    if not wait_until(lambda: len(errors.poll(0)) == len(senders), 10):
        sys.exit(f"errors about {len(errors.poll(0))} of {len(senders)} datagrams")


def multicast(*words):
    """Sets the multicast routes of a group of each family (linux/mroute.h, linux/mroute6.h)."""
    values = dict(word.split("=") for word in words)
    interfaces = [socket.if_nametoindex(values[key]) for key in ("from", "to")]
    v4 = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP)
    v4.setsockopt(socket.IPPROTO_IP, 200, 1)  # MRT_INIT
    for number, index in enumerate(interfaces):
        # struct vifctl: number, flags (VIFF_USE_IFINDEX), threshold, rate limit, index, remote address
        vif = struct.pack("=HBBIi4s", number, 8, 1, 0, index, bytes(4))
        v4.setsockopt(socket.IPPROTO_IP, 202, vif)  # MRT_ADD_VIF
    # struct mfcctl: origin, group, parent, thresholds by number, counters
    thresholds = bytes([0, 1] + [0] * 30)
    pair = [packed(values[key]) for key in ("source", "group")]
    mfc = struct.pack("=4s4sH32s2xIIIi", *pair, 0, thresholds, 0, 0, 0, 0)
    v4.setsockopt(socket.IPPROTO_IP, 204, mfc)  # MRT_ADD_MFC

    v6 = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    v6.setsockopt(socket.IPPROTO_IPV6, 200, 1)  # MRT6_INIT
    for number, index in enumerate(interfaces):
        # struct mif6ctl: number, flags, threshold, index, rate limit
        v6.setsockopt(socket.IPPROTO_IPV6, 202, struct.pack("=HBBHxxI", number, 0, 1, index, 0))  # MRT6_ADD_MIF
    # struct mf6cctl: origin and group (sockaddr_in6), parent, the set of numbers
    pair = [struct.pack("=HHI16sI", socket.AF_INET6, 0, 0, packed(values[key]), 0) for key in ("source6", "group6")]
    mfc = struct.pack("=28s28sHxx32s", *pair, 0, struct.pack("=8I", 2, *[0] * 7))
    v6.setsockopt(socket.IPPROTO_IPV6, 204, mfc)  # MRT6_ADD_MFC
    print("ready", flush=True)
    signal.pause()


def main():
    command, *words = sys.argv[1:]
    {
        "forward": lambda: forward(*words[:2], int(words[2]), int(words[3]), *words[4:]),
        "flows": lambda: flows(*words[:3], int(words[3]), int(words[4])),
        "datagrams": lambda: datagrams(int(words[0]), int(words[1]), *words[2:]),
        "multicast": lambda: multicast(*words),
    }[command]()


main()
