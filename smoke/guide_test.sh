#!/usr/bin/env bash
# The guide's ten commands (docs/guide/running.md), as they stand there, on a machine of our
# own: /etc, /run and /usr/local are copies that go with it. Nothing waits between them, as when a
# person pastes them. At the end the machine forwards by what BIRD has from its neighbor.
#
#   source s0 ── eth0 router eth1 ── a0 a: BIRD
. "$(dirname "$0")/lib/router_topology.sh"

sed -n '/^```sh guide$/,/^```$/p' "$here/docs/guide/running.md" | sed '1d;$d' >"$work/commands"
[ "$(wc -l <"$work/commands")" = 10 ] || fail "not ten commands: $(cat "$work/commands")"

for pair in "r0 eth0" "r1 eth1"; do
    read -r old new <<<"$pair"
    within router ip link set "$old" down
    within router ip link set "$old" name "$new"
    within router ip link set "$new" up
done
within router ip link delete r2
echo "route 203.0.113.0/24 blackhole;" >"$work/a.routes"
cat >"$work/a.conf" <<CONF
router id 10.0.1.2;
log stderr { warning, error, fatal, bug };
protocol device {}
protocol static its_own {
    ipv4;
    include "$work/a.routes";
}
protocol bgp customer {
    local 10.0.1.2 as 65001;
    neighbor 10.0.1.1 as 65000;
    connect retry time 1;
    error wait time 1, 2;
    ipv4 { import none; export all; };
}
CONF
bird_in a
within a ip addr add 203.0.113.1/32 dev lo
within a ip route add 10.0.0.0/24 via 10.0.1.1
within source ip route add default via 10.0.0.1

# Built is what is to be tested; the guide builds it where cargo does.
sed -i "s|^install -m 755 target/release/fingerpost|install -m 755 $program|; s|^cargo build|cargo build --offline|" "$work/commands"
cat >"$work/machine" <<'MACHINE'
set -eu
for folder in /etc /usr/local; do
    mkdir -p "$1/over$folder/upper" "$1/over$folder/work"
done
mount -t tmpfs over "$1/over"
for folder in /etc /usr/local; do
    mkdir -p "$1/over$folder/upper" "$1/over$folder/work"
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$1/over$folder/upper,workdir=$1/over$folder/work" "$folder"
done
mount -t tmpfs run /run
mkdir /run/bird
cd "$2"
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
number=0
while read -r command; do
    number=$((number + 1))
    echo "   $number  $command"
    case $command in
        *" &") eval "${command% &} &" ;;
        *) eval "$command" >"$1/output" 2>&1 || { cat "$1/output"; exit 1; } ;;
    esac
done <"$1/commands"
tries=0
until [[ $(ip route show 203.0.113.0/24) == *bird* ]]; do
    tries=$((tries + 1))
    [ "$tries" -lt 150 ] || { echo "no route from BIRD"; exit 1; }
    sleep 0.1
done
touch "$1/ready"
while [ ! -e "$1/asked" ]; do sleep 0.05; done
FINGERPOST_SOCKET=/run/fingerpost/control.sock fingerpost show route 203.0.113.1
status=0
fingerpost show --wait 100ms --socket /run/none.sock counters 2>"$1/none" || status=$?
[ "$status" = 1 ] && grep -q "no router answers here" "$1/none" || { cat "$1/none"; exit 1; }
fingerpost show -j counters >"$1/counters"
fingerpost fib diff kernel
MACHINE
launch router bash "$work/machine" "$work" "$here" >"$work/machine.log" 2>&1
machine=$launched
ready() { [ -e "$work/ready" ] || ! kill -0 "$machine" 2>/dev/null; }
wait_for 150 ready
[ -e "$work/ready" ] || fail "the commands do not come to their end"
within source ping -qc5 -i0.1 -W5 203.0.113.1 >/dev/null || fail "nothing comes back"
touch "$work/asked"
wait "$machine" || fail "the machine does not end well"
cat "$work/machine.log"
json 'assert d[0]["sent"] >= 10 and d[0]["balanced"], d; print("  ", d[0]["sent"], "packets forwarded by the router")' <"$work/counters"
