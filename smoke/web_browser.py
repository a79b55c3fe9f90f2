"""A headless Chromium, driven by its own protocol over two pipes (no further program needed).

Everything that the page complains of is collected: what its scripts print as errors or
warnings, uncaught exceptions, what the browser itself logs (refused by a policy, not
found, a wrong media type).
"""

import base64
import json
import os
import select
import subprocess
import time

FLAGS = [
    "--headless=new",
    # Root has no sandbox; what is shown is ours.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--remote-debugging-pipe",
]


class Browser:
    """One page of one browser."""

    def __init__(self, folder):
        theirs, self.out = os.pipe()
        self.inp, answers = os.pipe()
        self.complaints, self.number, self.rest, self.answers = [], 0, b"", {}

        def pipes():
            # Numbers that neither can have before.
            os.dup2(theirs, 103)
            os.dup2(answers, 104)
            os.dup2(103, 3)
            os.dup2(104, 4)

        environment = {**os.environ, "HOME": folder, "XDG_RUNTIME_DIR": folder}
        command = ["chromium", *FLAGS, f"--user-data-dir={folder}/profile", "about:blank"]
        with open(f"{folder}/chromium.txt", "wb") as log:
            self.process = subprocess.Popen(command, preexec_fn=pipes, close_fds=False, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        os.close(theirs)
        os.close(answers)
        self.session = None
        target = self.do("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.do("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.do(f"{domain}.enable")

    def do(self, method, patience=60, **params):
        """Has something done, and returns what came of it."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + patience
        while self.number not in self.answers:
            self.listen(until - time.monotonic(), method)
        answer = self.answers.pop(self.number)
        if "error" in answer:
            raise SystemExit(f"chromium: {method}: {answer['error']}")
        return answer["result"]

    def listen(self, patience, what):
        if not select.select([self.inp], [], [], max(0, patience))[0]:
            raise SystemExit(f"chromium does not answer: {what}")
        read = os.read(self.inp, 1 << 20)
        if not read:
            raise SystemExit(f"chromium is gone: {what}")
        *messages, self.rest = (self.rest + read).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self.answers[message["id"]] = message
            else:
                self.hear(message["method"], message["params"])

    def hear(self, method, entry):
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(entry["exceptionDetails"])[:600])
        elif method == "Runtime.consoleAPICalled" and entry["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(entry["args"])[:600])
        elif method == "Log.entryAdded" and entry["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{entry['entry']['text']} {entry['entry'].get('url', '')}")

    def open(self, url):
        self.do("Page.navigate", url=url)

    def value(self, script):
        """Returns what a piece of script comes to, as JSON has it."""
        answer = self.do("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise SystemExit(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, what, script, patience=30):
        """Waits until a piece of script comes to something true."""
        until = time.monotonic() + patience
        # Truth as scripts have it: an element is true, though as JSON it is empty.
        while not self.value(f"Boolean({script})"):
            if time.monotonic() > until:
                raise SystemExit(f"{what}: not within {patience} s; the page: {self.value('document.body.innerText')}")
            time.sleep(0.1)

    def shoot(self, path, width, dark):
        """Takes a picture of the whole page at a width, by day or by night."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.do("Emulation.setEmulatedMedia", features=[scheme])
        self.do("Emulation.setScrollbarsHidden", hidden=True)
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        time.sleep(1.5)
        picture = self.do("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture))

    def end(self):
        self.process.kill()
        self.process.wait()
