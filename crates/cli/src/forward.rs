//! `fingerpost forward -c FILE`: runs the router with routes from files until a signal.
//!
//! ```text
//!   configuration ─► Router::start ─► "forwarding" ─► Ctrl-C, SIGTERM ─► stop ─► report
//! ```
//!
//! Standard error receives the ports with their modes and, on a terminal, a line with live rates. The
//! result is the report at the end: all counters by reason, as text or with `-j` as JSON. However the
//! process ends, the kernel detaches the XDP programs with its descriptors; no handler has to clean
//! up.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use config::Config;
use control::routes::Routes;
use output::progress;
use router::{Router, Running};

use crate::service::{DaemonArgs, default_path};
use crate::stop;

mod report;

use report::ForwardReport;

/// Interval of updates on the terminal.
const TICK: Duration = Duration::from_secs(1);
/// Interval of checks for a signal.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(20);

/// The default configuration file.
const CONFIG: &str = "/etc/fingerpost/forward.toml";

/// The arguments of `forward`.
#[derive(clap::Args)]
#[command(mut_arg("config", default_path(CONFIG)))]
pub(crate) struct Args {
    #[command(flatten)]
    daemon: DaemonArgs,
    /// Check the configuration and the routes, and exit
    #[arg(long)]
    check: bool,
}

/// Forwards until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config::load(&args.daemon.config)?;
    if args.check {
        return check(&config);
    }
    let stop = stop::flag_on_signals(&[stop::SIGINT, stop::SIGTERM, stop::SIGHUP])?;
    let mut running = progress::during("loading the routes", || Router::start(config))?;
    print_start(&running);
    let start = Instant::now();
    let mut healthy = wait_for_stop(&running, &stop);
    healthy &= running.stop();
    let report = ForwardReport::new(&running, start.elapsed())?;
    let mut out = std::io::stdout().lock();
    if args.daemon.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        report.write(&mut out)?;
    }
    if !healthy {
        eprintln!("fingerpost: a worker died; this is a bug, please report it");
    }
    if !report.balanced {
        eprintln!("fingerpost: the counters do not add up; this is a bug, please report it");
    }
    Ok(if healthy && report.balanced { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Checks the configuration and the routes without touching the system.
fn check(config: &Config) -> anyhow::Result<ExitCode> {
    let routes = progress::during("loading the routes", || Routes::load(config, 1))?;
    warn(&routes);
    let (v4, v6) = (routes.v4.rib().len(), routes.v6.rib().len());
    writeln!(
        std::io::stdout(),
        "valid: {v4} IPv4 and {v6} IPv6 routes, {} next hops",
        hops(&routes)
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the ports and the size of the tables.
fn print_start(running: &Running) {
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

/// Waits for a signal, and prints live rates on a terminal. Returns whether all workers were alive
/// until then.
fn wait_for_stop(running: &Running, stop: &AtomicBool) -> bool {
    let terminal = std::io::stderr().is_terminal();
    let mut before = running.stats();
    let mut printed = Instant::now();
    let healthy = loop {
        if stop.load(Ordering::Relaxed) {
            break true;
        }
        if !running.alive() {
            break false;
        }
        std::thread::sleep(SIGNAL_INTERVAL);
        if terminal && printed.elapsed() >= TICK {
            let now = running.stats();
            let rate = |count: u64| count as f64 / printed.elapsed().as_secs_f64();
            let since = now - before;
            progress::show(&format!(
                "\r{:.0} packets/s in, {:.0} out, {:.0} punted, {:.0} dropped; {} in total\x1b[K",
                rate(since.received),
                rate(since.sent()),
                rate(since.punted()),
                rate(since.dropped()),
                now.received
            ));
            (before, printed) = (now, Instant::now());
        }
    };
    if terminal {
        progress::show("\r\x1b[K");
    }
    healthy
}
