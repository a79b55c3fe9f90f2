"""Compares the counters of a report with those that the packets must have caused.

    grantor_counters.py EXPECTED REPORT
"""

import json
import sys

want, report = (json.load(open(path, encoding="ascii")) for path in sys.argv[1:])
counters, policy, post = report["counters"], report["grantor"]["policy"], report["grantor"]["decisions"]
assert counters["balanced"], counters
dropped = counters["dropped"]
got = {
    "declined": dropped["declined"],
    "spoofed": dropped["spoofed"],
    "link_full": dropped["link_full"],
    "bad_checksum": dropped["bad_checksum"],
    "requests": policy["requests"],
    "over_time": policy["over_time"],
    "items": post["items"],
}
wrong = {name: (value, got[name]) for name, value in want.items() if got[name] != value}
if wrong:
    sys.exit(f"counters, (expected, counted): {wrong}\n{json.dumps(report, indent=1)}")
assert policy["failed"] == policy["lost"] == policy["unread"] == 0, policy
print(f"   {len(want)} counters as expected, every packet counted")
