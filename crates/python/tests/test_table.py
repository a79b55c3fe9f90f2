"""Tables against a scan of all prefixes by `ipaddress`, and what the class promises.

No package but Python's own is needed; those that need others are in test_packages.py.
"""

import copy
import gc
import ipaddress
import pickle
import random
import threading
import unittest
import weakref

from fingerpost import Table


def network(random_, family):
    bits, shortest, longest = (32, 4, 32) if family == 4 else (128, 16, 64)
    length = random_.randint(shortest, longest)
    # Few leading bits, so that prefixes cover each other.
    address = random_.getrandbits(12) << (bits - 12) | random_.getrandbits(bits - 12)
    kind = ipaddress.IPv4Network if family == 4 else ipaddress.IPv6Network
    return kind((address, length), strict=False)


class Scan:
    """The slow twin: a dictionary of networks."""

    def __init__(self):
        self.networks = {}

    def covering(self, key):
        found = [(n, v) for n, v in self.networks.items() if n.version == key.version and key.subnet_of(n)]
        return sorted(found, key=lambda pair: pair[0].prefixlen)

    def covered(self, key):
        found = [(n, v) for n, v in self.networks.items() if n.version == key.version and n.subnet_of(key)]
        return sorted(found, key=lambda pair: (pair[0].network_address, pair[0].prefixlen))


class Object:
    """A value with an identity."""


class AgainstAScan(unittest.TestCase):
    def test_random_changes_give_the_answers_of_a_scan(self):
        random_ = random.Random(1)
        table, scan = Table(), Scan()
        known = []
        for step in range(3000):
            key = network(random_, random_.choice([4, 6]))
            if known and random_.random() < 0.4:
                key = random_.choice(known)
            if random_.random() < 0.6:
                value = random_.randrange(20)
                table[key if step % 2 else str(key)] = value
                scan.networks[key] = value
                known.append(key)
            elif key in scan.networks:
                self.assertEqual(table.pop(key), scan.networks.pop(key))
            else:
                self.assertRaises(KeyError, table.delete, key)
            if step % 500 == 250:
                table.commit()
            self.check(table, scan, key)
            if step % 10 == 9:
                self.check_bulk(table, scan, random_, known)
        self.assertGreater(len(scan.networks), 300)
        items = [(ipaddress.ip_network(prefix), value) for prefix, value in table.items()]
        everything = [n for bits in ("0.0.0.0/0", "::/0") for n in scan.covered(ipaddress.ip_network(bits))]
        self.assertEqual(items, everything)
        self.assertEqual(list(table), [str(key) for key, _ in everything])
        self.assertEqual(table.values(), [value for _, value in everything])

    def check(self, table, scan, key):
        text = [(str(n), v) for n, v in scan.covering(key)]
        self.assertEqual(table.covering(key), text)
        self.assertEqual(table.longest(key), text[-1] if text else None)
        self.assertEqual(table.get(key), text[-1][1] if text else None)
        self.assertEqual(table.get_key(key), text[-1][0] if text else None)
        self.assertEqual(key in table, bool(text))
        self.assertEqual(table.covered(key), [(str(n), v) for n, v in scan.covered(key)])
        self.assertEqual(table.exact(key, "none"), scan.networks.get(key, "none"))
        self.assertEqual(table.has_key(key), key in scan.networks)
        self.assertEqual(len(table), len(scan.networks))
        if key in scan.networks:
            shorter = [n for n, _ in text if n != str(key)]
            self.assertEqual(table.parent(key), shorter[-1] if shorter else None)
            children = [str(n) for n, _ in scan.covered(key) if n != key]
            self.assertEqual(table.children(key), children)

    def check_bulk(self, table, scan, random_, known):
        keys = random_.choices(known, k=10)
        addresses = [key[random_.randrange(min(key.num_addresses, 2**31))] for key in keys]
        hosts = [ipaddress.ip_network(address) for address in addresses]
        expected = [(scan.covering(host) or [(None, None)])[-1][1] for host in hosts]
        self.assertEqual(table.lookup_values(addresses), expected)
        texts = [str(address) for address in map(ipaddress.ip_address, addresses)]
        self.assertEqual(table.lookup_values(texts), expected)
        self.assertEqual(table.lookup_values(tuple(texts)), expected)
        self.assertEqual(table.lookup_values(iter(texts)), expected)
        self.assertEqual(table.lookup_values([*texts, *addresses]), expected * 2)
        self.assertEqual([table.get(address) for address in addresses], expected)


class Arguments(unittest.TestCase):
    def test_each_form_of_a_prefix_is_one_key(self):
        table = Table()
        table["10.1.0.0/16"] = "four"
        table["2001:db8::/32"] = "six"
        four = ["10.1.2.3", "10.1.2.3/24", 0x0A010203, bytes([10, 1, 2, 3]), ("10.1.2.3", 30)]
        four += [ipaddress.ip_address("10.1.2.3"), ipaddress.ip_network("10.1.2.0/24")]
        four += [ipaddress.ip_interface("10.1.2.3/24"), (b"\x0a\x01\x02\x03", 32)]
        for key in four:
            self.assertEqual(table[key], "four", key)
        six = ["2001:db8::1", "2001:db8::/48", 0x20010DB8 << 96, ipaddress.ip_address("2001:db8::1").packed]
        six += [ipaddress.ip_address("2001:db8::1"), ipaddress.ip_network("2001:db8::/48")]
        six += [ipaddress.ip_interface("2001:db8::1/48")]
        for key in six:
            self.assertEqual(table[key], "six", key)
        self.assertTrue(table.has_key(ipaddress.ip_interface("10.1.2.3/16")))

    def test_wrong_arguments_are_named_errors(self):
        table = Table()
        texts = ["", "foo", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/8", "::/129", "10.0.0.0/8/8", " 10.0.0.1"]
        for key in [*texts, -1, 2**128, b"abc", ("10.0.0.0", 33)]:
            with self.assertRaises(ValueError, msg=repr(key)) as raised:
                table[key] = 1
            self.assertIn("no address or prefix", str(raised.exception))
        for key in [None, 1.5, ["10.0.0.0/8"], Object(), (), ("10.0.0.0", "8")]:
            self.assertRaises(TypeError, table.get, key)
            self.assertRaises(TypeError, table.__contains__, key)
        self.assertEqual(len(table), 0)
        self.assertRaises(TypeError, table.insert, "10.0.0.0/8")
        self.assertRaises(TypeError, table.insert, "10.0.0.0", 8, 1, 2)
        self.assertRaises(TypeError, table.pop, "10.0.0.0/8", 1, 2)
        for bits in [0, 129]:
            self.assertRaises(ValueError, Table, bits)
        with self.assertRaisesRegex(ValueError, "item 1: .*foo"):
            table.lookup_values(["10.0.0.1", "foo"])
        for text in ["10.0.0.1\n10.0.0.2", "10.0.0.1\n", "\ud800"]:
            with self.assertRaisesRegex(ValueError, "item 1: "):
                table.lookup_values(["10.0.0.1", text, "::1"])
        with self.assertRaisesRegex(ValueError, "item 0: 10.0.0.0/8 is a prefix"):
            table.lookup_values(["10.0.0.0/8"])
        self.assertRaises(TypeError, table.lookup_values, "10.0.0.1")
        self.assertRaises(TypeError, table.lookup_values, [None])
        self.assertRaises(TypeError, table.lookup_values, 5)

    def test_missing_keys_are_key_errors(self):
        table = Table()
        table["10.0.0.0/8"] = 1
        with self.assertRaisesRegex(KeyError, "11.0.0.1"):
            table["11.0.0.1"]
        for call in [table.delete, table.parent, table.children, table.pop, table.__delitem__]:
            with self.assertRaisesRegex(KeyError, "10.0.0.0/9 is not in the table"):
                call("10.0.0.0/9")
        self.assertEqual(table.pop("10.0.0.0/9", None), None)
        self.assertEqual(table.pop("10.0.0.0/8", 2), 1)

    def test_raw_output_is_bytes_and_a_length(self):
        table = Table(raw_output=True)
        table["10.0.0.0/8"] = 1
        table["2001:db8::/32"] = 2
        six = ipaddress.ip_address("2001:db8::").packed
        self.assertEqual(table.keys(), [(b"\x0a\0\0\0", 8), (six, 32)])
        self.assertEqual(table.get_key(table.keys()[1]), (six, 32))
        self.assertEqual(pickle.loads(pickle.dumps(table)).keys(), table.keys())


class Dictionary(unittest.TestCase):
    def test_update_changes_all_or_nothing(self):
        table = Table()
        table.update({"10.0.0.0/8": 1, "::/0": 2})
        table.update([("10.0.0.0/8", 3), ("192.0.2.0/24", 4)])
        other = Table()
        other["198.51.100.0/24"] = 5
        table.update(other)
        items = [("10.0.0.0/8", 3), ("192.0.2.0/24", 4), ("198.51.100.0/24", 5), ("::/0", 2)]
        self.assertEqual(table.items(), items)
        self.assertRaises(ValueError, table.update, [("1.0.0.0/8", 1), ("foo", 2)])
        self.assertRaises(TypeError, table.update, [("1.0.0.0/8", 1), 7])
        self.assertEqual(table.items(), items)

    def test_setdefault_changes_only_a_missing_prefix(self):
        table = Table()
        self.assertEqual(table.setdefault("10.0.0.0/8", 1), 1)
        self.assertEqual(table.setdefault("10.0.0.0/8", 2), 1)
        self.assertEqual(table.setdefault("10.0.0.0/9", 3), 3)
        self.assertIsNone(table.setdefault("10.0.0.0/10"))
        self.assertEqual(len(table), 3)

    def test_clear_and_copies_are_independent(self):
        table = Table()
        table["10.0.0.0/8"] = value = Object()
        shallow, deep = copy.copy(table), copy.deepcopy(table)
        table.clear()
        self.assertEqual((len(table), bool(table)), (0, False))
        self.assertIs(shallow["10.0.0.0"], value)
        self.assertIsNot(deep["10.0.0.0"], value)
        self.assertEqual(table.copy().items(), [])
        table["10.0.0.0/8"] = 2
        self.assertEqual(table.lookup_values(["10.0.0.1", "11.0.0.1"]), [2, None])

    def test_diff_names_each_changed_prefix(self):
        former, later = Table(), Table()
        former.update({"10.0.0.0/8": [1], "192.0.2.0/24": 2, "::/0": 3})
        later.update({"10.0.0.0/8": [1], "192.0.2.0/24": 4, "198.51.100.0/24": 5})
        expected = [("192.0.2.0/24", 2, 4), ("198.51.100.0/24", None, 5), ("::/0", 3, None)]
        self.assertEqual(former.diff(later), expected)
        self.assertEqual(former.diff(former), [])

    def test_frozen_table_refuses_changes(self):
        table = Table()
        table["10.0.0.0/8"] = 1
        table.freeze()
        changes = [
            lambda: table.__setitem__("10.0.0.0/9", 1),
            lambda: table.__delitem__("10.0.0.0/8"),
            lambda: table.pop("10.0.0.0/8"),
            lambda: table.update({"10.0.0.0/9": 1}),
            lambda: table.setdefault("10.0.0.0/9", 1),
            table.clear,
        ]
        for frozen in [table, pickle.loads(pickle.dumps(table))]:
            self.assertRaises(ValueError, frozen.insert, "10.0.0.0/9", 2)
        for change in changes:
            self.assertRaisesRegex(ValueError, "frozen", change)
        self.assertEqual(table.items(), [("10.0.0.0/8", 1)])
        table.thaw()
        table["10.0.0.0/9"] = 2
        self.assertEqual(table["10.0.0.1"], 2)

    def test_damaged_pickles_are_errors(self):
        table = Table()
        table.update({"10.0.0.0/8": "a", "2001:db8::/32": "b"})
        version, flags, four, six, values = table.__getstate__()
        damaged = [
            (version + 1, flags, four, six, values),
            (version, flags, four[:-1], six, values),
            (version, flags, four, four, values),
            (version, flags, four, six, values[:1]),
            (version, flags, b"\x0a\x01\0\0\x08\0\0\0\x01", six, values),
        ]
        for state in damaged:
            self.assertRaises(ValueError, Table().__setstate__, state)
        for state in [None, (version,), (version, flags, four, six, 5)]:
            self.assertRaises((TypeError, IndexError, ValueError), Table().__setstate__, state)


class Lifetimes(unittest.TestCase):
    def test_value_is_freed_with_its_last_prefix(self):
        table, value = Table(), Object()
        alive = weakref.ref(value)
        table["10.0.0.0/8"] = table["11.0.0.0/8"] = value
        del value
        table.lookup_values(["10.0.0.1"])
        table["10.0.0.0/8"] = 1
        self.assertIs(alive(), table["11.0.0.0"])
        del table["11.0.0.0/8"]
        self.assertIsNone(alive())

    def test_number_of_a_freed_value_is_given_to_another(self):
        table = Table()
        for step in range(1000):
            table["10.0.0.0/8"] = value = Object()
            self.assertIs(table.lookup_values(["10.0.0.1"])[0], value)
        self.assertLess(len(table.values_by_number()), 5)

    def test_cycle_through_a_table_is_collected(self):
        table = Table()
        table["10.0.0.0/8"] = table
        gone = weakref.ref(table)
        del table
        gc.collect()
        self.assertIsNone(gone())

    def test_finalizer_of_a_value_may_use_the_table(self):
        table, seen = Table(), []

        class Finalized:
            def __del__(self):
                seen.append(len(table))
                table["192.0.2.0/24"] = "finalized"

        table["10.0.0.0/8"] = Finalized()
        table["10.0.0.0/8"] = Finalized()
        del table["10.0.0.0/8"]
        table["10.0.0.0/8"] = Finalized()
        table.clear()
        self.assertEqual(seen, [1, 1, 0])
        self.assertEqual(table.items(), [("192.0.2.0/24", "finalized")])

    def test_comparison_of_values_may_use_the_table(self):
        former, later = Table(), Table()

        class Compared:
            def __eq__(self, other):
                former["10.0.0.0/8"] = 1
                return True

        former["10.0.0.0/8"], later["10.0.0.0/8"] = Compared(), Compared()
        self.assertEqual(former.diff(later), [])
        self.assertEqual(former["10.0.0.0"], 1)


class Threads(unittest.TestCase):
    def test_lookups_beside_changes_give_the_value_before_or_after(self):
        table = Table()
        table["0.0.0.0/0"] = 0
        addresses = [i * 2**12 for i in range(1 << 12)]
        answers, stop = [[], [], []], threading.Event()

        def read(answers):
            while not stop.is_set():
                answers.append(set(table.lookup_values(addresses)))

        threads = [threading.Thread(target=read, args=(part,)) for part in answers]
        for thread in threads:
            thread.start()
        step = 0
        while step < 600 or min(map(len, answers)) <= 10:
            step += 1
            # An object of its own, which is freed with its route.
            table["0.0.0.0/0"] = step * 1000
            if step % 3 == 0:
                table.commit()
        stop.set()
        for thread in threads:
            thread.join()
        for part in answers:
            # One state of the table answers all, and states only go on.
            self.assertEqual([len(values) for values in part], [1] * len(part))
            states = [state for values in part for state in values]
            self.assertNotIn(None, states)
            self.assertEqual(states, sorted(states))
        self.assertEqual(table["1.2.3.4"], step * 1000)


if __name__ == "__main__":
    unittest.main()
