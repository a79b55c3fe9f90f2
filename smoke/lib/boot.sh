# Sourced by the first process of a virtual machine (vm.sh): boots systemd on the host's files, which an overlay makes
# writable. Its one unit beside those of basic.target is /run/start.

# The files that the guest changes are in /run/over/upper.
root=/tmp/root over=/run/over
mkdir "$root" "$over"
mount -t tmpfs over "$over"
mkdir "$over/upper" "$over/work"
modprobe overlay
# The lower layer is the host's file system alone, without the folders in memory that are mounted over it.
mount -t overlay overlay -o "lowerdir=/,upperdir=$over/upper,workdir=$over/work" "$root"
mount -t tmpfs tmp "$root/tmp"
# Another machine than the host. Without any identity systemd would ask for one, as at the first boot.
echo 0123456789abcdef0123456789abcdef >"$root/etc/machine-id"
echo guest >"$root/etc/hostname"
rm -rf "$root/var/log/journal" "$root/.dockerenv"
# Otherwise the scripts of packages start and stop nothing, as in the image of a container.
rm -f "$root/usr/sbin/policy-rc.d"
cat >"$root/etc/systemd/system/smoke.service" <<'UNIT'
[Unit]
Wants=basic.target
After=basic.target
[Service]
Type=oneshot
ExecStart=/bin/bash /run/start
StandardOutput=file:/dev/ttyS0
StandardError=inherit
UNIT
# Nothing that this machine does from time to time. Generators run at each change of units; no test needs their units.
rm -f "$root"/usr/lib/systemd/system-generators/*
ln -s /dev/null "$root/etc/systemd/system/timers.target"
exec switch_root "$root" /lib/systemd/systemd --unit=smoke.service --show-status=no
