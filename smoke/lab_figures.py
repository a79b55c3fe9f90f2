"""Computes the figures of `lab ddos` again from its report, and compares the gate off with the gate on.

    lab_figures.py REPORT
"""

import json
import math
import statistics
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    report = json.load(file)
off, on = report["rounds"]
assert [off["gate"], on["gate"]] == [False, True]
link, count = report["scale"]["link"], report["scale"]["seconds"] * 4
for side in off, on:
    figures = side["figures"]
    times = [client["connected"] or math.inf for client in side["new_clients"]]
    assert len(times) == count, len(times)
    in_time = sum(time <= 3 for time in times) / count
    assert abs(in_time - figures["in_time"]) < 1e-9, figures
    median = statistics.median_high(times)
    assert (figures["median"] or math.inf) == median, (figures, median)
    sent = 0.6 * link / 8 / 8
    goodput = sum(min(rate / sent, 1) for rate in side["under_attack"]) / 8
    assert abs(goodput - figures["goodput"]) < 1e-3, figures
    # Before the attack the streams have what they send.
    assert sum(side["baseline"]) > 0.8 * 8 * sent, side["baseline"]
    assert figures["factor"] > 4, figures
got = on["counters"]
assert got["received"] > 10_000 and got["granted"] > 100 and got["low_priority"] > 10_000, got
assert got["grants"] > 0 and off["counters"] is None, got
pauses = on["failover"]["failed"], on["failover"]["returned"]
assert all(len(each) == 8 for each in pauses) and "failover" not in off, (pauses, off.get("failover"))
assert on["figures"]["failover"] == [max(each) for each in pauses], pauses
# Each lasts eight seconds or more: connections by the gate that fails continue by the other one, and then by both.
assert all(max(each) < 7.5 for each in pauses), pauses
on, off = on["figures"], off["figures"]
assert on["in_time"] >= 0.75 and on["goodput"] > 0.6, on
assert off["goodput"] < 0.5, off
assert on["goodput"] > off["goodput"] + 0.3 and on["in_time"] > off["in_time"], (on, off)
print(f"   off: {off}\n   on:  {on}")
