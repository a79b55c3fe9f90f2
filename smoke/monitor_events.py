"""Reads what `fingerpost monitor -j` has written, an object a line.

monitor_events.py FILE small: the changes of smoke/monitor_test.sh, in their order.
monitor_events.py FILE slow COUNT: so many routes were added; each was printed or counted as lost.
"""

import json
import sys


def small(events):
    assert events[0]["event"] == "started", events[0]
    routes = [entry for entry in events if entry["event"] == "route" and entry["prefix"].startswith("11.")]
    got = [
        (entry["change"], entry["prefix"], entry["kind"], [(via.get("gateway"), via["dev"]) for via in entry.get("via", [])])
        for entry in routes
    ]
    want = [
        ("added", "11.0.0.0/8", "via", [("10.0.1.2", "r1")]),
        ("changed", "11.0.0.0/8", "via", [("10.0.2.2", "r2")]),
        ("changed", "11.0.0.0/8", "blackhole", []),
        ("removed", "11.0.0.0/8", "none", []),
    ]
    assert got == want, got
    generations = [entry["generation"] for entry in routes]
    assert generations == sorted(generations) and len(set(generations)) == 4, generations
    assert all(entry["table"] == 254 for entry in routes)
    macs = [entry.get("mac") for entry in events if entry["event"] == "neighbor" and entry["address"] == "10.0.1.77"]
    assert macs == ["02:00:00:00:00:77", "02:00:00:00:00:78", None], macs
    links = [entry["up"] for entry in events if entry["event"] == "interface" and entry["name"] == "r2"]
    assert False in links and links[-1], links
    times = [entry["time"] for entry in events]
    assert times == sorted(times)


def slow(events, count):
    routes = [entry for entry in events if entry["event"] == "route" and entry["change"] == "added"]
    lost = [entry["lost"] for entry in events if entry["event"] == "lost"]
    assert lost, "nothing was lost: the reader was not slow"
    assert len(routes) < count
    # Beside the routes nothing was going on, or next to nothing.
    assert count <= len(routes) + sum(lost) <= count + 100, (len(routes), lost, count)
    print(f"   {len(routes)} routes printed, {sum(lost)} counted as lost")


with open(sys.argv[1], encoding="utf-8") as file:
    heard = [json.loads(line) for line in file]
small(heard) if sys.argv[2] == "small" else slow(heard, int(sys.argv[3]))
