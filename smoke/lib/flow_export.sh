# Sourced by the smoke tests of exporters, after router_topology.sh: an exporter, its collectors, and a capture of what
# it sends them.
#
#   start_export NAME CAPD ACCTD PORT ARGS...  starts CAPD (nfcapd, sfcapd) at the port, ACCTD (nfacctd, sfacctd) with
#                  $work/ACCTD.conf at the next one, tcpdump, and `fingerpost ARGS` to both
#   end_export     ends the exporter and then the others; what they have read is in $work/NAME.csv (nfdump),
#                  $work/NAME.ACCTD.json and $work/NAME.pcap

start_export() {
    export_name=$1 export_acctd=$3
    local name=$1 capd=$2 acctd=$3 port=$4
    shift 4
    mkdir "$work/$name"
    launch router "$capd" -b 127.0.0.1 -p "$port" -w "$work/$name" -t 3600 >"$work/$name.$capd" 2>&1
    collector=$launched
    : >"$work/$acctd.json"
    launch router "$acctd" -f "$work/$acctd.conf" >"$work/$name.$acctd" 2>&1
    accounting=$launched
    # With frames of 2048 bytes its buffer holds thousands, and by default eight.
    launch router tcpdump -i lo -s 2048 -B 16384 -w "$work/$name.pcap" -U --immediate-mode udp port "$port" 2>"$work/$name.tcpdump"
    sniffer=$launched
    wait_for 10 grep -q 'listening on' "$work/$name.tcpdump" || fail "tcpdump: $(cat "$work/$name.tcpdump")"
    listen() { within router ss -Hlun sport = ":$port" | has_line "$port" && within router ss -Hlun sport = ":$((port + 1))" | has_line "$((port + 1))"; }
    wait_for 10 listen || fail "collectors: $(cat "$work/$name.$capd" "$work/$name.$acctd")"
    launch router "$program" "$@" --socket "$work/sock" --collector 127.0.0.1 --collector "127.0.0.1:$((port + 1))" 2>"$work/$name.log"
    exporter=$launched
    wait_for 10 grep -q '^fingerpost: exporting; Ctrl-C stops$' "$work/$name.log" || fail "no export: $(cat "$work/$name.log")"
}

end_export() {
    local name=$export_name
    kill -INT "$exporter"
    wait "$exporter" || fail "the export: $(cat "$work/$name.log")"
    sleep 2.5 # the accounting daemon writes its table each second
    kill -INT "$accounting"
    kill "$sniffer" "$collector"
    wait "$sniffer" "$collector" "$accounting" || true
    cp "$work/$export_acctd.json" "$work/$name.$export_acctd.json"
    nfdump -q -R "$work/$name" -o csv >"$work/$name.csv" 2>"$work/$name.nfdump" || fail "nfdump: $(cat "$work/$name.nfdump")"
    sed 's/^/   /' "$work/$name.log" | tail -n 1
}
