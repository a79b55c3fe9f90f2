"""Floods, patient clients and a grantor for admission_test.sh.

The floods and clients are those of flood.py. admission_test.sh calls it within the client's namespace with the prefix of the
namespaces, the program, the scratch folder and the gate's process.
"""

import os
import random
import signal
import socket
import struct
import sys
import threading
import time

from flood import Flood, Grantor, connect
from checks import Checks, wait_until
from control import Control
from decisions import udp, v1, v1_declined, v1_granted
from frames import FRAMING, PROTECTED, Template, address
from netns import Tap, in_namespace

CHANNEL = 100e6 * 0.05
check = Checks()


def awaits(what, holds):
    check(what, wait_until(holds), control.gate())


def flood(sources, rate=None):
    template = Template()
    return Flood(prefix, map(template.of, sources), rate)


def forged(seed):
    """Random sources, each once in a while at most."""
    draw = random.Random(seed)
    while True:
        yield 0x14000000 + draw.getrandbits(27)


def overload(tap, grantor):
    """Test 4: twice what the channel carries, of three ranks."""
    template = Template()
    wire = len(template.frame) + 20 + FRAMING
    rate = 2 * CHANNEL / 8 / wire
    stream = flood(forged(4), rate)
    # The impatient send all the time; the patient again after 1.3 and 2.6 s.
    impatient, patient = [0x1E000000 + n for n in range(4)], [0x1F000000 + n for n in range(60)]
    time.sleep(1.0)
    grantor.clear()
    begin = time.monotonic()
    sends = sorted([(gap + n / 60, src) for n, src in enumerate(patient) for gap in (0, 1.3, 3.9)])
    done = 0
    while (now := time.monotonic() - begin) < 5.2:
        while done < len(sends) and sends[done][0] <= now:
            tap.send(template.of(sends[done][1]))
            done += 1
        for src in impatient:
            tap.send(template.of(src))
        time.sleep(0.01)
    # Of twenty, one finds a place that is just free.
    for n in range(4):
        tap.send(template.of(0x1D000000 + n))
    once = [control.explain(f"29.0.0.{n}", PROTECTED) for n in range(4)]
    known = control.gate()
    stream.stop()
    time.sleep(0.3)
    with grantor.lock:
        seen = list(grantor.all)
    bits = lambda some: sum(entry[2] + FRAMING for entry in some) * 8
    check("frames have the length they should have", {entry[2] + FRAMING for entry in seen} == {wire}, {entry[2] for entry in seen})
    rates = []
    for step in range(16):
        start = seen[0][0] + 0.25 * step
        rates.append(bits([entry for entry in seen if start <= entry[0] < start + 1]))
    middle = sorted(rates)[len(rates) // 2]
    # A bucket of 20 ms, and a measurement of a second.
    check(
        f"requests have 5 % of the link: {middle / 1e6:.3f} Mbit/s, at most {max(rates) / 1e6:.3f}",
        abs(middle / CHANNEL - 1) <= 0.02 and max(rates) <= CHANNEL * 1.04,
        rates,
    )
    later = [[entry[1] for entry in grantor.seen(src) if entry[1] > 41] for src in patient]
    check("no packet of a patient source is lost: 43 and 44 of each", all(entry == [43, 44] for entry in later), later)
    low = sum(1 for entry in seen if entry[1] < 41)
    check("and none below a new one's gets past", low <= 20, low)
    table = known["table"]
    check("the flood has half of the table, and has marks", table["flows"] <= 2048 + 200 and table["first_seen"] > 1000 and table["evicted"] == 0, table)
    answer = control.explain(socket.inet_ntoa(struct.pack(">I", patient[0])), PROTECTED)
    check("explain prints when a source with one packet sent it", any(entry["state"] == "unknown" and 0 <= entry.get("first_seen_ago", -1) < 3 for entry in once), once)
    check("a source that sent again has an entry", answer["state"] == "request" and answer["priority"] == 41, answer)


def patience(grantor):
    """Test 5: ten thousand forged sources, over and over."""
    grantor.clear()
    grantor.grants.add(address("10.1.0.3"))

    def round_robin():
        while True:
            for n in range(10_000):
                yield 0x28000000 + n * 7

    stream = flood(round_robin())
    time.sleep(0.5)
    results = []
    connect("10.1.0.3", results)
    stream.stop()
    took, syns = results[0]
    check(f"a TCP client connects by its third SYN: {took:.2f} s, {syns} SYNs", syns in (1, 2, 3) and took < 6, results)


def million(tap, grantor, say):
    """Test 12: a million random flows, a table of 4096."""
    grantor.clear()
    friends = [0x32000000 + n for n in range(100)]
    names = [socket.inet_ntoa(struct.pack(">I", src)) for src in friends]
    before = control.gate()
    say(v1(*(v1_granted(name, 10_000, 120, 100_000, 1000) for name in names[:50])))
    say(v1(*(v1_granted(name, 10_000, 120, 100_000, 1000) for name in names[50:])))
    awaits("the grants are in force", lambda: control.gate()["decisions"]["decided"] >= before["decisions"]["decided"] + 100)
    # Entries of the flood before may have been evicted for them.
    before, dropped = control.gate(), control.counters()["dropped"]
    grantor.clear()
    # Each once: among a million by chance some thousand would come twice.
    stream = flood((0x14000000 + at * 0x5851F42D % (1 << 27) for at in range(1_000_000)), 70_000)
    template, sent, results = Template(), 0, []
    grantor.grants.add(address("10.1.0.4"))
    client = threading.Thread(target=connect, args=("10.1.0.4", results))
    begin = time.monotonic()
    while not stream.over() and time.monotonic() < begin + 60:
        for src in friends[sent % 10 * 10 : sent % 10 * 10 + 10]:
            tap.send(template.of(src))
        sent += 1
        time.sleep(0.01)
        if not client.ident and time.monotonic() > begin + 2:
            client.start()
    took = time.monotonic() - begin
    stream.stop()
    client.join()
    time.sleep(0.3)
    now = control.gate()
    more = lambda part, name: now[part][name] - before[part][name]
    print(f"   a million flows in {took:.1f} s, {more('packets', 'received')} packets at the gate")
    check("the million came", more("packets", "received") > 500_000, more("packets", "received"))
    # Packets that a busy machine does not take off the interface never arrive at the gate.
    of_friends = [entry for src in friends for entry in grantor.seen(src)]
    with grantor.lock:
        arrived = sum(1 for entry in grantor.all if entry[1] in (1, 2))
    answer = (len(of_friends), sent * 10, arrived, more("packets", "granted"))
    check(f"granted flows are unaffected: {answer[0]} of {answer[1]} packets", answer[0] >= 0.5 * answer[1] and {entry[1] for entry in of_friends} == {1}, answer)
    check("none of those that came to the gate is lost", arrived == more("packets", "granted"), answer)
    now_dropped = control.counters()["dropped"]
    reasons = {name: now_dropped[name] - dropped[name] for name in now_dropped if now_dropped[name] != dropped[name]}
    lost = {"rx_ring_full", "fill_empty", "rx_dropped", "undelivered", "unserved"}
    check("and nothing is dropped but requests", set(reasons) - lost <= {"low_priority"}, reasons)
    check("no entry is given up for the flood", now["table"]["granted"] >= 100 and more("table", "evicted") <= 200, (now["table"], before["table"]))
    elapsed, syns = results[0]
    check(f"a new client is served within 5 s: {elapsed:.2f} s, {syns} SYNs", elapsed < 5 and isinstance(syns, int), results)
    check("the rest of the table is free", now["table"]["flows"] <= 2048 + 400, now["table"])


def limits(tap, grantor, say):
    """A prefix and its destinations have their limits; requests and grants have shares of them."""
    grantor.clear()
    source = "60.0.0.1"
    hosts = [f"192.0.2.{n}" for n in (65, 66, 67)]
    before = control.gate()
    say(v1(*(v1_granted(source, 100_000, 120, 100_000, 1000, dst=dst) for dst in hosts)))
    awaits("they are granted", lambda: control.gate()["decisions"]["decided"] >= before["decisions"]["decided"] + 3)
    templates = [Template(dst, 900) for dst in hosts]
    # One host first, then all: 7.6 Mbit/s each.
    rates = []
    for count in (1, 3):
        grantor.clear()
        begin, sent = time.monotonic(), 0
        while (now := time.monotonic() - begin) < 2:
            while sent < now * 1000:
                for template in templates[:count]:
                    tap.send(template.of(address(source)))
                sent += 1
            time.sleep(0.002)
        time.sleep(0.2)
        seen = grantor.seen(address(source))
        rates.append(sum(entry[2] + FRAMING for entry in seen) * 8 / 2e6)
    now = control.gate()["packets"]
    check(f"a destination has 95 % of 2 Mbit/s: {rates[0]:.2f}", 1.9 * 0.9 <= rates[0] <= 1.9 * 1.06, rates)
    check(f"the prefix has 95 % of 4 Mbit/s: {rates[1]:.2f}", 3.8 * 0.9 <= rates[1] <= 3.8 * 1.06, rates)
    more = {name: now[name] - before["packets"][name] for name in ("over_limit", "over_destination_limit")}
    check("packets over a limit are counted by their reason", all(entry > 100 for entry in more.values()), more)
    answer = control.explain(source, hosts[0])
    check("explain prints the limits, and which was exceeded", (answer["limit"], answer["per_destination_limit"]) == (4_000_000, 2_000_000) and answer["dropped"] in ("over_limit", "over_destination_limit"), answer)


def allowed(tap, grantor, say):
    """A source on the allow-list passes, declined or not, as soon as the list is read."""
    friend, other = "203.0.113.9", "198.51.100.9"
    before = control.gate()
    say(v1(v1_declined(friend, 600), v1_declined(other, 600)))
    awaits("both are declined", lambda: control.gate()["decisions"]["decided"] >= before["decisions"]["decided"] + 2)
    template = Template()

    def passes(src):
        grantor.clear()
        tap.send(template.of(address(src)))
        time.sleep(0.3)
        return [entry[1] for entry in grantor.seen(address(src))]

    check("a source on the list passes with DSCP 1", passes(friend) == [1])
    check("another source does not", passes(other) == [])
    answer = control.explain(friend, PROTECTED)
    check("explain prints by which prefix", answer["allowed"] == "203.0.113.0/24" and not answer["xdp_dropped"], answer)
    check("it is counted", control.gate()["packets"]["allowed"] == before["packets"]["allowed"] + 1)

    def reload(text, said):
        with open(f"{work}/allow.txt", "w", encoding="ascii") as file:
            file.write(text)
        os.kill(process, signal.SIGHUP)
        return wait_until(lambda: said in open(f"{work}/gate.log", encoding="utf-8").read())

    check("a bad list is refused", reload("198.51.100.0/24\nno-prefix\n", "allow.txt: line 2: \"no-prefix\" is not an address or prefix"))
    check("and nothing of it is taken over", passes(other) == [] and passes(friend) == [1])
    check("a good one is taken whole", reload("198.51.100.0/24 # others\n", "reloaded: policy generation 2"))
    check("a source on the new list passes", passes(other) == [1] and passes(friend) == [])


def main():
    tap = Tap(f"{prefix}client", "c0")
    speaker = in_namespace(prefix, "grantor", lambda: udp("10.2.0.2", 41120))
    say = lambda message: speaker.sendto(message, ("10.2.0.1", 45232))
    grantor = Grantor(Tap(f"{prefix}grantor", "t0"), say)
    overload(tap, grantor)
    patience(grantor)
    million(tap, grantor, say)
    limits(tap, grantor, say)
    allowed(tap, grantor, say)
    check.finish()


prefix, program, work, process = sys.argv[1:4] + [int(sys.argv[4])]
control = Control(program, f"{work}/sock")
main()
