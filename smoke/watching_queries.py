"""Runs each query of a dashboard against a Prometheus that scrapes the daemon of its role: ROLE DASHBOARD."""

import json
import sys
import urllib.parse
import urllib.request

from lib.checks import Checks, wait_until

SERVER = "http://127.0.0.1:9090/api/v1/"
# The interval that Grafana would choose for this scrape interval, and the choice of all instances.
VARIABLES = {"$__rate_interval": "3s", "$instance": ".*"}
check = Checks()


def get(path, **parameters):
    """Returns the data of a request."""
    url = SERVER + path + ("?" + urllib.parse.urlencode(parameters) if parameters else "")
    with urllib.request.urlopen(url, timeout=10) as answer:
        reply = json.load(answer)
    assert reply["status"] == "success", reply
    return reply["data"]


def query(expression):
    """Returns the series of an expression now; none while the server starts."""
    try:
        return get("query", query=expression)["result"]
    except OSError:
        return []


role, path = sys.argv[1:]
with open(path, encoding="utf-8") as file:
    dashboard = json.load(file)
check(f"{role}: the daemon is scraped", wait_until(lambda: query("rate(fingerpost_polls_total[3s]) > 0"), 20))
panels = dashboard["panels"]
targets = [(panel["title"], target) for panel in panels for target in panel["targets"]]
empty = []
for title, target in targets:
    expression = target["expr"]
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    if not wait_until(lambda expression=expression: query(expression), 5, 0.3):
        empty.append((title, expression))
check(f"{len(targets)} queries of {len(panels)} panels have a result", not empty, empty)
check("panels do not overlap", all(
    a["gridPos"]["x"] + a["gridPos"]["w"] <= b["gridPos"]["x"] or a["gridPos"]["y"] < b["gridPos"]["y"]
    for a, b in zip(panels, panels[1:])))
rules = [rule for group in get("rules")["groups"] for rule in group["rules"]]
bad = [rule["name"] for rule in rules if rule["health"] != "ok"]
check(f"{len(rules)} rules are evaluated", len(rules) >= 25 and not bad, bad)
active = {alert["labels"]["alertname"] for alert in get("alerts")["alerts"]}
check("no alert about a daemon in order", not active, active)
check.finish()
