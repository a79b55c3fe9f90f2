//! `fingerpost forward -c FILE`: the router, until it is told to stop.
//!
//! ```text
//!   configuration ─► Router::start ─► "forwarding" ─► Ctrl-C, SIGTERM ─► stop ─► report
//! ```
//!
//! What is said while it runs goes to standard error: what was taken over and in
//! which mode, and on a terminal a line that counts along. The report at the end is
//! the result: every counter there is, by reason, for a person or with `-j` as
//! JSON. Whichever way the process ends, the kernel gives the interfaces back with
//! its descriptors; there is nothing that a handler would have to clean up.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use router::config::Config;
use router::control::routes::Routes;
use router::{Router, Running};

use crate::{progress, stop};

mod report;

use report::Report;

/// How often the counters on the terminal are renewed.
const TICK: Duration = Duration::from_secs(1);
/// How soon a signal is noticed.
const NOTICE: Duration = Duration::from_millis(20);

/// The configuration that is read unless another is named.
const CONFIG: &str = "/etc/fingerpost/forward.toml";

/// What `forward` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The configuration
    #[arg(short, long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// Read the configuration and the routes, say whether they are sound, and stop
    #[arg(long)]
    check: bool,
    /// Write the report at the end as JSON
    #[arg(short, long)]
    json: bool,
}

/// Forwards until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.config)?;
    if args.check {
        return check(&config);
    }
    let stop = stop::on(&[stop::SIGINT, stop::SIGTERM, stop::SIGHUP])?;
    let mut running = progress::during("loading the routes", || Router::start(config))?;
    announce(&running);
    let start = Instant::now();
    let mut well = attend(&running, &stop);
    well &= running.stop();
    let report = Report::new(&running, start.elapsed())?;
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        report.write(&mut out)?;
    }
    if !well {
        eprintln!("fingerpost: a worker died; this is a bug, please report it");
    }
    if !report.balanced {
        eprintln!("fingerpost: the counters do not add up; this is a bug, please report it");
    }
    Ok(if well && report.balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Everything that can be judged without touching the system.
fn check(config: &Config) -> anyhow::Result<ExitCode> {
    let routes = progress::during("loading the routes", || Routes::load(config, 1))?;
    warn(&routes);
    let (v4, v6) = (routes.v4.rib().len(), routes.v6.rib().len());
    writeln!(
        std::io::stdout(),
        "sound: {v4} IPv4 and {v6} IPv6 routes, {} next hops",
        hops(&routes)
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Says what was taken over.
fn announce(running: &Running) {
    let routes = running.routes();
    warn(routes);
    for (port, _) in running.ports() {
        let fallback = port.fallback.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        eprintln!(
            "fingerpost: {}, queue {}: {}, MTU {}{fallback}",
            port.name, port.queue, port.mode, port.mtu
        );
    }
    let (v4, v6) = (routes.v4.fib(), routes.v6.fib());
    eprintln!(
        "fingerpost: forwarding by {} IPv4 routes ({}, {} bytes) and {} IPv6 routes ({}, {} bytes) \
         to {} next hops; Ctrl-C stops",
        routes.v4.rib().len(),
        v4.name(),
        v4.footprint(),
        routes.v6.rib().len(),
        v6.name(),
        v6.footprint(),
        hops(routes)
    );
}

fn warn(routes: &Routes) {
    for warning in &routes.warnings {
        eprintln!("fingerpost: warning: {warning}");
    }
}

fn hops(routes: &Routes) -> usize {
    routes.hops.iter().filter(|(.., count)| *count > 0).count()
}

/// Waits for a signal, and counts along on a terminal. Says whether all workers
/// were at work to the end.
fn attend(running: &Running, stop: &AtomicBool) -> bool {
    let terminal = std::io::stderr().is_terminal();
    let mut before = running.stats();
    let mut told = Instant::now();
    let well = loop {
        if stop.load(Ordering::Relaxed) {
            break true;
        }
        if !running.alive() {
            break false;
        }
        std::thread::sleep(NOTICE);
        if terminal && told.elapsed() >= TICK {
            let now = running.stats();
            let rate = |count: u64| count as f64 / told.elapsed().as_secs_f64();
            let since = now - before;
            progress::show(&format!(
                "\r{:.0} packets/s in, {:.0} out, {:.0} punted, {:.0} dropped; {} in all\x1b[K",
                rate(since.received),
                rate(since.sent()),
                rate(since.punted()),
                rate(since.dropped()),
                now.received
            ));
            (before, told) = (now, Instant::now());
        }
    };
    if terminal {
        progress::show("\r\x1b[K");
    }
    well
}
