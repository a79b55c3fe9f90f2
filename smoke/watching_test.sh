#!/usr/bin/env bash
# Prometheus scrapes a router, a gate and a grantor: each query of the dashboards has a result, every rule is
# evaluated, and the alerts are those of their tests.
. "$(dirname "$0")/lib/protected_topology.sh"

cat >"$work/policy.lua" <<'POLICY'
function decide(p) return grant { rate = 2000, expire = 60, renewal = 50, step = 1 } end
POLICY
umask 077
secret_key grantor.key 2b
cat >"$work/grantor.toml" <<CONFIG
interfaces = ["t0", "s0"]
$(busy_machine)
[tunnel]
addresses = ["10.9.1.100"]
gates = ["10.2.0.1"]
[policy]
file = "policy.lua"
fallback = "decline 5"
[decisions]
version = 2
id = 7
keys = { 1 = "grantor.key" }
[control]
socket = "$work/sock"
[metrics]
listen = "127.0.0.1:9273"
CONFIG
# The gate takes bundles, as the members of a fleet do; there is none yet.
"$program" bundle keygen "$work/site.key" >/dev/null
mkdir "$work/bundles"
cat >"$work/gate.toml" <<CONFIG
$(gate_config)
[metrics]
listen = "127.0.0.1:9273"
[distribution]
source = "$work/bundles"
public_keys = ["$(cat "$work/site.key.pub")"]
store_dir = "$work/keep-gate"
CONFIG
cat >"$work/router.toml" <<CONFIG
interface = [{ name = "c0" }]
$(busy_machine)
[control]
socket = "$work/router.sock"
[metrics]
listen = "127.0.0.1:9273"
CONFIG
rules=$here/packaging/prometheus/fingerpost.rules.yml
promtool check rules "$rules" >"$work/rules" 2>&1 || fail "rules: $(cat "$work/rules")"
promtool test rules "${rules%.yml}.test.yml" >"$work/rules" 2>&1 || fail "tests of the rules: $(cat "$work/rules")"

start_grantor grantor grantor
launch gate "$program" gate -c "$work/gate.toml" -j >"$work/gate.json" 2>"$work/gate.log"
gate=$launched
launch client "$program" --log-format json run -c "$work/router.toml" -j >"$work/router.json" 2>"$work/router.log"
router=$launched
declare -A roles=([router]=client [gate]=gate [grantor]=grantor)
metrics() { within "$1" "$python" -c 'import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:9273/metrics", timeout=5).read().decode(), end="")'; }
servers=()
for role in "${!roles[@]}"; do
    name=${roles[$role]}
    wait_for 20 metrics "$name" || fail "the $role has no metrics: $(cat "$work/$role.log")"
    metrics "$name" >"$work/metrics"
    promtool check metrics <"$work/metrics" >"$work/checked" 2>&1 || fail "metrics of the $role: $(cat "$work/checked")"
    cat >"$work/$role.yml" <<CONFIG
global: { scrape_interval: 500ms, evaluation_interval: 500ms }
rule_files: ["$rules"]
scrape_configs:
  - { job_name: fingerpost, static_configs: [{ targets: ["127.0.0.1:9273"] }] }
CONFIG
    launch "$name" prometheus --config.file="$work/$role.yml" --storage.tsdb.path="$work/$role.tsdb" \
        --web.listen-address=127.0.0.1:9090 2>"$work/prometheus.$role.log"
    servers+=("$launched")
done
for role in "${!roles[@]}"; do
    within "${roles[$role]}" "$python" "$here/smoke/watching_queries.py" "$role" "$here/packaging/grafana/$role.json" ||
        fail "the $role: $(tail -n 3 "$work/prometheus.$role.log")"
done
within gate "$python" "$here/smoke/watching_queries.py" fleet "$here/packaging/grafana/fleet.json" || fail "the fleet"
kill "${servers[@]}"

echo "the log as JSON"
within client ip link set c0 down
wait_for 10 grep -q '"interface":"c0"' "$work/router.log" || fail "no link in the log: $(cat "$work/router.log")"
"$python" -c 'import datetime, json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert len(lines) >= 3 and all(set(line) - {"fields"} == {"time", "level", "module", "message"} for line in lines), lines
down = [line for line in lines if line.get("fields") == {"interface": "c0"}]
assert [line["level"] for line in down] == ["warning"] and down[0]["message"].startswith("link c0: "), lines
assert all(datetime.datetime.fromisoformat(line["time"]).tzinfo for line in lines), lines
assert any(line["level"] == "info" and line["message"].startswith("following the kernel after") for line in lines), lines
print("  ", len(lines), "lines")' "$work/router.log" || fail "the log: $(cat "$work/router.log")"
"$program" --log-format json run -c "$work/none.toml" 2>"$work/error.log" && fail "a missing configuration is accepted"
json 'assert d["level"] == "error" and "none.toml" in d["message"], d' <"$work/error.log" || fail "the error: $(cat "$work/error.log")"
FINGERPOST_LOG_FORMAT=xml refuse 1 'FINGERPOST_LOG_FORMAT: "xml" is unknown: text or json' "$program" show fib
for one in "$router" "$gate" "$grantor"; do
    kill -INT "$one"
    wait "$one" || fail "a daemon ended with $?"
done
