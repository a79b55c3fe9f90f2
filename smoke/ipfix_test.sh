#!/usr/bin/env bash
# IPFIX: with a rate of one, the sums of collectors are the counters of the router, with the drops, their status and the
# origins; with a larger one, they are near them; biflows have both directions. nfcapd, nfacctd and tshark read the messages.
#
#   source s0 ── r0 router r1 ── a0 a
mode=copy
. "$(dirname "$0")/lib/router_topology.sh"
. "$(dirname "$0")/lib/flow_export.sh"

default_routes
hosts_own_checksums
within router ip route add 11.0.0.0/8 via 10.0.1.2
within router ip route add blackhole 13.0.0.0/8
within router ip route add fd11::/16 via fd00:1::2
within a ip addr add 11.0.0.1/32 dev lo
within a ip addr add fd11::1/128 dev lo
within a ip link set lo up
within router ip link set lo up
within router ping -c 1 -q 10.0.1.2 >/dev/null
within router ping -c 1 -q 10.0.0.2 >/dev/null
within router ping -c 1 -q fd00:1::2 >/dev/null
within router ping -c 1 -q fd00:0::2 >/dev/null
configure
start_router
rest
cat >"$work/origins" <<ROUTES
10.0.0.0/8 64500
11.0.0.0/8 4200000001
13.0.0.0/8 192.0.2.77
fd11::/16 64511
ROUTES
cat >"$work/primitives" <<PRIMITIVES
name=dropped_octets field_type=132 len=8 semantics=u_int
name=dropped_packets field_type=133 len=8 semantics=u_int
name=status field_type=89 len=1 semantics=u_int
PRIMITIVES
cat >"$work/nfacctd.conf" <<CONF
daemonize: false
nfacctd_ip: 127.0.0.1
nfacctd_port: 4740
plugins: print
aggregate: dst_host, in_iface, out_iface, src_as, dst_as, status, dropped_octets, dropped_packets, flows
aggregate_primitives: $work/primitives
nfacctd_as: netflow
nfacctd_renormalize: true
nfacctd_disable_opt_scope_check: true
print_output: json
print_refresh_time: 1
print_history: 1h
print_output_file: $work/nfacctd.json
print_output_file_append: true
CONF
begin() { # NAME ARGS...
    local name=$1
    shift
    start_export "$name" nfcapd nfacctd 4739 ipfix --idle-timeout 1 "$@"
}
end() { # NAME
    end_export
    tshark -r "$work/$1.pcap" -d udp.port==4739,cflow -T json --no-duplicate-keys >"$work/$1.json" 2>/dev/null || fail "tshark cannot read the messages"
    if grep -q -i 'malformed' "$work/$1.json"; then fail "tshark: $(grep -i -B 5 malformed "$work/$1.json" | head)"; fi
}

echo "every packet"
begin all --one-in 1 --origins "$work/origins"
show -j interfaces >"$work/before.json"
show -j counters >"$work/before-counters.json"
send_udp 11.0.0.1 500
send_udp 13.0.0.1 60
send_udp 99.0.0.1 5
send_udp fd11::1 70
show -j interfaces >"$work/after.json"
show -j counters >"$work/after-counters.json"
end all
"$python" "$here/smoke/ipfix_sums.py" all "$work" || fail "the sums differ"


echo "one packet in 20"
begin some --one-in 20
send_udp 11.0.0.1 10000
end some
"$python" "$here/smoke/ipfix_sums.py" some "$work" || fail "the sums differ"

echo "both directions in a record"
begin both --one-in 1 --biflow
within source ping -c 3 -i 0.2 -q 11.0.0.1 >/dev/null || fail "no answers"
end both
"$python" "$here/smoke/ipfix_sums.py" both "$work" || fail "the sums differ"

echo "wrong arguments"
refuse 1 "--collector nowhere.invalid" "$program" ipfix --socket "$work/sock" --collector nowhere.invalid
refuse 1 "no router answers here" "$program" ipfix --socket "$work/none" --collector 127.0.0.1
refuse 1 "$work/missing" "$program" ipfix --socket "$work/sock" --collector 127.0.0.1 --origins "$work/missing"
refuse 2 "required arguments" "$program" ipfix --socket "$work/sock"
stop_router
