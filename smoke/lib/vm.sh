#!/usr/bin/env bash
# Runs smoke tests in a virtual machine with Debian's own kernel, which has the devices that the kernel of
# a test machine may lack: VRF, bond, VLAN, MAC-VLAN, bridge, netem.
#
#   bash smoke/lib/vm.sh NAME...     runs each smoke/NAME_test.sh there, one after the other; the exit status is 0
#                                    if all of them pass
#
#   host ── QEMU ── initial file system ── the host's files, read-only ── smoke/NAME_test.sh
#                   modules for 9p         folders /tmp, /run, /var in memory        │
#                                                                                    ▼
#                        an overlay over the host's files, changes in memory ── systemd ── smoke/NAME_test.sh
#
# The guest sees this machine's files as its own, so that the test finds the same programs; the tree, the
# programs to test and the data are mounted by themselves, because they may lie in a folder that the guest
# has of its own. Nothing is written to the host.
#
# A test with a line `# with systemd: REASON` in its head runs after the others. The guest's first process, until then a
# shell, goes on as systemd, which boots Debian as far as basic.target; the test is a unit and may change all files.
# The package of the program is in the folder $FINGERPOST_PACKAGES, and newer.deb is a later version of it; the file
# `complete` appears last.
#
# The guest has two network cards (e1000e, 52:54:00:00:0c:01 and :02) that are connected to each other, and one with
# four queues and RSS (virtio_net, 52:54:00:00:0c:03), whose other end is a tap interface of the host that nothing
# uses (where the host has /dev/net/tun); a test that needs them loads their module.
#
# The processor is emulated unless it can virtualize (/dev/kvm alone is no sign that KVM can run Linux);
# then everything takes about ten times as long, so few tests with deadlines can run here.
#
#   VM_LIMIT     seconds for each test; default 240
#   VM_MEMORY    default 1G
#   VM_KERNEL    another kernel, vmlinuz-RELEASE, whose modules are in /lib/modules/RELEASE; default: the newest in /boot
#   FINGERPOST_PACKETS, FINGERPOST_SEED    for tests with random packets

set -Eeuo pipefail
fail() {
    echo "FAIL: $*" >&2
    exit 1
}
[ $# -ge 1 ] || fail "usage: bash smoke/lib/vm.sh NAME..."
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
program=${FINGERPOST:-$tree/target/release/fingerpost}
bench=${FINGERPOST_BENCH:-$tree/target/debug/fingerpost-bench}
data=${FINGERPOST_DATA:-$tree/../shared/data}
limit=${VM_LIMIT:-240}
plain=() units=()
for name in "$@"; do
    [ -f "$tree/smoke/${name}_test.sh" ] || fail "there is no smoke/${name}_test.sh"
    if grep -q '^# with systemd: ' "$tree/smoke/${name}_test.sh"; then units+=("$name"); else plain+=("$name"); fi
done
[ -x "$program" ] || fail "no program at $program: cargo build --release, or set FINGERPOST"
kernel=${VM_KERNEL:-$(find /boot -name 'vmlinuz-*-amd64' | sort -V | tail -1)}
[ -n "$kernel" ] || fail "no kernel in /boot: apt-get install linux-image-amd64"
release=${kernel##*/vmlinuz-}
[ -f "$kernel" ] && [ -d "/lib/modules/$release" ] || fail "no $kernel, or no modules in /lib/modules/$release"

work=$(mktemp -d "${TMPDIR:-/tmp}/fingerpost-vm.XXXXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

accelerators=(-accel tcg)
if grep -qwE 'vmx|svm' /proc/cpuinfo; then accelerators=(-accel kvm -accel tcg); fi
shared=(-virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap")
share() { # TAG FOLDER
    shared+=(-virtfs "local,path=$2,mount_tag=$1,security_model=none,readonly=on,multidevs=remap")
    echo "$1" >>"$work/tags"
}
share tree "$tree"
share programs "$(dirname "$(readlink -f "$program")")"
[ ! -x "$bench" ] || share bench "$(dirname "$(readlink -f "$bench")")"
[ ! -d "$data" ] || share data "$(readlink -f "$data")"
if [ ${#units[@]} -gt 0 ]; then
    . "$tree/smoke/lib/packages.sh"
    mkdir "$work/packages"
    share packages "$work/packages"
    # While the guest boots and runs the other tests.
    {
        pack "$program" "$work/packages"
        pack_newer "$work"/packages/fingerpost_*.deb "$work/packages/newer.deb" "$work/newer"
        touch "$work/packages/complete"
    } &
fi

cards=()
for card in 1 2; do
    cards+=(-netdev "hubport,hubid=1,id=card$card" -device "e1000e,netdev=card$card,mac=52:54:00:00:0c:0$card")
done
if [ -c /dev/net/tun ]; then
    queued=mq=on,vectors=10,rss=on,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off
    cards+=(-netdev "tap,id=card3,queues=4,script=no,downscript=no")
    cards+=(-device "virtio-net-pci,netdev=card3,mac=52:54:00:00:0c:03,$queued")
fi

# The initial file system loads the modules for the host's files, mounts them, and goes on from there.
initial=$work/initial
mkdir -p "$initial"/{bin,proc,sys,dev,host,modules}
cp "$(command -v busybox)" "$initial/bin/busybox"
cp "$work/tags" "$initial/tags"
for module in 9p 9pnet_virtio virtio_pci; do
    /usr/sbin/modprobe -S "$release" -D "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$work/modules"
while read -r module; do
    cp "$module" "$initial/modules/"
    basename "$module" >>"$initial/order"
done <"$work/modules"
cat >"$initial/start" <<START
# Runs as the first process, from the host's files; then, where tests need systemd, as its unit.
export PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
export FINGERPOST=/run/programs/$(basename "$program") FINGERPOST_BENCH=/run/bench/$(basename "$bench")
export FINGERPOST_DATA=/run/data FINGERPOST_PACKAGES=/run/packages SMOKE_PREFIX=g-
export FINGERPOST_PACKETS=${FINGERPOST_PACKETS:-} FINGERPOST_SEED=${FINGERPOST_SEED:-}
run_tests() {
    for name; do
        start=\$SECONDS status=0
        timeout $limit bash /run/tree/smoke/\${name}_test.sh </dev/null || status=\$?
        [ -z "\$(ip netns list)" ] || { echo "FAIL: \$name leaves namespaces" && status=1; }
        echo "guest: \$name ends with status \$status after \$((SECONDS - start)) s"
    done
}
end() {
    echo "the guest ends"
    echo o >/proc/sysrq-trigger
    sleep 10
}
if [ \$\$ -ne 1 ]; then
    echo "guest: systemd \$(systemctl show --property=Version --value) runs after \$(cut -d' ' -f1 /proc/uptime) s"
    run_tests ${units[*]}
    end
fi
# Where udev runs, it makes the node /dev/net/tun, which loads this module.
modprobe tun
# The firmware's last line has no end.
echo
echo "guest: Linux \$(uname -r), \$(nproc) processors"
run_tests ${plain[*]}
[ ${#units[@]} -gt 0 ] || end
. /run/boot
START
cp "$tree/smoke/lib/boot.sh" "$initial/boot"
cat >"$initial/init" <<'INIT'
#!/bin/busybox sh
# Everything here is busybox, called by its name since no links are made.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
while read -r module; do $b insmod "/modules/$module"; done </order
options=ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose
$b mount -t 9p -o "$options" host /host
for folder in proc sys dev; do $b mount --move "/$folder" "/host/$folder"; done
for folder in tmp run var; do $b mount -t tmpfs -o mode=755 tmpfs "/host/$folder"; done
while read -r tag; do
    $b mkdir "/host/run/$tag"
    $b mount -t 9p -o "$options" "$tag" "/host/run/$tag"
done </tags
$b cp /start /boot /host/run/
exec $b switch_root /host /bin/bash /run/start
INIT
chmod +x "$initial/init"
(cd "$initial" && find . | cpio --create --format=newc --quiet) >"$work/initrd"

# An emulated processor without fast string instructions is faster: it would copy and clear memory byte by byte.
# A panic ends the guest (panic=-1 with -no-reboot). The boot itself takes up to half a minute, and so does that of systemd.
timeout --foreground "$((limit * $# + 90))" qemu-system-x86_64 "${accelerators[@]}" -cpu max,erms=off,fsrm=off,la57=off -smp 2 \
    -m "${VM_MEMORY:-1G}" -nographic -nodefaults -serial stdio -no-reboot \
    -kernel "$kernel" -initrd "$work/initrd" \
    -append 'console=ttyS0 quiet panic=-1 mitigations=off' "${shared[@]}" "${cards[@]}" </dev/null 2>&1 |
    sed -u 's/\r//g' | tee "$work/console" | sed -un '/^guest:/,/^the guest ends/ { /^the guest ends/! p }' ||
    fail "QEMU: $(tail -5 "$work/console")"
grep -q '^the guest ends$' "$work/console" || fail "the guest does not end: $(tail -20 "$work/console")"
for name in "$@"; do
    grep -q "^guest: $name ends with status 0 " "$work/console" || failed+=" $name"
done
[ -z "${failed:-}" ] || fail "in the virtual machine:$failed"
