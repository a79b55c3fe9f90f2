#!/usr/bin/env bash
# The Debian package on a booted Debian with its own kernel: apt installs it, an operator edits one file, and the router
# forwards; apt upgrades it. (systemd_test.sh removes and purges it.)
#
#   source s0 ── lan0 the virtual machine (systemd, fingerpost.service) wan0 ── a0 a
#
# The packets of a ping are counted by Fingerpost, and not by the kernel's IP (ForwDatagrams of /proc/net/snmp), as long as
# the unit runs. The upgrade is to a package with another example of the configuration: the edited file stays.
#
# in a VM: it needs Debian's kernel
# with systemd: it installs a package with units
. "$(dirname "$0")/lib/namespaces.sh"

export DEBIAN_FRONTEND=noninteractive
unit=fingerpost.service
configuration=/etc/fingerpost/run.toml

# The lists of this machine's packages take apt long to read; a package in a file needs none.
# The commands that other packages add to apt, and its log of all dependencies, take long, too.
mkdir -p "$work/lists/partial"
rm -f /etc/apt/apt.conf.d/*
# So does man-db for the index of their manual pages, which apt would have it write.
ln -sf /bin/true /usr/bin/mandb
run_apt() {
    apt-get -qq -y -o Dir::State::lists="$work/lists" -o Dir::Log::Planner= -o Dpkg::Use-Pty=0 -o Dpkg::Inhibit-Shutdown=0 \
        -o Dpkg::Options::=--force-confold "$@" >"$work/apt.log" 2>&1
}
is() { [ "$(systemctl is-active "$1" 2>/dev/null)" = "$2" ]; }
journal() { journalctl --no-pager -b -u "$unit" >"$work/journal.log" 2>&1; }

# Two networks, and this machine between them.
for name in source a; do
    namespace "$name"
done
attach() { # IFACE ADDRESS NAMESPACE IFACE ADDRESS
    ip link add "$1" type veth peer name "$4" netns "$prefix$3"
    ip addr add "$2/24" dev "$1"
    ip link set "$1" up
    within "$3" ip addr add "$5/24" dev "$4"
    within "$3" ip link set "$4" up
    within "$3" ip route add default via "$2"
}
attach lan0 10.0.0.1 source s0 10.0.0.2
attach wan0 10.0.1.1 a a0 10.0.1.2
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.lan0.rp_filter=0 net.ipv4.conf.wan0.rp_filter=0

answers() { within source ping -qc "$1" -i 0.1 -W 5 10.0.1.2 >"$work/ping.log"; }
# The packets that Fingerpost has forwarded.
by_fingerpost() { fingerpost show -j counters | sed -n 's/.*"sent": *\([0-9]*\).*/\1/p'; }

# Checks that Fingerpost forwards a ping, and the kernel none of its packets.
forwards() {
    # The first packets may be the kernel's, which asks for the neighbors.
    answers 3 || fail "no packet is forwarded: $(cat "$work/ping.log")"
    local kernel fingerpost
    kernel=$(by_kernel) fingerpost=$(by_fingerpost)
    answers 20 || fail "no packet is forwarded: $(cat "$work/ping.log")"
    kernel=$(($(by_kernel) - kernel)) fingerpost=$(($(by_fingerpost) - fingerpost))
    [ "$kernel" -eq 0 ] && [ "$fingerpost" -ge 40 ] || fail "of 40 packets Fingerpost forwards $fingerpost and the kernel $kernel"
}

answers 3 || fail "the kernel forwards nothing: $(cat "$work/ping.log")"

# The host packs while this machine boots. The guest caches that a file is missing, but not a listing of the folder.
packed() { ls "$FINGERPOST_PACKAGES" | has_line '^complete$'; }
wait_for 60 packed || fail "no package"

# Installed by apt, in the way that the guide describes.
cp "$FINGERPOST_PACKAGES"/fingerpost_*.deb "$work/"
chmod 755 "$work"
# dpkg reads which files each installed package has, and this machine has a thousand packages more than a router: of
# its packages dpkg and apt know those that Fingerpost depends on.
needed=$(dpkg-deb --field "$work"/fingerpost_*.deb Depends | sed 's/([^)]*)//g; s/,/ /g')
awk -v needed=" $needed " 'BEGIN { RS = ""; FS = "\n" }
    index(needed, " " substr($1, 10) " ") { for (i = 1; i <= NF; i++) if ($i !~ /^(Pre-)?Depends:/) print $i; print "" }' \
    /var/lib/dpkg/status >"$work/status"
for name in $needed; do
    has_line "^Package: $name$" <"$work/status" || fail "$name is not installed"
done
cp "$work/status" /var/lib/dpkg/status
(cd "$work" && run_apt install ./fingerpost_*.deb) || fail "the installation fails: $(cat "$work/apt.log")"
is "$unit" inactive && [ "$(systemctl is-enabled "$unit")" = disabled ] || fail "the installation starts or enables the unit"
sed -i 's/eth0/lan0/; s/eth1/wan0/' "$configuration"
edited=$(md5sum <"$configuration")
systemctl start "$unit" || { journal; fail "the unit does not start"; }
systemctl enable "$unit" 2>"$work/enable.log" || fail "the unit cannot be enabled: $(cat "$work/enable.log")"
forwards
echo "   $(cut -d' ' -f1-3 /proc/version): installed, forwards after one edited file"

# A later version with another example of the file that the operator has edited.
old=$(systemctl show --property=MainPID --value "$unit")
run_apt install "$FINGERPOST_PACKAGES/newer.deb" || fail "the upgrade fails: $(cat "$work/apt.log")"
dpkg-query -W fingerpost | has_line '+newer$' || fail "the upgrade does not install the later version"
[ "$(md5sum <"$configuration")" = "$edited" ] || fail "the upgrade changes the edited file"
has_line 'later version' <"$configuration.dpkg-dist" || fail "the upgrade does not leave the new example beside the edited file"
replaced() { is "$unit" active && [ "$(systemctl show --property=MainPID --value "$unit")" != "$old" ]; }
wait_for 20 replaced || { journal; fail "the upgrade does not replace the process"; }
forwards
echo "   upgraded: another process forwards, keeps the edited file"
