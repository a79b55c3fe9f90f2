"""Random BGP flow specifications that discard, as GoBGP reads them and as nftables does.

    flowspec_rules.py write SEED COUNT GOBGP NFT    writes them to two files: lines of a family and arguments of
                                                    `gobgp global rib add`, and a ruleset for the interface r0

The two texts are written from the same draw and not from each other, so that the router, which gets the BGP
updates of GoBGP, is compared with the kernel.
"""

import random
import sys

NETS4 = [("11.0.0.0/8", 0), ("11.64.0.0/10", 0), ("12.0.0.0/8", 0), ("20.0.0.0/16", 0), ("10.66.3.0/24", 1), ("10.66.8.0/21", 1)]
NETS6 = [("2001:db8::/48", 0), ("2001:db8::/81", 0), ("2001:db8:20::/48", 0), ("fd77::/81", 1), ("fd77::4000:0/98", 1)]
PROTOCOLS = {"tcp": 6, "udp": 17, "gre": 47, "50": 50}


def numbers(rng, values, most):
    """Comparisons as GoBGP writes them, and the numbers for which they hold as nftables does."""
    kind = rng.choice(["equal", "range", "below", "two", "unequal"])
    a, b = sorted(rng.sample(values, 2))
    if kind == "equal":
        return f"=={a}", f"{a}"
    if kind == "range":
        return f">={a}&<={b}", f"{a}-{b}"
    if kind == "below" and a > 0:
        return f"<{a}", f"0-{a - 1}"
    if kind == "unequal":
        return f"!={b}", ", ".join(filter(None, [f"0-{b - 1}" if b else "", f"{b + 1}-{most}" if b < most else ""]))
    return f"=={a} =={b}", f"{a}, {b}"


FRAGMENTS4 = [("is-fragment", "ip frag-off & 0x1fff != 0"), ("first-fragment", "ip frag-off & 0x3fff == 0x2000"),
              ("last-fragment", "ip frag-off & 0x1fff != 0 ip frag-off & 0x2000 == 0"),
              ("dont-fragment", "ip frag-off & 0x4000 != 0")]
FRAGMENTS6 = [("is-fragment", "frag frag-off != 0"), ("first-fragment", "frag frag-off == 0 frag more-fragments 1"),
              ("last-fragment", "frag frag-off != 0 frag more-fragments 0")]


def spec(rng):
    six = rng.random() < 0.5
    ip, words, conditions = ("ip6" if six else "ip"), [], []
    for prefix, is_source in rng.sample(NETS6 if six else NETS4, rng.choice([0, 1, 1])):
        words += ["source" if is_source else "destination", prefix]
        conditions.append(f"{ip} {'saddr' if is_source else 'daddr'} {prefix}")
    header, alternatives = False, [""]
    kind = rng.choice(["protocol", "ports", "port", "icmp", "flags", "", ""])
    if kind == "protocol":
        name = rng.choice(sorted(PROTOCOLS))
        words += ["protocol", f"=={name}"]
        conditions.append(f"meta l4proto {PROTOCOLS[name]}")
    if kind in ("ports", "port"):
        header = True
        text, ranges = numbers(rng, [0, 1, 9, 80, 1024, 20000, 50000, 65535], 65535)
        conditions.append("meta l4proto { 6, 17 }")
        if kind == "port":
            words += ["port", text]
            alternatives = [f"th sport {{ {ranges} }}", f"th dport {{ {ranges} }}"]
        else:
            side = rng.choice(["source", "destination"])
            words += [f"{side}-port", text]
            conditions.append(f"th {side[0]}port {{ {ranges} }}")
    if kind == "icmp":
        header = True
        text, ranges = numbers(rng, [0, 3, 8, 11, 128, 129, 144], 255)
        words += ["icmp-type", text]
        conditions.append(f"meta l4proto {58 if six else 1} @th,0,8 {{ {ranges} }}")
    if kind == "flags":
        header = True
        # GoBGP: a set matches if any of its flags is set, with = if all are; ! inverts.
        text, test = rng.choice([("S", "& 2 != 0"), ("=SA", "& 18 == 18"), ("!S", "& 2 == 0"), ("RF", "& 5 != 0"), ("!=SA", "& 18 != 18")])
        words += ["tcp-flags", text]
        conditions.append(f"meta l4proto 6 @th,104,8 {test}")
    if rng.random() < 0.2:
        text, ranges = numbers(rng, [20, 28, 40, 60, 100, 600, 1300, 1400], 65535)
        words += ["packet-length", text]
        conditions.append(f"meta length {{ {ranges} }}")
    if rng.random() < 0.2:
        text, ranges = numbers(rng, [0, 1, 10, 32, 46, 63], 63)
        words += ["dscp", text]
        conditions.append(f"{ip} dscp {{ {ranges} }}")
    # Without the fragments that have no header where one is examined.
    if six:
        fragments = ["exthdr frag missing", "frag frag-off == 0"] if header else [""]
    else:
        fragments = ["ip frag-off & 0x1fff == 0"] if header else [""]
    if not header and rng.random() < 0.3:
        name, fragment = rng.choice(FRAGMENTS6 if six else FRAGMENTS4)
        words += ["fragment", name]
        fragments = [fragment]
    if len(words) < (4 if kind == "" else 2):
        return spec(rng)
    family = "meta nfproto " + ("ipv6" if six else "ipv4")
    rules = [" ".join(filter(None, [family, fragment, *conditions, last, "counter drop"])) for last in alternatives for fragment in fragments]
    return "ipv6-flowspec" if six else "ipv4-flowspec", words, rules


def write(seed, count, gobgp, nft):
    rng = random.Random(seed)
    specs = [spec(rng) for _ in range(count)]
    with open(gobgp, "w") as out:
        for family, words, _ in specs:
            print("\t".join([family, *words]), file=out)
    with open(nft, "w") as out:
        print("table inet flowspec {\n\tchain inbound {\n\t\ttype filter hook prerouting priority raw; policy accept;", file=out)
        print("\t\tfib daddr type { local, broadcast, anycast, multicast } accept\n\t\tiifname != \"r0\" accept", file=out)
        for _, _, rules in specs:
            print("".join(f"\t\t{rule}\n" for rule in rules), end="", file=out)
        print("\t}\n}", file=out)


if __name__ == "__main__":
    write(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5])
