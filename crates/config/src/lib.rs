//! The configuration file: one TOML file, which is parsed and checked as a whole.
//!
//! ```toml
//! [[interface]]
//! name = "eth0"                # mode = "auto" | "zero-copy" | "copy" | "generic" | "xdp"
//!                              # queues = 4 (the first ones; default: all)
//!                              # channels = 4 (set while the router runs, as `ethtool -L` does)
//!                              # table = 100 (a kernel table, for `run`; default: by `ip rule`)
//!                              # rpf = "kernel" | "off" | "loose" | "strict" (RFC 3704)
//!                              # observe = true: leave its packets to the kernel, and
//!                              # count those that would have been taken
//!
//! [[nexthop]]
//! name = "upstream"
//! interface = "eth0"
//! mac = "02:00:00:00:00:01"
//! address = "192.0.2.1"        # optional: the label of routes in a file
//!
//! [[routes]]
//! file = "table.txt.gz"        # beside this file, or absolute
//! nexthop = "upstream"         # for all, or `nexthops = ["a", "b"]`, or by label
//!
//! [[route]]
//! prefix = "198.51.100.0/24"
//! nexthop = "blackhole"
//!
//! [[access_list]]
//! name = "edge"                # prefixes, protocols, ports, …: config/access.rs
//! inbound = ["eth0"]           # interfaces that packets arrive on; `outbound`: that they leave by
//! default = "permit"
//! rules = ["deny from 10.0.0.0/8"]
//!
//! [[egress_queue]]
//! interface = "eth0"           # queues before a slow link: config/egress_queue.rs
//! bandwidth = "100mbit"
//!
//! [block]                      # lists of sources whose packets are dropped: config/block.rs
//! lists = ["firehol.netset", "https://lists.example/drop.txt"]
//!
//! [flowspec]                   # BGP flow specifications as an access list: config/flowspec.rs
//! as = 65001
//! router_id = "192.0.2.1"
//! inbound = ["eth0"]
//!
//! [workers]
//! cores = [0, 1]               # a worker on each; each interface's queues are divided among them
//! stall_timeout = "100ms"      # a worker that stalls this long gets no more packets; 0: no limit
//!
//! [feed]
//! fpm = "127.0.0.1:2620"       # FRR's routes, not the kernel's (for `run`)
//! fpm_users = ["frr"]          # users that may connect; default: root, frr, the router's own
//! fpm_peers = ["192.0.2.7"]    # other hosts that may connect; default: none
//!
//! [control]
//! socket = "/run/fingerpost/control.sock"   # "": no control socket
//!
//! [image]
//! path = "/var/lib/fingerpost/table.image"   # saved at the end, loaded at the start (`run`)
//! interval = "60s"             # also saved at this interval if routes have changed
//!
//! [log]
//! level = "info"          # error, warn, info, debug: config/logging.rs
//!
//! [metrics]
//! listen = "127.0.0.1:9273"    # the HTTP listener for metrics and a page
//! allowed_hosts = ["router.example.net"]   # accepted `Host` names: config/metrics.rs
//!
//! [punt]
//! too_big = 10000              # packets per second to the kernel, by class: config/punt.rs
//!
//! [fib]
//! engine = "auto"              # for IPv4; `engine_v6` for IPv6
//! ```
//!
//! An unknown key is an error, because it is likely a typing error; so is a reference to an
//! undefined name. An error of the TOML parser ends the parse with this one error; all other
//! problems are collected and reported together, each with its line, so that the operator can fix
//! the file in one pass. A [`Config`] has no dangling names: they are resolved to indices into its
//! lists.
//!
//! If a prefix has several routes, a later file takes precedence over an earlier one, and a
//! `[[route]]` over every file.

#![forbid(unsafe_code)]

mod access;
mod block;
mod check;
mod checker;
mod daemon;
mod egress_queue;
mod feeds;
mod flowspec;
mod logging;
mod metrics;
mod peers;
mod punt;
mod reload;
mod secret;
mod text;
mod time_span;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use feed::fpm;
use fib::{Choice, Prefix};
use port::af_xdp::steer::EarlyDropConfig;
use port::af_xdp::{ModeChoice, QueueSetup};
use serde::de::DeserializeOwned;

use datapath::ReversePathFilter;

pub use access::AccessListConfig;
pub use block::{BlockConfig, BlockSection};
pub use checker::Checker;
pub use daemon::{ControlSection, DaemonConfig, DaemonSections, WorkersSection};
pub use egress_queue::EgressQueueConfig;
pub use flowspec::{FLOWSPEC_LIST, FlowspecConfig, FlowspecSpeaker};
pub use logging::{Level, LogSection};
pub use metrics::{Metrics, MetricsSection, is_host_name};
pub use punt::PuntSection;
pub use reload::{ChangedKeys, ReloadClass, restart_message};
pub use secret::read_secret;
pub use time_span::TimeSpan;

/// A configuration without contradictions.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file that it was read from.
    pub path: PathBuf,
    /// The interfaces; their order is that of the workers' ports.
    pub interfaces: Vec<Interface>,
    /// The next hops.
    pub next_hops: Vec<NextHop>,
    /// Files of routes; a later one takes precedence.
    pub files: Vec<RouteFile>,
    /// IPv4 routes of the configuration itself.
    pub routes_v4: Vec<(Prefix<u32>, Target)>,
    /// IPv6 routes of the configuration itself.
    pub routes_v6: Vec<(Prefix<u128>, Target)>,
    /// The access lists.
    pub access_lists: Vec<AccessListConfig>,
    /// The queues of egress interfaces.
    pub egress_queues: Vec<EgressQueueConfig>,
    /// The lists of sources whose packets are dropped.
    pub block: Option<BlockConfig>,
    /// The BGP flow specifications, if they are received.
    pub flowspec: Option<FlowspecConfig>,
    /// The engine of the IPv4 table.
    pub engine_v4: Choice,
    /// The engine of the IPv6 table.
    pub engine_v6: Choice,
    /// The FPM listener for FRR's routes, which replace the kernel's (`run` only).
    pub fpm: Option<fpm::FpmOptions>,
    /// The image file of the tables; `None`: no image (`run` only).
    pub image: Option<ImageFile>,
    /// The settings that all daemons have.
    pub daemon: DaemonConfig,
}

/// The image file of the tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFile {
    /// The file.
    pub path: PathBuf,
    /// The interval at which it is saved while routes change; `None`: only at the end.
    pub every: Option<Duration>,
}

/// A network interface whose packets the router receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The allowed receive modes.
    pub mode: ModeChoice,
    /// The number of receive queues that the router opens, from queue 0; `None`: all.
    pub queues: Option<u32>,
    /// The channels and the RSS that the device gets while the router runs.
    pub queue_setup: QueueSetup,
    /// The kernel's routing table for its packets; `None`: the table that the kernel's policy rules
    /// select (`run` only).
    pub table: Option<u32>,
    /// Its reverse path filter (RFC 3704); `None`: that of the kernel.
    pub sources: Option<ReversePathFilter>,
    /// The kernel forwards its packets; those that the router would have taken are counted.
    pub observe: bool,
    /// The router has the kernel's routes (`run` only): the kernel forwards the packets that are too
    /// long for the router's memory, and the router sends ICMP errors. Without this, an MTU that allows
    /// such packets is refused, and the kernel gets the packets whose TTL is used up.
    pub follows_kernel: bool,
    /// The packets that the steering program may drop, for an interface of a gate.
    pub guard: Option<EarlyDropConfig>,
}

/// The kernel's routing table for an interface without a configured one (`RT_TABLE_MAIN`).
pub const MAIN: u32 = 254;
/// The default path of the control socket.
pub const CONTROL: &str = "/run/fingerpost/control.sock";

/// A neighbor to which packets are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Its name in this configuration.
    pub name: String,
    /// The interface through which it is reached, as an index into [`Config::interfaces`].
    pub interface: usize,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its IP address, by which route files may refer to it.
    pub address: Option<IpAddr>,
}

/// The target of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// A next hop, as an index into [`Config::next_hops`].
    NextHop(usize),
    /// No next hop: packets are dropped and counted.
    Blackhole,
}

/// A file of routes, and the meaning of its labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteFile {
    /// The file.
    pub path: PathBuf,
    /// The targets of its routes.
    pub via: Via,
}

/// The targets of the routes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Via {
    /// The same target for all routes.
    One(Target),
    /// For each route the next hop that its label names, by name or by address.
    Label,
    /// For each route one of these, by a hash of its label: routes with the same label have the
    /// same target. For trials with tables whose next hops do not exist here.
    Spread(Vec<Target>),
}

/// The error of a configuration, with all of its problems.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is not TOML, or has unknown keys, missing keys or values of a wrong type.
    Shape {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// The message of the parser, with the key and the text of the line.
        what: String,
    },
    /// Values are invalid, or contradict each other.
    Invalid {
        /// The file.
        path: PathBuf,
        /// All problems.
        problems: Vec<Problem>,
    },
}

/// One problem of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// The table and key, such as `nexthop.mac`.
    pub key: &'static str,
    /// A description of the problem, and its remedy.
    pub what: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, source } => {
                write!(f, "{}: cannot be read: {source}", path.display())
            }
            Self::Shape { path, line, column, what } => {
                write!(f, "{}:{line}:{column}: {what}", path.display())
            }
            Self::Invalid { path, problems } => {
                for (at, Problem { line, key, what }) in problems.iter().enumerate() {
                    let end = if at == 0 { "" } else { "\n" };
                    write!(f, "{end}{}:{line}: {key}: {what}", path.display())?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Config {
    /// Reads a file. The names of route files in it are relative to its directory.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], with all problems.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        Self::parse(&read_text(path)?, path)
    }

    /// Parses the text of a file whose name is `path`.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load).
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_config::Config;
    /// let text = r#"
    ///     [[interface]]
    ///     name = "eth0"
    ///     [[nexthop]]
    ///     name = "up"
    ///     interface = "eth1"
    ///     mac = "02:00:00:00:00:01"
    /// "#;
    /// let error = Config::parse(text, "router.toml".as_ref()).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "router.toml:6: nexthop.interface: there is no [[interface]] \"eth1\" (there is: eth0)"
    /// );
    /// ```
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        check::check(shape(text, path)?, text, path)
    }

    /// Makes the configuration of the router of a gate or grantor: it follows the kernel's routes
    /// and has these interfaces.
    pub fn of_role(path: &Path, interfaces: Vec<Interface>, daemon: DaemonConfig) -> Self {
        Self {
            path: path.into(),
            interfaces,
            next_hops: Vec::new(),
            files: Vec::new(),
            routes_v4: Vec::new(),
            routes_v6: Vec::new(),
            access_lists: Vec::new(),
            egress_queues: Vec::new(),
            block: None,
            flowspec: None,
            engine_v4: Choice::Auto,
            engine_v6: Choice::Auto,
            fpm: None,
            image: None,
            daemon,
        }
    }

    /// Returns whether packets of some interface are to be forwarded in the driver.
    pub fn forwards_in_driver(&self) -> bool {
        self.has_mode(ModeChoice::Xdp)
    }

    /// Returns whether a router that follows the kernel may choose to forward packets of interfaces with
    /// `mode = "auto"` in the driver. Programs look up in two engines alone; packets that pass access lists are the
    /// workers'; and the tables of an image are not in memory that programs read.
    pub fn may_choose_driver(&self) -> bool {
        self.has_mode(ModeChoice::Auto)
            && [self.engine_v4, self.engine_v6].into_iter().all(has_programs)
            && self.access_lists.is_empty()
            && self.flowspec.is_none()
            && self.image.is_none()
    }

    /// Returns whether programs that look up in tables may be loaded while a router runs that follows the kernel.
    pub fn may_load_programs(&self) -> bool {
        self.forwards_in_driver() || self.may_choose_driver() || self.block.is_some()
    }

    fn has_mode(&self, mode: ModeChoice) -> bool {
        self.interfaces.iter().any(|interface| interface.mode == mode)
    }

    /// Returns whether there are next hops, files of routes or routes.
    pub fn has_static_routes(&self) -> bool {
        let Self { next_hops, files, routes_v4, routes_v6, .. } = self;
        !next_hops.is_empty() || !files.is_empty() || !routes_v4.is_empty() || !routes_v6.is_empty()
    }

    /// Lists the keys that have no effect on a router with static routes.
    pub fn keys_without_effect(&self) -> Vec<&'static str> {
        let has_table = self.interfaces.iter().any(|interface| interface.table.is_some());
        let keys = [
            ("interface.table", has_table),
            ("interface.mode = \"xdp\"", self.forwards_in_driver()),
            ("feed.fpm", self.fpm.is_some()),
            ("image.path", self.image.is_some()),
        ];
        keys.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| key).collect()
    }
}

/// Returns whether programs in the kernel look up in tables of this engine; `Auto` becomes one of these.
fn has_programs(engine: Choice) -> bool {
    matches!(engine, Choice::Auto | Choice::Flat | Choice::Rank)
}

impl ConfigError {
    /// Makes the error of the stored bundles (`distribution.store_dir` of the file `path`).
    pub fn stored_bundles(path: &Path, what: String) -> Self {
        let problems = vec![Problem { line: 1, key: "distribution.store_dir", what }];
        Self::Invalid { path: path.into(), problems }
    }
}

/// Reads the text of the file `path`.
pub fn read_text(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.into(), source })
}

/// Deserializes the text of the file `path`.
pub fn shape<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let (line, column) = error.span().map_or((1, 1), |span| place(text, span.start));
        ConfigError::Shape { path: path.into(), line, column, what: explain(text, &error) }
    })
}

/// Returns the line and column of a byte, both from 1.
pub(crate) fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() + 1;
    (line, column)
}

/// Returns the message of the parser with the text of the line: the message names an unknown or
/// missing key; a value of the wrong type is on the line of its key.
fn explain(text: &str, error: &toml::de::Error) -> String {
    let what = error.message().trim().replace('\n', " ");
    let Some(span) = error.span() else { return what };
    let (line, _) = place(text, span.start);
    let shown = text.lines().nth(line - 1).unwrap_or_default().trim();
    if shown.is_empty() { what } else { format!("{what}, in `{shown}`") }
}
