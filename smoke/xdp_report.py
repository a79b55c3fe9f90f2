"""Checks a report of `fingerpost-bench xdp -j`: xdp_report.py FILE SIZE..."""

import json
import sys

scores = json.load(open(sys.argv[1], encoding="utf-8"))
for size in map(int, sys.argv[2:]):
    times = {s["contestant"]: s["median"] for s in scores if s["routes"] == size and s["stream"] == "PFX"}
    assert set(times) - {"rank"} == {"flat", "lpm_trie", "empty"}, (size, times)
    assert all(time > 0 for time in times.values()), times
print(f"{sys.argv[1]}: {len(scores)} scores")
