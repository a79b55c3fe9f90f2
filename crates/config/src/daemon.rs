//! The sections that the files of all daemons share: `[workers]`, `[control]`, `[metrics]`, `[log]`
//! and `[punt]`.
//!
//! ```text
//!   file of a router, gate or grantor ─► DaemonSections ─check─► DaemonConfig ─compare─► ChangedKeys
//! ```
//!
//! Keys, checks, messages and reload classes are the same in all files. Only the default rates of
//! `[punt]` differ (`punt.rs`). A gate and a grantor do not replace their workers: a key of the
//! class [`ReplacesWorkers`](super::ReloadClass::ReplacesWorkers) needs a restart there.

use std::path::PathBuf;
use std::time::Duration;

use datapath::PuntRates;
use port::af_xdp::steer::STALL;
use serde::Deserialize;
use toml::Spanned;

use super::checker::Checker;
use super::reload::{ChangedKeys, ReloadClass};
use super::{CONTROL, Level, LogSection, Metrics, MetricsSection, PuntSection, TimeSpan};

/// The settings that all daemons have.
#[derive(Clone, Debug, PartialEq)]
pub struct DaemonConfig {
    /// The core of each worker; `None`: the system selects it.
    pub cores: Vec<Option<usize>>,
    /// The time after which a stalled worker gets no more packets; `None`: no limit.
    pub stall: Option<Duration>,
    /// The path of the control socket; `None`: no socket.
    pub control: Option<PathBuf>,
    /// The HTTP listener for metrics; `None`: no listener (not for `forward`).
    pub metrics: Option<Metrics>,
    /// The least severe level of the log; `None`: the program's default.
    pub log: Option<Level>,
    /// The limits of punted packets per second, by class (not for `forward`).
    pub punts: PuntRates,
}

/// The section `[workers]` as it is written in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorkersSection {
    cores: Option<Spanned<Vec<Spanned<usize>>>>,
    stall_timeout: Option<TimeSpan>,
}

/// The section `[control]` as it is written in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlSection {
    socket: Option<PathBuf>,
}

/// The shared sections as they are written in the file.
#[derive(Debug)]
pub struct DaemonSections {
    /// `[workers]`.
    pub workers: WorkersSection,
    /// `[control]`.
    pub control: ControlSection,
    /// `[metrics]`.
    pub metrics: MetricsSection,
    /// `[log]`.
    pub log: LogSection,
    /// `[punt]`.
    pub punt: PuntSection,
}

impl DaemonSections {
    /// Checks the sections; rates that `[punt]` does not state are those of `punts`.
    pub fn check(self, c: &mut Checker<'_>, punts: PuntRates) -> DaemonConfig {
        let Self { workers, control, metrics, log, punt } = self;
        let stall = workers.stall_timeout.map_or(STALL, Duration::from);
        let socket = control.socket.unwrap_or_else(|| CONTROL.into());
        DaemonConfig {
            cores: cores(c, workers.cores),
            stall: (!stall.is_zero()).then_some(stall),
            control: (!socket.as_os_str().is_empty()).then_some(socket),
            metrics: Metrics::check(metrics, c),
            log: Level::check(log, c),
            punts: punt.rates(punts),
        }
    }
}

fn cores(c: &mut Checker<'_>, listed: Option<Spanned<Vec<Spanned<usize>>>>) -> Vec<Option<usize>> {
    const KEY: &str = "workers.cores";
    let Some(listed) = listed else { return vec![None] };
    if listed.get_ref().is_empty() {
        c.problem(&listed, KEY, "an empty list: name a core, or remove the key for one worker");
        return vec![None];
    }
    let mut cores = Vec::new();
    for core in listed.into_inner() {
        let number = *core.get_ref();
        if cores.contains(&Some(number)) {
            c.problem(&core, KEY, format!("core {number} is listed twice: name each core once"));
        }
        cores.push(Some(number));
    }
    cores
}

impl DaemonConfig {
    /// Compares the keys of all shared sections.
    pub fn compare(&self, new: &Self, changed: &mut ChangedKeys) {
        use ReloadClass::{NeedsRestart, ReplacesWorkers};
        let Self { cores, stall, control, metrics, log, punts } = self;
        changed.compare("workers.cores", ReplacesWorkers, cores, &new.cores);
        changed.compare("workers.stall_timeout", ReplacesWorkers, stall, &new.stall);
        changed.compare("control.socket", NeedsRestart, control, &new.control);
        changed.compare("metrics", NeedsRestart, metrics, &new.metrics);
        changed.compare("log.level", NeedsRestart, log, &new.log);
        changed.compare("punt", ReplacesWorkers, punts, &new.punts);
    }
}
