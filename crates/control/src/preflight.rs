//! Checks of a configuration against this machine, which change nothing.
//!
//! ```text
//!   Config ─► interfaces exist, Ethernet, up? queues, MTU, offloads, another XDP program?
//!             cores? folders writable? metrics' address free? tunnels: address, MTU? rights?
//!                              │
//!                              └─► errors: the start would fail     warnings: packets would suffer
//! ```
//!
//! A start can fail with a valid file: an interface does not exist, a queue is missing, a folder is
//! missing. `run --check`, `gate check` and `grantor check` check these conditions as the start
//! does, in the network namespace of the calling thread, and change nothing: they attach no program
//! and open no socket of the router, and they test a folder with an unnamed file (`O_TMPFILE`). If
//! a router answers on the configured control socket, its XDP programs and the address of its
//! metrics are no findings, because an operator runs a check before a reload.
//!
//! The findings hold for the time of the check and for the user that runs it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use config::BlockConfig;
use feed::netlink::{
    AddressChange, AddressView, Follower, InterfaceSettings, Kernel, Link, Neighbor, RouteInfo,
    Rule,
};
use fib::Prefix;
use nix::libc;
use nix::sched::sched_getaffinity;
use nix::unistd::Pid;
use port::af_xdp;
use threads::rights;

use crate::block_lists;
use crate::egress_queues::EgressQueues;
use crate::links;
use crate::plan::{self, PlannedInterface, WorkerPlan};
use crate::start::{StartError, wanted_queues};
use crate::sysctls::forces_forwarding_v6;

/// The queueing disciplines that an interface has if no operator has set one, by its driver and
/// `net.core.default_qdisc`.
const DEFAULT_QDISCS: [&str; 6] = ["noqueue", "noop", "mq", "pfifo_fast", "fq_codel", "fq"];

/// The findings of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The start would fail.
    Error(String),
    /// The start would succeed, but packets or state would be affected.
    Warning(String),
    /// The queues and the memory of a worker.
    Worker(PlannedWorker),
}

/// The queues of a worker and the memory for its packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedWorker {
    /// Its number.
    pub number: usize,
    /// Its core; `None`: any.
    pub core: Option<usize>,
    /// The queues of each interface that it receives from, in the order of the configuration.
    pub queues: Vec<(String, Vec<u32>)>,
    /// The memory in bytes.
    pub bytes: u64,
}

impl fmt::Display for PlannedWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}", self.number)?;
        if let Some(core) = self.core {
            write!(f, ", core {core}")?;
        }
        for (at, (interface, queues)) in self.queues.iter().enumerate() {
            let noun = if queues.len() == 1 { "queue" } else { "queues" };
            write!(f, "{} {interface} {noun}", if at == 0 { ":" } else { "," })?;
            queues.iter().try_for_each(|queue| write!(f, " {queue}"))?;
        }
        write!(f, "; {} MiB for packets", self.bytes.div_ceil(1 << 20))
    }
}

/// Plans the workers as a start does, if all interfaces exist.
fn planned_workers(config: &config::Config, hook_frames: u32) -> Option<Vec<PlannedWorker>> {
    let interfaces = config.interfaces.iter().map(|wanted| {
        let device = af_xdp::describe(&wanted.name).ok()?;
        let queues = match (wanted.queues, wanted.queue_setup.channels) {
            (None, Some(channels)) => channels,
            _ => wanted_queues(config, wanted).ok()?,
        };
        Some(PlannedInterface { mtu: device.mtu.min(af_xdp::longest_mtu()), queues })
    });
    let interfaces = interfaces.collect::<Option<Vec<_>>>()?;
    let queues = EgressQueues::of(config, &EgressQueues::default());
    let more = hook_frames + queues.of_worker(config, 0, Instant::now()).frames();
    let plan = plan::workers(config, &interfaces, more);
    let worker = |(number, worker): (usize, WorkerPlan)| {
        let named = config.interfaces.iter().enumerate();
        let queues = named
            .map(|(at, interface)| (interface.name.clone(), worker.queues_of(at).collect()))
            .collect();
        PlannedWorker { number, core: worker.core, queues, bytes: worker.bytes() }
    };
    Some(plan.into_iter().enumerate().map(worker).collect())
}

/// The links and addresses of this network namespace.
#[derive(Debug, Default)]
pub struct System {
    links: Vec<(u32, Link)>,
    addresses: Vec<(u32, IpAddr)>,
    settings: BTreeMap<u32, InterfaceSettings>,
}

impl Follower for System {
    fn link(&mut self, index: u32, link: Option<&Link>) {
        self.links.extend(link.map(|link| (index, link.clone())));
    }

    fn address(&mut self, view: &AddressView, change: AddressChange) {
        if change != AddressChange::Removed {
            self.addresses.push((view.index, view.address));
        }
    }

    fn route_v4(&mut self, _: u32, _: Prefix<u32>, _: Option<&RouteInfo>) {}
    fn route_v6(&mut self, _: u32, _: Prefix<u128>, _: Option<&RouteInfo>) {}
    fn neighbor(&mut self, _: u32, _: IpAddr, _: Option<&Neighbor>) {}
    fn rules(&mut self, _: &[Rule]) {}

    fn settings(&mut self, interface: u32, settings: InterfaceSettings) {
        self.settings.insert(interface, settings);
    }
}

impl System {
    /// Returns an interface's link, with its index.
    pub fn link(&self, name: &str) -> Option<&(u32, Link)> {
        self.links.iter().find(|(_, link)| link.name == name)
    }

    /// Returns whether an address is one of this machine.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|(_, own)| *own == address)
    }

    /// Returns whether an interface has an address of a family that others can reach.
    pub fn has_address(&self, name: &str, v6: bool) -> bool {
        let Some((index, _)) = self.link(name) else { return false };
        let usable = |address: &IpAddr| match address {
            IpAddr::V4(_) => !v6,
            IpAddr::V6(address) => v6 && !address.is_unicast_link_local(),
        };
        self.addresses.iter().any(|(of, address)| of == index && usable(address))
    }
}

/// The findings so far.
#[derive(Debug, Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Returns all findings.
    pub fn into_vec(self) -> Vec<Finding> {
        self.0
    }

    /// Adds an error.
    pub fn error(&mut self, what: &impl ToString) {
        self.0.push(Finding::Error(what.to_string()));
    }

    /// Adds a warning.
    pub fn warning(&mut self, what: &impl ToString) {
        self.0.push(Finding::Warning(what.to_string()));
    }

    /// Checks the block lists: that they can be read, and that none would be held.
    pub fn block_lists(&mut self, block: &BlockConfig) {
        match block_lists::check(block) {
            Ok(held) => held.iter().for_each(|list| {
                let reason = list.held.as_deref().unwrap_or_default();
                self.error(&format!("block: {} would be held: {reason}", list.name));
            }),
            Err(error) => self.error(&format!("block: {error}")),
        }
    }

    /// Checks the requirements of all daemons, and returns the kernel's description of the machine. With
    /// `bonds`, members of bonds can be ports. The hook of each worker has `hook_frames` frames.
    pub fn machine(&mut self, config: &config::Config, bonds: bool, hook_frames: u32) -> System {
        let mut system = System::default();
        if let Err(error) =
            Kernel::open().and_then(|mut kernel| kernel.start_without_routes(&mut system))
        {
            self.error(&error);
            return system;
        }
        let running =
            config.daemon.control.as_ref().is_some_and(|at| UnixStream::connect(at).is_ok());
        for interface in &config.interfaces {
            self.interface(interface, bonds, config.daemon.cores.len(), &system, running);
            if !config.egress_queues.iter().any(|queue| queue.interface == interface.name) {
                self.qdisc(&interface.name, &system);
            }
        }
        self.cores(config);
        if let Some(socket) = config.daemon.control.as_ref().filter(|_| !running) {
            self.control(socket);
        }
        if let Some(metrics) = &config.daemon.metrics {
            if let Some(source) = TcpListener::bind(metrics.listen).err().filter(|_| !running) {
                self.error(&StartError::Metrics { listen: metrics.listen, source });
            }
            if let Some(file) = &metrics.history_file {
                self.saved("metrics.history_file", file);
            }
        }
        self.rights(config.forwards_in_driver());
        if let Some(workers) = planned_workers(config, hook_frames) {
            self.0.extend(workers.into_iter().map(Finding::Worker));
        }
        system
    }

    fn interface(
        &mut self,
        wanted: &config::Interface,
        bonds: bool,
        workers: usize,
        system: &System,
        running: bool,
    ) {
        let name = &wanted.name;
        let (Some((_, link)), Ok(device)) = (system.link(name), af_xdp::describe(name)) else {
            match af_xdp::describe(name) {
                Err(error) => self.error(&error),
                Ok(_) => self.error(&af_xdp::Error::NoInterface { interface: name.clone() }),
            }
            return;
        };
        // A start takes as many as are configured, else all, and at least one for each worker.
        let needed = wanted.queues.unwrap_or(1).max(workers as u32);
        let interface = name.clone();
        if wanted.queue_setup.rss.is_some() && !af_xdp::has_rss(name) {
            let interface = name.clone();
            self.error(&af_xdp::Error::NoRss { interface, part: "the hash key" });
        }
        if let Some(wanted) = wanted.queue_setup.channels {
            let most = device.most_queues.unwrap_or(0);
            if wanted > most {
                self.error(&af_xdp::Error::BadChannelCount { interface, wanted, most });
            }
        } else if let Some(queues) = device.queues.filter(|queues| *queues < needed) {
            self.error(&af_xdp::Error::BadQueueCount { interface, wanted: needed, queues });
        }
        let limit = af_xdp::longest_mtu();
        if device.mtu > limit && wanted.follows_kernel {
            // With an Ethernet header and two VLAN tags.
            let longest = limit + 14 + 2 * 4;
            self.warning(&format!(
                "{name} has an MTU of {} bytes: Linux forwards packets that have more than {longest} bytes with \
                 their Ethernet header (before Linux 5.18 the interface is refused)",
                device.mtu
            ));
        } else if device.mtu > limit {
            self.error(&af_xdp::Error::MtuTooLarge {
                interface: name.clone(),
                mtu: device.mtu,
                limit,
                limited_by: "the largest frame",
            });
        }
        if let Some(reason) = links::unfit(link, bonds) {
            self.error(&reason);
        }
        if link.xdp && !running {
            self.error(&af_xdp::Error::OtherProgram { interface: name.clone() });
        }
        if !link.up {
            self.warning(&format!("{name} is down: `ip link set {name} up`"));
        } else if !link.carrier {
            self.warning(&format!("{name} has no carrier"));
        }
        if wanted.follows_kernel {
            self.forwarding(name, system);
        }
        if device.lro {
            self.warning(&format!(
                "{name} merges received packets into larger ones, which cannot be forwarded: \
                 `ethtool -K {name} lro off`"
            ));
        }
    }

    /// Warns of an interface with addresses of a family for which the kernel's forwarding is off.
    fn forwarding(&mut self, name: &str, system: &System) {
        let Some((index, _)) = system.link(name) else { return };
        let settings = system.settings.get(index).copied().unwrap_or_default();
        let v4 =
            (!settings.forwards_v4, false, "IPv4", format!("net.ipv4.conf.{name}.forwarding=1"));
        let off_v6 = !settings.forwards_v6 && !forces_forwarding_v6(name);
        let v6 = (off_v6, true, "IPv6", "net.ipv6.conf.all.forwarding=1".to_owned());
        for (is_off, is_v6, family, setting) in [v4, v6] {
            if is_off && system.has_address(name, is_v6) {
                self.warning(&format!(
                    "{name}: forwarding of {family} is off, and its packets will be dropped: `sysctl -w {setting}`"
                ));
            }
        }
    }

    /// Warns of a queueing discipline that an operator has set: packets of the workers do not pass it.
    fn qdisc(&mut self, name: &str, system: &System) {
        let Some((_, link)) = system.link(name) else { return };
        if !link.qdisc.is_empty() && !DEFAULT_QDISCS.contains(&&*link.qdisc) {
            self.warning(&format!(
                "{name} has the queueing discipline {} (`tc qdisc`), by which only Linux sends: for forwarded \
                 packets, `run` has [[egress_queue]]",
                link.qdisc
            ));
        }
    }

    fn cores(&mut self, config: &config::Config) {
        let Ok(allowed) = sched_getaffinity(Pid::from_raw(0)) else { return };
        for core in config.daemon.cores.iter().flatten() {
            if !allowed.is_set(*core).unwrap_or(false) {
                self.error(&format!(
                    "workers.cores: there is no core {core}, or this process may not use it (see \
                     `nproc`, and `taskset -p $$`)"
                ));
            }
        }
    }

    /// Checks the folder of the socket, or the one in which that folder will be created.
    fn control(&mut self, socket: &Path) {
        let folder = socket.parent().unwrap_or(Path::new(""));
        let made_in = if folder.exists() { Some(folder) } else { folder.parent() };
        self.folder("control.socket", made_in, true);
    }

    /// Checks the folder of a file that the daemon saves while it runs or at its end.
    pub fn saved(&mut self, key: &str, file: &Path) {
        self.folder(key, file.parent(), false);
    }

    /// Checks a folder that the daemon creates if it does not exist.
    pub fn made(&mut self, key: &str, folder: &Path) {
        let there = folder.ancestors().find(|folder| folder.exists());
        self.folder(key, there, true);
    }

    /// Checks that files can be created in a folder.
    pub fn folder(&mut self, key: &str, folder: Option<&Path>, fatal: bool) {
        let folder: PathBuf = match folder {
            Some(folder) if folder.as_os_str().is_empty() => ".".into(),
            Some(folder) => folder.into(),
            None => return,
        };
        let tried = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(&folder);
        let Err(error) = tried else { return };
        let shown = folder.display();
        let what = match error.kind() {
            ErrorKind::NotFound => format!("{key}: the folder {shown} does not exist"),
            ErrorKind::NotADirectory => format!("{key}: {shown} is not a folder"),
            // Not every file system supports unnamed files.
            _ if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR)) => return,
            _ => format!("{key}: the folder {shown} cannot be written to by this user: {error}"),
        };
        if fatal { self.error(&what) } else { self.warning(&what) }
    }

    fn rights(&mut self, in_driver: bool) {
        let missing = rights::missing(in_driver);
        if !missing.is_empty() {
            self.warning(&format!(
                "this process lacks {}, which a start takes: check as root or as the service does",
                missing.join(", ")
            ));
        }
    }
}
