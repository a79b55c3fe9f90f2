"""Holds the metrics of a running router against what it shows of itself.

metrics_compare.py PROGRAM SOCKET URL, in the router's namespace. Both formats are read by the parsers of
Python's prometheus_client, of which that of OpenMetrics is strict; `promtool` looks at the
older one; the sums must be what `fingerpost show` says, and no name or label unheard of.
"""

import subprocess
import sys
import urllib.error
import urllib.request
from collections import defaultdict

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

from control import Control

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
STANDARD = {
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_virtual_memory_bytes",
    "process_threads",
    "process_open_fds",
    "process_max_fds",
    "process_start_time_seconds",
}
LABELS = {"direction", "worker", "reason", "table", "af", "feed", "interface", "engine", "version"}


def get(url, accept):
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return reply.headers["Content-Type"], reply.read().decode()


def sums(families):
    """Adds samples up by name, and by name and reason; checks what every family must have."""
    total, by_reason, helps = defaultdict(float), defaultdict(float), set()
    for family in families:
        assert family.documentation not in helps, f"{family.name} has another's help"
        helps.add(family.documentation)
        assert family.documentation, f"{family.name} has no help"
        assert family.type in ("counter", "gauge"), f"{family.name} is of type {family.type}"
        for sample in family.samples:
            own = sample.name.startswith("fingerpost_")
            assert own or sample.name in STANDARD, sample.name
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
            assert set(sample.labels) <= LABELS, sample
            total[sample.name] += sample.value
            by_reason[sample.name, sample.labels.get("reason")] += sample.value
    return total, by_reason


def compare(total, by_reason, control):
    counters = control.show("counters")[0]
    pairs = [
        (total["fingerpost_packets_received_total"], counters["received"]),
        (total["fingerpost_received_bytes_total"], counters["received_bytes"]),
        (total["fingerpost_packets_sent_total"], counters["sent"]),
        (total["fingerpost_sent_bytes_total"], counters["sent_bytes"]),
        (total["fingerpost_table_routes"], sum(entry["routes"] for entry in control.show("fib"))),
        (total["fingerpost_table_size_bytes"], sum(entry["bytes"] for entry in control.show("fib"))),
        (total["fingerpost_neighbors"], len(control.show("neighbors"))),
        (total["fingerpost_audit_mismatches_total"], control.show("audit")[0]["mismatches"]),
        (total["fingerpost_next_hops"], len(control.show("nexthops"))),
    ]
    interfaces = control.show("interfaces")
    for unit, suffix in (("packets", ""), ("bytes", "_bytes")):
        both = sum(entry["received" + suffix] + entry["transmitted" + suffix] for entry in interfaces)
        pairs.append((total[f"fingerpost_interface_{unit}_total"], both))
    assert total["fingerpost_interface_packets_total"] >= counters["received"] + counters["sent"]
    for kind in ("punted", "dropped"):
        for reason, count in counters[kind].items():
            pairs.append((by_reason[f"fingerpost_packets_{kind}_total", reason], count))
    steered = defaultdict(int)
    for interface in control.show("interfaces"):
        for reason, count in interface["steered"].items():
            steered[reason] += count
    for reason, count in steered.items():
        pairs.append((by_reason["fingerpost_steered_packets_total", reason], count))
    missing = STANDARD - set(total)
    assert not missing, f"the process does not show {missing}"
    assert total["process_resident_memory_bytes"] > 1 << 20, "the process has no memory"
    assert counters["received"] > 0 and counters["sent"] > 0, "nothing was forwarded"
    assert len(pairs) > 20, "the router shows less than it should"
    return [pair for pair in pairs if pair[0] != pair[1]]


def main():
    program, socket, url = sys.argv[1:]
    control = Control(program, socket)
    kind, modern = get(url, OPENMETRICS)
    assert kind.startswith("application/openmetrics-text"), kind
    kind, old = get(url, "*/*")
    assert kind.startswith("text/plain; version=0.0.4"), kind
    lint = subprocess.run(["promtool", "check", "metrics"], input=old, text=True, capture_output=True)
    assert lint.returncode == 0, f"promtool: {lint.stdout}{lint.stderr}"
    for families in (
        openmetrics.text_string_to_metric_families(modern),
        parser.text_string_to_metric_families(old),
    ):
        wrong = compare(*sums(families), control)
        assert not wrong, wrong
    for path, status in (("/", 200), ("/metrics/", 404), ("/etc/passwd", 404)):
        try:
            got = urllib.request.urlopen(url.replace("/metrics", path), timeout=10).status
        except urllib.error.HTTPError as error:
            got = error.code
        assert got == status, f"{path}: {got}"
    print(f"   {len(old.splitlines())} lines of metrics, read by three parsers")


main()
