//! Requirements of the tests beside the crates: two components of the toolchain, and Debian
//! packages for the smoke tests and for another architecture.
//!
//! Independent programs are the point of a smoke test (scapy builds the packets and computes the
//! checksums, the kernel answers the pings), so a missing one is never a reason to leave a test
//! out. As root the step installs it; otherwise the step fails with its name.

use std::path::Path;
use std::process::{Command, Stdio};

/// A Debian package, and a command that works once it is there.
///
/// Python is called by its full path everywhere: the packages of Debian belong to
/// Debian's interpreter, and the first `python3` on the path may be another.
type Package = (&'static str, &'static [&'static str]);

/// The packages of `test` and `smoke`.
const PACKAGES: [Package; 51] = [
    ("iproute2", &["ip", "-V"]),
    ("bird2", &["bird", "--version"]),
    ("iperf3", &["iperf3", "--version"]),
    ("gobgpd", &["gobgpd", "--version"]),
    ("frr", &["/usr/lib/frr/zebra", "--version"]),
    ("keepalived", &["keepalived", "--version"]),
    ("bpftool", &["bpftool", "version"]),
    ("iputils-ping", &["ping", "-V"]),
    ("python3-scapy", &["/usr/bin/python3", "-c", "import scapy.layers.inet6"]),
    // Independent parsers of the metrics: `promtool`, and one in Python.
    ("prometheus", &["promtool", "--version"]),
    ("python3-prometheus-client", &["/usr/bin/python3", "-c", "import prometheus_client"]),
    // The page is looked at by a browser.
    ("chromium", &["chromium", "--version"]),
    ("crowdsec", &["cscli", "version"]),
    // Certificates and a server for HTTPS.
    ("openssl", &["openssl", "version"]),
    ("traceroute", &["traceroute", "-V"]),
    ("mtr-tiny", &["mtr", "--version"]),
    ("iputils-tracepath", &["tracepath", "-V"]),
    // Turns checksum offload off where tests send packets that a card would complete.
    ("ethtool", &["ethtool", "--version"]),
    ("tmux", &["tmux", "-V"]),
    ("tcpdump", &["tcpdump", "--version"]),
    // Collect sFlow and IPFIX, and read what they have collected.
    ("nfdump-sflow", &["sfcapd", "-V"]),
    ("nfdump", &["nfdump", "-V"]),
    ("pmacct", &["nfacctd", "-V"]),
    // Carries the bundles and states of a fleet.
    ("nats-server", &["nats-server", "--version"]),
    // MaxMind's own writer and reader of its databases.
    ("libmaxmind-db-writer-perl", &["perl", "-MMaxMind::DB::Writer::Tree", "-e1"]),
    ("mmdb-bin", &["mmdblookup", "--version"]),
    ("python3-maxminddb", &["/usr/bin/python3", "-c", "import maxminddb"]),
    // Environments for the Python module and its peers from PyPI, two of which are compiled there.
    ("python3-venv", &["/usr/bin/python3", "-c", "import ensurepip"]),
    ("python3-dev", &["sh", "-c", "ls /usr/include/python3*/Python.h"]),
    // Reads captures as Wireshark does.
    ("tshark", &["tshark", "--version"]),
    // Loses messages on the way, since the kernel here has no netem.
    ("nftables", &["nft", "--version"]),
    // Packs the Debian package.
    ("binutils", &["objcopy", "--version"]),
    ("dpkg-dev", &["dpkg-shlibdeps", "--version"]),
    // A contestant of `fingerpost-bench block`.
    ("ipset", &["ipset", "version"]),
    ("iptables", &["iptables", "--version"]),
    // Makes system calls fail.
    ("strace", &["strace", "--version"]),
    ("util-linux", &["setpriv", "--version"]),
    ("procps", &["ps", "--version"]),
    // The service units are booted in a container.
    ("systemd-container", &["systemd-nspawn", "--version"]),
    // Debian's own kernel is booted in QEMU; it has devices that the machine's may lack.
    ("qemu-system-x86", &["qemu-system-x86_64", "--version"]),
    ("linux-image-amd64", &["sh", "-c", "ls /boot/vmlinuz-*-amd64"]),
    ("busybox-static", &["sh", "-c", "busybox true && ! ldd $(command -v busybox)"]),
    ("cpio", &["cpio", "--version"]),
    ("kmod", &["/usr/sbin/modprobe", "--version"]),
    // Flow programs are compiled in tests of the gate and of the command line.
    ("clang", &["clang", "--version"]),
    // `fingerpost-bench agree` and `fingerpost-bench engines` compile a program around DPDK's tables.
    ("gcc", &["cc", "--version"]),
    // Check programs that use the C library.
    ("g++", &["g++", "--version"]),
    ("valgrind", &["valgrind", "--version"]),
    ("libc6-dev", &["cc", "-x", "c", "-include", "stdlib.h", "-fsyntax-only", "/dev/null"]),
    ("pkg-config", &["pkg-config", "--version"]),
    ("libdpdk-dev", &["pkg-config", "--exists", "libdpdk"]),
];

/// The packages of `neon`: a linker, a C library to link and an emulator to run the tests.
const CROSS: [Package; 3] = [
    ("gcc-aarch64-linux-gnu", &["aarch64-linux-gnu-gcc", "--version"]),
    ("libc6-dev-arm64-cross", &["test", "-e", "/usr/aarch64-linux-gnu/lib/crt1.o"]),
    ("qemu-user", &["qemu-aarch64", "--version"]),
];

/// Checks that cargo has rustfmt and clippy.
pub(crate) fn components() -> Result<(), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let missing: Vec<&str> = [("rustfmt", "fmt"), ("clippy", "clippy")]
        .into_iter()
        .filter(|(_, verb)| !works(&[&cargo, verb, "--version"]))
        .map(|(component, _)| component)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(" ");
    Err(format!("missing: {missing}. Install with: rustup component add {missing}"))
}

/// Checks that there is a compiler for the one C++ dependency, libFuzzer.
pub(crate) fn cplusplus() -> Result<(), String> {
    let named = std::env::var("CXX").ok();
    let compiler = named.as_deref().unwrap_or("c++");
    if works(&[compiler, "--version"]) {
        return Ok(());
    }
    Err(format!(
        "libFuzzer is C++, and `{compiler}` does not run. Install with: apt-get install g++"
    ))
}

/// Checks for every package of `test`, and installs what is missing if we may.
pub(crate) fn packages() -> Result<(), String> {
    installed(&PACKAGES)
}

/// Checks for every package of `neon`, and installs what is missing if we may.
pub(crate) fn cross() -> Result<(), String> {
    installed(&CROSS)
}

fn installed(packages: &[Package]) -> Result<(), String> {
    let missing = missing(packages);
    if missing.is_empty() {
        println!("nothing is missing");
        return Ok(());
    }
    let names = missing.join(" ");
    if !is_root() {
        return Err(format!(
            "missing Debian packages: {names}. Install with: apt-get install {names}"
        ));
    }
    println!("installing {names}");
    if !install(&missing) {
        // The lists of a fresh image are empty or old.
        apt(&["update", "-qq"]);
        install(&missing);
    }
    let still = self::missing(packages);
    if still.is_empty() {
        return Ok(());
    }
    Err(format!("could not install {}: see what apt-get says above", still.join(" ")))
}

/// Returns whether this process runs as root.
pub(crate) fn is_root() -> bool {
    // Real, effective, saved, filesystem: the second one counts.
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| {
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        ids.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
    })
}

fn missing(packages: &[Package]) -> Vec<&'static str> {
    packages.iter().filter(|(_, probe)| !works(probe)).map(|&(package, _)| package).collect()
}

fn install(packages: &[&str]) -> bool {
    if packages.contains(&"crowdsec")
        && let Err(error) = keep_crowdsec_local()
    {
        println!("{CROWDSEC_API}: {error}");
        return false;
    }
    let mut words = vec!["install", "-y", "-qq", "--no-install-recommends"];
    words.extend(packages);
    apt(&words)
}

/// The file whose absence makes the package crowdsec register this machine with the project's servers.
const CROWDSEC_API: &str = "/etc/crowdsec/online_api_credentials.yaml";

/// Makes the installation of crowdsec register nothing: the tests need no more than its local server.
fn keep_crowdsec_local() -> std::io::Result<()> {
    let file = Path::new(CROWDSEC_API);
    if !file.exists() {
        std::fs::create_dir_all("/etc/crowdsec")?;
        std::fs::write(file, "# not registered with the central API\n")?;
    }
    Ok(())
}

fn apt(words: &[&str]) -> bool {
    Command::new("apt-get")
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn works(words: &[&str]) -> bool {
    Command::new(words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_noticed() {
        assert!(works(&["true"]));
        assert!(!works(&["false"]));
        assert!(!works(&["/no/such/program"]));
    }
}
