"""Sends flows that differ in one field to a route with two next hops, and finds whether the field selects the path.

    multipath_packets.py PREFIX RESULTS              the kernel alone: writes what it finds
    multipath_packets.py PREFIX RESULTS COMMAND...   the router: finds the same as RESULTS; COMMAND prints the number
                                                     of packets that it has sent

The settings are those of the kernel's `fib_multipath_hash_policy` and `fib_multipath_hash_fields`.
"""

import json
import subprocess
import sys
import time

from scapy.all import GRE, ICMP, IP, UDP, Ether, Raw, raw
from scapy.layers.inet6 import ICMPv6TimeExceeded, IPv6

from netns import Tap

ROUTER, SOURCE = "02:00:00:00:01:01", "02:00:00:00:01:02"
FLOWS = 64
# Policy, and for policy 3 the fields.
SETTINGS = [(0, 7), (1, 7), (2, 7)] + [
    (3, fields) for fields in (0x7, 0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x80, 0x100, 0x200, 0x400, 0x800, 0xFFF)
]
# The time in which the router follows a setting: it reads them once a second.
FOLLOWED = 10


def v4(n=0, field="", **more):
    return IP(
        src=f"10.66.0.{n + 1 if field == 'source' else 1}",
        dst=f"11.0.0.{n + 1 if field == 'destination' else 1}",
        **more,
    )


def v6(n=0, field="", **more):
    return IPv6(
        src=f"fd00::66:{n + 1 if field == 'source' else 1:x}",
        dst=f"2001:db8::{n + 1 if field == 'destination' else 1:x}",
        fl=n + 1 if field == "label" else 0,
        **more,
    )


def udp(n=0, field=""):
    sport = 1000 + (n if field == "source port" else 0)
    return UDP(sport=sport, dport=2000 + (n if field == "destination port" else 0), chksum=0)


def other(ip, n):
    """Makes a packet of an unassigned protocol."""
    return ip(**{"proto" if ip is v4 else "nh": 143 + n}) / Raw(bytes(8))


def packets(ip, error, inner_ips):
    """Makes a packet of flow n, by name: of a family, and of tunnels with both families inside."""
    cases = {}
    for field in "source", "destination", "label", "source port", "destination port":
        cases[field] = lambda n, field=field: ip(n, field) / udp(n, field)
    cases["protocol"] = lambda n: other(ip, n)
    cases["traffic class"] = lambda n: ip(**{"tos" if ip is v4 else "tc": 4 * n}) / udp()
    if ip is v4:
        cases["source port of first fragments"] = lambda n: ip(flags="MF") / udp(n, "source port")
    cases["quoted source"] = lambda n: ip() / error() / ip(n, "source") / udp()
    for name, inner in inner_ips.items():
        for field in "source", "destination", "label", "protocol", "source port", "destination port":
            for front in ([], [GRE()]):
                title = f"{field} of {name} in {'GRE' if front else 'IP'}"

                def tunneled(n, front=front, inner=inner, field=field):
                    packet = ip()
                    for header in front:
                        packet = packet / header
                    return packet / (other(inner, n) if field == "protocol" else inner(n, field) / udp(n, field))

                cases[title] = tunneled
    return cases


def frames():
    """Makes the frames of each case, without the mark at their ends."""
    inner = {"IPv4": v4, "IPv6": v6}
    error4, error6 = (lambda: ICMP(type=11)), (lambda: ICMPv6TimeExceeded())
    cases = {f"IPv4 {name}": make for name, make in packets(v4, error4, inner).items()}
    cases |= {f"IPv6 {name}": make for name, make in packets(v6, error6, inner).items()}
    link = Ether(src=SOURCE, dst=ROUTER)
    return {name: [raw(link / make(n) / Raw(bytes(8))) for n in range(FLOWS)] for name, make in cases.items()}


class Paths:
    def __init__(self, prefix):
        self.prefix, self.round, self.sent = prefix, 0, 0
        self.sender = Tap(prefix + "source", "s0")
        self.receivers = [Tap(prefix + "a", "a0"), Tap(prefix + "b", "b0")]
        self.frames = frames()

    def set(self, policy, fields):
        names = [f"net.{family}.fib_multipath_hash" for family in ("ipv4", "ipv6")]
        settings = [f"{name}_fields={fields}" for name in names] + [f"{name}_policy={policy}" for name in names]
        subprocess.run(["ip", "netns", "exec", self.prefix + "router", "sysctl", "-qw", *settings], check=True)

    def count(self, frames):
        """Returns the numbers of frames that leave by each path."""
        self.round += 1
        mark = b"%08d" % self.round
        for frame in frames:
            self.sender.send(frame[:-8] + mark)
        deadline, counts = time.monotonic() + 10, [0, 0]
        while sum(counts) < len(frames):
            assert time.monotonic() < deadline, f"{counts} of {len(frames)}: {Ether(frames[0]).summary()}"
            for at, receiver in enumerate(self.receivers):
                receiver.take()
                counts[at] += sum(frame.endswith(mark) for frame in receiver.seen)
                receiver.seen.clear()
        self.sent += len(frames)
        return counts

    def selecting(self, is_settled=True):
        """Lists the fields that select the path. The flows of each take one path, or both in equal parts once the
        router has followed a change of the settings."""
        names = []
        for name, frames in self.frames.items():
            counts = self.count(frames)
            assert sum(counts) == FLOWS, counts
            # Of 64 flows at random, fewer than 10 by one path: one run of 10^8.
            assert not is_settled or min(counts) == 0 or min(counts) >= 10, f"{name}: {counts}"
            if min(counts) > 0:
                names.append(name)
        return names


def main(prefix, file, *command):
    paths = Paths(prefix)
    # The router resolves its neighbors.
    for _ in range(3):
        paths.sender.send(paths.frames["IPv4 source"][0])
        for name in "IPv4 source", "IPv6 source":
            for frame in paths.frames[name]:
                paths.sender.send(frame)
        time.sleep(0.3)
    results = {}
    expected = {}
    if command:
        with open(file, encoding="utf-8") as lines:
            expected = json.load(lines)
    for policy, fields in SETTINGS:
        setting = f"policy {policy} fields {fields:#05x}"
        paths.set(policy, fields)
        if not command:
            results[setting] = paths.selecting()
            continue
        deadline = time.monotonic() + FOLLOWED
        while (found := paths.selecting(is_settled=False)) != expected[setting]:
            differences = set(found) ^ set(expected[setting])
            assert time.monotonic() < deadline, f"{setting}: the kernel alone differs in {sorted(differences)}"
        sent, before = paths.sent, int(subprocess.check_output(command))
        assert paths.selecting() == found, setting
        through, sent = int(subprocess.check_output(command)) - before, paths.sent - sent
        assert through >= sent, f"{setting}: {through} of {sent} packets took the router"
        results[setting] = found
    for setting, names in results.items():
        print(f"   {setting}: {len(names)} of {len(paths.frames)} fields select the path")
        assert 0 < len(names) < len(paths.frames), names
    if not command:
        with open(file, "w", encoding="utf-8") as lines:
            json.dump(results, lines)


main(*sys.argv[1:])
