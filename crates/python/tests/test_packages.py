"""Tables beside pytricia, py-radix and pyasn, and arrays of NumPy: these packages are from PyPI.

usage: test_packages.py PREFIXES DATABASES, a file of "PREFIX NUMBER" in lines, and a folder of MaxMind databases.
"""

import ipaddress
import json
import pathlib
import pickle
import random
import socket
import sys
import threading
import unittest

import maxminddb
import numpy
import pyasn
import pytricia
import radix
from fingerpost import Table

BITS = {4: 32, 6: 128}


def prefixes(random_, family, count):
    kind = {4: ipaddress.IPv4Network, 6: ipaddress.IPv6Network}[family]
    bits = BITS[family]
    for _ in range(count):
        length = random_.randint(4, bits)
        yield str(kind((random_.getrandbits(10) << (bits - 10) | random_.getrandbits(bits - 10), length), strict=False))


class Names(unittest.TestCase):
    """Code for pytricia moves by changing the import.

    Left out is where pytricia differs from its own documentation or answers without a word: it keeps bits beyond the
    length of a prefix, ignores the assignment of "1::2::3" or "1.2.3", and reads "10.0.0.0/33" as something else.
    """

    def results(self, make):
        """Does the same with either class; returns every answer, with the type of an error."""
        answers = []

        def record(call, *arguments):
            try:
                answers.append(call(*arguments))
            except (KeyError, ValueError) as error:
                answers.append(type(error))

        for family, number in [(4, socket.AF_INET), (6, socket.AF_INET6)]:
            random_ = random.Random(family)
            table = make(BITS[family], number)
            keys = list(prefixes(random_, family, 400))
            for step, key in enumerate(keys):
                record(table.insert, key, step) if step % 2 else record(table.__setitem__, key, step)
                asked = random_.choice(keys)
                for name in ["get", "get_key", "has_key", "parent", "children", "__getitem__", "__contains__"]:
                    record(getattr(table, name), asked)
                record(table.get, asked, "default")
                address = asked.split("/")[0]
                record(table.get, ipaddress.ip_address(address))
                record(table.get, ipaddress.ip_address(address).packed)
                record(table.get_key, ipaddress.ip_network(asked))
                if step % 5 == 0:
                    record(table.delete, asked)
                    record(table.__delitem__, random_.choice(keys))
                record(len, table)
            for wrong in ["foo", ""]:
                record(table.get, wrong)
                record(table.__setitem__, wrong, 1)
            address, length = keys[1].split("/")
            record(table.insert, address, int(length), "by length")
            answers.append(sorted(table.keys()))
            answers.append(sorted(table))
            table.freeze()
            record(table.insert, keys[0], 0)
            record(table.delete, keys[0])
            copy = pickle.loads(pickle.dumps(table))
            answers.append(sorted((key, copy[key]) for key in copy))
            table.thaw()
            record(table.insert, keys[0], 0)
            record(table.get, keys[0])
        return answers

    def test_answers_are_those_of_pytricia(self):
        ours, theirs = self.results(Table), self.results(pytricia.PyTricia)
        self.assertGreater(len(theirs), 9000)
        self.assertEqual(len(ours), len(theirs))
        for place, (our, their) in enumerate(zip(ours, theirs)):
            if isinstance(their, list):
                our, their = sorted(our), sorted(their)
            self.assertEqual(our, their, f"answer {place}")


class Radix(unittest.TestCase):
    def test_answers_are_those_of_py_radix(self):
        random_ = random.Random(3)
        table, tree = Table(), radix.Radix()
        keys = [key for family in (4, 6) for key in prefixes(random_, family, 500)]
        for value, key in enumerate(keys):
            table[key] = value
            tree.add(key).data["value"] = value
        pairs = lambda nodes: [(node.prefix, node.data["value"]) for node in nodes]
        found = 0
        for asked in keys + [key for family in (4, 6) for key in prefixes(random_, family, 500)]:
            best = tree.search_best(asked)
            self.assertEqual(table.longest(asked), pairs([best])[0] if best else None)
            exact = tree.search_exact(asked)
            self.assertEqual(table.exact(asked), exact and exact.data["value"])
            worst = tree.search_worst(asked)
            covering = table.covering(asked)
            self.assertEqual(covering[:1], pairs([worst] if worst else []))
            self.assertEqual(covering, sorted(pairs(tree.search_covering(asked)), key=lambda pair: int(pair[0].split("/")[1])))
            self.assertEqual(sorted(table.covered(asked)), sorted(pairs(tree.search_covered(asked))))
            found += best is not None
        self.assertGreater(found, 1000)
        self.assertEqual(sorted(table.items()), sorted(pairs(tree)))


class Files(unittest.TestCase):
    def test_answers_are_those_of_pyasn(self):
        table, reference = Table.load(PREFIXES, value=int), pyasn.pyasn(PREFIXES)
        random_ = random.Random(4)
        keys = table.keys()
        self.assertGreater(len(keys), 100)
        found = 0
        for _ in range(20000):
            network = ipaddress.ip_network(random_.choice(keys))
            # Some lie beside the prefix.
            number = int(network.network_address) + random_.randrange(-2, network.num_addresses + 2)
            address = ipaddress.ip_address(number % 2 ** BITS[network.version])
            if address.version != network.version:
                continue
            number, prefix = reference.lookup(str(address))
            self.assertEqual(table.longest(address), (prefix, number) if prefix else None)
            found += prefix is not None
        self.assertGreater(found, 10000)


    def test_records_are_those_of_maxminddb(self):
        paths = sorted(pathlib.Path(DATABASES).glob("*.mmdb"))
        self.assertGreaterEqual(len(paths), 3)
        for path in paths:
            table, reader = Table.load(path), maxminddb.open_database(path)
            routes = [(ipaddress.ip_network(prefix), value) for prefix, value in table.items()]
            self.assertGreater(len(routes), 3, path)
            for network, value in routes:
                for address in [network.network_address, network.broadcast_address]:
                    # Bytes are hexadecimal digits in JSON.
                    expected = json.loads(json.dumps(reader.get(address), default=lambda raw: raw.hex()))
                    self.assertEqual(table[address], expected, (path, address))
            values = [value for _, value in routes]
            shared = {id(value) for value in values}
            self.assertEqual(len(shared), len({json.dumps(value, sort_keys=True) for value in values}), path)


class Arrays(unittest.TestCase):
    def setUp(self):
        self.table = Table.load(PREFIXES)
        generator = numpy.random.default_rng(5)
        self.numbers = generator.integers(0, 2**32, 10_000, dtype=numpy.uint32)
        starts = [int(ipaddress.ip_network(key).network_address) for key in self.table if ":" not in key]
        self.numbers[: len(starts)] = starts[: len(self.numbers)]

    def translate(self, numbers):
        self.assertEqual(numbers.dtype, numpy.uint32)
        values = self.table.values_by_number()
        return [values[number] for number in numbers]

    def test_each_form_of_an_array_has_the_answers_of_single_lookups(self):
        four = [self.table.get(int(number)) for number in self.numbers]
        self.assertGreater(sum(value is not None for value in four), 100)
        rows = self.numbers.astype(">u4").view(numpy.uint8).reshape(-1, 4)
        texts = [str(ipaddress.IPv4Address(int(number))) for number in self.numbers]
        forms = {
            "uint32": self.numbers,
            "uint32 of the other byte order": self.numbers.astype(self.numbers.dtype.newbyteorder()),
            "each second of an array": numpy.repeat(self.numbers, 2)[::2],
            "read-only": numpy.frombuffer(self.numbers.tobytes(), dtype=numpy.uint32),
            "rows": rows,
            "rows of Fortran's order": numpy.asfortranarray(rows),
            "list of texts": texts,
            "array of texts": numpy.array(texts),
            "array of objects": numpy.array(texts, dtype=object),
            "single integers of NumPy": list(self.numbers),
            "generator": (int(number) for number in self.numbers),
        }
        for name, addresses in forms.items():
            self.assertEqual(self.translate(self.table.lookup_many(addresses)), four, name)
        self.assertEqual(self.table.lookup_values(self.numbers), four)
        self.assertEqual([self.table.get(number) for number in self.numbers], four)
        for other in [numpy.float64(1), self.numbers[:1], self.numbers]:
            self.assertRaises(TypeError, self.table.get, other)

    def test_rows_of_16_bytes_are_addresses_of_ipv6(self):
        addresses = [ipaddress.ip_network(key).network_address for key in self.table if ":" in key]
        self.assertGreater(len(addresses), 10)
        addresses.append(ipaddress.IPv6Address("100::1"))
        rows = numpy.frombuffer(b"".join(address.packed for address in addresses), numpy.uint8).reshape(-1, 16)
        expected = [self.table.get(address) for address in addresses]
        self.assertEqual(self.translate(self.table.lookup_many(rows)), expected)
        self.assertEqual(self.table.lookup_values(addresses), expected)

    def test_empty_arrays_give_empty_arrays(self):
        for empty in [self.numbers[:0], numpy.zeros((0, 16), numpy.uint8), []]:
            self.assertEqual(self.table.lookup_many(empty).tolist(), [])

    def test_other_arrays_are_named_errors(self):
        for dtype in [numpy.int64, numpy.float64, numpy.uint8, "S16", "datetime64[s]"]:
            with self.assertRaisesRegex(TypeError, "cannot look up an array of"):
                self.table.lookup_many(numpy.zeros(3, dtype=dtype))
        for shape in [(3, 5), (2, 2, 4)]:
            with self.assertRaisesRegex(TypeError, "shape"):
                self.table.lookup_many(numpy.zeros(shape, numpy.uint8))
        with self.assertRaises(TypeError):
            self.table.lookup_many(numpy.zeros((2, 2), numpy.uint32))

    def test_interpreter_is_released_during_lookups(self):
        many = numpy.resize(self.numbers, 1 << 25)
        ticks, done = [], threading.Event()

        def look_up():
            self.table.lookup_many(many)
            done.set()

        thread = threading.Thread(target=look_up)
        interval = sys.getswitchinterval()
        # Longer than the lookups: another thread runs only if they release the interpreter.
        sys.setswitchinterval(60)
        try:
            thread.start()
            while not done.is_set():
                ticks.append(1)
                done.wait(0.001)
        finally:
            sys.setswitchinterval(interval)
            thread.join()
        self.assertGreater(len(ticks), 1)


if __name__ == "__main__":
    DATABASES, PREFIXES = sys.argv.pop(), sys.argv.pop()
    unittest.main()
