"""Reads what `fingerpost monitor -j` has written, an object a line.

monitor_events.py FILE small: the changes of smoke/monitor_test.sh, in their order.
monitor_events.py FILE slow COUNT: so many routes were added; told or lost, all are accounted for.
"""

import json
import sys


def small(events):
    assert events[0]["event"] == "started", events[0]
    routes = [it for it in events if it["event"] == "route" and it["prefix"].startswith("11.")]
    got = [
        (it["change"], it["prefix"], it["kind"], [(via.get("gateway"), via["dev"]) for via in it.get("via", [])])
        for it in routes
    ]
    want = [
        ("added", "11.0.0.0/8", "via", [("10.0.1.2", "r1")]),
        ("changed", "11.0.0.0/8", "via", [("10.0.2.2", "r2")]),
        ("changed", "11.0.0.0/8", "blackhole", []),
        ("removed", "11.0.0.0/8", "none", []),
    ]
    assert got == want, got
    generations = [it["generation"] for it in routes]
    assert generations == sorted(generations) and len(set(generations)) == 4, generations
    assert all(it["table"] == 254 for it in routes)
    macs = [it.get("mac") for it in events if it["event"] == "neighbor" and it["address"] == "10.0.1.77"]
    assert macs == ["02:00:00:00:00:77", "02:00:00:00:00:78", None], macs
    links = [it["up"] for it in events if it["event"] == "interface" and it["name"] == "r2"]
    assert False in links and links[-1], links
    times = [it["time"] for it in events]
    assert times == sorted(times)


def slow(events, count):
    routes = [it for it in events if it["event"] == "route" and it["change"] == "added"]
    lost = [it["lost"] for it in events if it["event"] == "lost"]
    assert lost, "nothing was lost: the reader was not slow"
    assert len(routes) < count
    # Beside the routes nothing was going on, or next to nothing.
    assert count <= len(routes) + sum(lost) <= count + 100, (len(routes), lost, count)
    print(f"   {len(routes)} routes told, {sum(lost)} lost and said so")


with open(sys.argv[1], encoding="utf-8") as file:
    heard = [json.loads(line) for line in file]
small(heard) if sys.argv[2] == "small" else slow(heard, int(sys.argv[3]))
