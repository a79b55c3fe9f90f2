//! The common part of `run`, `forward`, `gate` and `grantor`: a [`Service`] that runs until a signal.
//!
//! ```text
//!   prepare ─► start ─► log_ports ─► serve: READY=1 ─► Ctrl-C, SIGTERM ─► STOPPING=1 ─► report
//!                                              ├─ WATCHDOG=1 while every thread makes progress
//!                                              ├─ FDSTORE=1: a gate's front interface (`descriptor_store.rs`)
//!                                              ├─ STATUS=not ready: … while an interface is down
//!                                              ├─ SIGHUP: RELOADING=1, reload, READY=1
//!                                              └─ a successor has taken over: MAINPID=, exit
//! ```
//!
//! Under systemd (`Type=notify`) the unit is ready once the service forwards packets. A separate
//! thread sends the watchdog notifications (`watchdog.rs`). Without systemd the service sends no
//! notifications, which is not an error.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use api::Counters;
use config::Level;
use control::service::Service;
use control::{PortInfo, Predecessor};
use control::{items, links};
use datapath::stats::Snapshot;
use sd_notify::NotifyState;
use serde_json::Value;
use threads::rights;

use crate::descriptor_store::DescriptorStore;
use crate::watchdog::Heartbeat;
use crate::{counters, logging, stop, watchdog};

/// Interval of checks for signals and events.
const TICK: Duration = Duration::from_millis(20);

/// Interval of checks for missing interfaces.
const INTERFACE_INTERVAL: Duration = Duration::from_millis(200);

/// The longest time for the last replies of a process that another one succeeds.
const LAST_REPLIES: Duration = Duration::from_secs(2);

/// The arguments that `forward`, `run`, `gate` and `grantor` share. Each of them sets the default of
/// `--config` by [`default_path`].
#[derive(clap::Args)]
pub(crate) struct DaemonArgs {
    /// Configuration file
    #[arg(short, long, value_name = "FILE")]
    pub(crate) config: PathBuf,
    /// Write the final counters as JSON
    #[arg(short, long)]
    pub(crate) json: bool,
}

/// Makes an argument optional, with `path` as its default.
pub(crate) fn default_path(path: &'static str) -> impl FnOnce(clap::Arg) -> clap::Arg {
    move |arg| arg.required(false).default_value(path)
}

/// The flags that signals set.
pub(crate) struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

/// Drops capabilities that are not needed, of which programs that look up in tables (`in_driver`) take more;
/// installs the signal handlers, sets the log level of the configuration, and waits for the `awaited` interfaces. Returns nothing if a signal stops the wait.
/// Must be called while the process has one thread.
pub(crate) fn prepare(
    level: Option<Level>,
    awaited: Option<&[&str]>,
    in_driver: bool,
) -> anyhow::Result<Option<Signals>> {
    logging::configure(level);
    rights::restrict(in_driver).context("dropping capabilities")?;
    let stop = stop::flag_on_signals(&[stop::SIGINT, stop::SIGTERM])?;
    let signals = Signals { stop, reload: stop::flag_on_sighup()? };
    let ready = awaited.is_none_or(|names| signals.wait_for_interfaces(names));
    Ok(ready.then_some(signals))
}

impl Signals {
    /// Waits until all interfaces exist; reports missing ones to the log and to systemd. Returns false
    /// if a signal stops the wait.
    fn wait_for_interfaces(&self, names: &[&str]) -> bool {
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
                notify(NotifyState::Status(&text));
                reported = missing;
            }
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(INTERFACE_INTERVAL);
        }
    }

    /// Runs the service until a signal or the death of a thread, and stops it. Returns whether all
    /// threads were alive until then.
    pub(crate) fn serve(&self, service: &mut impl Service) -> bool {
        let mut store = DescriptorStore::default();
        store.update(service.guarded_interface().as_ref());
        notify(NotifyState::Ready);
        let heartbeat = Heartbeat::new();
        let limit = sd_notify::watchdog_enabled();
        let watchdog = limit
            .map(|limit| watchdog::start(limit, service.progress(), heartbeat.clone()))
            .transpose();
        if let Err(error) = &watchdog {
            log::error!("cannot start the watchdog thread: {error}");
        }
        let mut problems = Vec::new();
        let mut healthy = true;
        while healthy && !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
            heartbeat.beat();
            service.log_events();
            if let Some(successor) = service.successor() {
                leave_to(successor, service);
            }
            store.update(service.guarded_interface().as_ref());
            healthy = service.is_alive();
            let now = service.problems();
            if now != problems {
                let status = match &now[..] {
                    [] => "ready".to_owned(),
                    _ => format!("not ready: {}", now.join("; ")),
                };
                notify(NotifyState::Status(&status));
                problems = now;
            }
            if self.reload.swap(false, Ordering::Relaxed) {
                notify(NotifyState::Reloading);
                match service.reload() {
                    Ok(changes) => log::info!("reloaded: {changes}"),
                    Err(error) => log::error!("not reloaded: {error}"),
                }
                notify(NotifyState::Ready);
            }
        }
        notify(NotifyState::Stopping);
        service.stop() && healthy
    }
}

/// Returns the process that this one takes over from, if any.
pub(crate) fn predecessor(role: &str) -> anyhow::Result<Option<Predecessor>> {
    Predecessor::from_environment(role)
        .map_err(anyhow::Error::msg)
        .context("cannot take over from the running program")
}

/// Ends this process, whose service another one continues. Nothing is dropped: the interfaces and listeners are
/// those of the successor, too.
fn leave_to(successor: u32, service: &impl Service) -> ! {
    notify(NotifyState::MainPid(successor));
    let begin = Instant::now();
    while service.has_clients() && begin.elapsed() < LAST_REPLIES {
        std::thread::sleep(TICK);
    }
    std::process::exit(0)
}

pub(crate) fn notify(state: NotifyState<'_>) {
    let _ = sd_notify::notify(&[state]);
}

/// Logs the ports and their modes.
pub(crate) fn log_ports(ports: &[PortInfo]) {
    for port in ports {
        let fallback =
            port.fallback.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        log::info!(
            "{}, queue {}: {}, MTU {}{fallback}",
            port.name,
            port.queue,
            port.mode,
            port.mtu
        );
    }
}

/// Writes the final counters, as text, or as JSON with `document`. Returns a failure if a thread died
/// or the counters do not add up.
pub(crate) fn report(
    stats: &Snapshot,
    healthy: bool,
    document: Option<impl FnOnce(&Counters) -> Value>,
) -> anyhow::Result<ExitCode> {
    let counters = items::counters(stats);
    let mut out = std::io::stdout().lock();
    match document {
        Some(document) => {
            serde_json::to_writer_pretty(&mut out, &document(&counters))?;
            writeln!(out)?;
        }
        None => counters::write(&mut out, &counters)?,
    }
    let balanced = stats.balanced();
    if !healthy {
        log::error!("a thread died; this is a bug, please report it");
    }
    if !balanced {
        log::error!("the counters do not add up; this is a bug, please report it");
    }
    Ok(if healthy && balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
