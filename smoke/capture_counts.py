"""Compares a capture with the counters of the router: BEFORE AFTER READ, or `last` AFTER LAST.

BEFORE and AFTER are the files of `show counters` and, with `-interfaces`, of `show interfaces`, without `.json`.

READ has a line for each packet: comment, interface, direction. LAST has an object for each of the last drops."""

import json
import sys
from collections import Counter

from lib.checks import Checks

check = Checks()


def verdicts(path):
    """Returns the counters of a report by verdict, and those of dropped packets alone."""
    with open(f"{path}.json", encoding="utf-8") as file:
        [report] = json.load(file)
    dropped = Counter(report["dropped"])
    return Counter(report["punted"]) + dropped + Counter({"sent": report["sent"]}), dropped


def steered(path):
    """Returns the outcomes of packets in the XDP programs."""
    with open(f"{path}-interfaces.json", encoding="utf-8") as file:
        return sum((Counter(interface["steered"]) for interface in json.load(file)), Counter())


def whole(before, after, read):
    """Each packet is in the capture once, with its verdict."""
    in_programs = steered(after) - steered(before)
    (before, _), (after, _) = verdicts(before), verdicts(after)
    want = after - before
    # A port refuses some of the packets that it is handed, and a device some that a program sends.
    want["sent"] += want["tx_full"] + want.pop("tx_refused", 0)
    got, directions, interfaces, programs = Counter(), Counter(), Counter(), Counter()
    with open(read, encoding="utf-8") as file:
        for line in file:
            comment, interface, direction = line.rstrip("\n").split("\t")
            name, help_text = comment.split(": ", 1)
            assert help_text, line
            got[name] += 1
            programs[name] += help_text.endswith("; by the XDP program")
            directions[name == "sent", int(direction, 16)] += 1
            interfaces[interface] += 1
    check(f"{got.total()} packets of {len(got)} verdicts", got == want, f"{got - want} too many, {want - got} missing")
    check("at least fifteen verdicts, and many sent packets", len(got) >= 15 and got["sent"] >= 500, got)
    check("packets are sent out, and all others are as they came in",
          set(directions) == {(True, 2), (False, 1)}, directions)
    want = {"sent": in_programs["forwarded"], "blocked": in_programs["blocked"]}
    check("those of the XDP programs", +programs == want, f"{+programs}, not {want}")
    check("many of each of these", min(want.values()) >= 50, want)
    check("every interface", set(interfaces) == {"r0", "r1", "r2"}, interfaces)


def last(after, path):
    """Each reason for which workers dropped packets has a packet among the last drops."""
    _, dropped = verdicts(after)
    with open(path, encoding="utf-8") as file:
        packets = [json.loads(line) for line in file]
    got = Counter(packet["verdict"] for packet in packets)
    # The programs keep none.
    want = {name for name, count in dropped.items() if count} - {"blocked"}
    check(f"{len(packets)} packets of {len(got)} reasons", set(got) == want, f"{set(got) ^ want} differ")
    check("in order of time", packets == sorted(packets, key=lambda packet: packet["time_ns"]))
    check("at most 128 bytes of each", max(len(packet["data"]) for packet in packets) <= 256)


if sys.argv[1] == "last":
    last(*sys.argv[2:])
else:
    whole(*sys.argv[1:])
check.finish()
