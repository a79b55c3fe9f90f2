"""Checks of bundles for bundle_test.sh, without the program's code.

    canaries                       a name that is a canary of version 2 at half of the members, and one
                                   that is not, by the rule of docs/guide/distribution.md
    signature BUNDLE FOLDER        openssl verifies the signature
    contents SHOWN FOLDER          `bundle show -j` lists the files of the folder
    damage BUNDLE OUTPUT           copies a bundle with another version number in it
    failures START BEFORE AFTER    reports of a grantor, before a policy failed, after that, and later
    events FILE                    what `monitor -j` printed about the distribution
"""

import hashlib
import json
import pathlib
import subprocess
import sys


def is_canary(name, version, percent):
    digest = hashlib.sha256(name.encode() + b"\0" + version.to_bytes(8, "big")).digest()
    return int.from_bytes(digest[:8], "big") * 100 < percent << 64


def canaries():
    canary = next(name for name in (f"gate-{i}" for i in range(99)) if is_canary(name, 2, 50))
    other = next(name for name in (f"grantor-{i}" for i in range(99)) if not is_canary(name, 2, 50))
    print(canary, other)


def signature(bundle, folder):
    with open(bundle, "rb") as file:
        bundle = file.read()
    # The public key as DER (RFC 8410) before its 32 bytes.
    files = {"message": bundle[:-64], "signature": bundle[-64:], "key.der": bytes.fromhex("302a300506032b6570032100") + bundle[-96:-64]}
    for name, content in files.items():
        pathlib.Path(folder, name).write_bytes(content)
    command = ["openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", f"{folder}/key.der"]
    command += ["-rawin", "-in", f"{folder}/message", "-sigfile", f"{folder}/signature"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def contents(shown, folder):
    shown, folder = json.loads(pathlib.Path(shown).read_text()), pathlib.Path(folder)
    have = {file["name"]: (file["bytes"], file["sha256"]) for file in shown["files"]}
    want = {
        str(path.relative_to(folder)): (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in folder.rglob("*")
        if path.is_file()
    }
    assert have == want, (have, want)
    assert shown["version"] == 1 and shown["canary_percent"] == 100, shown


def damage(bundle, output):
    damaged = bytearray(pathlib.Path(bundle).read_bytes())
    damaged[19] = 9  # the last byte of the version
    pathlib.Path(output).write_bytes(damaged)


def failures(*paths):
    start, before, after = (json.loads(pathlib.Path(path).read_text())[0]["policy"] for path in paths)
    assert before["failed"] == after["failed"] > start["failed"], (before, after)
    assert after["granted"] >= start["granted"] + 40, (start, after)


def events(path):
    with open(path, encoding="utf-8") as file:
        parsed = [json.loads(line) for line in file]
    seen = [(event["version"], event["what"]) for event in parsed if event["event"] == "distribution"]
    want = [(2, "applied"), (2, "confirmed"), (3, "applied"), (3, "rolled_back")]
    assert seen == want, seen


COMMANDS = {"canaries": canaries, "signature": signature, "contents": contents, "damage": damage, "failures": failures, "events": events}
COMMANDS[sys.argv[1]](*sys.argv[2:])
