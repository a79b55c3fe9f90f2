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

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::net::{IpAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use feed::netlink::{
    AddressChange, AddressView, Follower, Kernel, Link, Neighbor, RouteInfo, Rule,
};
use fib::Prefix;
use nix::libc;
use nix::sched::sched_getaffinity;
use nix::unistd::Pid;
use port::af_xdp;
use threads::rights;

use crate::links;
use crate::start::{LARGEST_MTU, StartError};

/// The findings of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The start would fail.
    Error(String),
    /// The start would succeed, but packets or state would be affected.
    Warning(String),
}

/// The links and addresses of this network namespace.
#[derive(Debug, Default)]
pub struct System {
    links: Vec<(u32, Link)>,
    addresses: Vec<(u32, IpAddr)>,
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

    /// Checks the requirements of all daemons, and returns the kernel's description of the machine. With
    /// `bonds`, members of bonds can be ports.
    pub fn machine(&mut self, config: &config::Config, bonds: bool) -> System {
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
        self.rights();
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
        if let Some(queues) = device.queues.filter(|queues| *queues < needed) {
            let (interface, wanted) = (name.clone(), needed);
            self.error(&af_xdp::Error::BadQueueCount { interface, wanted, queues });
        }
        if device.mtu > LARGEST_MTU && wanted.follows_kernel {
            // With an Ethernet header and two VLAN tags.
            let longest = LARGEST_MTU + 14 + 2 * 4;
            self.warning(&format!(
                "{name} has an MTU of {} bytes: Linux forwards packets that have more than {longest} bytes with \
                 their Ethernet header (before Linux 5.18 the interface is refused)",
                device.mtu
            ));
        } else if device.mtu > LARGEST_MTU {
            self.error(&af_xdp::Error::MtuTooLarge {
                interface: name.clone(),
                mtu: device.mtu,
                limit: LARGEST_MTU,
                limited_by: "a frame of 4096 bytes",
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
        if device.lro {
            self.warning(&format!(
                "{name} merges received packets into larger ones, which cannot be forwarded: \
                 `ethtool -K {name} lro off`"
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

    fn rights(&mut self) {
        let missing = rights::missing();
        if !missing.is_empty() {
            self.warning(&format!(
                "this process lacks {}, which a start takes: check as root or as the service does",
                missing.join(", ")
            ));
        }
    }
}
