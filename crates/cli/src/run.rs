//! `fingerpost run [-c FILE]`: runs the router with the kernel's routes until a signal.
//!
//! A [service] that is ready once the first full table is published and the XDP programs are
//! attached. It reloads its configuration on SIGHUP. However the process ends, the interfaces return
//! to the kernel with its descriptors, and the kernel continues to forward by its own routes.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use api::Counters;
use config::Config;
use control::progress::Progress;
use control::service::Service;
use control::{Daemon, ImageStart};
use output::progress;
use router::preflight;
use serde_json::json;

use crate::check;
use crate::service::{self, DaemonArgs, Signals, default_path};

/// The default configuration file.
const CONFIG: &str = "/etc/fingerpost/run.toml";

/// The arguments of `run`.
#[derive(clap::Args)]
#[command(mut_arg("config", default_path(CONFIG)))]
pub(crate) struct Args {
    #[command(flatten)]
    daemon: DaemonArgs,
    /// Check the configuration against this machine, and exit
    #[arg(long)]
    check: bool,
    /// Check only the file, not this machine's interfaces, queues, cores and folders
    #[arg(long, requires = "check")]
    offline: bool,
    /// Wait without limit for interfaces that do not exist yet, as at boot
    #[arg(long)]
    wait_for_interfaces: bool,
}

/// Forwards until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.daemon.config)?;
    let names: Vec<_> = config.interfaces.iter().map(|link| link.name.as_str()).collect();
    if args.check {
        let findings = preflight::check(&config, args.offline);
        return check::report(&format!("ports {}", names.join(", ")), &findings, args.daemon.json);
    }
    let awaited = args.wait_for_interfaces.then_some(&names[..]);
    let Some(signals) = service::prepare(config.daemon.log, awaited, config.may_load_programs())?
    else {
        return Ok(ExitCode::SUCCESS);
    };
    let start = Instant::now();
    let predecessor = service::predecessor("router")?;
    let daemon = progress::during("reading the kernel's routes", || {
        router::start_after(predecessor, config)
    })?;
    log_start(&daemon, start.elapsed())?;
    serve(&signals, daemon, args.daemon.json)
}

/// Serves a started router until a signal, and writes the final report.
pub(crate) fn serve(signals: &Signals, daemon: Daemon, json: bool) -> anyhow::Result<ExitCode> {
    let mut service = RouterService { daemon, reported_error: None };
    let healthy = signals.serve(&mut service);
    match service.daemon.last_save() {
        Some(Ok(saved)) => log::info!("image saved: {saved}"),
        Some(Err(error)) => log::warn!("no image saved: {error}"),
        None => {}
    }
    let document = json.then_some(|counters: &Counters| json!(counters));
    service::report(&service.daemon.stats(), healthy, document)
}

/// Logs the new warnings of a router's files of routes.
pub(crate) fn log_warnings(daemon: &mut Daemon) {
    for warning in daemon.take_warnings() {
        log::warn!("{warning}");
    }
}

/// Logs the ports and the tables.
fn log_start(daemon: &Daemon, took: Duration) -> anyhow::Result<()> {
    let ms = |took: &Duration| took.as_secs_f64() * 1e3;
    match daemon.image_start() {
        ImageStart::NotConfigured => {}
        ImageStart::Missing => log::info!("no image file yet; started without one"),
        ImageStart::Refused(reason) => log::warn!("started without the image: {reason}"),
        ImageStart::Used { ready, forwarding } => log::info!(
            "tables of the image ready after {:.1} ms, forwarding by them after {:.1} ms",
            ms(ready),
            ms(forwarding)
        ),
    }
    service::log_ports(&daemon.ports());
    let tables = daemon.control_handle().call(|kernel_sync| {
        let text = |table: control::plane::PlaneTable<'_>| {
            let (v4, v6) = (table.v4, table.v6);
            format!(
                "table {}: {} IPv4 routes ({}, {} bytes), {} IPv6 routes ({}, {} bytes)",
                table.number,
                v4.rib().len(),
                v4.engine(),
                v4.footprint(),
                v6.rib().len(),
                v6.engine(),
                v6.footprint()
            )
        };
        kernel_sync.plane.tables().map(text).collect::<Vec<_>>()
    });
    for table in tables.context("the control thread does not answer")? {
        log::info!("{table}");
    }
    let socket = daemon
        .config()
        .daemon
        .control
        .as_ref()
        .map(|path| format!(", control socket {}", path.display()));
    log::info!(
        "following the kernel after {:.2} s{}; Ctrl-C stops",
        took.as_secs_f64(),
        socket.unwrap_or_default()
    );
    Ok(())
}

/// A running router, of `run` or `forward`.
struct RouterService {
    daemon: Daemon,
    /// The last logged error of saving the image.
    reported_error: Option<String>,
}

impl Service for RouterService {
    fn is_alive(&self) -> bool {
        self.daemon.alive()
    }

    fn progress(&self) -> Progress {
        self.daemon.progress()
    }

    fn log_events(&mut self) {
        match self.daemon.poll() {
            Some(Ok(change)) => log::info!("routing rules have changed: {change}"),
            Some(Err(error)) => log::warn!("routing rules have changed: {error}"),
            None => {}
        }
        log_warnings(&mut self.daemon);
        for line in self.daemon.drain_notices() {
            log::info!("{line}");
        }
        let error = self.daemon.last_save().and_then(|saved| saved.as_ref().err());
        let error = error.map(ToString::to_string);
        if error != self.reported_error {
            error.iter().for_each(|error| log::warn!("no image saved: {error}"));
            self.reported_error = error;
        }
    }

    fn problems(&self) -> Vec<String> {
        self.daemon.problems()
    }

    fn successor(&self) -> Option<u32> {
        self.daemon.successor()
    }

    fn has_clients(&self) -> bool {
        self.daemon.has_clients()
    }

    fn reload(&mut self) -> Result<String, String> {
        let changes = self.daemon.reload().map_err(|error| error.to_string())?;
        Ok(changes.to_string())
    }

    fn stop(&mut self) -> bool {
        self.daemon.stop()
    }
}
