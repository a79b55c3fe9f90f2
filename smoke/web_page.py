"""The page in a headless Chromium, held against what `show` says.

web_page.py gate|router|grantor PREFIX PROGRAM FOLDER PID, in the namespace of the gate; called by web_test.sh. The
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

from web_browser import Browser
from checks import check_at_once as check
from control import Control
from netns import Tap

role, prefix, program, work, pid = sys.argv[1:]
control = Control(program, f"{work}/sock")
AT = ("127.0.0.1", 9275)
URL = f"http://{AT[0]}:{AT[1]}/"
EVIL = '<img src=x onerror="document.title=1"><b>one</b>'
pictures = os.environ.get("WEB_PICTURES")

# The rows of a table by their first cell; all others as they are.
ROWS = "Object.fromEntries([...document.querySelectorAll('#%s tr')].map(r => [r.cells[0].textContent, [...r.cells].slice(1).map(c => c.textContent)]))"


def show(what):
    return control.show(what)[0]


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
    """Checks the answers of the server, and that no client is kept out."""
    for path in ("/", "/page.js", "/page.css", "/icon.svg", "/metrics", "/api/about", "/api/history?since=0"):
        status, headers, body = get(path)
        headers = {name.lower(): value for name, value in headers.items()}
        safe = "default-src 'none'" in headers["content-security-policy"] and "unsafe" not in headers["content-security-policy"]
        check(f"GET {path}: {len(body)} bytes", status == 200 and body and safe and headers["x-content-type-options"] == "nosniff", headers)
    for path in ("/../Cargo.toml", "/page/page.js", "/api/", "/api/flows"):
        check(f"GET {path}: there is nothing", get(path)[0] == 404)
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        check(f"{method} is refused", get("/api/about", method)[0] == 405)
    for name in ("evil.example", "127.0.0.1.evil.example:9275", "gate", ""):
        status, _, body = get("/api/destinations", Host=name)
        check(f"asked for as {name!r} it says what to do", status == 421 and b"hosts = [" in body, (status, body))
    for name in ("127.0.0.1", "localhost:9275", "[::1]:1", "gate.example", "GATE.example:80"):
        check(f"asked for as {name!r} it answers", get("/metrics", Host=name)[0] == 200)
    # Another client than we are: each has its share, and uses up its own.
    slow, from_another = [], ("127.0.0.2", 0)
    for _ in range(60):
        entry = socket.create_connection(AT, source_address=from_another)
        entry.sendall(b"GET /api/history HTTP/1.1\r\nHost: localhost\r\nX-Slow:")
        slow.append(entry)
        entry = socket.create_connection(AT, source_address=from_another)
        entry.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        # Asks a hundred times and reads nothing; or says nothing that anybody understands.
        with_what = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100 if len(slow) % 4 else b"\x16\x03\x01\x00\xff" * 50
        try:
            entry.sendall(with_what)
        except OSError:
            pass
        slow.append(entry)
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
    browser.wait("the rules are there", f"document.querySelector('#rules th') && [...document.querySelectorAll('#rules tr')].flatMap(r => [...r.cells].slice(3, 7)).reduce((all, c) => all + Number(c.textContent.replace(/\\D/g, '')), 0) == {gate['packets']['received']}")
    browser.wait("the numbers are there", f"document.querySelector('#verdicts') && {ROWS % 'verdicts'}.received?.[1].replace(/\\D/g, '') == {gate['packets']['received']}")
    names = [name for name, value in gate["packets"].items() if value]
    rows = browser.value(ROWS % "verdicts")
    wrong = as_in(rows, names, gate["packets"], 1) + as_in(rows, [name for name in names if name in gate["bytes"]], gate["bytes"], 2)
    check(f"{len(names)} counters of packets, and of bytes, as `show gate -j` has them", len(names) >= 4 and not wrong and set(rows) == set(names), wrong)
    table = browser.value("[...document.querySelectorAll('#tiles div')].find(d => d.textContent.startsWith('flow table')).lastChild.textContent")
    flows, capacity = table.split(" of ")
    check("the flow table's load", (digits(flows), digits(capacity)) == (gate["table"]["flows"], gate["table"]["capacity"]), table)
    rules = browser.value(ROWS % "rules")
    reply = {entry["policy"]: entry for entry in gate["policies"] if entry.get("action") or sum(entry["packets"].values())}
    cells = {name: [digits(cell) for cell in row[2:]] for name, row in rules.items()}
    expected = {name: [entry["packets"][what] for what in ("request", "granted", "passed", "dropped")] + [sum(entry["bytes"].values())] for name, entry in reply.items()}
    check(f"{len(reply)} lines of rules, as `show gate -j` has them", cells == expected, (cells, expected))
    check("with what they say", rules["192.0.2.9/32"][0] == "back (line 19)", rules)
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
    """Compares the packets by destination with those sent: of so few packets every one is a sample."""
    sent = {"192.0.2.7": 12, "192.0.2.9": 6, "192.0.2.66": 3}
    for dst, many in sent.items():
        for _ in range(many):
            client.send(packet("10.1.0.30", dst))
    shown(browser, "every destination is listed", f"document.querySelectorAll('#top th').length == {len(sent)}")
    top = json.loads(get("/api/destinations")[2])
    seconds, got = top["seconds"], {entry["destination"]: entry for entry in top["destinations"]}
    packets = {dst: round(entry["packets"] * seconds) for dst, entry in got.items()}
    check("and has the packets that were sent", packets == sent, (packets, top))
    became = [round(got[dst][what] * seconds) for dst, what in (("192.0.2.7", "requests"), ("192.0.2.9", "passed"), ("192.0.2.66", "dropped"))]
    check("and what became of them", became == [12, 6, 3], got)
    rules = {entry["policy"]: {name: value for name, value in entry["packets"].items() if value} for entry in show("gate")["policies"]}
    expected = {"192.0.2.0/24": {"request": 12}, "192.0.2.9/32": {"passed": 6}, "192.0.2.66/32": {"dropped": 3}}
    check("by rule it is the same, exactly", {name: rules[name] for name in expected} == expected, rules)
    # Both are of whole slices of time, and one may end between two requests.
    for _ in range(20):
        top = json.loads(get("/api/destinations")[2])
        text = get("/metrics")[2].decode()
        if json.loads(get("/api/destinations")[2])["seconds"] == top["seconds"]:
            break
    again = {entry["destination"]: entry for entry in top["destinations"]}
    rates = {(dst, what): float(rate) for dst, what, rate in re.findall(r'^fingerpost_gate_destination_packets_per_second{destination="([^"]+)",outcome="(\w+)"} (\S+)$', text, re.M)}
    of = {"request": "requests", "granted": "granted", "passed": "passed", "dropped": "dropped"}
    same = all(abs(rates[dst, name] - entry[what]) <= 1e-9 * entry[what] for dst, entry in again.items() for name, what in of.items())
    check("metrics have the same estimates", len(rates) == 4 * len(sent) and same, (rates, again))
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


def candidate_of_gate(browser):
    """The candidate would drop what goes to 192.0.2.7, and has no holes; it says so of what was sent."""
    shown(browser, "a candidate is compared", f"document.querySelector('#changes td:last-child')?.textContent == '12'")
    rows = browser.value(ROWS % "changes")
    expected = {"grantors site": ["drop", "12"], "back": ["grantors site", "6"], "drop": ["grantors site", "3"]}
    check("by what both say", rows == expected, rows)
    rows = browser.value("[...document.querySelectorAll('#changed tr')].map(r => [...r.cells].map(c => c.textContent))")
    expected = ["10.1.0.30", "192.0.2.7", "grantors site by 192.0.2.0/24 (line 16)", "drop by 192.0.2.7/32 (line 8)", "12"]
    check("and the flows are listed, the latest first", len(rows) == 3 and rows[-1] == expected, rows)
    words = browser.value("document.querySelector('#compared').textContent")
    check("with its name as it is written", words.startswith("<b>two</b>: of 21 packets"), words)


def numbers_of_grantor(browser):
    """The page has what `show grantor` and `show distribution` have, of what a gate has asked."""
    many = {"10.1.0.30": 3, "10.1.0.31": 2, "10.1.0.66": 4, "10.1.0.77": 1}
    shown(browser, "its policy is a bundle's", f"{ROWS % 'bundle'}['version in force']?.[0] === '1'", 60)
    shown(browser, "a gate is heard and another is not", f"(r => r['10.2.0.1']?.[0] === 'now' && r['10.2.0.99']?.[0] === 'never')({ROWS % 'gates'})")
    for src, times in many.items():
        for last in range(times):
            client.send(packet(src, f"192.0.2.{last + 100}"))
    shown(browser, "a policy that fails is an alarm", "!document.querySelector('#failures').hidden && document.querySelector('#failures').textContent.includes('<b>seventy-seven</b>')")
    if pictures:
        browser.shoot(f"{pictures}/grantor-fails.png", 1100, False)
    grantor = show("grantor")
    policy = grantor["policy"]
    check("every request was decided of", (policy["granted"], policy["declined"], policy["failed"]) == (5, 5, 1), policy)
    some = {name: value for name, value in policy.items() if value and name != "memory_bytes"}
    browser.wait("the numbers are there", f"{ROWS % 'decided'}.requests?.[1] == {policy['requests']}")
    rows = {name.split(":")[0].replace(" ", "_"): cells for name, cells in browser.value(ROWS % "decided").items()}
    check(f"{len(some)} counters as `show grantor -j` has them", set(rows) == set(some) and not as_in(rows, some, some, 1), (rows, some))
    tiles = browser.value("[...document.querySelectorAll('#tiles div')].map(d => d.textContent)")
    check("one of two gates is heard", any(entry.startswith("gates heard1 of 2") for entry in tiles), tiles)
    script = browser.value(ROWS % "script")
    check("the policy by its digest, and its lists", script["sha256"] == [grantor["digest"]] and script["lists"] == ["deny: 1 prefixes"], script)
    changes = browser.value("[...document.querySelectorAll('#changes tr')].map(r => [...r.cells].map(c => c.textContent))")
    expected = {f"{was}_{will}": int(many) for was, will, many in changes}
    check("what the candidate would say", expected == grantor["candidate"]["changes"] == {"declined_granted": 5}, (changes, grantor["candidate"]))
    flows = browser.value("document.querySelectorAll('#changed th').length")
    check("and of which flows", flows == len(grantor["candidate"]["flows"]) == 5, flows)
    check("the plots have what was decided", browser.value("[...document.querySelectorAll('figure')].some(f => f.textContent.startsWith('Decisions a second, by kind') && f.querySelectorAll('path.line').length)"))
    shown(browser, "the alarm ends with the failures", "document.querySelector('#failures').hidden")
    pack(2)
    shown(browser, "another bundle is seen to come", f"(r => r['version in force']?.[0] === '2' && r['can go back to']?.[0] === '1')({ROWS % 'bundle'})")
    reply = show("distribution")
    check("in the state that `show distribution -j` has", browser.value(ROWS % "bundle")["state"][0].split(":")[0] in (reply["state"], "trial", "canary", "confirmed"), reply)
    subprocess.run([program, "bundle", "rollback", "--socket", f"{work}/sock"], check=True, capture_output=True)
    shown(browser, "and to be taken back", f"(r => r['version in force']?.[0] === '1' && r.state?.[0].startsWith('rolled back'))({ROWS % 'bundle'}) && document.querySelector('#refused th')?.textContent === '2'")


def pack(version):
    """Puts a bundle where members look for it."""
    command = [program, "bundle", "pack", f"{work}/site", "--version", str(version), "--canary", "100%", "--key", f"{work}/site.key", "-o", f"{work}/in/{version}.bundle"]
    subprocess.run(command, check=True, capture_output=True)


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
    reply = json.loads(get("/api/attacks")[2])[0]
    dropped = show("gate")["link"]["requests_dropped"]
    check("it lasted as long as it did, and cost requests of low priority", 2 < reply["ended"] - reply["began"] < 60 and 0.8 * dropped <= reply["dropped"]["low_priority"] <= dropped, (reply, dropped))
    browser.open(URL)
    shown(browser, "a page that is opened later shows its beginning", "document.querySelectorAll('figure .edge').length >= 2 && document.querySelectorAll('#attacks th').length == 1")


def lost_and_found(browser):
    os.kill(int(pid), signal.SIGSTOP)
    shown(browser, "a process that stands still: no contact", "!document.querySelector('#lost').hidden && document.title.startsWith('✕ no contact') && document.body.classList.contains('is-lost')")
    if pictures:
        browser.shoot(f"{pictures}/lost.png", 1100, False)
    os.kill(int(pid), signal.SIGCONT)
    shown(browser, "and goes on: contact", "document.querySelector('#lost').hidden && !document.title.startsWith('✕') && !document.body.classList.contains('is-lost')")


def at_work():
    """Says whether the process runs; its end is the shell's to wait for, which may be slow."""
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1][0] != "Z"
    except FileNotFoundError:
        return False


def started():
    """Another gate by the same configuration."""
    with open(f"{work}/again.log", "wb") as log:
        command = [program, "gate", "-c", f"{work}/gate.toml"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)


def restarted(browser):
    """A restart in the middle of an attack: the page that is open shows its beginning, and its end."""
    goes_on = "document.querySelector('#attacks td')?.textContent === 'goes on' && document.querySelector('#attacks th').textContent"
    began = before = again = at = None
    for now in flood(90):
        if began is None and now > 3:
            began = browser.value(goes_on) or None
            before = began and now
        elif began and again is None and now > before + 3:
            os.kill(int(pid), signal.SIGINT)
            while at_work():
                time.sleep(0.02)
            again, at = started(), now
        elif again and now > at + 8 and browser.value("document.querySelector('#lost').hidden"):
            break
    check("an attack goes on when the gate is stopped and started", again is not None, began)
    shown(browser, "the page has contact again", "document.querySelector('#lost').hidden")
    check("and shows when it began", browser.value(goes_on) == began and browser.value("document.querySelectorAll('#attacks th').length") == 2, browser.value("document.querySelector('#attacks').innerText"))
    about, reply = json.loads(get("/api/about")[2]), json.loads(get("/api/attacks")[2])[-1]
    check("which was before this process", reply["began"] < about["began"] - 3 and reply["ended"] is None, (about, reply))
    rows = json.loads(get("/api/history?since=0")[2])["rows"]
    gaps = [two[1] - one[1] for one, two in zip(rows, rows[1:])]
    check(f"{len(rows)} seconds in order, {max(gaps):.1f} s of them missing", rows[0][1] < reply["began"] - 10 and min(gaps) > 0 and max(gaps) < 10 and rows[-1][1] > about["began"] + 5)
    browser.open(URL)
    shown(browser, "as a page does that is opened again", f"({goes_on}) === '{began}' && document.querySelectorAll('figure .edge').length >= 2")
    if pictures:
        browser.value("document.querySelector('[data-seconds=\"300\"]').click()")
        browser.shoot(f"{pictures}/restarted.png", 1100, False)
    shown(browser, "its end is seen", "document.querySelector('#attack').hidden && document.querySelectorAll('#attacks th').length == 2", 60)
    again.send_signal(signal.SIGINT)
    check("which ends well", again.wait(20) == 0)
    words = open(f"{work}/again.log").read()
    check("and has said what it went on with", re.search(r"history restored: \d+ seconds and 2 attacks", words), words)


def begun_anew(browser):
    """The page that is open goes over to another process by itself; what was kept is damaged."""
    with open(f"{work}/history", "r+b") as file:
        file.truncate(os.path.getsize(f"{work}/history") - 7)
    again = started()
    shown(browser, "a truncated history does not stop the start, and the history begins at zero", "document.querySelector('#lost').hidden && document.querySelector('#attacks td.none')")
    tile = browser.value("document.querySelector('#tiles div:last-child').textContent")
    check("with nothing of the one before", tile.endswith("0 received") and digits(tile) == 0, tile)
    again.send_signal(signal.SIGINT)
    check("which ends well", again.wait(20) == 0)
    words = open(f"{work}/again.log").read()
    check("and has said where the damaged file is", "its length differs from the one in its header; renamed to" in words and os.path.exists(f"{work}/history.damaged"), words)


client = Tap(f"{prefix}client", "c0")
browser = Browser(work)
browser.open(URL)
shown(browser, f"the page of a {role}", "document.querySelectorAll('#tiles div').length > 3 && document.querySelectorAll('figure svg path').length > 10")
for name, roles in {"gate": ["gate"], "grantor": ["grantor"], "candidate": ["gate"], "distribution": ["grantor"]}.items():
    hidden = browser.value(f"[...document.querySelectorAll('section.{name}')].map(s => s.hidden)")
    check(f"the sections of a {name}", hidden and all(entry != (role in roles) for entry in hidden), hidden)
if role == "gate":
    top_of_gate(browser)
    candidate_of_gate(browser)
    numbers_of_gate(browser)
    silent(browser)
    attack(browser)
    # All packets have been counted.
    gate = numbers_of_gate(browser)
    check("requests were dropped for others", gate["link"]["requests_dropped"] > 100, gate["link"])
elif role == "grantor":
    pack(1)
    numbers_of_grantor(browser)
else:
    for _ in range(20):
        client.send(packet("10.1.0.30", "192.0.2.7"))
        client.send(packet("10.1.0.30", "198.51.100.1"))
    numbers_of_router(browser)
browser.value("document.querySelector('[data-seconds=\"60\"]').click()")
check("a minute is shown on request", browser.value("document.querySelector('[data-seconds=\"60\"]').getAttribute('aria-pressed')") == "true")
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
if role == "gate":
    restarted(browser)
else:
    os.kill(int(pid), signal.SIGINT)
shown(browser, "a process that ended: no contact", "!document.querySelector('#lost').hidden")
if role == "gate":
    begun_anew(browser)
browser.end()
