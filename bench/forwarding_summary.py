"""Medians, spreads and ratios of the reports of `fingerpost demo`, by the size of the table.

    forwarding_summary.py FILE...    reports of `demo --compare-kernel --mode xdp -j`
"""

import json
import statistics
import sys

ROUTERS = ("kernel", "fingerpost", "fingerpost-xdp")

reports = [json.load(open(path)) for path in sys.argv[1:]]
for report in sorted(reports, key=lambda report: report["tables"][0]["routes"]):
    routes = [table["routes"] for table in report["tables"]]
    middle = {}
    print(f"{routes[0]} IPv4 routes, {routes[1]} IPv6 routes")
    for router in ROUTERS:
        rates = [entry["packets_per_second"] / 1e6 for entry in report["rounds"] if entry["router"] == router]
        middle[router] = statistics.median(rates)
        print(f"  {router:14} {middle[router]:6.3f} M/s, {min(rates):.3f} to {max(rates):.3f} in {len(rates)} rounds")
    for other in ROUTERS[:2]:
        print(f"  fingerpost-xdp / {other}: {middle['fingerpost-xdp'] / middle[other]:.2f}")
