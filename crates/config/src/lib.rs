//! Configuration files: one TOML file, read whole, judged whole.
//!
//! ```toml
//! [[interface]]
//! name = "eth0"                # mode = "auto" | "zero-copy" | "copy" | "generic"
//!                              # queues = 4 (the first ones; else all that it has)
//!                              # table = 100 (the kernel's, for `run`; else by `ip rule`)
//!                              # rpf = "off" | "loose" | "strict" (RFC 3704)
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
//! [workers]
//! cores = [0, 1]               # a worker on each; the queues of every interface are shared out
//! stall_timeout = "100ms"               # a worker that stalls for so long gets no more packets; 0: no
//! limit
//!
//! [feed]
//! fpm = "127.0.0.1:2620"       # FRR's routes, not the kernel's (for `run`)
//! fpm_users = ["frr"]          # users that may send them; default: root, frr, the router's own
//! fpm_peers = ["192.0.2.7"]    # other hosts that may send them; else none
//!
//! [control]
//! socket = "/run/fingerpost/control.sock"   # "" for none
//!
//! [image]
//! path = "/var/lib/fingerpost/table.image"   # saved at the end, used at the start (`run`)
//! interval = "60s"                   # seconds; saved as often after changes too
//!
//! [log]
//! level = "info"          # error, warn, info, debug: config/logging.rs
//!
//! [metrics]
//! listen = "127.0.0.1:9273"    # metrics and a page by HTTP; without it, none (for `run`)
//! allowed_hosts = ["router.example.net"]   # names it is asked for by: config/metrics.rs
//!
//! [punt]
//! too_big = 10000              # packets a second for the kernel, by class: config/punt.rs
//!
//! [fib]
//! engine = "auto"              # for IPv4; `engine_v6` for IPv6
//! ```
//!
//! A key that is not known is an error, for it is a slip; so is a name that nothing
//! has. What the TOML parser refuses ends the reading with its one error; beyond
//! that all problems are found and told at once, each with the line it is on, so
//! that a file is mended in one go. A [`Config`] that exists has no dangling names:
//! they are resolved to places in its lists.
//!
//! Where a prefix has several routes, a later file wins over an earlier one, and a
//! `[[route]]` over every file.

#![forbid(unsafe_code)]

mod check;
mod checker;
mod feeds;
mod logging;
mod metrics;
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
use port::af_xdp::ModeChoice;
use port::af_xdp::steer::{EarlyDropConfig, STALL};
use serde::de::DeserializeOwned;

use datapath::{PuntRates, ReversePathFilter};

pub use logging::{Level, LogSection};
pub use metrics::{Metrics, MetricsSection, ProblemSink, is_host_name};
pub use punt::PuntSection;
pub use reload::{ChangedKeys, ReloadClass};
pub use secret::read_secret;
pub use time_span::TimeSpan;

/// A configuration without contradictions.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file it was read from.
    pub path: PathBuf,
    /// The interfaces, which are the workers' ports in this order.
    pub interfaces: Vec<Interface>,
    /// The next hops.
    pub next_hops: Vec<NextHop>,
    /// Files of routes, the later ones winning.
    pub files: Vec<RouteFile>,
    /// Routes of the configuration itself, IPv4.
    pub routes_v4: Vec<(Prefix<u32>, Target)>,
    /// Routes of the configuration itself, IPv6.
    pub routes_v6: Vec<(Prefix<u128>, Target)>,
    /// The core of each worker; `None` leaves it to the system.
    pub cores: Vec<Option<usize>>,
    /// How long a worker may stall before it gets no more packets, if that is limited.
    pub stall: Option<Duration>,
    /// The engine of the IPv4 table.
    pub engine_v4: Choice,
    /// The engine of the IPv6 table.
    pub engine_v6: Choice,
    /// How FRR's routes are taken, in place of the kernel's (`run` only).
    pub fpm: Option<fpm::FpmOptions>,
    /// Where the control socket is; none where it is not wanted.
    pub control: Option<PathBuf>,
    /// Where metrics are asked for by HTTP; none where that is not wanted (`run` only).
    pub metrics: Option<Metrics>,
    /// The least severe level of the log; the program's default where it is not set.
    pub log: Option<Level>,
    /// Where an image of the tables is kept, if one is (`run` only).
    pub image: Option<ImageFile>,
    /// The most punts a second, by class (`run` only).
    pub punts: PuntRates,
}

/// Where an image of the tables is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFile {
    /// The file.
    pub path: PathBuf,
    /// How often it is saved while the router works and routes change; else at the end.
    pub every: Option<Duration>,
}

/// A network interface that the router takes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Which ways of receiving may be used.
    pub mode: ModeChoice,
    /// How many of its receive queues are taken over, the first ones; all, if not configured.
    pub queues: Option<u32>,
    /// The kernel's table by which its packets are forwarded; that which the kernel's rules
    /// lead to, if none is said (`run` only).
    pub table: Option<u32>,
    /// Which sources its packets may have.
    pub sources: ReversePathFilter,
    /// Its packets are left to the kernel, and those counted that would have been taken.
    pub observe: bool,
    /// What the steering program may drop, where it is one of a gate's.
    pub guard: Option<EarlyDropConfig>,
}

/// The kernel's table of routes where nothing else is said.
pub const MAIN: u32 = 254;
/// Where the control socket is, where nothing else is said.
pub const CONTROL: &str = "/run/fingerpost/control.sock";

/// Who packets are handed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Its name in this configuration.
    pub name: String,
    /// The interface it is behind, by its place in [`Config::interfaces`].
    pub interface: usize,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Its address, by which route files may name it.
    pub address: Option<IpAddr>,
}

/// Where a route leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// To a next hop, by its place in [`Config::next_hops`].
    NextHop(usize),
    /// Nowhere: packets are dropped and counted.
    Blackhole,
}

/// A file of routes, and what its labels mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteFile {
    /// The file.
    pub path: PathBuf,
    /// Where its routes lead.
    pub via: Via,
}

/// Where the routes of a file lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Via {
    /// All to the same.
    One(Target),
    /// Each to the next hop that its label names, by name or by address.
    Label,
    /// Each to one of these, by a hash of its label: routes of one label stay
    /// together. For trials with tables whose next hops are not here.
    Spread(Vec<Target>),
}

/// What is wrong with a configuration, all of it.
#[derive(Debug)]
pub enum ConfigError {
    /// The file cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not TOML, or not of this shape.
    Shape {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
        /// What is wrong, the key named and the line shown.
        what: String,
    },
    /// It contradicts itself.
    Sense {
        /// The file.
        path: PathBuf,
        /// Everything that is wrong.
        problems: Vec<Problem>,
    },
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The line, from 1.
    pub line: usize,
    /// The table and key, such as `nexthop.mac`.
    pub key: &'static str,
    /// What is wrong, and what to do.
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
            Self::Sense { path, problems } => {
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
    /// Reads a file. Names of route files in it are relative to where it is.
    ///
    /// # Errors
    ///
    /// [`ConfigError`], with everything that is wrong.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ConfigError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.into(), source })?;
        Self::parse(&text, path)
    }

    /// Reads the text of a file whose name is `path`.
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
}

impl ConfigError {
    /// What is wrong with the bundles that a file says are kept.
    pub fn kept(path: &Path, what: String) -> Self {
        let problems = vec![Problem { line: 1, key: "distribution.store_dir", what }];
        Self::Sense { path: path.into(), problems }
    }
}

/// Reads how long a worker may stall, in milliseconds: 0 means no limit.
pub fn stall(timeout: Option<TimeSpan>) -> Option<Duration> {
    let limit = timeout.map_or(STALL, Duration::from);
    (!limit.is_zero()).then_some(limit)
}

/// Reads the shape of a file.
pub fn shape<T: DeserializeOwned>(text: &str, path: &Path) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let (line, column) = error.span().map_or((1, 1), |span| place(text, span.start));
        ConfigError::Shape { path: path.into(), line, column, what: explain(text, &error) }
    })
}

/// Returns the line and column of a byte, both from 1.
pub fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
    let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() + 1;
    (line, column)
}

/// Says what the parser objects to, with the line it is on: its own message names
/// an unknown or missing key; a value of the wrong type is on the line of its key.
pub fn explain(text: &str, error: &toml::de::Error) -> String {
    let what = error.message().trim().replace('\n', " ");
    let Some(span) = error.span() else { return what };
    let (line, _) = place(text, span.start);
    let shown = text.lines().nth(line - 1).unwrap_or_default().trim();
    if shown.is_empty() { what } else { format!("{what}, in `{shown}`") }
}
