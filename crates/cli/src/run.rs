//! `fingerpost run -c FILE`: the router that follows the kernel, until it is told to stop.
//!
//! A [service] that is ready when the first full table is published and
//! packets are taken. SIGHUP has it go over to its configuration as it is now. Whichever way
//! the process ends, the kernel has the interfaces again with its descriptors, and goes on
//! forwarding by its own routes.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use router::config::Config;
use router::control::api::Counters;
use router::{Daemon, ImageStart};
use serde_json::json;

use crate::progress;
use crate::service::{self, Service};

/// What `run` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The configuration
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Read the configuration, say whether it is sound, and stop
    #[arg(long)]
    check: bool,
    /// Write the counters at the end as JSON
    #[arg(short, long)]
    json: bool,
}

/// Forwards until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.config)?;
    if args.check {
        let names: Vec<_> = config.interfaces.iter().map(|it| it.name.as_str()).collect();
        writeln!(std::io::stdout(), "sound: ports {}", names.join(", "))?;
        return Ok(ExitCode::SUCCESS);
    }
    let signals = service::prepare()?;
    let start = Instant::now();
    let daemon = progress::during("following the kernel", || Daemon::start(config))?;
    announce(&daemon, start.elapsed())?;
    let mut routing = Routing { daemon, said: None };
    let well = signals.serve(&mut routing);
    match routing.daemon.last_save() {
        Some(Ok(saved)) => eprintln!("fingerpost: image saved: {saved}"),
        Some(Err(error)) => eprintln!("fingerpost: no image saved: {error}"),
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
        ImageStart::Missing => eprintln!("fingerpost: no image yet; started without one"),
        ImageStart::Refused(why) => eprintln!("fingerpost: started without the image: {why}"),
        ImageStart::Used { ready, forwarding } => eprintln!(
            "fingerpost: tables of the image ready after {:.1} ms, forwarding by them after {:.1} ms",
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
        eprintln!("fingerpost: {table}");
    }
    let socket =
        daemon.config().control.as_ref().map(|path| format!(", asked at {}", path.display()));
    eprintln!(
        "fingerpost: following the kernel after {:.2} s{}; Ctrl-C stops",
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

    fn attend(&mut self) {
        match self.daemon.attend() {
            Some(Ok(told)) => eprintln!("fingerpost: the rules have changed: {told}"),
            Some(Err(error)) => eprintln!("fingerpost: the rules have changed: {error}"),
            None => {}
        }
        for told in self.daemon.news() {
            eprintln!("fingerpost: {told}");
        }
        let trouble = self.daemon.last_save().and_then(|saved| saved.as_ref().err());
        let trouble = trouble.map(ToString::to_string);
        if trouble != self.said {
            trouble.iter().for_each(|error| eprintln!("fingerpost: no image saved: {error}"));
            self.said = trouble;
        }
    }

    fn reload(&mut self) -> Result<String, String> {
        let told = self.daemon.reload().map_err(|error| error.to_string())?;
        Ok(told.to_string())
    }

    fn stop(&mut self) -> bool {
        self.daemon.stop()
    }
}
