//! The Linux kernel as the router, for the comparison.
//!
//! Namespaces, links, packets and checkers are the same. `ip -batch` loads the routes into the
//! kernel's tables, forwarding is switched on, and the receiving NAPI of `in`, in which the kernel
//! forwards, is a thread alone on the router's CPU. A veth accepts redirected frames only if its
//! peer has a NAPI, so `in` has an XDP program that passes everything.

use std::io::{BufRead, BufReader, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use fib::{Hop, Prefix};
use port::af_xdp::bpf::asm::{Action, Assembler};
use port::af_xdp::bpf::{Link, Mode, Program};

use super::network::{self, INGRESS};
use super::placement::{self, Placement};
use super::routes::{Routes, sink_of};
use crate::namespace::Namespace;

/// Lines per write to `ip`.
const CHUNK: usize = 4096;

/// The result of loading routes into the kernel.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(super) struct LoadedRoutes {
    /// Accepted routes.
    pub(super) accepted: usize,
    /// Refused routes.
    pub(super) refused: usize,
    /// Loading time in seconds.
    pub(super) seconds: f64,
}

/// Loads the routes; returns early at `stop`.
pub(super) fn load(
    namespace: &Namespace,
    routes: &Arc<Routes>,
    stop: &Arc<AtomicBool>,
) -> Result<LoadedRoutes> {
    let start = Instant::now();
    let (ours, flag) = (Arc::clone(routes), Arc::clone(stop));
    let refused = namespace.run(move || {
        let v4 = |(prefix, hop): &(Prefix<u32>, Hop)| {
            let net = 1 + usize::from(sink_of(*hop));
            format!("route add {prefix} via {}\n", Ipv4Addr::from(network::ipv4(net, 2)))
        };
        let v6 = |(prefix, hop): &(Prefix<u128>, Hop)| {
            let net = 1 + usize::from(sink_of(*hop));
            format!("route add {prefix} via {}\n", Ipv6Addr::from(network::ipv6(net, 2)))
        };
        let refused4 = batch("-4", ours.v4.iter().map(v4), ours.v4.len(), &flag)?;
        Ok(refused4 + batch("-6", ours.v6.iter().map(v6), ours.v6.len(), &flag)?)
    })?;
    Ok(LoadedRoutes {
        accepted: routes.len() - refused,
        refused,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// Writes lines to `ip -batch` and returns the number of refused ones.
fn batch(
    family: &str,
    lines: impl Iterator<Item = String>,
    count: usize,
    stop: &AtomicBool,
) -> Result<usize> {
    let mut child = Command::new("ip")
        .args([family, "-force", "-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run `ip`: install the Debian package iproute2")?;
    let (Some(mut input), Some(errors)) = (child.stdin.take(), child.stderr.take()) else {
        bail!("`ip` has no pipes");
    };
    // Reading while writing prevents a deadlock.
    let refused = thread::spawn(move || {
        BufReader::new(errors)
            .lines()
            .map_while(Result::ok)
            .filter(|l| l.contains("Command failed"))
            .count()
    });
    let mut text = String::new();
    let mut reported = Instant::now();
    for (at, line) in lines.enumerate() {
        text.push_str(&line);
        if at % CHUNK == 0 {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            input.write_all(text.as_bytes()).context("`ip -batch` stopped reading")?;
            text.clear();
            if reported.elapsed() > Duration::from_secs(1) {
                reported = Instant::now();
                eprintln!("  kernel: {at} of {count} routes loaded ({})", &family[1..]);
            }
        }
    }
    input.write_all(text.as_bytes()).context("`ip -batch` stopped reading")?;
    drop(input);
    child.wait()?;
    refused.join().map_err(|_| anyhow::anyhow!("the reader of `ip`'s errors died"))
}

/// The kernel as a router; the XDP program is detached when dropped.
#[derive(Debug)]
pub(super) struct KernelRouter {
    _link: Link,
}

impl KernelRouter {
    /// Switches forwarding on, in a thread alone on the router's CPU.
    pub(super) fn start(namespace: &Namespace, placement: Placement) -> Result<Self> {
        namespace.write("/proc/sys/net/ipv4/ip_forward", "1")?;
        namespace.write("/proc/sys/net/ipv6/conf/all/forwarding", "1")?;
        let mut asm = Assembler::new();
        asm.leave(Action::Pass);
        let pass = Program::load("fp_pass", &asm.finish()?)?;
        let index = namespace.index(INGRESS)?;
        let link = namespace.run(move || Ok(Link::attach(&pass, index, Mode::Native)?))?;
        placement::thread_napi(namespace, INGRESS, placement.router, placement.router_urgency())?;
        Ok(Self { _link: link })
    }
}
