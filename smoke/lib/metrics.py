"""Checks the metrics at a URL.

    metrics.py URL CHECK...    CHECK is a whole line that must be there, or

    begins=TEXT     a line must begin with this text
    without=TEXT    the text must not be there
"""

import sys
import urllib.request

text = urllib.request.urlopen(sys.argv[1], timeout=10).read().decode()
lines = text.splitlines()
for check in sys.argv[2:]:
    if check.startswith("begins="):
        holds = any(line.startswith(check.removeprefix("begins=")) for line in lines)
    elif check.startswith("without="):
        holds = check.removeprefix("without=") not in text
    else:
        holds = check in lines
    if not holds:
        sys.exit(f"metrics: not so: {check}\n{text}")
