//! A network namespace for each test, with pairs of interfaces: shared by the tests that need root.
//! The namespace ends with the thread of the test.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};

/// Runs `ip` and returns its output.
pub(crate) fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .expect("`ip` runs (Debian package iproute2)");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {stderr} (this test needs root)");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Sets a sysctl of the namespace.
pub(crate) fn set(path: &str, value: &str) {
    std::fs::write(format!("/proc/sys/net/{path}"), value).expect("the namespace's own switch");
}

/// Moves this thread into a new namespace. Each of `pairs`, such as `a`, is two interfaces that are
/// up: a0 with the MAC 02:00:00:00:00:a0, and a1 likewise.
pub(crate) fn network(pairs: &[&str]) {
    unshare(CloneFlags::CLONE_NEWNET).expect("a new network namespace (this test needs root)");
    // Interfaces without IPv6 send no packets of their own.
    for which in ["all", "default"] {
        set(&format!("ipv6/conf/{which}/disable_ipv6"), "1");
    }
    for pair in pairs {
        let near = format!("{pair}1 address 02:00:00:00:00:{pair}1");
        let far = format!("{pair}0 address 02:00:00:00:00:{pair}0");
        ip(&format!("link add {near} type veth peer name {far}"));
        ip(&format!("link set {pair}0 up"));
        ip(&format!("link set {pair}1 up"));
    }
}

/// Configures the kernel to forward 203.0.113.0/24 from a1 to b1, by a neighbor at b0.
#[allow(dead_code, reason = "a test of static routes has no use for it")]
pub(crate) fn forwards() {
    set("ipv4/ip_forward", "1");
    ip("address add 198.51.100.1/24 dev a1");
    ip("address add 192.0.2.1/24 dev b1");
    ip("neighbor add 192.0.2.2 lladdr 02:00:00:00:00:b0 dev b1 nud permanent");
    ip("route add 203.0.113.0/24 via 192.0.2.2");
}
