"""Sends so many packets for each rule of a gate's policy, and compares the counters with that.

policies_packets.py PREFIX PROGRAM FOLDER PID, in the namespace of the gate; called by policies_test.sh, which wrote
FOLDER/gate.toml. The gate's metrics are read by Python's parsers, that of OpenMetrics being strict, and by
`promtool`.
"""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from checks import check_at_once as check
from control import Control
from netns import Tap

prefix, program, work, pid = sys.argv[1:]
client, control = Tap(f"{prefix}client", "c0"), Control(program, f"{work}/sock")
URL = "http://127.0.0.1:9276/metrics"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"
PATIENCE = 20
OUTCOMES = ("request", "granted", "passed", "dropped")
# Packets and bytes by the prefix of a rule, or the name of a rest, and by outcome.
packets, size = Counter(), Counter()
before = {}


def send(src, dst, many, rule, outcome):
    head = (IPv6 if ":" in dst else IP)(src=src, dst=dst)
    frame = bytes(Ether(src="02:00:00:00:01:02", dst="02:00:00:00:01:01") / head / UDP(sport=9, dport=9) / bytes(many * 10 + 20))
    for _ in range(many):
        client.send(frame)
    packets[rule, outcome] += many
    size[rule, outcome] += many * len(frame)


def wait(what, holds):
    until = time.monotonic() + PATIENCE
    while not holds(entry := control.gate()):
        if time.monotonic() > until:
            check(what, False, entry)
        time.sleep(0.05)
    return entry


def reloaded(text, generation):
    with open(f"{work}/gate.toml", "w", encoding="ascii") as file:
        file.write(text)
    refused = control.gate()["reloads_refused"]
    os.kill(int(pid), signal.SIGHUP)
    wait("a reload", lambda status: status["generation"] == generation and (status["reloads"] == generation - 1) and (status["reloads_refused"] > refused or generation > here["generation"]))


def page(accept):
    request = urllib.request.Request(URL, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return reply.read().decode()


def compare():
    """Compares the counters of each rule with the packets sent; returns the status of the gate."""
    all_of_them = sum(packets.values())
    wait(f"{all_of_them} packets are received", lambda status: status["packets"]["received"] >= all_of_them)
    gate = control.gate()
    for what, expected in ("packets", packets), ("bytes", size):
        got = {(entry["policy"], outcome): many for entry in gate["policies"] for outcome, many in entry[what].items() if many}
        check(f"{what} by rule: {len(got)} numbers, exactly", got == dict(expected), (got, dict(expected)))
        check(f"and together all {what}", sum(got.values()) == gate[what]["received"], gate)
    lint = subprocess.run(["promtool", "check", "metrics"], input=page("*/*"), text=True, capture_output=True)
    check("promtool reads the metrics", lint.returncode == 0, lint.stdout + lint.stderr)
    for name, read, accept in (
        ("OpenMetrics", openmetrics.text_string_to_metric_families, OPENMETRICS),
        ("the older format", parser.text_string_to_metric_families, "*/*"),
    ):
        families = {family.name.removesuffix("_total"): family for family in read(page(accept))}
        for what, family in ("packets", "fingerpost_gate_policy_packets"), ("bytes", "fingerpost_gate_policy_bytes"):
            entry = families[family]
            check(f"{name}: {family} is a counter with help", entry.type == "counter" and entry.documentation, entry)
            got = {(one.labels["policy"], one.labels["outcome"]): int(one.value) for one in entry.samples if one.name.endswith("_total")}
            shown = {(one["policy"], outcome): one[what][outcome] for one in gate["policies"] for outcome in OUTCOMES}
            check(f"{name}: {len(got)} series, as `show gate -j` has them", got == shown, (got, shown))
            check(f"{name}: none goes down", all(value >= before.get((family, key), 0) for key, value in got.items() if key[0] != "198.51.100.0/24"))
            before.update({(family, key): value for key, value in got.items()})
    return gate


def destinations():
    """Estimates that are none: of so few packets every one was a sample."""
    families = {entry.name: entry for entry in openmetrics.text_string_to_metric_families(page(OPENMETRICS))}
    value = lambda name: families[f"fingerpost_gate_{name}"].samples[0].value
    seconds = value("sampled_seconds")
    rates = families["fingerpost_gate_destination_packets_per_second"].samples
    got = Counter({one.labels["destination"]: 0 for one in rates})
    for one in rates:
        got[one.labels["destination"]] += round(one.value * seconds, 3)
    return value("sampling_interval"), got


whole = open(f"{work}/gate.toml", encoding="ascii").read()
here = control.gate()
send("10.1.0.9", "192.0.2.1", 5, "192.0.2.0/24", "request")
send("10.1.7.1", "192.0.2.2", 2, "192.0.2.0/24", "granted")
send("10.1.8.1", "192.0.2.1", 3, "none", "dropped")
send("10.1.0.9", "192.0.2.9", 4, "192.0.2.9/32", "dropped")
send("fd01::9", "2001:db8::1", 6, "2001:db8::/32", "request")
send("fd01::9", "2001:db8::9", 2, "2001:db8::9/128", "dropped")
send("2001:db8:bad::1", "2001:db8::1", 1, "none", "dropped")
send("10.1.0.9", "198.51.100.1", 3, "198.51.100.0/24", "request")
send("10.1.0.9", "10.64.0.0", 2, "10.64.0.0/32", "dropped")
send("10.1.0.9", "10.64.1.43", 7, "others", "dropped")
send("10.1.0.9", "203.0.113.1", 2, "none", "dropped")
gate = compare()
named = [entry["policy"] for entry in gate["policies"]]
check("256 rules have counters of their own, the first of the file first", len(named) == 259 and named[:2] == ["192.0.2.0/24", "2001:db8::/32"] and named[-3:] == ["others", "removed", "none"], named)
text = subprocess.run([program, "show", "gate", "--socket", f"{work}/sock"], check=True, capture_output=True, text=True).stdout
many = size["192.0.2.0/24", "request"] + size["192.0.2.0/24", "granted"]
check("`show gate` says it in a line", f"\npolicy 192.0.2.0/24 (grantors site) granted 2 request 5 bytes {many}\n" in text, text)

until = time.monotonic() + PATIENCE
wanted = {"2001:db8::1": 6, "192.0.2.9": 4, "10.64.1.43": 7}
while not wanted.items() <= (found := destinations())[1].items():
    check("the destinations are listed with all their packets", time.monotonic() < until, found)
    time.sleep(0.3)
interval, got = found
check("the destinations in metrics, of both families, each packet a sample", interval == 1, found)
check("and no more than 20", len(got) <= 20)

# 198.51.100.0/24 goes; 100.64.0.0/10 comes, and stands first; 192.0.2.0/24 has a limit from now on.
other = re.sub(r'\[\[policy\]\]\nprefix = "198.51.100.0/24"\n.*\n', "", whole)
other = other.replace("[[policy]]", '[[policy]]\nprefix = "100.64.0.0/10"\naction = "drop"\n[[policy]]', 1)
other = other.replace('"192.0.2.0/24"', '"192.0.2.0/24"\nlimit = "100mbit"')
reloaded(other, here["generation"] + 1)
for what in packets, size:
    what["removed", "request"] += what.pop(("198.51.100.0/24", "request"))
send("10.1.0.9", "192.0.2.1", 1, "192.0.2.0/24", "request")
send("10.1.0.9", "198.51.100.1", 2, "none", "dropped")
send("10.1.0.9", "100.64.0.1", 3, "100.64.0.0/10", "dropped")
send("10.1.0.9", "10.64.1.43", 1, "others", "dropped")
gate = compare()
check("the new rule has the free line", gate["policies"][0]["policy"] == "100.64.0.0/10" and gate["policies"][0]["line"] == 27, gate["policies"][:3])
check("and the removed rule is no longer listed", "198.51.100.0/24" not in [entry["policy"] for entry in gate["policies"]])

here = control.gate()
reloaded(other.replace('grantors = "six"', 'grantors = "unknown"'), here["generation"])
send("fd01::9", "2001:db8::1", 1, "2001:db8::/32", "request")
compare()
check("a reload that is refused changes nothing", control.gate()["reloads_refused"] == 1)

reloaded(whole, here["generation"] + 1)
for what in packets, size:
    what["removed", "dropped"] += what.pop(("100.64.0.0/10", "dropped"))
send("10.1.0.9", "198.51.100.1", 4, "198.51.100.0/24", "request")
compare()
