"""Checks a report of a gate, on standard input: each packet of its front interface has one verdict.

    gate_report.py            received = the sum of the verdicts, in packets
    gate_report.py --rules    the same for the policy's rules, in packets and in bytes
"""

import json
import sys

# The other counters of `show gate`: totals, and parts of a verdict's packets.
OTHER = {"received", "renewal", "direct", "without_entry", "xdp_dropped"}

report = json.load(sys.stdin)
counters, gate = report["counters"], report["gate"]
packets = gate["packets"]
assert counters["balanced"], counters
assert packets["received"] == sum(packets[name] for name in packets.keys() - OTHER), packets
print("   every one of", packets["received"], "packets of the front counted")
if "--rules" in sys.argv[1:]:
    for unit in "packets", "bytes":
        assert gate[unit]["received"] == sum(sum(rule[unit].values()) for rule in gate["policies"]), gate
    by = {name: sum(rule["packets"][name] for rule in gate["policies"]) for name in ("request", "granted", "passed")}
    passed = packets["back"] + packets["front"]
    assert by == {"request": packets["request"], "granted": packets["granted"] + packets["allowed"], "passed": passed}, (by, packets)
