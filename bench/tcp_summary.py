"""Medians, spreads and ratios of the lines that tcp.sh writes.

    tcp_summary.py FILE    lines: the path, the address, Mbit/s, retransmitted segments, "mtu", the path MTU
"""

import statistics
import sys

rows = [line.split() for line in open(sys.argv[1])]
for address in ("10.0.1.2", "fd00:1::2"):
    rates = {path: [float(row[2]) for row in rows if row[:2] == [path, address]] for path in ("kernel", "router")}
    middle = {path: statistics.median(each) for path, each in rates.items()}
    spread = {path: statistics.median(abs(rate - middle[path]) for rate in each) for path, each in rates.items()}
    mtus = {path: sorted({row[5] for row in rows if row[:2] == [path, address]}) for path in rates}
    for path in rates:
        print(f"{address} {path}: {middle[path]:.0f} ±{spread[path]:.0f} Mbit/s, path MTU {' '.join(mtus[path])}")
    print(f"{address} router / kernel: {middle['router'] / middle['kernel']:.2f}")
