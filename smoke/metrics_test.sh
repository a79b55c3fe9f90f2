#!/usr/bin/env bash
# The metrics of a running router: read by independent parsers, and equal to what
# `show` prints.
. "$(dirname "$0")/lib/router_topology.sh"

for name in source a; do
    number=$([ "$name" = source ] && echo 0 || echo 1)
    within "$name" ip route add default via "10.0.$number.1"
done
within a ip addr add 11.0.0.1/8 dev lo
within router ip link set lo up
within router ip route add 11.0.0.0/8 via 10.0.1.2
within router ip route add blackhole 12.0.0.0/8

refuse 1 "metrics.listen" "$program" run -c <(echo '[metrics]'; echo 'listen = "here"'; echo '[[interface]]'; echo 'name = "r0"')
configure '[metrics]
listen = "127.0.0.1:9273"'
start_router
within source ping -c 5 -i 0.05 -W 2 -q 11.0.0.1 >"$work/ping.log" || fail "$(cat "$work/ping.log")"
within source ping -c 2 -i 0.05 -W 0.2 -q 12.0.0.1 >/dev/null && fail "12.0.0.1 answers"
# The steering program counts all packets: wait until no more arrive.
sleep 0.5
within router "$python" "$here/smoke/metrics_compare.py" "$program" "$work/sock" http://127.0.0.1:9273/metrics

stop_router

echo "the address is in use: the router does not start, and leaves nothing"
within router "$python" -c '
import socket
listener = socket.create_server(("127.0.0.1", 9273))
print("taken", flush=True)
import time
time.sleep(60)' >"$work/taken" &
taken=$!
wait_for 5 grep -q taken "$work/taken" || fail "the address is not taken"
refuse 1 "metrics" within router "$program" run -c "$work/router.toml"
[ -z "$(programs router)" ] || fail "a program is left on: $(programs router)"
kill "$taken"
