"""Compares what collectors have read of IPFIX with what was sent: all WORK, some WORK or both WORK."""

import csv
import json
import sys
from collections import Counter

from lib.checks import Checks

UDP = {"11.0.0.1": 500, "13.0.0.1": 60, "99.0.0.1": 5, "fd11::1": 70}
ORIGINS = {"11.0.0.1": 4200000001, "13.0.0.1": 0, "99.0.0.1": 0, "fd11::1": 64511}


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def difference(work, name, value):
    """Returns the growth of a value of `show` while packets were sent."""
    return value(load(f"{work}/after{name}.json")) - value(load(f"{work}/before{name}.json"))


def records(message):
    """Yields the records of a message as tshark reads it, with the numbers of their templates."""
    for name, records_of_set in message.items():
        if name.startswith("Set"):
            for field, record in records_of_set.items():
                if field.startswith("Flow "):
                    yield int(records_of_set["cflow.flowset_id"]), record


check = Checks()
name, work = sys.argv[1:]

# nfcapd: destination, packets and bytes of both directions, interfaces, AS numbers and BGP next hop.
packets, octets, reverse = Counter(), Counter(), Counter()
described = {}
with open(f"{work}/{name}.csv", encoding="utf-8") as file:
    for row in csv.reader(file):
        packets[row[4]] += int(row[11])
        octets[row[4]] += int(row[12])
        reverse[row[4]] += int(row[13])
        described[row[4]] = [*map(int, row[15:19]), row[24]]

# nfacctd: the same, and the drops; all records in a row have the same number of them.
rows = []
with open(f"{work}/{name}.nfacctd.json", encoding="utf-8") as file:
    for line in file:
        rows.append(json.loads(line))
counted = Counter()
for row in rows:
    counted[row["ip_dst"]] += row["packets"]

messages = [frame["_source"]["layers"]["cflow"] for frame in load(f"{work}/{name}.json")]
sequence, gaps = 0, []
for message in messages:
    if int(message["cflow.sequence"]) != sequence:
        gaps.append((sequence, message["cflow.sequence"]))
    sequence += len(list(records(message)))
check(f"{len(messages)} messages, {sequence} records without a gap", messages and not gaps, gaps)
by_template = Counter(template for message in messages for template, _ in records(message))
interfaces = {
    record["cflow.if_name"]: int(record["cflow.inputint"])
    for message in messages
    for template, record in records(message)
    if template == 259
}
shown = {one["name"]: one["index"] for one in load(f"{work}/after.json")}
check("the names of the interfaces", interfaces == shown, (interfaces, shown))
last = [record for template, record in records(messages[-1]) if template == 260]
flows = by_template[256] + by_template[257]
check("no packet ignored, and the number of flows", [one["cflow.ignore_packets"] for one in last] == ["0"] and [int(one["cflow.flowsexp"]) for one in last] == [flows], last)

if name == "all":
    received = difference(work, "", lambda interfaces: sum(one["received"] for one in interfaces))
    dropped = difference(work, "-counters", lambda counters: sum(counters[0]["dropped"].values()))
    check(f"nfcapd has the {received} packets that were received", packets.total() == received, packets)
    check("nfacctd has them, too", counted.total() == received, counted)
    check("each destination has its own", all(packets[to] == count for to, count in UDP.items()), packets)
    lengths = {to: count * (148 if ":" in to else 128) for to, count in UDP.items()}
    check("with the bytes of IP", all(octets[to] == length for to, length in lengths.items()), octets)
    r0, r1 = shown["r0"], shown["r1"]
    for to, origin in ORIGINS.items():
        is_dropped = to in ("13.0.0.1", "99.0.0.1")
        source = 0 if ":" in to else 64500
        next_hop = {"13.0.0.1": "192.0.2.77"}.get(to, "::" if ":" in to else "0.0.0.0")
        # nfdump prints no next hop of IPv6.
        expected = [r0, 0 if is_dropped else r1, source, origin]
        check(f"{to}: interfaces, AS numbers and BGP next hop", described[to][:4] == expected and described[to][4] == next_hop, described[to])
    drops = {row["ip_dst"]: (row["status"], int(row["dropped_octets"]) * row["flows"]) for row in rows if row["dropped_octets"] != "0"}
    # Unknown reason (a blackhole route), unroutable.
    check("the drops with their status", drops == {"13.0.0.1": ("128", 60 * 128), "99.0.0.1": ("131", 5 * 128)}, drops)
    found = sum(int(row["dropped_packets"]) * row["flows"] for row in rows)
    check(f"{dropped} dropped packets of the counters", found == dropped, rows)
elif name == "some":
    for collector, sums in ("nfcapd", packets), ("nfacctd", counted):
        got = sums["11.0.0.1"]
        # 500 samples of 20 packets each are expected; four standard deviations of their number are 88.
        check(f"{got} packets estimated of 10000 by {collector}", 8200 <= got <= 11800, sums)
    selection = [record for message in messages for template, record in records(message) if template == 258]
    rates = {(one["cflow.sampling_probability"], one["cflow.sampling_interval"]) for one in selection}
    check("the rate", rates == {("0.05", "20")}, rates)
else:
    both = (packets["11.0.0.1"], reverse["11.0.0.1"], octets["11.0.0.1"])
    check("three requests and three answers in a record", both == (3, 3, 3 * 84) and flows == 1, both)
check.finish()
