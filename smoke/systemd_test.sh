#!/usr/bin/env bash
# The Debian package, and its service units under a booted systemd, in a container of systemd-nspawn in a network
# namespace of the test. Its root file system is an overlay over that of this machine.
#
#   source s0 ── eth0 router (systemd, fingerpost.service) eth1 ── a0 a
#
# First `systemd-analyze security` must rate every unit at most 2.5. The test creates eth1 only after the
# boot: the unit waits for it. The process is not root, has few capabilities and a seccomp filter, forwards
# and reloads, and systemd restarts it after a SIGKILL; a gate's front interface stays closed meanwhile. Then the units of sFlow, of block lists, the gate's and the grantor's
# start. An upgrade hands over to the new program and keeps the configuration; after a removal and a purge nothing is left but what
# Debian's policy leaves.
. "$(dirname "$0")/lib/namespaces.sh"
. "$(dirname "$0")/lib/packages.sh"

for unit in fingerpost fingerpost-block fingerpost-gate fingerpost-grantor fingerpost-ipfix fingerpost-sflow; do
    # --offline rates the file alone: a machine without a service manager has no units to look up.
    rated=$(systemd-analyze security --offline=true --threshold=25 "$here/packaging/$unit.service" | tail -1) ||
        fail "$unit.service: $rated, and at most 2.5 is allowed"
    echo "   $unit.service:${rated##*service:}"
done

for name in source router a; do
    namespace "$name"
done
join source s0 02:00:00:00:01:02 router eth0 02:00:00:00:01:01
within source ip addr add 10.0.0.2/24 dev s0
within source ip route add default via 10.0.0.1
within router ip addr add 10.0.0.1/24 dev eth0
within router sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.default.rp_filter=1

# The root file system: that of this machine, with the program, the units and their user.
root=$work/root
mkdir "$work/over" "$root"
mount -t tmpfs over "$work/over"
mkdir "$work/over/upper" "$work/over/work"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/over/upper,workdir=$work/over/work" "$root"
container=
unmount() {
    # The kernel ends all processes of a PID namespace together with its process 1.
    [ -z "$container" ] || kill -KILL "$container" 2>/dev/null
    for folder in "$root" "$work/over"; do
        umount -l "$folder" 2>/dev/null
    done
}
trap 'status=$?; set +e; unmount; (exit $status); leave' EXIT

# The same program gives the same bytes, whatever the user's mask.
pack "$program" "$work/first" &
first=$!
(umask 077; pack "$program" "$work/second")
wait "$first"
cmp "$work"/first/*.deb "$work"/second/*.deb || fail "two packages of one program differ"
cp "$work"/first/*.deb "$root/first.deb"
pack_newer "$root/first.deb" "$root/newer.deb" "$work/newer"
python3 -c 'import json,sys; d = json.load(sys.stdin); assert d["bomFormat"] == "CycloneDX" and len(d["components"]) > 100, d' \
    < <(dpkg-deb --fsys-tarfile "$root/first.deb" | tar -xO ./usr/share/doc/fingerpost/sbom.cdx.json) || fail "no bill of materials"
dpkg-deb --fsys-tarfile "$root/first.deb" | tar -xO ./usr/bin/fingerpost >"$work/packed"
objcopy -O binary --only-section=.dep-v0 --set-section-flags .dep-v0=alloc "$work/packed" "$work/dep"
"$python" -c 'import json, sys, zlib; d = json.loads(zlib.decompress(open(sys.argv[1], "rb").read()))["packages"]
root, = [one for one in d if one.get("root")]
assert root["name"] == "fingerpost" and len(d) > 100 and all(d[n]["name"] for n in root["dependencies"]), root' "$work/dep" || fail "no list of crates in the program"
# Otherwise dpkg starts and stops nothing, as in the image of a container.
rm -f "$root/usr/sbin/policy-rc.d"
chroot "$root" dpkg --install /first.deb >"$work/dpkg.log" 2>&1 || fail "dpkg: $(cat "$work/dpkg.log")"
[ "$(chroot "$root" stat -c '%U:%G %a' /etc/fingerpost)" = "root:fingerpost 750" ] || fail "the folder of the configuration"
for file in run gate; do
    words=(run --check --offline -c "/etc/fingerpost/$file.toml")
    [ "$file" = run ] || words=(gate check --offline -c "/etc/fingerpost/$file.toml")
    chroot "$root" fingerpost "${words[@]}" >"$work/check.log" 2>&1 || fail "the example $file.toml: $(cat "$work/check.log")"
done
echo '# An operator'"'"'s change.' >>"$root/etc/fingerpost/run.toml"
echo 10.0.0.2 >"$root/etc/fingerpost/unwanted"
echo 'BLOCK_OPTIONS="eth0 --block /etc/fingerpost/unwanted --bans /var/lib/fingerpost-block/bans --metrics 127.0.0.1:9275"' \
    >"$root/etc/fingerpost/block.env"
cat >"$root/etc/fingerpost/gate.toml" <<CONFIG
$(gate_sides eth0 eth1 1gbit)
[flow_table]
entries = 4096
state_file = "/var/lib/fingerpost/flows"
$(gate_site '{ address = "10.0.1.2" }')
$(gate_policy 10.0.1.2/32 drop)
$(gate_policy 0.0.0.0/0 front)
CONFIG
grantor_config '"eth0", "eth1"' 10.9.1.100 10.0.0.2 1 grantor.key >"$root/etc/fingerpost/grantor.toml"
"$program" grantor policy aimd >"$root/etc/fingerpost/policy.lua"
(umask 077; printf '%s\n' "$(printf '2b%.0s' $(seq 32))" >"$root/etc/fingerpost/grantor.key")
chown fingerpost:fingerpost "$root/etc/fingerpost/grantor.key" 2>/dev/null ||
    chown "$(awk -F: '$1 == "fingerpost" { print $3 ":" $4 }' "$root/etc/passwd")" "$root/etc/fingerpost/grantor.key"
# The boot starts these units and no other that this machine has installed.
cat >"$root/etc/systemd/system/test.target" <<'UNIT'
[Unit]
Requires=systemd-journald.service systemd-tmpfiles-setup.service
Wants=fingerpost.service
UNIT
sed -i '/^\[Unit\]/a DefaultDependencies=no\nAfter=systemd-journald.service systemd-tmpfiles-setup.service' \
    "$root"/usr/lib/systemd/system/fingerpost*.service
echo "Fingerpost test" >"$root/etc/hostname"
rm -f "$root/etc/machine-id"

systemd-nspawn --quiet --boot --directory "$root" --machine "$(basename "$work" | tr -dc '[:alnum:]')" \
    --register=no --keep-unit --link-journal=no --console=pipe --capability=all \
    --system-call-filter="bpf perf_event_open" --resolv-conf=off --timezone=off \
    --network-namespace-path="/run/netns/${prefix}router" \
    systemd.unit=test.target </dev/null >"$work/nspawn.log" 2>&1 &
nspawn=$!
booted() { container=$(pgrep -P "$nspawn" -x systemd) && machine systemctl show >/dev/null; }
machine() { nsenter --target "$container" --mount --uts --ipc --net --pid --cgroup -- "$@"; }
is() { [ "$(machine systemctl is-active "$1" 2>/dev/null)" = "$2" ]; }
journal() { machine journalctl --no-pager -b -u "$1" >"$work/journal.log" 2>&1; }
logged() { journal "$1" && grep -q "$2" "$work/journal.log"; }
wait_for 60 booted || fail "the container does not boot"

# The boot without eth1: the unit waits, logs that, and starts when the interface appears.
wait_for 30 logged fingerpost 'waiting for interface eth1' || fail "the unit does not wait for eth1"
is fingerpost activating || fail "the unit is not activating but $(machine systemctl is-active fingerpost)"
join router eth1 02:00:00:00:02:01 a a0 02:00:00:00:02:02
within router ip addr add 10.0.1.1/24 dev eth1
within a ip addr add 10.0.1.2/24 dev a0
within a ip route add default via 10.0.1.1
wait_for 30 is fingerpost active || { journal fingerpost; fail "the unit is not active with its interfaces"; }

process() { machine systemctl show --property=MainPID --value "$1"; }
# Checks that the process of a unit is not root, has these capabilities, and has a seccomp filter.
confined() { # UNIT CAPABILITIES
    local status
    status=$(machine cat "/proc/$(process "$1")/status")
    ! grep -q '^Uid:[[:space:]]*0' <<<"$status" || fail "$1 runs as root"
    grep -q "^CapEff:[[:space:]]*$2\$" <<<"$status" || fail "$1: $(grep Cap <<<"$status")"
    grep -q "^CapBnd:[[:space:]]*$2\$" <<<"$status" || fail "$1: $(grep Cap <<<"$status")"
    grep -q '^Seccomp:[[:space:]]*2$' <<<"$status" || fail "$1: no seccomp filter"
    grep -q '^NoNewPrivs:[[:space:]]*1$' <<<"$status" || fail "$1: may gain privileges"
}
# CAP_BPF, CAP_PERFMON, CAP_IPC_LOCK, CAP_NET_RAW, CAP_NET_ADMIN.
router=000000c000007000
gate=$router
# Without CAP_PERFMON.
grantor=0000008000007000
confined fingerpost "$router"
[ "$(machine stat -c '%U %a' /run/fingerpost/control.sock)" = "fingerpost 600" ] || fail "the socket's owner and mode"

within source ping -qc5 -i0.1 -W5 10.0.1.2 >"$work/ping.log" || fail "no packet is forwarded"
machine fingerpost show -j counters | json 'assert d[0]["sent"] >= 8 and d[0]["balanced"], d'
machine fingerpost fib diff kernel 2>/dev/null || fail "the tables differ from the kernel's"
old=$(process fingerpost)
machine systemctl reload fingerpost || fail "the reload fails"
[ "$(process fingerpost)" = "$old" ] || fail "a reload replaces the process"
# `hands_over UNIT CAPABILITIES`: after its program is another file, a reload replaces the process within the unit.
hands_over() {
    old=$(process "$1")
    machine cp --preserve=mode /usr/bin/fingerpost /usr/bin/fingerpost.other
    machine mv /usr/bin/fingerpost.other /usr/bin/fingerpost
    machine systemctl reload "$1" || { journal "$1"; fail "$1: no upgrade: $(tail -5 "$work/journal.log")"; }
    wait_for 10 replaced "$1" || { journal "$1"; fail "$1: the process is not replaced: $(tail -5 "$work/journal.log")"; }
    [ "$(machine systemctl show --property=NRestarts --value "$1")" = 0 ] || fail "$1 was restarted"
    confined "$1" "$2"
}
# `replaced UNIT`: it has another process than $old. In between systemd reports 0.
replaced() {
    local new
    new=$(process "$1")
    [ "$new" != 0 ] && [ "$new" != "$old" ] && is "$1" active
}
within source ping -q -c 60 -i 0.05 -W 2 10.0.1.2 >"$work/ping.log" &
pinging=$!
hands_over fingerpost "$router"
wait "$pinging" || true
has_line ' 0% packet loss' <"$work/ping.log" || fail "packets were lost: $(cat "$work/ping.log")"
machine fingerpost show -j counters | json 'assert d[0]["sent"] >= 100 and d[0]["balanced"], d'
# The watchdog of the unit expects messages of the new process.
sleep 11
is fingerpost active && [ "$(machine systemctl show --property=NRestarts --value fingerpost)" = 0 ] ||
    { journal fingerpost; fail "the watchdog has ended the new process"; }
echo "   fingerpost.service: waits for an interface, forwards without root, reloads, hands over to another program"

for protocol in "sflow 6343" "ipfix 4739"; do
    read -r name port <<<"$protocol"
    echo "${name^^}_OPTIONS=\"--collector 10.0.0.2\"" >"$root/etc/fingerpost/$name.env"
    launch source tcpdump -i s0 -c 1 -w "$work/$name.pcap" udp port "$port" 2>"$work/$name.log"
    wait_for 10 grep -q 'listening on' "$work/$name.log" || fail "tcpdump: $(cat "$work/$name.log")"
    machine systemctl start "fingerpost-$name" || fail "the unit fingerpost-$name does not start"
    wait_for 20 logged "fingerpost-$name" 'exporting; Ctrl-C stops' || fail "$name: $(cat "$work/journal.log")"
    confined "fingerpost-$name" 0000000000000000
    wait_for 10 grep -q '1 packet captured' "$work/$name.log" || fail "no datagram of $name arrives"
    machine systemctl stop "fingerpost-$name"
    logged "fingerpost-$name" 'fingerpost: .* packets ' || fail "$name: $(cat "$work/journal.log")"
    echo "   fingerpost-$name.service: exports without a capability, stops"
done

# systemd restarts the process after SIGKILL.
old=$(process fingerpost)
machine kill -KILL "$old"
wait_for 30 replaced fingerpost || fail "the unit does not come back after SIGKILL"
machine systemctl stop fingerpost || fail "the unit does not stop"
[ -z "$(programs router)" ] || fail "an XDP program is left on: $(programs router)"

# CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN.
block=000000c000001000
answers() { within source ping -qc3 -i0.1 -W1 10.0.0.1 >"$work/ping.log"; }
answers || fail "no answer without block lists: $(cat "$work/ping.log")"
machine systemctl start --no-block fingerpost-block
wait_for 30 is fingerpost-block active || { journal fingerpost-block; fail "fingerpost-block does not start"; }
confined fingerpost-block "$block"
answers && fail "a listed source is answered"
socket=/run/fingerpost-block/control.sock
machine curl -sf http://127.0.0.1:9275/metrics | has_line '^fingerpost_block_list_packets_total.*bans.*} 0$' || fail "no metrics"
machine fingerpost show -j block-lists --socket "$socket" | json 'assert {l["name"].split("/")[-1]: l["packets"] >= 3 for l in d} == {"unwanted": True, "bans": False}, d'
old=$(process fingerpost-block)
machine kill -KILL "$old"
wait_for 30 replaced fingerpost-block || fail "fingerpost-block does not come back after SIGKILL"
answers && fail "a listed source is answered after a restart"
machine systemctl stop fingerpost-block || fail "fingerpost-block does not stop"
[ -z "$(programs router)" ] || fail "an XDP program is left on: $(programs router)"
answers || fail "no answer after the end: $(cat "$work/ping.log")"
echo "   fingerpost-block.service: blocks without root, has metrics, comes back after SIGKILL, stops"

# Kills and restarts the gate while its front receives packets that its policy drops and the kernel would forward.
stays_closed() {
    { within source ping -q -c 120 -i 0.05 -W 1 10.0.1.2 >"$work/ping.log" || true; } &
    pinging=$!
    old=$(process fingerpost-gate)
    machine kill -KILL "$old"
    wait_for 30 replaced fingerpost-gate || { journal fingerpost-gate; fail "the gate does not come back after SIGKILL"; }
    machine systemctl restart fingerpost-gate || fail "the gate does not restart"
    wait "$pinging" || true
    has_line ' 0 received' <"$work/ping.log" || fail "packets passed while the gate was restarted: $(cat "$work/ping.log")"
}
for unit in fingerpost-gate fingerpost-grantor; do
    machine systemctl start --no-block "$unit"
    wait_for 30 is "$unit" active || { journal "$unit"; fail "$unit does not start"; }
    confined "$unit" "$([ "$unit" = fingerpost-gate ] && echo "$gate" || echo "$grantor")"
    machine systemctl reload "$unit" || { journal "$unit"; fail "$unit does not reload"; }
    [ "$unit" != fingerpost-gate ] || { hands_over "$unit" "$gate"; stays_closed; }
    machine systemctl stop "$unit"
    [ -z "$(programs router)" ] || fail "$unit leaves an XDP program on: $(programs router)"
    # Without a gate the kernel forwards the packets that the gate has dropped, also while it was restarted.
    within source ping -qc3 -i0.1 -W5 10.0.1.2 >"$work/ping.log" || fail "the kernel does not forward: $(cat "$work/ping.log")"
    [ "$(machine systemctl show --property=Result --value "$unit")" = success ] || { journal "$unit"; fail "$unit does not end well: $(tail -8 "$work/journal.log")"; }
    echo "   $unit.service: starts without root, reloads, stops"
done
machine test -s /var/lib/fingerpost/flows || fail "the gate leaves no flows in its state folder"

# An upgrade of the package hands over to the new program, and keeps the configuration.
machine systemctl start fingerpost
wait_for 30 is fingerpost active || { journal fingerpost; fail "the unit does not start again"; }
old=$(process fingerpost)
machine dpkg --force-confold --install /newer.deb >"$work/dpkg.log" 2>&1 || fail "the upgrade fails: $(cat "$work/dpkg.log")"
wait_for 30 replaced fingerpost || fail "the upgrade does not replace the process: $(cat "$work/dpkg.log")"
logged fingerpost "process $(process fingerpost) has taken over" || fail "no hand-over: $(tail -5 "$work/journal.log") $(cat "$work/dpkg.log")"
! is fingerpost-gate active || fail "the upgrade starts a unit that did not run"
has_line "An operator's change" <"$root/etc/fingerpost/run.toml" || fail "the upgrade replaces the configuration"
within source ping -qc3 -i0.1 -W5 10.0.1.2 >"$work/ping.log" || fail "no packet is forwarded after the upgrade"

# Character devices stand for files of this machine that were removed.
changed() { find "$work/over/upper" -not -type c -name '*fingerpost*' -printf '/%P\n' | grep -v '^/etc/fingerpost$' || true; }

# A removal leaves the configuration and the state, and the kernel forwards alone.
[ -n "$(programs router)" ] && changed | has_line /var/lib/fingerpost || fail "neither an XDP program nor a changed file is found"
edited=$(md5sum <"$root/etc/fingerpost/run.toml")
machine dpkg --remove fingerpost >"$work/dpkg.log" 2>&1 || fail "the removal fails: $(cat "$work/dpkg.log")"
[ -z "$(programs router)" ] || fail "the removal leaves an XDP program on: $(programs router)"
[ ! -e "$root/usr/bin/fingerpost" ] && [ "$(md5sum <"$root/etc/fingerpost/run.toml")" = "$edited" ] && [ -d "$root/var/lib/fingerpost" ] ||
    fail "the removal leaves the program, or takes the configuration or the state"
[ "$(machine systemctl show --property=Result --value fingerpost)" = success ] || { journal fingerpost; fail "the removal kills the service"; }
! machine pgrep -x fingerpost >"$work/left.log" || fail "the removal leaves a process"
before=$(by_kernel within router)
within source ping -qc3 -i0.1 -W5 10.0.1.2 >"$work/ping.log" || fail "the kernel does not forward after the removal: $(cat "$work/ping.log")"
[ $(($(by_kernel within router) - before)) -ge 6 ] || fail "the kernel does not forward after the removal"

# A purge leaves the user, since files elsewhere may be its, and what the operator has added to the configuration.
machine dpkg --purge fingerpost >"$work/dpkg.log" 2>&1 || fail "the purge fails: $(cat "$work/dpkg.log")"
! machine dpkg-query -W fingerpost >/dev/null 2>&1 || fail "dpkg knows the package after the purge"
left=$(changed)
[ -z "$left" ] || fail "the purge leaves $left"
machine test ! -e /run/fingerpost || fail "the purge leaves /run/fingerpost"
machine getent passwd fingerpost | has_line '^fingerpost:' || fail "the purge removes the user"
[ -z "$(machine systemctl list-unit-files --no-legend 'fingerpost*')" ] || fail "systemd knows a unit after the purge"
for name in run.toml gate.toml grantor.toml block.env ipfix.env sflow.env; do
    [ ! -e "$root/etc/fingerpost/$name" ] || fail "the purge leaves $name"
done
echo "   the package: the same bytes twice, upgraded, removed and purged"
