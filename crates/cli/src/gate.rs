//! `fingerpost gate -c FILE`: a gate at a vantage point, until it is told to stop.
//!
//! ```text
//!   configuration ─► Vantage::start ─► READY=1 ─► Ctrl-C, SIGTERM ─► stop ─► counters
//!                                         └─ SIGHUP: policy and senders are read again
//! ```
//!
//! `fingerpost gate check -c FILE` judges the file and takes nothing over, `fingerpost gate
//! bgp-config` writes what a BGP speaker beside the gate is to announce (`gate/bgp.rs`). A
//! reload that fails says why and leaves everything as it was. Whichever way the process
//! ends, the kernel has the interfaces again; whether it then lets packets past is the
//! kernel's configuration (`net.ipv4.ip_forward`, docs/guide/gate.md).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use router::control::{answer, rights};
use router::vantage::{Config, Vantage};
use sd_notify::NotifyState;

use crate::{progress, show, stop};

mod bgp;

/// How soon a signal is noticed.
const NOTICE: Duration = Duration::from_millis(20);

/// What `gate` takes.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    /// The configuration
    #[arg(short, long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    /// Write the counters at the end as JSON
    #[arg(short, long)]
    json: bool,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Read a configuration, say whether it is sound, and stop
    Check {
        /// The configuration
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Write the configuration of a BGP speaker that announces what the gate protects
    BgpConfig(bgp::Args),
}

/// Guards until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match (&args.what, &args.config) {
        (Some(What::Check { config }), _) => check(config),
        (Some(What::BgpConfig(args)), _) => {
            std::io::stdout().write_all(bgp::text(args)?.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        (None, Some(config)) => guard(config, args.json),
        (None, None) => anyhow::bail!("no configuration: fingerpost gate -c FILE"),
    }
}

fn check(path: &Path) -> anyhow::Result<ExitCode> {
    let config = Config::load(path)?;
    let (fixed, rules, trust) = (&config.fixed, &config.rules, &config.trust);
    writeln!(
        std::io::stdout(),
        "sound: front {}, back {}, {} prefixes, {} grantor sets, {} senders, version 1 {}",
        fixed.front.name,
        fixed.back.name,
        rules.rules.len(),
        rules.sets.len(),
        trust.senders.len(),
        if trust.v1_from.is_empty() { "off" } else { "on" }
    )?;
    Ok(ExitCode::SUCCESS)
}

fn guard(path: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let config = Config::load(path)?;
    // While there is one thread.
    rights::restrict().context("giving up rights")?;
    let stop = stop::on(&[stop::SIGINT, stop::SIGTERM])?;
    let reload = stop::reload_on_signal()?;
    let start = Instant::now();
    let mut vantage = progress::during("following the kernel", || Vantage::start(&config))?;
    for port in vantage.ports() {
        let fallback = port.fallback.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        eprintln!(
            "fingerpost: {}, queue {}: {}, MTU {}{fallback}",
            port.name, port.worker, port.mode, port.mtu
        );
    }
    match vantage.restored() {
        Some(Ok(count)) => eprintln!("fingerpost: {count} flows known from before"),
        Some(Err(error)) => eprintln!("fingerpost: no flows known from before: {error}"),
        None => {}
    }
    let took = start.elapsed().as_secs_f64();
    eprintln!("fingerpost: guarding after {took:.2} s; Ctrl-C stops");
    // Without systemd there is nobody to tell, which is no error.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let watchdog = sd_notify::watchdog_enabled().map(|limit| limit / 2);
    let mut fed = Instant::now();
    let mut well = true;
    while well && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(NOTICE);
        vantage.attend();
        well = vantage.alive();
        if reload.swap(false, Ordering::Relaxed) {
            let _ = sd_notify::notify(&[NotifyState::Reloading]);
            match vantage.reload() {
                Ok(told) => eprintln!("fingerpost: reloaded: {told}"),
                Err(error) => eprintln!("fingerpost: not reloaded: {error}"),
            }
            let _ = sd_notify::notify(&[NotifyState::Ready]);
        }
        if watchdog.is_some_and(|every| fed.elapsed() >= every) {
            let _ = sd_notify::notify(&[NotifyState::Watchdog]);
            fed = Instant::now();
        }
    }
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    well &= vantage.stop();
    match vantage.keep() {
        Some(Ok(count)) => eprintln!("fingerpost: {count} flows kept"),
        Some(Err(error)) => eprintln!("fingerpost: no flows kept: {error}"),
        None => {}
    }
    let stats = vantage.stats();
    let counters = answer::counters(&stats);
    let mut out = std::io::stdout().lock();
    if json {
        let report = serde_json::json!({ "counters": counters, "gate": vantage.told() });
        serde_json::to_writer_pretty(&mut out, &report)?;
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
