"""Loads a whole table into this namespace's kernel and queries it for many addresses.

    engines_kernel.py TABLE FAMILY COUNT    prints `ADDRESS VALUE`, or `ADDRESS -`

VALUE is what the table has behind the prefix. Each distinct one gets a gateway of its
own on the interface d0, which distinguishes the kernel's answers. The addresses are
any, first and last ones of routes and those just outside, and some within routes.
"""

import gzip
import ipaddress
import random
import subprocess
import sys

random.seed(20151023)
path, family, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
bits = 32 if family == 4 else 128
make = ipaddress.IPv4Address if family == 4 else ipaddress.IPv6Address
# One gateway a value, from here on; no queried address is in this range.
base = int(make("10.0.0.0" if family == 4 else "fd00:ff::"))


def routes():
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="ascii") as lines:
        for line in lines:
            words = line.split()
            if words and words[0][0] not in ";#%" and (":" in words[0]) == (family == 6):
                yield words[0], words[1] if len(words) > 1 else "-"


def forwardable(address):
    """Whether a kernel looks the address up at all."""
    if family == 4:
        return 0x0B000000 <= address < 0xE0000000 and address >> 24 != 127
    return address >> 125 == 1


def ip(*words, text):
    command = ["ip", f"-{family}", "-oneline", *words]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


gateways, values, prefixes, batch = {}, [], [], []
for prefix, value in routes():
    if value not in gateways:
        gateways[value] = make(base + 1 + len(values))
        values.append(value)
    batch.append(f"route add {prefix} via {gateways[value]} dev d0 onlink\n")
    prefixes.append(prefix)
loaded = ip("-batch", "-", text="".join(batch))
if loaded.returncode or loaded.stderr:
    sys.exit(f"the kernel does not take the routes: {loaded.stderr[:500]}")

asked = set()
while len(asked) < count * 2:
    network = ipaddress.ip_network(random.choice(prefixes))
    first, last = int(network[0]), int(network[-1])
    near = random.choice([first - 1, first, last, last + 1])
    any_one = random.getrandbits(32) if family == 4 else random.getrandbits(125) | 1 << 125
    asked.update(filter(forwardable, [near, random.randint(first, last), any_one]))
asked = sorted(random.sample(sorted(asked), count))
asked = [str(make(address)) for address in asked]

# An address without a route is an error, after which the batch goes on.
found = ip("-force", "-batch", "-", text="".join(f"route get {a}\n" for a in asked))
answers = {}
for line in found.stdout.splitlines():
    words = line.split()
    if "via" in words:
        number = int(make(words[words.index("via") + 1])) - base - 1
        answers[words[0]] = values[number]
if len(answers) < count // 3:
    sys.exit(f"the kernel answers {len(answers)} of {count}: {found.stderr[:500]}")
for address in asked:
    print(address, answers.get(address, "-"))
