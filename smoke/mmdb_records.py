"""The records that MaxMind's own reader finds in a database, compared with `fingerpost route get`.

    mmdb_records.py addresses NETWORKS SEED     prints addresses: the first and last of each network, those beside, and random ones
    mmdb_records.py compare DATABASE ANSWERS    reads what `fingerpost route get -j` found for addresses
    mmdb_records.py records DATABASE ANSWERS    compares the records only, and none of ::/96, where a database has IPv4
    mmdb_records.py answers DATABASE ADDRESSES  prints `ADDRESS PREFIX RECORD`, or `ADDRESS - -`
"""

import ipaddress
import json
import random
import sys

import maxminddb

# Where a tree of IPv6 leads to IPv4: IPv4 itself, and its aliases.
IPV4 = ipaddress.ip_network("::/96")
ALIASES = [ipaddress.ip_network(text) for text in ("::ffff:0:0/96", "2001::/32", "2002::/16")]


def addresses(networks, seed):
    rng = random.Random(seed)
    networks = [ipaddress.ip_network(line.strip(), strict=False) for line in networks]
    found = set()
    for network in networks:
        first, last = int(network.network_address), int(network.broadcast_address)
        kind = type(network.network_address)
        for address in (first - 1, first, last, last + 1, rng.randint(first, last)):
            if 0 <= address < 2 ** network.max_prefixlen:
                found.add(kind(address))
    found.update(ipaddress.IPv4Address(rng.getrandbits(32)) for _ in range(50))
    if any(network.version == 6 for network in networks):
        found.update(ipaddress.IPv6Address(rng.getrandbits(128)) for _ in range(50))
    return sorted(found, key=lambda address: (address.version, address))


def plain(record):
    """A record as JSON can write it."""
    if isinstance(record, dict):
        return {name: plain(value) for name, value in record.items()}
    if isinstance(record, list):
        return [plain(value) for value in record]
    return record.hex() if isinstance(record, (bytes, bytearray)) else record


def answer(database, address):
    """The prefix and the record of an address, or None for both."""
    if any(address in alias for alias in ALIASES):
        return None, None  # IPv4 routes, once more
    record, length = database.get_with_prefix_len(str(address))
    if record is None or address in IPV4 and length >= 96:
        return None, None  # the latter are IPv4 routes
    if address.version == 4 and database.metadata().ip_version == 6 and length > 32:
        length -= 96
    return ipaddress.ip_network((address, length), strict=False), plain(record)


def compare(database, answers, with_prefixes):
    routed = 0
    for got in answers:
        address = ipaddress.ip_address(got["address"])
        if not with_prefixes and address in IPV4:
            continue
        prefix, record = answer(database, address)
        assert (got["prefix"] is None) == (prefix is None), (address, prefix, got)
        if prefix is not None:
            routed += 1
            found = json.loads(got["next_hop"])
            assert found == record, (address, record, found)
            assert list(found) == list(record), (address, record, found)
            assert not with_prefixes or got["prefix"] == str(prefix), (address, prefix, got)
    assert routed > 100, routed
    print(len(answers), "addresses,", routed, "with a record")


def write(database, texts):
    for text in texts:
        address = ipaddress.ip_address(text.strip())
        prefix, record = answer(database, address)
        print(address, prefix or "-", "-" if prefix is None else json.dumps(record))


if __name__ == "__main__":
    verb, path, argument = sys.argv[1:]
    if verb == "addresses":
        with open(path) as file:
            print(*addresses(file, int(argument)), sep="\n")
    else:
        with maxminddb.open_database(path) as database, open(argument) as file:
            if verb == "answers":
                write(database, file)
            else:
                compare(database, json.load(file), with_prefixes=verb == "compare")
