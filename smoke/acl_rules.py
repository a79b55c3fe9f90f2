"""Random access lists, and their counters.

    acl_rules.py write SEED COUNT              prints rules about the packets of linux_packets.py
    acl_rules.py compare NFT SHOW LIST...      compares the counters of nftables with those of `show -j acl`: of these lists
"""

import collections
import json
import random
import sys

PREFIXES4 = ["10.66.0.0/16", "10.66.0.0/20", "10.66.8.0/21", "10.66.3.0/24", "11.0.0.0/8", "11.0.0.0/9", "11.64.0.0/10", "11.32.0.0/11",
             "12.0.0.0/8", "12.128.0.0/9", "20.0.0.0/16", "20.1.0.0/16", "198.51.100.0/24", "0.0.0.0/1", "128.0.0.0/1", "10.0.0.2"]
PREFIXES6 = ["fd77::/64", "fd77::/81", "fd77::4000:0/98", "2001:db8::/32", "2001:db8::/48", "2001:db8::/81", "2001:db8:0:0:0:0:8000:0/97",
             "2001:db8:20::/48", "2000::/3", "fd00::2", "::/1"]


def numbers(rng, values):
    parts = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        a, b = rng.choice(values), rng.choice(values)
        parts.append(str(a) if rng.random() < 0.5 else f"{min(a, b)}-{max(a, b)}")
    return ",".join(parts)


def rule(rng):
    words = [rng.choice(["deny", "deny", "permit", "permit", "count", "count"])]
    family = rng.choice([PREFIXES4, PREFIXES4, PREFIXES6])
    for word in ["from", "to"]:
        if rng.random() < 0.55:
            words += [word, ",".join(rng.sample(family, rng.choice([1, 1, 2])))]
    ports = [0, 1, 8, 9, 10, 79, 80, 81, 1023, 1024, 20000, 32767, 32768, 50000, 65535]
    kind = rng.choice(["tcp", "udp", "icmp", "ports", "protocol", "", ""])
    if kind == "tcp":
        words += ["ipproto", "tcp"]
        if rng.random() < 0.6:
            words += ["flags", rng.choice(["syn/syn,ack", "syn", "ack", "none/syn,rst", "fin,ack/fin,ack,syn"])]
    if kind == "udp":
        words += ["ipproto", "udp"]
    if kind in ("tcp", "udp", "ports"):
        for word in ["sport", "dport"]:
            if rng.random() < 0.5:
                words += [word, numbers(rng, ports)]
    if kind == "icmp":
        words += ["ipproto", rng.choice(["icmp", "ipv6-icmp"])]
        if rng.random() < 0.7:
            words += ["icmptype", numbers(rng, [0, 3, 8, 11, 12, 128, 129, 144])]
        if rng.random() < 0.4:
            words += ["icmpcode", numbers(rng, [0, 1, 4])]
    if kind == "protocol":
        words += ["ipproto", numbers(rng, [0, 1, 2, 4, 6, 17, 41, 47, 50, 51, 58, 59, 89, 253, 255])]
    if rng.random() < 0.15:
        words += ["fragment", rng.choice(["yes", "no", "first"] + (["later", "middle", "last"] if kind in ("", "protocol") else []))]
    # A bit of IPv4.
    if rng.random() < 0.1 and not any(":" in word or "@" in word for word in words):
        words += ["df", rng.choice(["yes", "no"])]
    if rng.random() < 0.15:
        words += ["dscp", numbers(rng, [0, 1, 10, 31, 32, 46, 63])]
    if rng.random() < 0.15:
        words += ["length", numbers(rng, [20, 28, 40, 60, 100, 600, 1300, 1400, 1500])]
    if family is PREFIXES6 and "df" not in words and "icmp" not in words and rng.random() < 0.3:
        words += rng.choice([["flowlabel", rng.choice(["0", "1-524287", "524288-1048575"])], ["srcbits", "::1/::1"], ["dstbits", "::/::1"]])
    # A rule about everything would hide those behind it.
    if len(words) <= 2:
        return rule(rng)
    if words[0] != "deny" and rng.random() < 0.15:
        words += ["setdscp", str(rng.choice([0, 10, 46]))]
    return " ".join(words)


def write(seed, count):
    rng = random.Random(seed)
    for _ in range(count):
        print(rule(rng))


def compare(nft, show, names):
    kernel = collections.Counter()
    for entry in json.load(open(nft))["nftables"]:
        if "comment" in entry.get("rule", {}):
            counters = [part["counter"]["packets"] for part in entry["rule"]["expr"] if "counter" in part]
            kernel[entry["rule"]["chain"], entry["rule"]["comment"]] += sum(counters)
    wrong = packets = 0
    for shown in json.load(open(show)):
        if shown["name"] not in names:
            continue
        counts = [(f"rule {rule['number']}", rule["rule"], rule["packets"]) for rule in shown["rules"]]
        for comment, text, count in counts + [("default", shown["default"], shown["default_packets"])]:
            packets += count
            if count != kernel[shown["name"], comment]:
                wrong += 1
                print(f"{shown['name']} {comment}: {text}: {count} packets, the kernel {kernel[shown['name'], comment]}")
    print(f"   {packets} packets by rule are those of nftables" if not wrong else f"{wrong} counters differ")
    sys.exit(1 if wrong or not packets else 0)


if __name__ == "__main__":
    {"write": lambda: write(int(sys.argv[2]), int(sys.argv[3])), "compare": lambda: compare(sys.argv[2], sys.argv[3], sys.argv[4:])}[sys.argv[1]]()
