"""The page in a headless Chromium, held against what `show` says.

web.py gate|router PREFIX PROGRAM FOLDER PID, in the namespace of the gate; called by web.sh. The
process is interrupted in the end.
"""

import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, __file__.rsplit("/", 1)[0])

from browser import Browser
from packets import Tap

role, prefix, program, work, pid = sys.argv[1:]
AT = ("127.0.0.1", 9275)
URL = f"http://{AT[0]}:{AT[1]}/"
EVIL = '<img src=x onerror="document.title=1"><b>one</b>'
pictures = os.environ.get("WEB_PICTURES")

# The rows of a table by their first cell; all others as they are.
ROWS = "Object.fromEntries([...document.querySelectorAll('#%s tr')].map(r => [r.cells[0].textContent, [...r.cells].slice(1).map(c => c.textContent)]))"


def check(what, holds, told=""):
    print(f"   {'ok  ' if holds else 'BAD '} {what}", flush=True)
    if not holds:
        raise SystemExit(f"{what}: {told}")


def show(what):
    command = [program, "show", "-j", what, "--socket", f"{work}/sock"]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)[0]


def digits(text):
    """The exact number of a cell: its digits stand in threes."""
    return int(re.sub(r"\D", "", text) or -1)


def packet(src, dst, size=60):
    """A UDP packet from 10.1.0.2's MAC, with a right checksum and no more sense than that."""
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, size, 0, 0, 17, 17, 0, socket.inet_aton(src), socket.inet_aton(dst))
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + head[12:]
    macs = bytes.fromhex("020000000101020000000102")
    return macs + b"\x08\x00" + head + bytes(size - 20)


def get(path, method="GET", **headers):
    connection = http.client.HTTPConnection(*AT, timeout=5)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), body


def as_in(rows, names, of, cell):
    """Names whose cells are not what `of` has."""
    return [(name, of[name], rows.get(name)) for name in names if name not in rows or digits(rows[name][cell]) != of[name]]


def server():
    """What is answered, and that nobody is kept out."""
    for path in ("/", "/page.js", "/page.css", "/icon.svg", "/metrics", "/api/about", "/api/history?since=0"):
        status, headers, body = get(path)
        headers = {name.lower(): value for name, value in headers.items()}
        safe = "default-src 'none'" in headers["content-security-policy"] and "unsafe" not in headers["content-security-policy"]
        check(f"GET {path}: {len(body)} bytes", status == 200 and body and safe and headers["x-content-type-options"] == "nosniff", headers)
    for path in ("/../Cargo.toml", "/page/page.js", "/api/", "/api/flows"):
        check(f"GET {path}: there is nothing", get(path)[0] == 404)
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        check(f"{method} is refused", get("/api/about", method)[0] == 405)
    slow = []
    for _ in range(60):
        it = socket.create_connection(AT)
        it.sendall(b"GET /api/history HTTP/1.1\r\nHost: x\r\nX-Slow:")
        slow.append(it)
        it = socket.create_connection(AT)
        it.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # Asks a hundred times and reads nothing; or says nothing that anybody understands.
        with_what = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 100 if len(slow) % 4 else b"\x16\x03\x01\x00\xff" * 50
        try:
            it.sendall(with_what)
        except OSError:
            pass
        slow.append(it)
    begin = time.monotonic()
    status = get("/api/about")[0]
    check(f"an answer after {time.monotonic() - begin:.2f} s, beside {len(slow)} clients that are slow or broken", status == 200)
    return slow


def shown(browser, what, script, patience=30):
    browser.wait(what, script, patience)
    check(what, True)


def numbers_of_gate(browser):
    """The page has what `show gate -j` has, once both are at rest."""
    gate = show("gate")
    browser.wait("the numbers are there", f"document.querySelector('#verdicts') && {ROWS % 'verdicts'}.received?.[1].replace(/\\D/g, '') == {gate['packets']['received']}")
    names = [name for name, value in gate["packets"].items() if value]
    rows = browser.value(ROWS % "verdicts")
    wrong = as_in(rows, names, gate["packets"], 1) + as_in(rows, [name for name in names if name in gate["bytes"]], gate["bytes"], 2)
    check(f"{len(names)} counters of packets, and of bytes, as `show gate -j` has them", len(names) >= 4 and not wrong and set(rows) == set(names), wrong)
    table = browser.value("[...document.querySelectorAll('#tiles div')].find(d => d.textContent.startsWith('flow table')).lastChild.textContent")
    flows, capacity = table.split(" of ")
    check("the flow table's load", (digits(flows), digits(capacity)) == (gate["table"]["flows"], gate["table"]["capacity"]), table)
    link = browser.value(ROWS % "link")
    check("requests that lost their places", digits(link["requests"][-1]) == gate["link"]["requests_dropped"], link)
    policy = browser.value(ROWS % "policy")
    check("a version that is HTML is shown as it is written", gate["version"] == EVIL and policy["version"] == [EVIL], policy)
    check("and has made no element", browser.value("document.querySelectorAll('img, b').length") == 0 and browser.value("document.title") != "1")
    check("the grantors", policy["grantors"] == [", ".join(gate["grantors"])], policy)
    return gate


def numbers_of_router(browser):
    counters = show("counters")
    browser.wait("the numbers are there", f"{ROWS % 'ends'}.received?.[1].replace(/\\D/g, '') == {counters['received']}")
    rows = {name.split(":")[0]: cells for name, cells in browser.value(ROWS % "ends").items()}
    of = {"received": counters["received"], "sent": counters["sent"]}
    of |= {f"dropped, {name}": value for name, value in counters["dropped"].items() if value}
    of |= {f"to the kernel, {name}": value for name, value in counters["punted"].items() if value}
    wrong = as_in(rows, of, of, 1)
    check(f"{len(of)} counters as `show counters -j` has them", not wrong, wrong)
    fib = browser.value(ROWS % "fib")
    check("the tables", digits(fib["254 ipv4"][0]) == show("fib")["routes"], fib)


def top_of_gate(browser):
    """What was sent, by destination: of so few packets every one is a sample."""
    sent = {"192.0.2.7": 12, "192.0.2.9": 6, "192.0.2.66": 3}
    for dst, many in sent.items():
        for _ in range(many):
            client.send(packet("10.1.0.30", dst))
    shown(browser, "every destination is listed", f"document.querySelectorAll('#top th').length == {len(sent)}")
    top = json.loads(get("/api/destinations")[2])
    seconds, got = top["seconds"], {it["destination"]: it for it in top["destinations"]}
    packets = {dst: round(it["packets"] * seconds) for dst, it in got.items()}
    check("and has the packets that were sent", packets == sent, (packets, top))
    became = [round(got[dst][what] * seconds) for dst, what in (("192.0.2.7", "requests"), ("192.0.2.9", "passed"), ("192.0.2.66", "dropped"))]
    check("and what became of them", became == [12, 6, 3], got)
    rows = list(browser.value(ROWS % "top"))
    check("most of all first", rows == sorted(sent, key=sent.get, reverse=True), rows)


def silent(browser):
    """A grantor that gets no flows: as if the gate had said so."""
    browser.value("""void (window.fetch = ((real) => async (path, how) => {
        const answer = await real(path, how);
        if (path !== '/api/gate') return answer;
        const gate = await answer.json();
        gate[0].silent = gate[0].grantors;
        return new Response(JSON.stringify(gate));
    })(window.fetch))""")
    shown(browser, "a silent grantor is named", "!document.querySelector('#silent').hidden && document.querySelector('#silent').textContent.includes('10.2.0.2')")
    check("where it is listed too", browser.value(ROWS % "policy")["grantors"] == ["10.2.0.2 (silent)"])
    browser.open(URL)
    shown(browser, "and no longer", "document.querySelector('#policy tr') && document.querySelector('#silent').hidden")


def flood(seconds, rate=800):
    """Requests from a source each, more than the link's share for them."""
    start, sent = time.monotonic(), 0
    while (now := time.monotonic() - start) < seconds:
        while sent < now * rate:
            client.send(packet(f"10.9.{sent >> 8 & 255}.{sent & 255}", "192.0.2.7"))
            sent += 1
        yield now
        time.sleep(0.01)


def attack(browser):
    before = browser.value("document.querySelectorAll('#attacks th').length")
    began = None
    for now in flood(60):
        if began is None and now > 3 and browser.value("!document.querySelector('#attack').hidden"):
            began = now
        if began is not None and now > began + 3:
            break
    check("an attack is seen while it goes on", began is not None and before == 0, (began, before))
    check("and named in the title", browser.value("document.title").startswith("⚠ attack"))
    check("and marked in every plot", browser.value("[...document.querySelectorAll('figure')].every(f => f.querySelector('.attack') && f.textContent.includes('attack'))"))
    shown(browser, "its end is seen", "document.querySelector('#attack').hidden && document.querySelectorAll('#attacks th').length == 1", 60)
    told = json.loads(get("/api/attacks")[2])[0]
    dropped = show("gate")["link"]["requests_dropped"]
    check("it lasted as long as it did, and cost requests of low priority", 2 < told["ended"] - told["began"] < 60 and 0.8 * dropped <= told["dropped"]["low_priority"] <= dropped, (told, dropped))
    browser.open(URL)
    shown(browser, "a page that is opened later shows its beginning", "document.querySelectorAll('figure .edge').length >= 2 && document.querySelectorAll('#attacks th').length == 1")


def lost_and_found(browser):
    os.kill(int(pid), signal.SIGSTOP)
    shown(browser, "a process that stands still: no contact", "!document.querySelector('#lost').hidden && document.title.startsWith('✕ no contact') && document.body.classList.contains('is-lost')")
    if pictures:
        browser.shoot(f"{pictures}/lost.png", 1100, False)
    os.kill(int(pid), signal.SIGCONT)
    shown(browser, "and goes on: contact", "document.querySelector('#lost').hidden && !document.title.startsWith('✕') && !document.body.classList.contains('is-lost')")


def begun_anew(browser):
    """The page that is open goes over to another process by itself."""
    rows = browser.value("document.querySelectorAll('#attacks th').length")
    with open(f"{work}/again.log", "wb") as log:
        command = [program, "gate", "-c", f"{work}/gate.toml"]
        again = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
    shown(browser, "and one that begins anew: contact", "document.querySelector('#lost').hidden && document.querySelector('#attacks td.none')")
    tile = browser.value("document.querySelector('#tiles div:last-child').textContent")
    check("with nothing of the one before", rows == 1 and tile.endswith("0 received") and digits(tile) == 0, (rows, tile))
    again.send_signal(signal.SIGINT)
    check("which ends well", again.wait(20) == 0)


client = Tap(f"{prefix}client", "c0")
browser = Browser(work)
browser.open(URL)
shown(browser, f"the page of a {role}", "document.querySelectorAll('#tiles div').length > 3 && document.querySelectorAll('figure svg path').length > 10")
check("has its sections", browser.value("[...document.querySelectorAll('section.gate')].every(s => s.hidden)") == (role == "router"))
if role == "gate":
    top_of_gate(browser)
    numbers_of_gate(browser)
    silent(browser)
    attack(browser)
    # What was in hand has ended.
    gate = numbers_of_gate(browser)
    check("requests were dropped for others", gate["link"]["requests_dropped"] > 100, gate["link"])
else:
    for _ in range(20):
        client.send(packet("10.1.0.30", "192.0.2.7"))
        client.send(packet("10.1.0.30", "198.51.100.1"))
    numbers_of_router(browser)
browser.value("document.querySelector('[data-seconds=\"60\"]').click()")
check("a minute is shown where that is asked for", browser.value("document.querySelector('[data-seconds=\"60\"]').getAttribute('aria-pressed')") == "true")
browser.value("document.querySelectorAll('details').forEach(d => d.open = true)")
shown(browser, "every plot has a table", "[...document.querySelectorAll('figure tbody')].every(t => t.rows.length > 1)")
browser.value("document.querySelectorAll('details').forEach(d => d.open = false)")
if pictures:
    browser.value("document.querySelector('[data-seconds=\"300\"]').click()")
    for name, width, dark in (("light", 1100, False), ("dark", 1100, True), ("phone", 375, False)):
        browser.shoot(f"{pictures}/{role}-{name}.png", width, dark)
browser.do("Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=1, mobile=True)
time.sleep(0.5)
check("nothing is wider than a phone", browser.value("document.documentElement.scrollWidth") <= 360, browser.value("[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > 361 && !e.closest('.scroll')).map(e => e.outerHTML.slice(0, 120))"))
if role == "gate":
    check("the browser has nothing to complain of", not browser.complaints, browser.complaints)
    lost_and_found(browser)
    slow = server()
    shown(browser, "the page goes on beside them", "document.querySelector('#lost').hidden && document.querySelector('#contact').textContent.startsWith('live')")
    browser.complaints.clear()
    time.sleep(2)
    check("without a word", not browser.complaints, browser.complaints)
else:
    check("the browser has nothing to complain of", not browser.complaints, browser.complaints)
os.kill(int(pid), signal.SIGINT)
shown(browser, "a process that ended: no contact", "!document.querySelector('#lost').hidden")
if role == "gate":
    begun_anew(browser)
browser.end()
