#!/usr/bin/env bash
# sFlow: with a rate of one, a collector's sums are the counters of the router; with a larger one, they are near them;
# each reason of a drop has a notice. sfcapd, sfacctd and tshark read the datagrams.
#
#   source s0 ── r0 router r1 ── a0 a
mode=copy
. "$(dirname "$0")/lib/router_topology.sh"
. "$(dirname "$0")/lib/flow_export.sh"

default_routes
hosts_own_checksums
within router ip route add 11.0.0.0/8 via 10.0.1.2
within router ip route add blackhole 13.0.0.0/8
within router ip link set lo up
within router ping -c 1 -q 10.0.1.2 >/dev/null
within router ping -c 1 -q 10.0.0.2 >/dev/null
configure
start_router
rest
cat >"$work/sfacctd.conf" <<CONF
daemonize: false
sfacctd_ip: 127.0.0.1
sfacctd_port: 6344
sfacctd_renormalize: true
plugins: print
aggregate: dst_host, in_iface
print_output: json
print_refresh_time: 1
print_history: 1h
print_output_file: $work/sfacctd.json
print_output_file_append: true
CONF
begin() { # NAME ARGS...
    local name=$1
    shift
    start_export "$name" sfcapd sfacctd 6343 sflow --agent 192.0.2.1 --interval 1 "$@"
}
end() { # NAME
    sleep 1.5 # the last drops and counters are exported
    end_export
    tshark -r "$work/$1.pcap" -d udp.port==6343,sflow -V >"$work/$1.text" 2>/dev/null || fail "tshark cannot read the datagrams"
    if grep -q 'Malformed' "$work/$1.text"; then fail "tshark: $(grep -B 5 Malformed "$work/$1.text" | head)"; fi
}

echo "every packet"
begin all --one-in 1
show -j interfaces >"$work/before.json"
send_udp 11.0.0.1 500
send_udp 13.0.0.1 60
send_udp 99.0.0.1 5
show -j interfaces >"$work/after.json"
end all
"$python" "$here/smoke/sflow_sums.py" all "$work" || fail "the sums differ"

echo "one packet in 20"
begin some --one-in 20 --drops 0
send_udp 11.0.0.1 10000
end some
"$python" "$here/smoke/sflow_sums.py" some "$work" || fail "the sums differ"

echo "wrong arguments"
refuse 1 "--collector nowhere.invalid" "$program" sflow --socket "$work/sock" --collector nowhere.invalid
refuse 1 "no router answers here" "$program" sflow --socket "$work/none" --collector 127.0.0.1
refuse 2 "required arguments" "$program" sflow --socket "$work/sock"
stop_router
