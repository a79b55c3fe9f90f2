//! `fingerpost run [-c FILE]`: the router that follows the kernel, until it is stopped.
//!
//! A [service] that is ready when the first full table is published and
//! packets are taken. SIGHUP has it go over to its configuration as it is now. Whichever way
//! the process ends, the kernel has the interfaces again with its descriptors, and goes on
//! forwarding by its own routes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use router::config::Config;
use router::control::api::Counters;
use router::control::progress::Progress;
use router::{Daemon, ImageStart, preflight};
use serde_json::json;

use crate::service::{self, Service};
use crate::{check, progress};

/// The configuration that is read unless another is named.
const CONFIG: &str = "/etc/fingerpost/run.toml";

/// What `run` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The configuration
    #[arg(short, long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// Check the configuration against this machine, report whether it is sound, and stop
    #[arg(long)]
    check: bool,
    /// With --check: check the file alone, not this machine's interfaces, queues, cores and folders
    #[arg(long, requires = "check")]
    offline: bool,
    /// Wait for interfaces that do not exist yet, as at boot, for as long as it takes
    #[arg(long)]
    wait_for_interfaces: bool,
    /// Write the counters at the end as JSON
    #[arg(short, long)]
    json: bool,
}

/// Forwards until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.config)?;
    if args.check {
        let names: Vec<_> = config.interfaces.iter().map(|it| it.name.as_str()).collect();
        let findings = preflight::router(&config, args.offline);
        return check::report(&format!("ports {}", names.join(", ")), &findings, args.json);
    }
    let signals = service::prepare(config.log)?;
    let names: Vec<_> = config.interfaces.iter().map(|link| link.name.as_str()).collect();
    if args.wait_for_interfaces && !signals.wait_for_interfaces(&names) {
        return Ok(ExitCode::SUCCESS);
    }
    let start = Instant::now();
    let daemon = progress::during("following the kernel", || Daemon::start(config))?;
    announce(&daemon, start.elapsed())?;
    let mut routing = Routing { daemon, said: None };
    let well = signals.serve(&mut routing);
    match routing.daemon.last_save() {
        Some(Ok(saved)) => log::info!("image saved: {saved}"),
        Some(Err(error)) => log::warn!("no image saved: {error}"),
        None => {}
    }
    service::report(
        &routing.daemon.stats(),
        well,
        args.json.then_some(|counters: &Counters| json!(counters)),
    )
}

/// Says what was taken over.
fn announce(daemon: &Daemon, took: Duration) -> anyhow::Result<()> {
    let ms = |took: &Duration| took.as_secs_f64() * 1e3;
    match daemon.image_start() {
        ImageStart::Unasked => {}
        ImageStart::Missing => log::info!("no image file yet; started without one"),
        ImageStart::Refused(why) => log::warn!("started without the image: {why}"),
        ImageStart::Used { ready, forwarding } => log::info!(
            "tables of the image ready after {:.1} ms, forwarding by them after {:.1} ms",
            ms(ready),
            ms(forwarding)
        ),
    }
    service::announce(&daemon.ports());
    let tables = daemon.asker().ask(|it| {
        let one = |table: router::control::plane::PlaneTable<'_>| {
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
        it.plane.tables().map(one).collect::<Vec<_>>()
    });
    for table in tables.context("the control thread does not answer")? {
        log::info!("{table}");
    }
    let socket =
        daemon.config().control.as_ref().map(|path| format!(", asked at {}", path.display()));
    log::info!(
        "following the kernel after {:.2} s{}; Ctrl-C stops",
        took.as_secs_f64(),
        socket.unwrap_or_default()
    );
    Ok(())
}

/// A router at work.
struct Routing {
    daemon: Daemon,
    /// The trouble with the image that was told.
    said: Option<String>,
}

impl Service for Routing {
    fn alive(&self) -> bool {
        self.daemon.alive()
    }

    fn progress(&self) -> Progress {
        self.daemon.progress()
    }

    fn attend(&mut self) {
        match self.daemon.attend() {
            Some(Ok(change)) => log::info!("routing rules have changed: {change}"),
            Some(Err(error)) => log::warn!("routing rules have changed: {error}"),
            None => {}
        }
        for line in self.daemon.news() {
            log::info!("{line}");
        }
        let trouble = self.daemon.last_save().and_then(|saved| saved.as_ref().err());
        let trouble = trouble.map(ToString::to_string);
        if trouble != self.said {
            trouble.iter().for_each(|error| log::warn!("no image saved: {error}"));
            self.said = trouble;
        }
    }

    fn problems(&self) -> Vec<String> {
        self.daemon.problems()
    }

    fn reload(&mut self) -> Result<String, String> {
        let told = self.daemon.reload().map_err(|error| error.to_string())?;
        Ok(told.to_string())
    }

    fn stop(&mut self) -> bool {
        self.daemon.stop()
    }
}
