"""Compares the counters of a report with those that the packets must have caused.

    forward_counters.py EXPECTED REPORT INTERFACES
"""

import json
import sys

from checks import compare_counters

want, report, interfaces = (json.load(open(path, encoding="ascii")) for path in sys.argv[1:])
assert report["balanced"]
got = {f"drop.{reason}": n for reason, n in report["dropped"].items() if n}
got |= {f"punt.{reason}": n for reason, n in report["punted"].items() if n}
got["sent"] = report["sent"]
# Packets between the kernels themselves pass too: their number is not known beforehand.
taken = [interface["steered"].pop("taken") for interface in interfaces]
passed = interfaces[0]["steered"]
for reason in ("group_mac", "multicast", "local", "arp", "link_local"):
    answer = want.pop(f"pass.{reason}", 0)
    assert passed[reason] >= answer, (reason, passed[reason], answer)
    passed[reason] = 0
got |= {f"pass.{reason}": n for reason, n in passed.items() if n}
compare_counters(want, got, names=want | got)
assert report["received"] == report["sent"] + sum(report["punted"].values()) + sum(report["dropped"].values())
assert report["received"] == sum(taken)
print(f"{len(want)} counters as expected, {report['received']} packets received")
