"""Makes one system call after the other fail, by strace(1), and examines what is left.

  faults_injection.py files PROGRAM FOLDER            commands that replace a file
  faults_injection.py starts PROGRAM FOLDER PREFIX    starts of a router by FOLDER/router.toml in the namespace
                                            PREFIXrouter
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

ERRORS = {
    "openat": ["ENOSPC", "EMFILE"],
    "write": ["ENOSPC", "EIO"],
    "fsync": ["ENOSPC", "EIO"],
    "rename": ["ENOSPC", "EROFS"],
    "mmap": ["ENOMEM"],
}
STARTS = {
    "socket": "EMFILE",
    "openat": "EMFILE",
    "bind": "ENOMEM",
    "setsockopt": "ENOBUFS",
    "sendto": "ENOBUFS",
    "bpf": "ENOMEM",
    "mmap": "ENOMEM",
    "ioctl": "ENOMEM",
    "eventfd2": "EMFILE",
    "epoll_create1": "EMFILE",
    "clone3": "EAGAIN",
}
# Rust's library ends the process if a thread gets no stack for its signal handlers.
ALTERNATIVE_STACK = "failed to allocate an alternative stack"
# Positions of a call that are tried in a start, at the most.
POSITIONS = 6


def calls(trace):
    """Counts the calls of each name in a trace."""
    counts = {}
    for line in trace.read_text(errors="replace").splitlines():
        if found := re.match(r"(?:\d+ +)?(\w+)\(", line):
            counts[found[1]] = counts.get(found[1], 0) + 1
    return counts


def traced(trace, names, command, fault=None, children=True):
    inject = ["-e", f"inject={fault[0]}:error={fault[1]}:when={fault[2]}"] if fault else []
    follow = ["-f"] if children else []
    return ["strace", *follow, "-o", str(trace), "-e", f"trace={','.join(names)}", *inject, *command]


def injected(folder):
    """Returns the call that failed."""
    lines = (folder / "files.trace").read_text(errors="replace").splitlines()
    return next((line for line in lines if "INJECTED" in line), "no call has failed")


def files(program, folder):
    place = folder / "files"
    place.mkdir()
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "gate.toml").write_text('[[policy]]\nprefix = "192.0.2.0/24"\naction = "drop"\n')
    routes = [folder / "routes.old", folder / "routes.new"]
    routes[0].write_text("10.0.0.0/8 1\n")
    routes[1].write_text("".join(f"10.{i}.0.0/16 {i}\n" for i in range(200)))
    key = folder / "site.key"
    subprocess.run([program, "bundle", "keygen", str(key)], check=True, capture_output=True)
    pack = [program, "bundle", "pack", str(folder / "site"), "--key", str(key)]
    writers = {
        "table.image": lambda new, to: [program, "table", "save", str(routes[new]), "-o", to],
        "site.bundle": lambda new, to: [*pack, "--version", str(1 + new), "-o", to],
        "declined.o": lambda new, to: [program, "program", "build", ["declined", "granted"][new], "-o", to],
    }
    # A bundle bears the time of its signing: a new one is known by its signature and version.
    verify = [program, "bundle", "verify", "--public", f"{key}.pub"]

    def is_new(file, expected):
        if file.name != "site.bundle":
            return file.read_bytes() == expected
        done = subprocess.run([*verify, str(file)], capture_output=True, text=True)
        return done.returncode == 0 and done.stdout.startswith("version 2:")

    for name, command in writers.items():
        file = place / name
        contents = []
        for new in 0, 1:
            subprocess.run(command(new, str(file)), check=True, capture_output=True)
            contents.append(file.read_bytes())
        assert contents[0] != contents[1], name
        trace = folder / "files.trace"
        file.write_bytes(contents[0])
        subprocess.run(traced(trace, ERRORS, command(1, str(file)), children=False), check=True, capture_output=True)
        counts = calls(trace)
        assert counts.get("write") and counts.get("rename"), f"{name}: the trace is blind: {counts}"
        failed = kept = 0
        for call, errors in ERRORS.items():
            for error in errors:
                for at in range(1, counts.get(call, 0) + 1):
                    file.write_bytes(contents[0])
                    done = subprocess.run(
                        # The compiler is another process, and not under test.
                        traced(trace, [call], command(1, str(file)), (call, error, at), children=False),
                        capture_output=True, text=True, errors="replace", timeout=60,
                    )
                    where = f"{name}: {call} {at} of {counts[call]}, {error}: status {done.returncode}: {done.stderr}"
                    old = file.read_bytes() == contents[0]
                    assert old or is_new(file, contents[1]), f"{where}: {injected(folder)}: neither the old file nor the new one"
                    left = sorted(entry.name for entry in place.iterdir())
                    # The compiler's own temporary files are its own.
                    assert set(left) <= set(writers), f"{where}: left behind: {left}"
                    assert "panicked" not in done.stderr or ALTERNATIVE_STACK in done.stderr, where
                    if done.returncode == 0:
                        assert not old, f"{where}: success, and the old file"
                    else:
                        # Without memory the loader and the allocator end a process by a signal.
                        assert done.stderr.strip() or call == "mmap", f"{where}: no message"
                        failed += 1
                        kept += old
        print(f"   {name}: {failed} runs failed, {kept} of them kept the old file, the others synced too late")


def devices_left(inside):
    """Names the interfaces that have an XDP program, and the TAP device."""
    links = subprocess.run([*inside, "ip", "-j", "-d", "link"], capture_output=True, text=True, check=True).stdout
    return [link["ifname"] for link in json.loads(links) if "xdp" in link or link["ifname"] == "fingerpost"]


def starts(program, folder, prefix):
    inside = ["ip", "netns", "exec", f"{prefix}router"]
    command = [program, "run", "-c", str(folder / "router.toml"), "-j"]
    trace, log = folder / "starts.trace", folder / "starts.log"
    names = ",".join(STARTS).split(",")

    def start(fault=None):
        """Returns the status, whether the router forwarded, and its messages."""
        for old in folder.glob("table.image*"):
            old.unlink()
        with log.open("w") as messages, (folder / "starts.json").open("w") as report:
            tracer = subprocess.Popen(
                inside + traced(trace, names if fault is None else [fault[0]], command, fault),
                stdout=report, stderr=messages,
            )
            ready = False
            until = time.monotonic() + 30
            while time.monotonic() < until and tracer.poll() is None and not ready:
                ready = "following the kernel after" in log.read_text()
                time.sleep(0.02)
            assert ready or tracer.poll() is not None, f"{fault}: neither forwards nor ends: {log.read_text()}"
            if ready:
                time.sleep(0.1)
                child = subprocess.run(["pgrep", "-P", str(tracer.pid)], capture_output=True, text=True).stdout.split()
                for process in child:
                    os.kill(int(process), signal.SIGINT)
            return tracer.wait(timeout=30), ready, log.read_text()

    status, ready, messages = start()
    assert status == 0 and ready, messages
    counts = calls(trace)
    for call, error in STARTS.items():
        total = counts.get(call, 0)
        if total == 0:
            print(f"   {call}: the router does not call it")
            continue
        chosen = sorted({1 + i * (total - 1) // max(1, POSITIONS - 1) for i in range(POSITIONS)} & set(range(1, total + 1)))
        ended = worked = 0
        for at in chosen:
            status, ready, messages = start((call, error, at))
            where = f"{call} {at} of {total}, {error}: status {status}: {messages}"
            assert "panicked" not in messages or ALTERNATIVE_STACK in messages, where
            assert 0 <= status < 128 or call == "mmap", where
            if ready and status == 0:
                counters = json.loads((folder / "starts.json").read_text())
                assert counters["balanced"], where
                worked += 1
            else:
                # The loader of shared libraries has words of its own.
                said = "fingerpost: " in messages or "error while loading" in messages
                assert said or call == "mmap", f"no message: {where}"
                ended += 1
            # The kernel takes the links of a dead process away a moment later.
            until = time.monotonic() + 5
            while (left := devices_left(inside)) and time.monotonic() < until:
                time.sleep(0.05)
            assert not left, f"left behind: {left}: {where}"
            # A process that is ended by a signal removes no file; the next one does.
            assert not (folder / "sock").exists() or status < 0 or status > 128, f"the socket is left behind: {where}"
        print(f"   {call} {error}: {len(chosen)} of {total} positions: {ended} starts ended with a message, {worked} worked")


if __name__ == "__main__":
    what, program, folder, *rest = sys.argv[1:]
    try:
        {"files": files, "starts": starts}[what](program, pathlib.Path(folder), *rest)
    except AssertionError as wrong:
        print(f"FAIL: {wrong}", file=sys.stderr)
        sys.exit(1)
