"""Longest-prefix match over a list of prefixes, without the router's code.

A file has a prefix a line; those on odd lines are a's, those on even ones b's.
"""

import ipaddress


class Prefixes:
    """The prefixes of `path` that belong to one of `sides`, by length."""

    def __init__(self, path, sides=("a", "b")):
        self.lengths, self.listed = {}, []
        with open(path, encoding="ascii") as file:
            for number, line in enumerate(file):
                side = "b" if number % 2 else "a"
                if side not in sides:
                    continue
                block, _, length = line.strip().partition("/")
                octets = [int(octet) for octet in block.split(".")]
                value = octets[0] << 24 | octets[1] << 16 | octets[2] << 8 | octets[3]
                self.lengths.setdefault(int(length), {})[value] = side
                self.listed.append((value, int(length)))

    def of(self, address):
        """Returns the side with the longest prefix of an address, or None."""
        for length in sorted(self.lengths, reverse=True):
            side = self.lengths[length].get(address >> (32 - length) << (32 - length) if length else 0)
            if side:
                return side
        return None

    def draw(self, dice):
        """An address within a prefix drawn at random, of those a router has to forward."""
        while True:
            value, length = dice.choice(self.listed)
            address = value | dice.getrandbits(32 - length) if length < 32 else value
            if ipaddress.ip_address(address).is_global:
                return address
