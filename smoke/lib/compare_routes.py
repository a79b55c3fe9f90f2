"""Compares what a running router forwards by with what the kernel has, route by route.

compare_routes.py NAMESPACE PROGRAM SOCKET [SECONDS]: the differences, and exit status 1 if there
are any after waiting for at most so long. The kernel's routes come from `ip -j route`, which
shares nothing with the router. Host routes of the router's own, for neighbors on a
link, are left out; so is fe80::/64, which every link has.
"""

import gc
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor


def output(*command):
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout or "[]")


def prefix(text, family):
    if text == "default":
        return "0.0.0.0/0" if family == 4 else "::/0"
    return text if "/" in text else f"{text}/{32 if family == 4 else 128}"


def kernel(namespace):
    best = {}
    for family in (4, 6):
        for route in output("ip", "-n", namespace, f"-{family}", "-j", "route", "show", "table", "main"):
            kind = route.get("type", "unicast")
            key = prefix(route["dst"], family)
            metric = route.get("metric", 0)
            hops = route.get("nexthops") or [route]
            ways = {
                (hop.get("gateway") or hop.get("via", {}).get("host"), hop["dev"])
                for hop in hops
                if "dev" in hop and not {"dead", "linkdown"} & set(hop.get("flags", []))
            }
            what = (metric, "via" if kind == "unicast" else kind, ways if kind == "unicast" else set())
            # The lowest metric counts; of equal ones IPv6 makes one route of several ways.
            if key not in best or metric < best[key][0]:
                best[key] = what
            elif metric == best[key][0] and family == 6:
                best[key][2].update(ways)
    return {key: (kind, frozenset(ways)) for key, (_, kind, ways) in best.items()}


def router(program, path):
    routes = {}
    for route in output(program, "show", "--socket", path, "-j", "routes"):
        if route["kind"] != "neighbor":
            ways = frozenset((via.get("gateway"), via["dev"]) for via in route.get("via", []))
            routes[route["prefix"]] = (route["kind"], ways)
    return routes


def differences(namespace, program, path):
    # At the same time: of a million routes either takes seconds.
    with ThreadPoolExecutor() as pool:
        have, want = pool.submit(router, program, path), pool.submit(kernel, namespace)
        have, want = have.result(), want.result()
    for both in (have, want):
        both.pop("fe80::/64", None)
    wrong = [
        f"{key}: the kernel has {want.get(key)}, the router {have.get(key)}"
        for key in want.keys() | have.keys()
        if want.get(key) != have.get(key)
    ]
    return wrong, len(want)


def main():
    namespace, program, path = sys.argv[1:4]
    until = time.monotonic() + (float(sys.argv[4]) if len(sys.argv) > 4 else 0)
    while True:
        wrong, count = differences(namespace, program, path)
        if not wrong or time.monotonic() > until:
            break
        time.sleep(0.05)
    for line in wrong[:10]:
        print(line)
    print(f"   {count} routes compared, {len(wrong)} differ")
    sys.exit(1 if wrong else 0)


# A million small things, none of them in a circle.
gc.disable()
main()
