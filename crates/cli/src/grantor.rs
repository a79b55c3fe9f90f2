//! `fingerpost grantor -c FILE`: a grantor in the protected network, until it is told to stop.
//!
//! ```text
//!   configuration ─► Grantor::start ─► READY=1 ─► Ctrl-C, SIGTERM ─► stop ─► counters
//!                                         └─ SIGHUP: the policy and the lists are read again
//! ```
//!
//! `fingerpost grantor check -c FILE` judges the file, its lists and its policy, and takes
//! nothing over. A reload that fails says why and leaves everything as it was.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use fib::Publisher;
use router::control::{answer, rights};
use router::grantor::{Config, Grantor};
use sd_notify::NotifyState;

use crate::{progress, show, stop};

/// How soon a signal is noticed.
const NOTICE: Duration = Duration::from_millis(20);

/// What `grantor` takes.
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
    /// Read a configuration with its policy, say whether it is sound, and stop
    Check {
        /// The configuration
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Write a policy that comes with this to standard output, or their names
    Policy {
        /// Its name
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

/// Grants until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match (&args.what, &args.config) {
        (Some(What::Check { config }), _) => check(config),
        (Some(What::Policy { name }), _) => policy(name.as_deref()),
        (None, Some(config)) => grant(config, args.json),
        (None, None) => anyhow::bail!("no configuration: fingerpost grantor -c FILE"),
    }
}

fn policy(name: Option<&str>) -> anyhow::Result<ExitCode> {
    use gate::grantor::shipped::POLICIES;
    let mut out = std::io::stdout().lock();
    match name {
        None => {
            for policy in POLICIES {
                writeln!(out, "{:<12}lists: {}", policy.name, policy.lists.join(", "))?;
            }
        }
        Some(name) => {
            let found = POLICIES.iter().find(|policy| policy.name == name);
            let found = found.with_context(|| {
                format!("no policy {name}; `fingerpost grantor policy` has their names")
            })?;
            out.write_all(found.text.as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn check(path: &Path) -> anyhow::Result<ExitCode> {
    let config = Config::load(path)?;
    let lists = Publisher::new(config.lists.clone());
    gate::grantor::Grantor::new(&config.policy, lists.reader(), config.limits)
        .with_context(|| format!("{}: the policy", path.display()))?;
    writeln!(
        std::io::stdout(),
        "sound: {} interfaces, {} tunnel ends, {} gates, {} lists",
        config.interfaces.len(),
        config.ends.len(),
        config.gates.len(),
        config.lists.len(),
    )?;
    Ok(ExitCode::SUCCESS)
}

fn grant(path: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let config = Config::load(path)?;
    // While there is one thread.
    rights::restrict().context("giving up rights")?;
    let stop = stop::on(&[stop::SIGINT, stop::SIGTERM])?;
    let reload = stop::reload_on_signal()?;
    let mut grantor = progress::during("following the kernel", || Grantor::start(&config))?;
    for port in grantor.ports() {
        eprintln!("fingerpost: {}, queue {}: {}", port.name, port.worker, port.mode);
    }
    eprintln!("fingerpost: granting; Ctrl-C stops");
    // Without systemd there is nobody to tell, which is no error.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let mut well = true;
    while well && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(NOTICE);
        grantor.attend();
        well = grantor.alive();
        if reload.swap(false, Ordering::Relaxed) {
            let read = Config::load(path).map_err(|error| error.to_string());
            match read.and_then(|config| grantor.reload(&config)) {
                Ok(told) => eprintln!("fingerpost: reloaded: {told}"),
                Err(error) => eprintln!("fingerpost: not reloaded: {error}"),
            }
        }
    }
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
    well &= grantor.stop();
    let stats = grantor.stats();
    let counters = answer::counters(&stats);
    let mut out = std::io::stdout().lock();
    if json {
        let report = serde_json::json!({ "counters": counters, "grantor": grantor.told() });
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
