#!/usr/bin/env bash
# The lookup in an XDP program of another project: a program in C that iproute2 has attached counts packets by label. Its
# own functions know no route; the example attaches our table to them, changes a route meanwhile, and ends.
#
#   client 10.1.0.1, 2001:db8::1 ── server 10.1.0.2, 2001:db8::2: labels.bpf.c
#
# in a VM: it needs a kernel that allows programs in the place of functions
. "$(dirname "$0")/lib/namespaces.sh"

source=$here/crates/xdp/examples
attach=$(dirname "$(readlink -f "$bench")")/examples/attach
[ -x "$attach" ] || fail "no $attach: cargo build -p fingerpost-xdp --example attach"
clang -O2 -g -Wall -target bpf -I"/usr/include/$(uname -m)-linux-gnu" -c "$source/labels.bpf.c" -o "$work/labels.o"
namespace client
namespace server
join client c 02:00:00:00:00:01 server s 02:00:00:00:00:02
within client ip addr add 10.1.0.1/16 dev c
within server ip addr add 10.1.0.2/16 dev s
within client ip addr add 2001:db8::1/64 dev c nodad
within server ip addr add 2001:db8::2/64 dev s nodad
within server ip link set dev s xdp object "$work/labels.o" section xdp
id=$(within server ip -j link show dev s | json 'print(d[0]["xdp"]["prog"]["id"])')
map=$(bpftool -j prog show id "$id" | json 'print(d["map_ids"][0])')

packets() { # LABEL
    bpftool -j map dump id "$map" | json "print(sum(v['value'] for e in d for v in e['formatted']['values'] if e['formatted']['key'] == $1))"
}
pings() { # ADDRESS LABEL
    local before
    before=$(packets "$2")
    within client ping -q -c 4 -i 0.05 -W 5 "$1" >"$work/pings" || fail "pings to $1 are lost: $(cat "$work/pings")"
    # Pings only, but for neighbor discovery, whose destinations have no route here.
    [ "$2" = 0 ] || [ $(($(packets "$2") - before)) = 4 ] || fail "$(($(packets "$2") - before)) of 4 packets to $1 have the label $2"
    [ "$2" != 0 ] || [ $(($(packets 0) - before)) -ge 4 ] || fail "packets to $1 have a route"
}
pings 10.1.0.2 0
pings 2001:db8::2 0

printf '10.0.0.0/8 7\n10.1.0.0/24 9\n2001:db8::/32 11\n2001:db8::2/128 200\n' >"$work/routes"
mkfifo "$work/lines"
exec 9<>"$work/lines"
"$attach" "$id" "$work/routes" <"$work/lines" >"$work/attach.out" 2>"$work/attach.log" 9>&- &
example=$!
wait_for 10 grep -q '^attached: 4 routes$' "$work/attach.out" || fail "no lookup is attached: $(cat "$work/attach.log")"
pings 10.1.0.2 9
pings 2001:db8::2 200
refuse 1 "by another process already" "$attach" "$id" "$work/routes"
printf '10.0.0.0/8 7\n2001:db8::/32 11\n' >"$work/routes"
echo >&9
wait_for 10 grep -q '^changed: 2 routes$' "$work/attach.out" || fail "no change: $(cat "$work/attach.log")"
pings 10.1.0.2 7
pings 2001:db8::2 11
kill "$example"
wait "$example" || true
pings 10.1.0.2 0
pings 2001:db8::2 0

refuse 1 "no program has the id 4000000000" "$attach" 4000000000 "$work/routes"
echo '10.0.0.0/8 west' >"$work/routes"
refuse 1 "10.0.0.0/8: the label west is not 1 to 2^30 - 1" "$attach" "$id" "$work/routes"
refuse 1 "usage: attach ID FILE" "$attach"
echo '10.0.0.0/8 7' >"$work/routes"
chmod 755 "$work"
install -m 755 "$attach" "$work/attach"
refuse 1 "cannot be opened" setpriv --reuid 65534 --clear-groups "$work/attach" "$id" "$work/routes"
echo "the lookup is in the place of the program's functions, on Linux $(uname -r)"
