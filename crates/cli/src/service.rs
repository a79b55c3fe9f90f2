//! What `run`, `gate` and `grantor` are alike: a service that works until it is told to stop.
//!
//! ```text
//!   prepare ─► start ─► announce ─► serve: READY=1 ─► Ctrl-C, SIGTERM ─► STOPPING=1 ─► report
//!                                             ├─ WATCHDOG=1 while every thread is at work
//!                                             └─ SIGHUP: RELOADING=1, reload, READY=1
//! ```
//!
//! Under systemd (`Type=notify`) the unit is ready when the service takes packets, and not
//! before. The watchdog is fed from the same loop that sees whether the threads live, so
//! that it starves with either. Without systemd there is nobody to tell, which is no error.

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use router::PortInfo;
use router::control::api::Counters;
use router::control::{answer, rights};
use router::stats::Snapshot;
use sd_notify::NotifyState;
use serde_json::Value;

use crate::{show, stop};

/// How soon a signal is noticed.
const NOTICE: Duration = Duration::from_millis(20);

/// What works by threads of its own until it is stopped.
pub(crate) trait Service {
    /// Whether every thread is at work.
    fn alive(&self) -> bool;

    /// Does what is to be done every few milliseconds beside the threads.
    fn attend(&mut self);

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
/// there is one thread.
pub(crate) fn prepare() -> anyhow::Result<Signals> {
    rights::restrict().context("giving up rights")?;
    let stop = stop::on(&[stop::SIGINT, stop::SIGTERM])?;
    Ok(Signals { stop, reload: stop::reload_on_signal()? })
}

impl Signals {
    /// Attends to the service until a signal or the death of a thread, and stops it. Says
    /// whether all threads were at work to the end.
    pub(crate) fn serve(&self, service: &mut impl Service) -> bool {
        tell(NotifyState::Ready);
        let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
        let mut fed = Instant::now();
        let mut well = true;
        while well && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(NOTICE);
            service.attend();
            well = service.alive();
            if self.reload.swap(false, Ordering::Relaxed) {
                tell(NotifyState::Reloading);
                match service.reload() {
                    Ok(told) => eprintln!("fingerpost: reloaded: {told}"),
                    Err(error) => eprintln!("fingerpost: not reloaded: {error}"),
                }
                tell(NotifyState::Ready);
            }
            if well && watchdog.is_some_and(|every| fed.elapsed() >= every) {
                tell(NotifyState::Watchdog);
                fed = Instant::now();
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
        eprintln!(
            "fingerpost: {}, queue {}: {}, MTU {}{fallback}",
            port.name, port.worker, port.mode, port.mtu
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
        eprintln!("fingerpost: a thread died; this is a bug, please report it");
    }
    if !balanced {
        eprintln!("fingerpost: the counters do not add up; this is a bug, please report it");
    }
    Ok(if well && balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
