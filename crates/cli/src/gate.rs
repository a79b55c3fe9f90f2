//! `fingerpost gate -c FILE`: a gate at a vantage point, until it is told to stop.
//!
//! A [service] that SIGHUP has go over to the policy and the senders as they
//! are now. `fingerpost gate check -c FILE` judges the file and takes nothing over, `fingerpost gate
//! bgp-config` writes what a BGP speaker beside the gate is to announce (`gate/bgp.rs`). A
//! reload that fails says why and leaves everything as it was. Whichever way the process
//! ends, the kernel has the interfaces again; whether it then lets packets past is the
//! kernel's configuration (`net.ipv4.ip_forward`, docs/guide/gate.md).

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use router::control::api::Counters;
use router::vantage::{Config, Vantage};
use serde_json::json;

use crate::service::{self, Service};
use crate::{bundle, progress};

mod bgp;

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
        /// Judge it with this bundle, and not with the one in force
        #[arg(long, value_name = "FILE")]
        bundle: Option<PathBuf>,
    },
    /// Write the configuration of a BGP speaker that announces what the gate protects
    BgpConfig(bgp::Args),
}

/// Guards until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match (&args.what, &args.config) {
        (Some(What::Check { config, bundle }), _) => check(config, bundle.as_deref()),
        (Some(What::BgpConfig(args)), _) => {
            std::io::stdout().write_all(bgp::text(args)?.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        (None, Some(config)) => guard(config, args.json),
        (None, None) => anyhow::bail!("no configuration: fingerpost gate -c FILE"),
    }
}

fn check(path: &Path, bundle: Option<&Path>) -> anyhow::Result<ExitCode> {
    let config = match bundle {
        None => Config::load(path)?,
        Some(file) => {
            let local = Config::local(path)?;
            let bundle = bundle::of_member(file, path, local.fixed.distribution.as_ref())?;
            Config::load_over(path, Some(&bundle))?
        }
    };
    let (fixed, rules, trust) = (&config.fixed, &config.rules, &config.trust);
    writeln!(
        std::io::stdout(),
        "sound: front {}, back {}, {} prefixes, {} grantor sets, {} senders, version 1 {}{}",
        fixed.front.name,
        fixed.back.name,
        rules.rules.len(),
        rules.sets.len(),
        trust.senders.len(),
        if trust.v1_from.is_empty() { "off" } else { "on" },
        bundle::over(config.bundle.as_deref())
    )?;
    Ok(ExitCode::SUCCESS)
}

fn guard(path: &Path, json: bool) -> anyhow::Result<ExitCode> {
    let config = Config::local(path)?;
    let signals = service::prepare()?;
    let start = Instant::now();
    let mut vantage = progress::during("following the kernel", || Vantage::start(&config))?;
    service::announce(&vantage.ports());
    match vantage.restored() {
        Some(Ok(count)) => eprintln!("fingerpost: {count} flows known from before"),
        Some(Err(error)) => eprintln!("fingerpost: no flows known from before: {error}"),
        None => {}
    }
    let took = start.elapsed().as_secs_f64();
    eprintln!("fingerpost: guarding after {took:.2} s; Ctrl-C stops");
    let well = signals.serve(&mut vantage);
    match vantage.keep() {
        Some(Ok(count)) => eprintln!("fingerpost: {count} flows kept"),
        Some(Err(error)) => eprintln!("fingerpost: no flows kept: {error}"),
        None => {}
    }
    let told = |counters: &Counters| json!({ "counters": counters, "gate": vantage.told() });
    service::report(&vantage.stats(), well, json.then_some(told))
}

impl Service for Vantage {
    fn alive(&self) -> bool {
        Vantage::alive(self)
    }

    fn attend(&mut self) {
        for told in Vantage::attend(self) {
            eprintln!("fingerpost: {told}");
        }
    }

    fn reload(&mut self) -> Result<String, String> {
        Vantage::reload(self).map_err(|error| error.to_string())
    }

    fn stop(&mut self) -> bool {
        Vantage::stop(self)
    }
}
