"""Compares the counters of a report with those that the packets must have caused.

    gate_counters.py EXPECTED REPORT
"""

import json
import sys

from checks import compare_counters

want, report = (json.load(open(path, encoding="ascii")) for path in sys.argv[1:])
counters, gate = report["counters"], report["gate"]
assert counters["balanced"]
ended = counters["sent"] + sum(counters["punted"].values()) + sum(counters["dropped"].values())
assert counters["received"] + counters["originated"] == ended, counters
packets = gate["packets"]
other = {"received", "renewal", "direct", "without_entry", "xdp_dropped"}
assert packets["received"] == sum(packets[name] for name in packets.keys() - other), packets
dropped = counters["dropped"]
got = {
    "received": packets["received"],
    "tunneled": packets["request"] + packets["granted"] - dropped["too_big"]
    - packets["direct"] - dropped["low_priority"] - dropped["link_full"] - dropped["unresolved"],
    "declined": dropped["declined"],
    "policy": dropped["policy"],
    "program": dropped["program"],
    "direct": packets["direct"],
    "too_big": dropped["too_big"],
    "originated": counters["originated"],
    "back": packets["back"],
    "front": packets["front"],
}
compare_counters(want, got, detail=json.dumps(report, indent=1))
for name in ("blocked", "declined", "over_rate", "policy", "no_grantor", "program", "program_error", "over_limit", "over_destination_limit"):
    assert packets[name] == dropped[name], name
print(f"   {len(want)} counters as expected, {counters['received']} packets received, every one counted")
