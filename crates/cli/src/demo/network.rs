//! The demonstration's own network: three namespaces joined by veth.
//!
//! ```text
//!   source namespace      router namespace                  sinks' namespace
//!  ┌────────────────┐    ┌─────────────────────────┐       ┌────────────────┐
//!  │         source ├────┤ in               out-a  ├───────┤ sink-a         │
//!  │   198.18.0.2   │    │ 198.18.0.1   198.18.1.1 │       │   198.18.1.2   │
//!  │                │    │                  out-b  ├───────┤ sink-b         │
//!  └────────────────┘    │              198.18.2.1 │       │   198.18.2.2   │
//!                        └─────────────────────────┘       └────────────────┘
//! ```
//!
//! and likewise 2001:2:0:0::/64 to 2001:2:0:2::/64: the blocks that RFC 2544
//! and RFC 5180 set aside for this. Interfaces speak of themselves as little as
//! can be (no link-local addresses, so no ND); neighbours are static.
//!
//! A namespace here has no name and no mount: it belongs to a thread that
//! unshared it, is reached by that thread's `/proc` entry, and the kernel takes
//! it and every interface in it away when the process ends, by `SIGKILL` too.
//! The thread also has a view of `/sys` that shows the namespace's interfaces.
//! What has to be done inside is sent to the thread; a socket or an XDP program
//! made there stays there whoever uses it afterwards.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, anyhow, bail};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// The interface of the source.
pub(super) const SOURCE: &str = "source";
/// Its Ethernet address.
pub(super) const SOURCE_MAC: [u8; 6] = [0x02, 0xfe, 0, 0, 0, 0x02];
/// The router's interface towards the source.
pub(super) const INGRESS: &str = "in";
/// Its Ethernet address.
pub(super) const INGRESS_MAC: [u8; 6] = [0x02, 0xfe, 0, 0, 0, 0x01];

/// A way out of the router: a link and the sink at its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exit {
    /// The router's interface.
    pub(super) egress: &'static str,
    /// The router's Ethernet address on it.
    pub(super) src_mac: [u8; 6],
    /// The sink's interface.
    pub(super) sink: &'static str,
    /// The sink's Ethernet address.
    pub(super) dst_mac: [u8; 6],
}

/// The two next hops; a sink's number is its place here.
pub(super) const EXITS: [Exit; 2] = [
    Exit {
        egress: "out-a",
        src_mac: [0x02, 0xfe, 0, 0, 0x0a, 0x01],
        sink: "sink-a",
        dst_mac: [0x02, 0xfe, 0, 0, 0x0a, 0x02],
    },
    Exit {
        egress: "out-b",
        src_mac: [0x02, 0xfe, 0, 0, 0x0b, 0x01],
        sink: "sink-b",
        dst_mac: [0x02, 0xfe, 0, 0, 0x0b, 0x02],
    },
];

/// The IPv4 address of the router (`host` 1) or the other end (2) on link
/// `net`: 0 towards the source, 1 and 2 towards the sinks.
pub(super) fn ipv4(net: usize, host: u8) -> u32 {
    0xc612_0000 | (net as u32) << 8 | u32::from(host)
}

/// The IPv6 address likewise.
pub(super) fn ipv6(net: usize, host: u8) -> u128 {
    0x2001_0002_u128 << 96 | (net as u128) << 64 | u128::from(host)
}

/// Says whether the demonstration uses an IPv4 address for its own links.
pub(super) fn is_own_ipv4(addr: u32) -> bool {
    addr >> 17 == 0xc612_0000 >> 17
}

/// Says whether the demonstration uses an IPv6 address for its own links.
pub(super) fn is_own_ipv6(addr: u128) -> bool {
    addr >> 80 == 0x2001_0002_u128 << 16
}

type Job = Box<dyn FnOnce() + Send>;

/// A network namespace and the thread that holds it.
#[derive(Debug)]
pub(super) struct Namespace {
    name: &'static str,
    path: PathBuf,
    /// `None` once it is being dropped, which ends the thread.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Namespace {
    /// Makes an empty namespace, its loopback up.
    pub(super) fn new(name: &'static str) -> Result<Self> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (ready, answer) = mpsc::channel();
        let thread = thread::Builder::new().name(format!("ns-{name}")).spawn(move || {
            let entered = enter();
            let failed = entered.is_err();
            let told = ready.send(entered).is_ok();
            if told && !failed {
                inbox.into_iter().for_each(|job| job());
            }
        })?;
        let path = answer
            .recv()
            .map_err(|_| anyhow!("the thread of namespace {name} died"))?
            .with_context(|| format!("cannot make the network namespace {name}"))?;
        let namespace = Self { name, path, jobs: Some(jobs), thread: Some(thread) };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// Returns the path by which `ip link set … netns` finds it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Does something inside and returns what came of it.
    ///
    /// Threads and programs started by `job` are inside too.
    pub(super) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (done, answer) = mpsc::channel();
        let job: Job = Box::new(move || {
            // Nobody waits for it any more: then nobody misses it.
            let _ = done.send(job());
        });
        self.jobs
            .as_ref()
            .and_then(|jobs| jobs.send(job).ok())
            .and_then(|()| answer.recv().ok())
            .unwrap_or_else(|| bail!("the thread of namespace {} died", self.name))
    }

    /// Runs `ip` with arguments separated by spaces.
    pub(super) fn ip(&self, arguments: &str) -> Result<String> {
        let arguments: Vec<String> = arguments.split_whitespace().map(String::from).collect();
        self.run(move || ip(&arguments, None))
    }

    /// Runs `ip -batch` on `lines`.
    pub(super) fn ip_batch(&self, lines: String) -> Result<()> {
        self.run(move || ip(&["-batch".into(), "-".into()], Some(lines)).map(drop))
    }

    /// Writes a file as seen from inside (`/proc/sys/net`, `/sys/class/net`).
    pub(super) fn write(&self, path: impl Into<PathBuf>, text: &'static str) -> Result<()> {
        let path = path.into();
        self.run(move || {
            fs::write(&path, text)
                .with_context(|| format!("cannot set {} to {text}", path.display()))
        })
    }

    /// Returns the index of an interface.
    pub(super) fn index(&self, interface: &str) -> Result<u32> {
        self.number(format!("/sys/class/net/{interface}/ifindex")).map(|index| index as u32)
    }

    /// Returns one of the kernel's counters of an interface (`tx_dropped`, …).
    pub(super) fn counter(&self, interface: &str, counter: &str) -> Result<u64> {
        self.number(format!("/sys/class/net/{interface}/statistics/{counter}"))
    }

    fn number(&self, path: String) -> Result<u64> {
        self.run(move || {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
            text.trim().parse().with_context(|| format!("{path} is not a number: {text}"))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to say that was not said to who asked.
            let _ = thread.join();
        }
    }
}

/// Moves the calling thread into a new namespace with a `/sys` of its own.
fn enter() -> Result<PathBuf> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .context("unshare (CAP_SYS_ADMIN is needed)")?;
    // Else the mount below would show outside.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SLAVE, None::<&str>)
        .context("mount --make-rslave /")?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), None::<&str>)
        .context("mount -t sysfs")?;
    Ok(format!("/proc/{}/task/{}/ns/net", nix::unistd::getpid(), nix::unistd::gettid()).into())
}

fn ip(arguments: &[String], input: Option<String>) -> Result<String> {
    let mut child = Command::new("ip")
        .args(arguments)
        .stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run `ip`: install the Debian package iproute2")?;
    if let (Some(mut pipe), Some(text)) = (child.stdin.take(), input) {
        // `ip` stops reading at its first error, which it then explains.
        let _ = pipe.write_all(text.as_bytes());
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "ip {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("failed")
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The three namespaces, joined, addressed and up.
#[derive(Debug)]
pub(super) struct Network {
    /// Where packets come from.
    pub(super) source: Namespace,
    /// What is to be shown.
    pub(super) router: Namespace,
    /// Where packets go to.
    pub(super) sinks: Namespace,
}

impl Network {
    /// Builds it.
    pub(super) fn build() -> Result<Self> {
        let network = Self {
            source: Namespace::new("source")?,
            router: Namespace::new("router")?,
            sinks: Namespace::new("sinks")?,
        };
        network.join(0, (INGRESS, INGRESS_MAC), &network.source, (SOURCE, SOURCE_MAC))?;
        for (net, exit) in (1..).zip(&EXITS) {
            let near = (exit.egress, exit.src_mac);
            network.join(net, near, &network.sinks, (exit.sink, exit.dst_mac))?;
        }
        Ok(network)
    }

    fn join(
        &self,
        net: usize,
        (near, near_mac): (&str, [u8; 6]),
        other: &Namespace,
        (far, far_mac): (&str, [u8; 6]),
    ) -> Result<()> {
        // One queue each way: native XDP needs as many receive queues as the
        // peer has transmit queues.
        self.router.ip(&format!(
            "link add {near} address {} numrxqueues 1 numtxqueues 1 type veth \
             peer name {far} address {} numrxqueues 1 numtxqueues 1 netns {}",
            Mac(near_mac),
            Mac(far_mac),
            other.path().display()
        ))?;
        let ends = [(&self.router, near, 1, far_mac, 2), (other, far, 2, near_mac, 1)];
        for (namespace, name, host, peer_mac, peer) in ends {
            let (v4, v6) = (
                std::net::Ipv4Addr::from(ipv4(net, host)),
                std::net::Ipv6Addr::from(ipv6(net, host)),
            );
            let (p4, p6) = (
                std::net::Ipv4Addr::from(ipv4(net, peer)),
                std::net::Ipv6Addr::from(ipv6(net, peer)),
            );
            let peer_mac = Mac(peer_mac);
            namespace.ip_batch(format!(
                "link set {name} addrgenmode none\n\
                 link set {name} up\n\
                 addr add {v4}/24 dev {name}\n\
                 addr add {v6}/64 dev {name} nodad\n\
                 neigh replace {p4} lladdr {peer_mac} nud permanent dev {name}\n\
                 neigh replace {p6} lladdr {peer_mac} nud permanent dev {name}\n"
            ))?;
        }
        Ok(())
    }
}

/// Writes an Ethernet address in the usual way.
struct Mac([u8; 6]);

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}
