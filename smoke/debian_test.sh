#!/usr/bin/env bash
# The router on Debian's own kernel (6.1), which has the devices that the kernel of a test machine may
# lack: VRF, bond, VLAN and MAC-VLAN. QEMU boots it with this machine's files, read-only, as its own, and
# it runs smoke/debian_guest.sh, whose status is that of this test.
#
# The processor is emulated unless it can virtualize: /dev/kvm alone is no sign that KVM can run Linux.
# runs alone: the emulated processor takes every core, and the guest has deadlines
. "$(dirname "$0")/lib/namespaces.sh"

kernel=$(find /boot -name 'vmlinuz-*-amd64' | sort -V | tail -1)
[ -n "$kernel" ] || fail "no kernel in /boot: apt-get install linux-image-amd64"
release=${kernel#/boot/vmlinuz-}
accelerators=(-accel tcg)
if grep -qwE 'vmx|svm' /proc/cpuinfo; then accelerators=(-accel kvm -accel tcg); fi

# The initial file system loads the modules for the root file system, mounts it, and copies the program
# and the scripts to its /run: they may lie in folders that the guest has of its own (/tmp).
initial=$work/initial
mkdir -p "$initial"/{bin,proc,sys,dev,root,modules,test}
cp "$(command -v busybox)" "$initial/bin/busybox"
cp "$program" "$initial/test/fingerpost"
cp -r "$here/smoke" "$initial/test/"
for module in 9p 9pnet_virtio virtio_pci; do
    /usr/sbin/modprobe -S "$release" -D "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$work/modules"
while read -r module; do
    cp "$module" "$initial/modules/"
    basename "$module" >>"$initial/order"
done <"$work/modules"
cat >"$initial/test/start" <<'START'
# Runs as the first process, from the host's files.
export PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
export FINGERPOST=/run/test/fingerpost SMOKE_PREFIX=g-
# Where udev runs, it makes the node /dev/net/tun, which loads this module.
modprobe tun
status=0
timeout 150 bash /run/test/smoke/debian_guest.sh </dev/null || status=$?
echo "the guest ends with $status"
echo o >/proc/sysrq-trigger
sleep 10
START
cat >"$initial/init" <<'INIT'
#!/bin/busybox sh
# Everything here is busybox, called by its name since no links are made.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
while read -r module; do $b insmod "/modules/$module"; done </order
$b mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose host /root
for folder in proc sys dev; do $b mount --move "/$folder" "/root/$folder"; done
for folder in tmp run var; do $b mount -t tmpfs -o mode=755 tmpfs "/root/$folder"; done
$b cp -r /test /root/run/
exec $b switch_root /root /bin/bash /run/test/start
INIT
chmod +x "$initial/init"
(cd "$initial" && find . | cpio --create --format=newc --quiet) >"$work/initrd"

# A panic ends the guest (panic=-1 with -no-reboot).
echo "Linux $release, by QEMU ${accelerators[*]}"
timeout --foreground 170 qemu-system-x86_64 "${accelerators[@]}" -cpu max -smp 2 -m 1G -nographic \
    -nodefaults -serial stdio -no-reboot -kernel "$kernel" -initrd "$work/initrd" \
    -append 'console=ttyS0 quiet panic=-1 mitigations=off' \
    -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
    </dev/null 2>&1 | tr -d '\r' | tee "$work/console" | sed -n '/^guest:/,/^the guest ends/ { /^the guest ends/! p }' ||
    fail "QEMU: $(tail -5 "$work/console")"
grep -q 'the guest ends' "$work/console" || fail "the guest does not end: $(tail -20 "$work/console")"
grep -qx 'the guest ends with 0' "$work/console" || fail "the test in the guest failed: $(tail -20 "$work/console")"
