//! What `run`, `gate` and `grantor` are alike: a service that works until it is told to stop.
//!
//! ```text
//!   prepare ─► start ─► announce ─► serve: READY=1 ─► Ctrl-C, SIGTERM ─► STOPPING=1 ─► report
//!                                             ├─ WATCHDOG=1 while every thread goes on
//!                                             ├─ STATUS=not ready: … while an interface does not work
//!                                             └─ SIGHUP: RELOADING=1, reload, READY=1
//! ```
//!
//! Under systemd (`Type=notify`) the unit is ready when the service takes packets, and not
//! before. The watchdog (`watchdog.rs`) is fed by a thread of its own while the others go on.
//! Without systemd it sends no notifications, which is no error.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use router::PortInfo;
use router::config::Level;
use router::control::api::Counters;
use router::control::progress::Progress;
use router::control::{answer, links, rights};
use router::stats::Snapshot;
use sd_notify::NotifyState;
use serde_json::Value;

use crate::watchdog::{self, Watchdog};
use crate::{logging, show, stop};

/// How soon a signal is noticed.
const NOTICE: Duration = Duration::from_millis(20);

/// The interval of checks for missing interfaces.
const LOOK: Duration = Duration::from_millis(200);

/// What works by threads of its own until it is stopped.
pub(crate) trait Service {
    /// Whether every thread is at work.
    fn alive(&self) -> bool;

    /// Returns what the progress of its threads is seen by.
    fn progress(&self) -> Progress;

    /// Does what is to be done every few milliseconds beside the threads.
    fn attend(&mut self);

    /// Returns why it is not ready, of each interface that does not work as a port.
    fn problems(&self) -> Vec<String>;

    /// Goes over to the configuration as it is now, and tells what came of it.
    fn reload(&mut self) -> Result<String, String>;

    /// Ends the threads; says whether they ended well.
    fn stop(&mut self) -> bool;
}

/// The wishes that come as signals.
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

/// Gives up the rights that are not needed and listens for signals: to be called while
/// there is one thread. The log uses the configuration's level.
pub(crate) fn prepare(level: Option<Level>) -> anyhow::Result<Signals> {
    logging::configure(level);
    rights::restrict().context("giving up rights")?;
    let stop = stop::on(&[stop::SIGINT, stop::SIGTERM])?;
    Ok(Signals { stop, reload: stop::reload_on_signal()? })
}

impl Signals {
    /// Waits until there is an interface of each name, and reports those that are missing to
    /// standard error and to systemd. Returns false if a signal came first.
    pub(crate) fn wait_for_interfaces(&self, names: &[&str]) -> bool {
        let mut reported = Vec::new();
        loop {
            let missing: Vec<_> =
                names.iter().copied().filter(|name| !links::exists(name)).collect();
            if missing.is_empty() {
                return true;
            }
            if missing != reported {
                let text = format!("waiting for interface {}", missing.join(", "));
                log::info!("{text}");
                tell(NotifyState::Status(&text));
                reported = missing;
            }
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Attends to the service until a signal or the death of a thread, and stops it. Says
    /// whether all threads were at work to the end.
    pub(crate) fn serve(&self, service: &mut impl Service) -> bool {
        tell(NotifyState::Ready);
        let server = watchdog::Server::new();
        let limit = sd_notify::watchdog_enabled();
        let watchdog = limit
            .map(|limit| Watchdog::start(limit, service.progress(), server.clone()))
            .transpose();
        if let Err(error) = &watchdog {
            log::error!("cannot feed the watchdog: {error}");
        }
        let mut problems = Vec::new();
        let mut well = true;
        while well && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(NOTICE);
            server.turn();
            service.attend();
            well = service.alive();
            let now = service.problems();
            if now != problems {
                let status = match &now[..] {
                    [] => "ready".to_owned(),
                    _ => format!("not ready: {}", now.join("; ")),
                };
                tell(NotifyState::Status(&status));
                problems = now;
            }
            if self.reload.swap(false, Ordering::Relaxed) {
                tell(NotifyState::Reloading);
                match service.reload() {
                    Ok(changes) => log::info!("reloaded: {changes}"),
                    Err(error) => log::error!("not reloaded: {error}"),
                }
                tell(NotifyState::Ready);
            }
        }
        tell(NotifyState::Stopping);
        service.stop() && well
    }
}

fn tell(state: NotifyState<'_>) {
    let _ = sd_notify::notify(&[state]);
}

/// Says which ports were taken over, and how.
pub(crate) fn announce(ports: &[PortInfo]) {
    for port in ports {
        let fallback = port.fallback.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        log::info!(
            "{}, queue {}: {}, MTU {}{fallback}",
            port.name,
            port.queue,
            port.mode,
            port.mtu
        );
    }
}

/// Writes the counters at the end, as a table or, where `document` makes one of them, as
/// JSON. The status is a failure where a thread died or the counters do not add up.
pub(crate) fn report(
    stats: &Snapshot,
    well: bool,
    document: Option<impl FnOnce(&Counters) -> Value>,
) -> anyhow::Result<ExitCode> {
    let counters = answer::counters(stats);
    let mut out = std::io::stdout().lock();
    match document {
        Some(document) => {
            serde_json::to_writer_pretty(&mut out, &document(&counters))?;
            writeln!(out)?;
        }
        None => show::counters(&mut out, &counters)?,
    }
    let balanced = stats.balanced();
    if !well {
        log::error!("a thread died; this is a bug, please report it");
    }
    if !balanced {
        log::error!("the counters do not add up; this is a bug, please report it");
    }
    Ok(if well && balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
