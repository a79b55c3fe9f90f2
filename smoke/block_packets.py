"""Packets of blocked sources for block_test.sh, by scapy.

Called within the client's namespace with the prefix of the namespaces, the program, the scratch
folder, the name of the configuration, how many prefixes the kernel may know, and the folder with real lists.
"""

import glob
import gzip
import ipaddress
import random
import os
import select
import sys
import time

from checks import PATIENCE, Checks, wait_until
from control import Control
from netns import Tap
from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

CLIENT, FRONT = "02:00:00:00:01:02", "02:00:00:00:01:01"
GRANTOR, BACK = "02:00:00:00:02:02", "02:00:00:00:02:01"
BYTES = 40
# Sources that are on no list, and none of the gate's own or of what it protects: such are forged.
MARKS = {"198.51.100.200", "2001:4860:4860::8888"}
FLOWSPEC = "flowspec 127.0.0.1:1179"
check = Checks()
marks = iter(range(1000, 60000))


def packet(src):
    mark = Raw(next(marks).to_bytes(4, "big") * (BYTES // 4))
    if ":" in src:
        return IPv6(src=src, dst="2001:db8:2::7", hlim=33) / UDP(sport=5000, dport=6000) / mark
    return IP(src=src, dst="192.0.2.7", ttl=17) / UDP(sport=5000, dport=6000) / mark


def sends(passes, blocked):
    """Sends a packet of each and returns those whose packets come out.

    Packets leave by class and priority, not as they came: all that are to pass are waited for, and two
    that come last, so that there is something to wait for where none is.
    """
    grantor.take()
    grantor.seen.clear()
    packets = {src: packet(src) for src in [*passes, *blocked, *MARKS]}
    for entry in packets.values():
        client.send(raw(Ether(src=CLIENT, dst=FRONT) / entry))
    until = time.monotonic() + PATIENCE
    inner = {raw(entry): src for src, entry in packets.items()}
    came = set()
    while not {*passes, *MARKS} <= came and time.monotonic() < until:
        select.select([grantor.socket], [], [], 0.05)
        grantor.take()
        for frame in grantor.seen:
            came |= {src for body, src in inner.items() if body in frame}
    return came - MARKS


def judged(what, passes, blocked, times=3):
    """Checks that sources pass or are blocked, and that packets and bytes are counted so."""
    before, inside = control.gate(), control.steered("g0")
    rounds = [sends(passes, blocked) for _ in range(times)]
    leaked = sends([], blocked)
    check(what, all(entry == set(passes) for entry in rounds) and not leaked, (rounds, leaked))
    sent = times * (len(passes) + len(blocked) + 2) + len(blocked) + 2
    ends = (times + 1) * len(blocked)
    size = (times + 1) * sum(14 + len(raw(packet(src))) for src in blocked)
    wait_until(lambda: control.gate()["packets"]["received"] >= before["packets"]["received"] + sent)
    now, after = control.gate(), control.steered("g0")
    more = {name: now["packets"][name] - before["packets"][name] for name in ("received", "blocked", "xdp_dropped")}
    here = after["blocked"] - inside["blocked"]
    early = ends if room > 100 else 0 if room == 0 else more["xdp_dropped"]
    check("   counted exactly", more == {"received": sent, "blocked": ends, "xdp_dropped": early} and now["bytes"]["blocked"] - before["bytes"]["blocked"] == size, (more, sent, ends, size, now["bytes"], before["bytes"]))
    check("   by the steering program and by the workers", here == early and after["taken"] - inside["taken"] == sent - early, (here, early, sent))
    if 0 < room <= 100:
        check("   some in the kernel, some not", 0 < early < ends, (early, ends))


def explains(src, dst, **wants):
    answer = control.explain(src, dst)
    got = {name: answer.get(name) for name in wants}
    check(f"explain knows why: {src}", got == wants, answer)


def reads(text, *, refused=None):
    with open(f"{work}/block.txt", "w", encoding="ascii") as file:
        file.write(text)
    done = control.run("reload")
    if refused:
        check("a bad list is refused, with its line", done.returncode == 1 and refused in done.stderr, done)
    else:
        check("another list is read", done.returncode == 0, done)


def lists():
    """The first list, what is allowed in it, another, a bad one, and none."""
    blocked = ["203.0.113.5", "203.0.113.127", "198.51.100.7", "2001:db8:9::5", "2001:db8:9:2::1"]
    # Beside the list, and on the allow-list too, however long the blocked prefix is.
    passes = ["198.51.100.8", "203.0.112.255", "203.0.113.128", "203.0.113.200", "2001:db8:9:1::5", "2001:db8:8::1"]
    judged("packets of blocked sources do not come out, those of allowed sources within do", passes, blocked)
    answer = control.gate()
    check("show gate prints the lists", (answer["allowed"], answer["blocked"]) == (2, 4), answer)
    there, left = answer["table"]["xdp_prefixes"], answer["table"]["xdp_prefixes_overflow"]
    # Of five: a blocked one that is on the allow-list too is left out, and two that pass are in.
    check("and what the kernel knows of them", there + left == (0 if room == 0 else 5) and (there == 5 or room < 5), (there, left))
    if room != 2:
        explains("203.0.113.5", "192.0.2.7", state="blocked", blocked="203.0.113.0/24", allowed=None, dropped="blocked", xdp_dropped=room > 0)
    explains("203.0.113.200", "192.0.2.7", blocked=None, allowed="203.0.113.128/25", xdp_dropped=False)
    before = control.gate()
    reads("203.0.113.0/24\n198.51.100.0/33\n", refused='block.txt: line 2: prefix "198.51.100.0/33" has no valid length')
    check("and counted", control.gate()["reloads_refused"] == before["reloads_refused"] + 1)
    judged("the old one is in force", passes, blocked, 1)
    if room == 2:
        return
    reads("203.0.113.0/25\n198.51.100.8\n")
    judged("what came and what went", ["198.51.100.7", "203.0.113.200"], ["198.51.100.8", "203.0.113.5", "2001:db8:9::5"], 1)
    # A blocked source can still reach the gate's own addresses.
    before = control.steered("g0")
    for _ in range(4):
        client.send(raw(Ether(src=CLIENT, dst=FRONT) / IP(src="203.0.113.5", dst="10.1.0.1") / UDP(sport=9, dport=9)))
    wait_until(lambda: control.steered("g0")["local"] >= before["local"] + 4)
    check("what is for the host itself stays the host's", control.steered("g0")["local"] == before["local"] + 4, (before, control.steered("g0")))


def put(name, *lines):
    """Replaces a file that the gate reads by itself."""
    with open(f"{work}/new", "w", encoding="ascii") as file:
        file.write("".join(f"{line}\n" for line in lines))
    os.rename(f"{work}/new", f"{work}/{name}")


def prefixes_of(name):
    entries = {entry["name"]: entry for entry in control.show("block-lists")}
    return entries[name]["v4"] + entries[name]["v6"]


def orders(*words, refused=None):
    done = control.run(*words)
    check(f"{' '.join(words)}: {refused or 'done'}", (done.returncode != 0) == bool(refused) and (refused or "") in done.stderr, done)


def changes(old, new):
    """Changes the gate's file."""
    with open(f"{work}/front.toml", encoding="ascii") as file:
        text = file.read()
    assert text.count(old) == 1, text
    with open(f"{work}/front.toml", "w", encoding="ascii") as file:
        file.write(text.replace(old, new))


def front():
    """Lists in front of the gate, beside those of its policy."""
    policy = ["203.0.113.5", "2001:db8:9::5"]
    names = [entry["name"] for entry in control.show("block-lists")]
    check("the allow-list comes first, then bans", names == ["[allow]", "bans", f"{work}/feed", FLOWSPEC], names)
    judged("a list in front, and that of the policy", ["198.51.100.4", "203.0.113.200"], ["198.51.100.3", *policy])
    # The session is established some seconds after the start.
    check("a flow specification arrives", wait_until(lambda: prefixes_of(FLOWSPEC), 60) == 1, control.show("block-lists"))
    judged("a flow specification", ["198.51.100.63", "198.51.100.128"], ["198.51.100.64", "198.51.100.127"], 1)
    # A file that changes, with a source that the policy allows.
    put("feed", "198.51.100.4", "203.0.113.0/24", "192.0.2.77", "2001:db8:9:1::5")
    wait_until(lambda: prefixes_of(f"{work}/feed") == 4)
    passes, blocked = ["198.51.100.3", "203.0.113.200", "2001:db8:9:1::5"], ["198.51.100.4", *policy]
    judged("another content, and sources that the policy allows", passes, blocked, 1)
    orders("ban", "2001:db8:7::/64")
    judged("a ban", passes, [*blocked, "2001:db8:7::1"], 1)
    orders("ban", "10.1.0.1", refused="an address of g0: a ban would cut this host off")
    # Unlike those of the policy, packets for the gate itself are dropped too; those from the back are not.
    before = control.steered("g0")
    for src in ("198.51.100.4", "198.51.100.3"):
        client.send(raw(Ether(src=CLIENT, dst=FRONT) / IP(src=src, dst="10.1.0.1") / UDP(sport=9, dport=9)))
    wait_until(lambda: control.steered("g0")["local"] > before["local"])
    now = control.steered("g0")
    check("packets for the gate itself", (now["blocked"] - before["blocked"], now["local"] - before["local"]) == (1, 1), (before, now))
    client.take()
    client.seen.clear()
    grantor.send(raw(Ether(src=GRANTOR, dst=BACK) / IP(src="198.51.100.4", dst="10.1.0.2") / UDP(sport=9, dport=9) / b"back"))
    wait_until(lambda: client.take() or any(frame.endswith(b"back") for frame in client.seen))
    check("a listed source behind the gate", any(frame.endswith(b"back") for frame in client.seen), client.seen)
    # Another allow-list, by a reload: it is before the lists at once.
    allowed, wider = '"203.0.113.128/25", ', '"203.0.113.128/25", "198.51.100.4/32", '
    changes(allowed, wider)
    orders("reload")
    judged("a wider allow-list", ["198.51.100.4"], [*policy, "2001:db8:7::1"], 1)
    changes(wider, "")
    orders("reload")
    judged("a shorter one", [], ["198.51.100.4", "203.0.113.200", *policy], 1)
    # A list that would cut the gate off but for the allow-list, which has to stay as it is.
    changes('"2001:db8:9:1::/64"]', '"2001:db8:9:1::/64", "10.1.0.0/30"]')
    orders("reload")
    put("feed", "198.51.100.4", "203.0.113.0/24", "10.1.0.0/30")
    wait_until(lambda: prefixes_of(f"{work}/feed") == 3)
    changes(', "10.1.0.0/30"]', "]")
    orders("reload", refused="[allow]: without its former prefixes, 10.1.0.1, an address of g0, would be blocked")
    answer = control.gate()
    check("the former allow-list", (prefixes_of("[allow]"), answer["allowed"]) == (2, 2), (control.show("block-lists"), answer["allowed"]))
    put("feed", "198.51.100.4", "203.0.113.0/24")
    wait_until(lambda: prefixes_of(f"{work}/feed") == 2)
    orders("reload")
    judged("the shorter one again", [], ["198.51.100.4", "203.0.113.200", *policy], 1)
    # Other lists, by a reload; the bans stay.
    put("other", "198.51.100.3")
    changes('lists = ["feed"]', 'lists = ["other"]')
    orders("ban", "198.51.100.9")
    orders("reload")
    blocked = ["198.51.100.9", "198.51.100.65", "2001:db8:7::1"]
    judged("other lists", ["198.51.100.4"], ["198.51.100.3", *blocked], 1)
    changes('lists = ["other"]', 'lists = ["none"]')
    orders("reload", refused=f"reading the list {work}/none: ")
    judged("the former lists after a refusal", ["198.51.100.4"], ["198.51.100.3", *blocked], 1)
    changes('lists = ["none"]', "")
    orders("reload")
    judged("bans and flow specifications alone", ["198.51.100.3"], blocked, 1)
    changes('flowspec = "65001@127.0.0.1:1179"', 'flowspec = "65001@192.0.2.99:1179"')
    orders("reload", refused="listening for BGP at 192.0.2.99:1179: ")
    changes('flowspec = "65001@192.0.2.99:1179"', 'flowspec = "65001@127.0.0.1:1179"')
    # The former speaker has ended its sessions, and listens again.
    judged("the former ones after another refusal", ["198.51.100.3"], [entry for entry in blocked if entry != "198.51.100.65"], 1)
    check("the flow specification is back", wait_until(lambda: prefixes_of(FLOWSPEC), 60) == 1, control.show("block-lists"))
    bans = f'bans = "{work}/bans"'
    changes(bans, "")
    changes('flowspec = "65001@127.0.0.1:1179"', "")
    changes(f'cache = "{work}/cache"', "")
    orders("reload", refused="block.lists cannot be changed while the gate runs: restart the gate")
    changes('file = "block.txt"', f'file = "block.txt"\n{bans}\nlists = ["other"]\ncache = "{work}/cache"')
    orders("reload")
    judged("and they are back", [], ["198.51.100.3", "2001:db8:7::1"], 1)


def real():
    """Lists that others keep, all at once."""
    names = ["firehol_abusers_30d-2026.netset", "fullbogons-ipv6-2024.txt", "ipsum-20260822.txt"]
    texts = [gzip.open(glob.glob(f"{data}/list-{name}.gz")[0], "rt", encoding="ascii").read() for name in names]
    entries = [line.split()[0] for text in texts for line in text.splitlines() if line[:1] not in ("", "#")]
    prefixes = [ipaddress.ip_network(entry) for entry in entries]
    begun = time.monotonic()
    reads("".join(texts))
    took = time.monotonic() - begun
    check(f"{len(entries)} lines in {took:.1f} s", took < 30 and control.gate()["blocked"] == len(entries) + 1, (took, control.gate()["blocked"]))
    print("     ", {name: value for name, value in control.gate()["table"].items() if name.startswith("xdp_")}, flush=True)
    # The twin: every prefix of a family, one by one.
    dice = random.Random(5)
    four, six = ([entry for entry in prefixes if entry.version == version] for version in (4, 6))
    ours = [ipaddress.ip_network(entry) for entry in ("203.0.113.128/25", "2001:db8:9:1::/64", "192.0.2.0/24", "2001:db8:2::/48")]
    passes, blocked = [], []
    for _ in range(40):
        for family in (four, six):
            chosen = dice.choice(family)
            address = chosen[0] + dice.randrange(min(4, chosen.num_addresses)) + dice.choice([0, 0, 1, 1 << 40 if chosen.version == 6 else 256])
            # Others have their own ends: multicast, loopback and the like.
            if not address.is_global or any(address in entry for entry in ours if entry.version == address.version):
                continue
            listed = any(address in entry for entry in family)
            (blocked if listed else passes).append(str(address))
    # Networks that have long been in use, and so are no bogons.
    for text in ("2001:500:2::c", "2001:503:ba3e::2:30", "2a00:1450:4001::1", "2606:4700::1111"):
        (blocked if any(ipaddress.ip_address(text) in entry for entry in six) else passes).append(text)
    passes, blocked = sorted(set(passes)), sorted(set(blocked))
    check("some of both", len(passes) > 5 and len(blocked) > 20 and any(":" in entry for entry in passes), (passes, blocked))
    judged(f"{len(blocked)} of them are blocked, {len(passes)} beside them are not", passes, blocked, 1)
    begun = time.monotonic()
    reads("198.51.100.7\n")
    check(f"and a short list again in {time.monotonic() - begun:.1f} s", control.gate()["blocked"] == 2)
    judged("all but one are let go", [entry for entry in blocked if entry != "198.51.100.7"], ["198.51.100.7"], 1)


if __name__ == "__main__":
    prefix, program, work, name, room, data = sys.argv[1:]
    room = int(room)
    control = Control(program, f"{work}/sock")
    client, grantor = Tap(f"{prefix}client", "c0"), Tap(f"{prefix}grantor", "t0")
    if name == "front":
        front()
    else:
        lists()
        if room > 100:
            real()
    check.finish()
