//! `fingerpost run -c FILE`: the router that follows the kernel, until it is told to stop.
//!
//! ```text
//!   configuration ─► Daemon::start ─► READY=1 ─► Ctrl-C, SIGTERM ─► stop ─► counters
//!                                        ├─ WATCHDOG=1 while all threads are at work
//!                                        └─ SIGHUP: the configuration is read again
//! ```
//!
//! Under systemd (`Type=notify`) the unit is ready when the first full table is published
//! and packets are taken, and not before. The watchdog is fed while the workers and
//! the control thread are alive. Whichever way the process ends, the
//! kernel has the interfaces again with its descriptors, and goes on forwarding by its
//! own routes.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use router::config::Config;
use router::control::{answer, rights};
use router::{Daemon, ImageStart};
use sd_notify::NotifyState;

use crate::{progress, show, stop};

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
    // While there is one thread.
    rights::restrict().context("giving up rights")?;
    let stop = stop::on(&[stop::SIGINT, stop::SIGTERM])?;
    let reload = stop::reload_on_signal()?;
    let start = Instant::now();
    let mut daemon = progress::during("following the kernel", || Daemon::start(config))?;
    announce(&daemon, start.elapsed())?;
    // Without systemd there is nobody to tell, which is no error.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let mut well = attend(&mut daemon, &stop, &reload);
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    well &= daemon.stop();
    match daemon.last_save() {
        Some(Ok(saved)) => eprintln!("fingerpost: image saved: {saved}"),
        Some(Err(error)) => eprintln!("fingerpost: no image saved: {error}"),
        None => {}
    }
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
    for port in daemon.ports() {
        let fallback = port.fallback.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        eprintln!(
            "fingerpost: {}, queue {}: {}, MTU {}{fallback}",
            port.name, port.worker, port.mode, port.mtu
        );
    }
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

/// Waits for a signal, does what is asked for in the meantime, and feeds the watchdog.
/// Says whether all threads were at work to the end.
fn attend(daemon: &mut Daemon, stop: &AtomicBool, reload: &AtomicBool) -> bool {
    let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
    let mut fed = Instant::now();
    // The trouble with the image that was told.
    let mut said = None;
    while !stop.load(Ordering::Relaxed) {
        if !daemon.alive() {
            return false;
        }
        std::thread::sleep(NOTICE);
        match daemon.attend() {
            Some(Ok(told)) => eprintln!("fingerpost: the rules have changed: {told}"),
            Some(Err(error)) => eprintln!("fingerpost: the rules have changed: {error}"),
            None => {}
        }
        let trouble = daemon.last_save().and_then(|saved| saved.as_ref().err());
        let trouble = trouble.map(ToString::to_string);
        if trouble != said {
            trouble.iter().for_each(|error| eprintln!("fingerpost: no image saved: {error}"));
            said = trouble;
        }
        if reload.swap(false, Ordering::Relaxed) {
            again(daemon);
        }
        if watchdog.is_some_and(|every| fed.elapsed() >= every) {
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
            fed = Instant::now();
        }
    }
    true
}

/// Reads the configuration again, and says what came of it.
fn again(daemon: &mut Daemon) {
    let _ = sd_notify::notify(&[NotifyState::Reloading]);
    match daemon.reload() {
        Ok(told) => eprintln!("fingerpost: reloaded: {told}"),
        Err(error) => eprintln!("fingerpost: not reloaded: {error}"),
    }
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}
