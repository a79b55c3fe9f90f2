"""The commands of `fingerpost` that talk to a running daemon, as JSON."""

import json
import subprocess


class Control:
    """A daemon by its control socket."""

    def __init__(self, program, socket):
        self.program, self.socket = program, socket

    def run(self, *words):
        """Runs a command and returns its status and output."""
        command = [self.program, *words, "--socket", self.socket]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def json(self, *words):
        """Returns the JSON that a command prints, whatever its status."""
        done = self.run(*words, "-j")
        if not done.stdout:
            raise SystemExit(f"{' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout)

    def show(self, what):
        return self.json("show", what)

    def gate(self):
        return self.show("gate")[0]

    def counters(self):
        return self.show("counters")[0]

    def steered(self, interface):
        """Returns the packets of the steering program, by what it did with them."""
        return next(link["steered"] for link in self.show("interfaces") if link["name"] == interface)

    def explain(self, source, destination):
        """Returns the state of a flow, as `flow explain` prints it."""
        return self.json("flow", "explain", source, destination)
