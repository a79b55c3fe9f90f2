"""Measures one Python package, and sums up the measurements of all.

    python_package.py measure PACKAGE FOLDER       prints a line of JSON; FOLDER has table.dat and table.mmdb
    python_package.py summary RESULTS [RECORD]     prints medians, spreads and ratios of such lines; writes them as JSON
"""

import ipaddress
import json
import os
import platform
import random
import statistics
import sys
import time
import zlib
from importlib import metadata

SINGLE = 200_000
BULK = 1 << 22


def resident():
    """The bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def addresses():
    rng = random.Random(1)
    return [str(ipaddress.IPv4Address(rng.getrandbits(32))) for _ in range(SINGLE)]


def lines(folder):
    with open(os.path.join(folder, "table.dat")) as file:
        return [line.split() for line in file]


def rate(count, function):
    """Millions a second, in the fastest of three calls: the first one finds cold caches."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return count / min(times) / 1e6


def one_by_one(find):
    texts = addresses()
    return rate(SINGLE, lambda: [find(text) for text in texts])


def fingerpost(folder):
    import numpy
    from fingerpost import Table

    def load():
        return Table.load(os.path.join(folder, "table.dat"))

    def more(table):
        keys = numpy.random.default_rng(1).integers(0, 2**32, BULK, dtype=numpy.uint32)
        texts = addresses()
        return {
            "bulk": rate(BULK, lambda: table.lookup_many(keys)),
            "bulk_values": rate(BULK, lambda: table.lookup_values(keys)),
            "bulk_texts": rate(SINGLE, lambda: table.lookup_values(texts)),
        }

    return load, lambda table: table.get, more


def pytricia(folder):
    from pytricia import PyTricia

    routes = lines(folder)

    def load():
        table = PyTricia()
        for prefix, origin in routes:
            table[prefix] = origin
        return table

    return load, lambda table: table.get, None


def py_radix(folder):
    from radix import Radix

    routes = lines(folder)

    def load():
        table = Radix()
        for prefix, origin in routes:
            table.add(prefix).data["origin"] = origin
        return table

    def finder(table):
        def find(text):
            node = table.search_best(text)
            return node.data["origin"] if node else None

        return find

    return load, finder, None


def pyasn(folder):
    from pyasn import pyasn as Database

    return (
        lambda: Database(os.path.join(folder, "table.dat")),
        lambda table: lambda text: table.lookup(text)[0],
        None,
    )


def fingerpost_mmdb(folder):
    load, finder, more = fingerpost(folder)
    from fingerpost import Table

    return lambda: Table.load(os.path.join(folder, "table.mmdb")), finder, more


def maxminddb(folder):
    import maxminddb as library

    def load():
        reader = library.open_database(os.path.join(folder, "table.mmdb"), library.MODE_MMAP_EXT)
        assert type(reader).__module__ == "maxminddb.extension", "not MaxMind's C library"
        return reader

    def more(reader):
        texts = addresses()
        return {"bulk_texts": rate(SINGLE, lambda: [reader.get(text) for text in texts])}

    return load, lambda reader: reader.get, more


PACKAGES = {
    "fingerpost": fingerpost,
    "pytricia": pytricia,
    "py-radix": py_radix,
    "pyasn": pyasn,
    "fingerpost-mmdb": fingerpost_mmdb,
    "maxminddb": maxminddb,
}


def origin(answer):
    """An answer as the text of an AS number."""
    if isinstance(answer, dict):
        answer = answer["autonomous_system_number"]
    return "" if answer is None else str(answer)


def measure(package, folder):
    load, finder, more = PACKAGES[package](folder)
    before, begin = resident(), time.perf_counter()
    table = load()
    load_seconds, bytes_more = time.perf_counter() - begin, resident() - before
    find = finder(table)
    result = {
        "package": package,
        "version": metadata.version(package.removesuffix("-mmdb")),
        # Before any time is kept.
        "answers": zlib.crc32(",".join(origin(find(text)) for text in addresses()).encode()),
        "load_seconds": load_seconds,
        "megabytes": bytes_more / 1e6,
        "single": one_by_one(find),
    }
    if more:
        result.update(more(table))
    print(json.dumps(result))


def summary(path, record=None):
    with open(path) as file:
        results = [json.loads(line) for line in file]
    answers = {result["answers"] for result in results}
    assert len(answers) == 1, f"the packages give different answers: {results}"
    middle, figures = {}, []
    for package in PACKAGES:
        own = [result for result in results if result["package"] == package]
        print(f"{package} {own[0]['version']}")
        for name in own[0]:
            if name in ("package", "version", "answers"):
                continue
            values = sorted(result[name] for result in own)
            middle[package, name] = statistics.median(values)
            print(f"  {name:13} {middle[package, name]:8.2f}  ({values[0]:.2f} to {values[-1]:.2f}, {len(own)} rounds)")
            figures.append({"package": package, "version": own[0]["version"], "figure": name, "rounds": [round(value, 4) for value in values]})
    ratios = {
        "single lookups, fingerpost / pytricia": middle["fingerpost", "single"] / middle["pytricia", "single"],
        "memory, py-radix / fingerpost": middle["py-radix", "megabytes"] / middle["fingerpost", "megabytes"],
        "memory, pytricia / fingerpost": middle["pytricia", "megabytes"] / middle["fingerpost", "megabytes"],
        "database, arrays of numbers, fingerpost / maxminddb": middle["fingerpost-mmdb", "bulk_values"] / middle["maxminddb", "bulk_texts"],
        "database, lists of texts, fingerpost / maxminddb": middle["fingerpost-mmdb", "bulk_texts"] / middle["maxminddb", "bulk_texts"],
    }
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.2f}")
    if record:
        with open("/proc/cpuinfo") as file:
            cpu = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
        content = {
            "command": "bash bench/python.sh",
            "date": time.strftime("%Y-%m-%d"),
            "cpu": cpu,
            "processors": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "units": {"single, bulk…": "million lookups a second", "megabytes": "10^6 bytes"},
            "figures": figures,
            "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()},
        }
        os.makedirs(os.path.dirname(os.path.abspath(record)), exist_ok=True)
        with open(record, "w") as file:
            json.dump(content, file, indent=1, ensure_ascii=False)
            file.write("\n")


if __name__ == "__main__":
    {"measure": measure, "summary": summary}[sys.argv[1]](*sys.argv[2:])
