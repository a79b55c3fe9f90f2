//! `fingerpost run -c FILE`: the router that follows the kernel, until it is told to stop.
//!
//! ```text
//!   configuration ─► Daemon::start ─► READY=1 ─► Ctrl-C, SIGTERM ─► stop ─► counters
//!                                        └─ WATCHDOG=1 while all threads are at work
//! ```
//!
//! Under systemd (`Type=notify`) the unit is ready when the first full table is published
//! and packets are taken, and not before. The watchdog is fed by a thread that sees that
//! the workers and the control thread are alive. Whichever way the process ends, the
//! kernel has the interfaces again with its descriptors, and goes on forwarding by its
//! own routes.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use router::Daemon;
use router::config::Config;
use router::control::answer;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::{progress, show};

/// How soon a signal is noticed.
const NOTICE: Duration = Duration::from_millis(20);

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
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("listening for signals")?;
    }
    let start = Instant::now();
    let mut daemon = progress::during("following the kernel", || Daemon::start(&config))?;
    announce(&daemon, start.elapsed(), &config)?;
    // Without systemd there is nobody to tell, which is no error.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let mut well = attend(&daemon, &stop);
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    well &= daemon.stop();
    let stats = daemon.stats();
    let counters = answer::counters(&stats);
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &counters)?;
        writeln!(out)?;
    } else {
        show::counters(&mut out, &counters)?;
    }
    if !well {
        eprintln!("fingerpost: a thread died; this is a bug, please report it");
    }
    if !stats.balanced() {
        eprintln!("fingerpost: the counters do not add up; this is a bug, please report it");
    }
    Ok(if well && stats.balanced() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Says what was taken over.
fn announce(daemon: &Daemon, took: Duration, config: &Config) -> anyhow::Result<()> {
    for port in daemon.ports() {
        let fallback = port.fallback.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        eprintln!(
            "fingerpost: {}, queue {}: {}, MTU {}{fallback}",
            port.name, port.worker, port.mode, port.mtu
        );
    }
    let tables = daemon.asker().ask(|it| {
        let one = |table: &router::control::plane::PlaneTable| {
            let (v4, v6) = (&table.v4, &table.v6);
            format!(
                "table {}: {} IPv4 routes ({}, {} bytes), {} IPv6 routes ({}, {} bytes)",
                table.number,
                v4.rib().len(),
                v4.fib().name(),
                v4.fib().footprint(),
                v6.rib().len(),
                v6.fib().name(),
                v6.fib().footprint()
            )
        };
        it.plane.tables().iter().map(one).collect::<Vec<_>>()
    });
    for table in tables.context("the control thread does not answer")? {
        eprintln!("fingerpost: {table}");
    }
    let socket = config.control.as_ref().map(|path| format!(", asked at {}", path.display()));
    eprintln!(
        "fingerpost: following the kernel after {:.2} s{}; Ctrl-C stops",
        took.as_secs_f64(),
        socket.unwrap_or_default()
    );
    Ok(())
}

/// Waits for a signal, and feeds the watchdog. Says whether all threads were at work to
/// the end.
fn attend(daemon: &Daemon, stop: &AtomicBool) -> bool {
    let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
    let mut fed = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if !daemon.alive() {
            return false;
        }
        std::thread::sleep(NOTICE);
        if watchdog.is_some_and(|every| fed.elapsed() >= every) {
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
            fed = Instant::now();
        }
    }
    true
}
