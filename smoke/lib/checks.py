"""Checks with a line of output each, and waiting for a condition."""

import sys
import time

# Seconds to wait for a condition: far more than it takes on an idle machine.
PATIENCE = 8.0


def wait_until(holds, seconds=PATIENCE, every=0.02):
    """Waits until `holds()` is true and returns its last value."""
    until = time.monotonic() + seconds
    while not (value := holds()) and time.monotonic() < until:
        time.sleep(every)
    return value


class Checks:
    """Prints the result of each check, and keeps a complaint for each that failed."""

    def __init__(self):
        self.complaints = []

    def __call__(self, name, holds, detail=""):
        print(f"   {'ok  ' if holds else 'BAD '} {name}", flush=True)
        if not holds:
            self.complaints.append(f"{name}: {detail}")

    def finish(self):
        """Ends the program: with status 1 and the complaints, if there are any."""
        for complaint in self.complaints:
            print(f"WRONG {complaint}", file=sys.stderr)
        sys.exit(1 if self.complaints else 0)


def compare_counters(want, got, names=None, detail=""):
    """Ends the program if a counter is not as expected: of `names`, or of all in `want`. A missing one is 0."""
    pairs = {name: (want.get(name, 0), got.get(name, 0)) for name in (want if names is None else names)}
    wrong = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
    if wrong:
        sys.exit(f"counters, (expected, counted): {wrong}\n{detail}")


def check_at_once(name, holds, detail=""):
    """A check that ends the program if it fails: what follows makes no sense then."""
    print(f"   {'ok  ' if holds else 'BAD '} {name}", flush=True)
    if not holds:
        sys.exit(f"{name}: {detail}")
