//! Routes in the kernel's own table, in a network namespace that only this thread is in.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use fib::{Family, Hop, Prefix};
use nix::net::if_::if_nametoindex;
use nix::sched::{CloneFlags, unshare};

/// A family of the kernel's routing tables.
pub(super) trait KernelFamily: Family {
    /// `AF_INET` or `AF_INET6`.
    const FAMILY: i32;
    /// The option of `ip`.
    const OPTION: &str;

    /// Returns the gateway of a hop, whose number is its last two bytes.
    fn gateway(hop: u16) -> String;
}

impl KernelFamily for u32 {
    const FAMILY: i32 = 2;
    const OPTION: &str = "-4";

    fn gateway(hop: u16) -> String {
        let [upper, lower] = hop.to_be_bytes();
        Ipv4Addr::new(100, 64, upper, lower).to_string()
    }
}

impl KernelFamily for u128 {
    const FAMILY: i32 = 10;
    const OPTION: &str = "-6";

    fn gateway(hop: u16) -> String {
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, hop).to_string()
    }
}

/// A namespace with one interface, which all routes lead out of.
pub(crate) struct Namespace {
    ifindex: u32,
}

impl Namespace {
    /// Puts the calling thread, for the rest of its life, into a new namespace.
    pub(crate) fn new() -> anyhow::Result<Self> {
        unshare(CloneFlags::CLONE_NEWNET).context("making a network namespace")?;
        for (path, value) in [
            ("/proc/sys/net/ipv4/ip_forward", "1"),
            ("/proc/sys/net/ipv6/conf/all/forwarding", "1"),
        ] {
            // /proc/sys/net is that of the calling thread's namespace.
            std::fs::write(path, value).with_context(|| format!("writing {path}"))?;
        }
        let commands = "link set lo up\nlink add v0 type veth peer name v1 address 02:00:00:00:00:01\nlink set v0 up\nlink set v1 up\n";
        ip(&["-batch", "-"], commands)?;
        Ok(Self { ifindex: if_nametoindex("v0")? })
    }

    /// Returns the index of the interface.
    pub(super) fn ifindex(&self) -> u32 {
        self.ifindex
    }

    /// Puts `routes` in place of those there.
    pub(super) fn replace<A: KernelFamily>(
        &self,
        routes: &[(Prefix<A>, Hop)],
    ) -> anyhow::Result<()> {
        use std::fmt::Write as _;
        let mut commands = String::from("route flush scope global\n");
        for (prefix, hop) in routes {
            let hop =
                u16::try_from(hop.0).context("--hops: at most 65,535 for the kernel's table")?;
            let gateway = A::gateway(hop);
            writeln!(commands, "route add {prefix} via {gateway} dev v0 onlink")?;
        }
        ip(&[A::OPTION, "-batch", "-"], &commands)
    }
}

/// Runs `ip` with commands as its input.
fn ip(args: &[&str], commands: &str) -> anyhow::Result<()> {
    let mut process = Command::new("ip")
        .args(args)
        .stdin(Stdio::piped())
        .spawn()
        .context("running ip of iproute2")?;
    if let Some(mut input) = process.stdin.take() {
        // An error ends the process, which states it.
        let _ = input.write_all(commands.as_bytes());
    }
    let status = process.wait()?;
    ensure!(status.success(), "ip {}: {status}", args.join(" "));
    Ok(())
}
