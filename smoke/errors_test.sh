#!/usr/bin/env bash
# A router that cannot start reports the fault, its place and the remedy, with status 1 and nothing on
# standard output, and leaves nothing behind: no XDP program on an interface that it took before, no process.
. "$(dirname "$0")/lib/namespaces.sh"

namespace other
namespace router
join other o0 02:00:00:00:01:02 router r0 02:00:00:00:01:01
join other o1 02:00:00:00:02:02 router r1 02:00:00:00:02:01

# The configuration that works, and variants of it that do not.
cat >"$work/good.toml" <<'CONFIG'
[[interface]]
name = "r0"

[[interface]]
name = "r1"

[[nexthop]]
name = "up"
interface = "r0"
mac = "02:00:00:00:01:02"

[[routes]]
file = "routes.txt"

[control]
socket = ""
CONFIG
echo '11.0.0.0/8 up' >"$work/routes.txt"

changed() {
    sed "$1" "$work/good.toml" >"$work/router.toml"
}

# cannot TEXT...: the router must not start, say all the texts, and leave nothing.
cannot() {
    for text in "$@"; do
        refuse 1 "$text" within router timeout 20 "$program" forward -c "$work/router.toml"
    done
    [ -z "$(programs router)" ] || fail "left behind on: $(programs router)"
    [ -z "$(ip netns pids "${prefix}router")" ] || fail "a process is left"
    echo "   ok   ${1}"
}

changed 's/name = "r1"/name = "r9"/'
cannot 'r9: no such interface'
changed 's/^mac = .*/mac = "02:00:00:00:01"/'
cannot 'router.toml:10: nexthop.mac: "02:00:00:00:01" is not a MAC'
changed 's/^mac = .*/mac = 7/'
cannot 'router.toml:10:' 'mac = 7'
changed 's/^mac = /mca = /'
cannot 'router.toml:10:' 'mca'
changed 's/^\[\[nexthop\]\]/[[nexthop]/'
cannot 'router.toml:7:'
changed 's/^interface = "r0"/interface = "r5"/'
cannot 'router.toml:9: nexthop.interface' '"r5"'
changed 's/routes.txt/no-such-file.txt/'
cannot "$work/no-such-file.txt: cannot be read"
changed 's/name = "up"/name = "down"/'
cannot "$work/routes.txt: 11.0.0.0/8 up: no [[nexthop]]"
rm "$work/router.toml"
cannot "$work/router.toml: cannot be read"

# Damage in a file of routes: line, or byte and record; half a table is no table.
changed ''
printf '11.0.0.0/8 up\n12.0.0.1/8 up\n' >"$work/routes.txt"
cannot "$work/routes.txt: line 2"
printf '11.0.0.0/8 up\n%.0s' 1 2 3 | gzip | head -c 30 >"$work/routes.txt"
cannot "$work/routes.txt: damaged at byte"
echo '11.0.0.0/8 up' >"$work/routes.txt"

# A second interface that fails gives the first one back.
ip -n "${prefix}other" link set o1 mtu 20000
ip -n "${prefix}router" link set r1 mtu 20000
changed ''
cannot 'r1: MTU 20000' 'ip link set r1 mtu'
ip -n "${prefix}other" link set o1 mtu 1500
ip -n "${prefix}router" link set r1 mtu 1500
changed '/^name = "r1"/a mode = "zero-copy"'
cannot 'r1:' 'zero-copy'
changed 's/^name = "r1"/name = "lo"/'
cannot 'lo: not an Ethernet interface'
changed '2a mode = "zero-copy"'
cannot 'r0:' 'zero-copy'
printf '\n[workers]\ncores = [999]\n' >>"$work/good.toml"
changed ''
cannot '999'
sed -i '/^\[workers\]/,$d' "$work/good.toml"
printf '\n[workers]\ncores = [0, 0]\n' >>"$work/good.toml"
changed ''
cannot 'workers.cores'
sed -i '/^\[workers\]/,$d' "$work/good.toml"

# Without rights: which capability is missing, of the few that it takes.
changed ''
with_rights() {
    setpriv --bounding-set "-all$1" --inh-caps -all "$program" forward -c "$work/router.toml"
}
export -f with_rights
export program work
rights=+net_admin,+net_raw,+bpf,+ipc_lock
for right in net_admin net_raw bpf; do
    refuse 1 "missing CAP_${right^^};" within router timeout 20 bash -c \
        'with_rights "$1"' bash ",${rights/+$right/-$right}"
    [ -z "$(programs router)" ] || fail "left behind on: $(programs router)"
    echo "   ok   without CAP_${right^^}"
done
refuse 1 'CAP_NET_ADMIN' within router timeout 20 bash -c 'with_rights ""'
[ -z "$(programs router)" ] || fail "left behind on: $(programs router)"

# And with all of it put right it starts, with those rights and no others.
launch router setpriv --bounding-set "-all,$rights" --inh-caps -all \
    "$program" forward -c "$work/router.toml" >"$work/report" 2>"$work/router.log"
wait_for 10 grep -q 'forwarding by' "$work/router.log" || fail "the good configuration does not start"
kill -TERM "$launched"
wait "$launched" || fail "the good configuration ended badly"
