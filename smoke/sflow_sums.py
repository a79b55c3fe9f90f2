"""Compares what collectors have read of sFlow with what was sent: all WORK, or some WORK."""

import csv
import json
import re
import struct
import sys
from collections import Counter

from scapy.all import UDP, rdpcap

from lib.checks import Checks

def notices(path):
    """Yields number, reason, interface, length and first bytes of each drop notice in a file."""
    for frame in rdpcap(path):
        data = bytes(frame[UDP].payload)
        words = struct.unpack(f">{len(data) // 4}I", data)
        assert words[:3] == (5, 1, 0xC0000201), words[:3]
        at = 7
        for _ in range(words[6]):
            kind, size = words[at], words[at + 1] // 4
            if kind == 5:
                number, source_type, source, drops, interface, _, reason, records = words[at + 2 : at + 10]
                assert (source_type, source, records) == (0, interface, 1), words[at : at + 12]
                # 65 packets were dropped.
                assert drops + number <= 65, (drops, number)
                record = words[at + 10 : at + 16]
                assert (record[0], record[2], record[4]) == (1, 1, 4), record
                begin = 4 * (at + 16)
                yield number, reason, interface, record[3], data[begin : begin + record[5]]
            at += 2 + size
        assert at == len(words), "the datagram has more than its samples"


check = Checks()
name, work = sys.argv[1:]
packets, octets, inputs = Counter(), Counter(), Counter()
with open(f"{work}/{name}.csv", encoding="utf-8") as file:
    for row in csv.reader(file):
        # Destination, packets, bytes and input interface of a flow.
        to, count, size, interface = row[4], int(row[11]), int(row[12]), int(row[15])
        packets[to] += count
        octets[to] += size
        inputs[interface] += count
accounted = Counter()
with open(f"{work}/{name}.sfacctd.json", encoding="utf-8") as file:
    for line in file:
        row = json.loads(line)
        accounted[row["ip_dst"], row["iface_in"]] += row["packets"]
with open(f"{work}/{name}.text", encoding="utf-8") as file:
    text = file.read()
numbers = [int(number) for number in re.findall(r"^    Sequence number: (\d+)$", text, re.M)]
check(f"{len(numbers)} datagrams without a gap", numbers == list(range(1, len(numbers) + 1)), numbers)
# tshark 4.0 does not know drop notices (5).
unknown = set(re.findall(r"sFlow sample type: Unknown \((\d+)\)", text))
check("tshark knows every other sample", unknown == ({"5"} if name == "all" else set()), unknown)

if name == "all":
    sent = {"11.0.0.1": 500, "13.0.0.1": 60, "99.0.0.1": 5}
    check("sfcapd has every packet", all(packets[to] == count for to, count in sent.items()), packets)
    with open(f"{work}/before.json", encoding="utf-8") as file:
        before = json.load(file)
    with open(f"{work}/after.json", encoding="utf-8") as file:
        after = json.load(file)
    received = sum(now["received"] - then["received"] for now, then in zip(after, before))
    check(f"{received} packets of the counters, and those alone", packets.total() == received, packets)
    # Ethernet, IPv4 and UDP headers, 100 bytes, and the frame check sequence.
    check("and their bytes", all(octets[to] == count * 146 for to, count in sent.items()), octets)
    check("sfacctd has the same", accounted == Counter({(to, after[0]["index"]): count for to, count in packets.items()}), accounted)
    check("from their interface", set(inputs) == {after[0]["index"]}, inputs)
    reasons, lengths = Counter(), Counter()
    for number, reason, interface, length, header in notices(f"{work}/{name}.pcap"):
        reasons[reason] += 1
        lengths[length, len(header)] += 1
        if interface != after[0]["index"]:
            check(f"notice {number} is of r0", False, interface)
    # Blackhole route, and no route: all of the few, and some of the many.
    check("each reason has its notices", set(reasons) == {269, 6} and reasons[6] == 5 and reasons[269] >= 10, reasons)
    check("with the first bytes", set(lengths) == {(146, 128)}, lengths)
else:
    got = packets["11.0.0.1"]
    # 500 samples of 20 packets each are expected; four standard deviations of their number are 88.
    check(f"{got} packets estimated of 10000", 8200 <= got <= 11800, packets)
    check("sfacctd has the same", accounted.total() == packets.total(), accounted)
check.finish()
