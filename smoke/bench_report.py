"""Checks the report of `fingerpost-bench run tiny`: FOLDER has its JSON, its record and its page.

    bench_report.py FOLDER
"""

import csv
import glob
import json
import re
import sys

from page_syntax import elements

work = sys.argv[1]
found = json.load(open(f"{work}/report.json"))
ours = [entry for entry in found["contestants"] if entry["ours"]]
others = [entry for entry in found["contestants"] if not entry["ours"]]
there = {entry["name"] for entry in others} | {entry["name"] for entry in found["missing"]}
assert {entry["name"] for entry in ours} == {"rank", "flat", "D16X4R", "poptrie", "dir24_8"}, ours
assert there == {"rte_fib", "rte_lpm", "bart", "prefix-trie", "treebitmap"}, there
for entry in found["missing"]:
    assert entry["reason"], entry
for entry in ours + others:
    assert {score["stream"] for score in entry["scores"]} == {"RND", "SEQ", "REP", "PFX", "ZIPF"}
    assert all(score["min"] > 0 for score in entry["scores"]), entry["name"]
    assert entry["latency"]["p50"] > 0 and entry["changes"]["median"] > 0, entry["name"]
    assert entry["samples"] == found["rounds"], entry["name"]
assert all(entry["touched"] for entry in ours)
limit = [at["independent"]["median"] for at in found["limit"]]
assert len(limit) == 12 and min(limit) > 0, limit

rows = list(csv.DictReader(open(glob.glob(f"{work}/record/*/*.csv")[0])))
assert {row["contestant"] for row in rows} >= {entry["name"] for entry in ours + others}

text = open(f"{work}/report.html").read()
seen = elements(text)
assert "script" not in seen and seen.count("svg") >= 8, seen.count("svg")
assert not re.search(r"url\(|@import|NaN", text)
for entry in ours + others:
    assert entry["name"] in text
print(f"{len(ours)} of ours, {len(others)} others, missing: {[entry['name'] for entry in found['missing']]}")
