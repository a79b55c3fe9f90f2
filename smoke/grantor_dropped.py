"""Compares the drops of a grantor's report with those that forged packets must have caused.

    grantor_dropped.py EXPECTED REPORT
"""

import json
import sys

want, report = (json.load(open(path, encoding="ascii")) for path in sys.argv[1:])
counters = report["counters"]
assert counters["balanced"], counters
wrong = {name: (value, counters["dropped"][name]) for name, value in want.items() if counters["dropped"][name] != value}
if wrong:
    sys.exit(f"dropped, (expected, counted): {wrong}")
print(f"   {sum(want.values())} forged, flipped and replayed packets refused, each for its reason")
