"""Compares the counters of a report with those that the packets must have caused.

    grantor_counters.py EXPECTED REPORT
"""

import json
import sys

from checks import compare_counters

want, report = (json.load(open(path, encoding="ascii")) for path in sys.argv[1:])
counters, policy, decisions = report["counters"], report["grantor"]["policy"], report["grantor"]["decisions"]
assert counters["balanced"], counters
dropped = counters["dropped"]
got = {
    "declined": dropped["declined"],
    "spoofed": dropped["spoofed"],
    "link_full": dropped["link_full"],
    "bad_checksum": dropped["bad_checksum"],
    "requests": policy["requests"],
    "over_time": policy["over_time"],
    "items": decisions["items"],
}
compare_counters(want, got, detail=json.dumps(report, indent=1))
assert policy["failed"] == policy["lost"] == policy["unread"] == 0, policy
print(f"   {len(want)} counters as expected, every packet counted")
