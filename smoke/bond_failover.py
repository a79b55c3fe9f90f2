"""Prints how long flows of a failed bond member take to leave by another: in ms, from the kernel's event of the failure.

    bond_failover.py MEMBER EVENTS FAILED OTHER
        MEMBER    the member that lost its carrier
        EVENTS    the output of `ip -tshort monitor link`
        FAILED    the output of `tcpdump -tt -n` at the other end of the failed member
        OTHER     the same at the other end of the other member

A flow is an address that echo requests are for. A flow counts if its packets arrived by the failed member before the
event. Its time is that of its first packet by the other member after the event.
"""

import re
import sys
from datetime import datetime

ARRIVAL = re.compile(r"^(\d+\.\d+) IP \S+ > (\d+\.\d+\.\d+\.\d+): ICMP echo request")


def event(path, member):
    """Returns the time of the first message that MEMBER has no carrier."""
    for line in open(path):
        found = re.match(r"\[([^\]]+)\] \d+: (\S+?)(@\S+)?: <([^>]*)>", line)
        if found and found[2] == member and "NO-CARRIER" in found[4].split(","):
            return datetime.fromisoformat(found[1]).timestamp()
    sys.exit(f"no event of {member}: {open(path).read()}")


def arrivals(path):
    """Returns the times of each flow's packets."""
    times = {}
    for found in filter(None, map(ARRIVAL.match, open(path))):
        times.setdefault(found[2], []).append(float(found[1]))
    return times


def main(member, events, failed, other):
    at = event(events, member)
    failed, other = arrivals(failed), arrivals(other)
    flows = [flow for flow, times in failed.items() if times[0] < at]
    if not flows:
        sys.exit(f"no flow left by {member}")
    late = [flow for flow in flows if not any(time > at for time in other.get(flow, []))]
    if late:
        sys.exit(f"never by the other member: {late}")
    times = [min(time for time in other[flow] if time > at) - at for flow in flows]
    print(len(flows), round(max(times) * 1000))


main(*sys.argv[1:])
