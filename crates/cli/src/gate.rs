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
use router::control::progress::Progress;
use router::preflight;
use router::vantage::{Config, Vantage};
use serde_json::json;

use crate::service::{self, Service};
use crate::{bundle, check, progress};

mod bgp;

/// The configuration that is read unless another is named.
pub(crate) const CONFIG: &str = "/etc/fingerpost/gate.toml";

/// What `gate` takes.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    /// The configuration
    #[arg(short, long, value_name = "FILE", default_value = CONFIG)]
    config: PathBuf,
    /// Wait for interfaces that do not exist yet, as at boot, for as long as it takes
    #[arg(long)]
    wait_for_interfaces: bool,
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
        #[arg(short, long, value_name = "FILE", default_value = CONFIG)]
        config: PathBuf,
        #[command(flatten)]
        options: check::Options,
    },
    /// Write the configuration of a BGP speaker that announces what the gate protects
    BgpConfig(bgp::Args),
}

/// Guards until a signal.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.what {
        Some(What::Check { config, options }) => judge(config, options),
        Some(What::BgpConfig(args)) => {
            std::io::stdout().write_all(bgp::text(args)?.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        None => guard(args),
    }
}

fn judge(path: &Path, options: &check::Options) -> anyhow::Result<ExitCode> {
    let config = match &options.bundle {
        None => Config::load(path)?,
        Some(file) => {
            let local = Config::local(path)?;
            let bundle = bundle::of_member(file, path, local.fixed.distribution.as_ref())?;
            Config::load_over(path, Some(&bundle))?
        }
    };
    let (fixed, rules, trust) = (&config.fixed, &config.rules, &config.trust);
    let sound = format!(
        "front {}, back {}, {} prefixes, {} grantor sets, {} senders, version 1 {}{}",
        fixed.front.name,
        fixed.back.name,
        rules.rules.len(),
        rules.sets.len(),
        trust.senders.len(),
        if trust.v1_sources.is_empty() { "off" } else { "on" },
        bundle::over(config.bundle.as_deref())
    );
    check::report(&sound, &preflight::gate(&config, options.offline), options.json)
}

fn guard(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config::local(&args.config)?;
    let signals = service::prepare(config.fixed.log)?;
    let names = [config.fixed.front.name.as_str(), config.fixed.back.name.as_str()];
    if args.wait_for_interfaces && !signals.wait_for_interfaces(&names) {
        return Ok(ExitCode::SUCCESS);
    }
    let start = Instant::now();
    let mut vantage = progress::during("following the kernel", || Vantage::start(&config))?;
    service::announce(&vantage.ports());
    match vantage.restored() {
        Some(Ok(count)) => log::info!("{count} flows restored"),
        Some(Err(error)) => log::warn!("no flows restored: {error}"),
        None => {}
    }
    let took = start.elapsed().as_secs_f64();
    log::info!("guarding after {took:.2} s; Ctrl-C stops");
    let well = signals.serve(&mut vantage);
    match vantage.keep() {
        Some(Ok(count)) => log::info!("{count} flows saved"),
        Some(Err(error)) => log::warn!("no flows saved: {error}"),
        None => {}
    }
    let state = |counters: &Counters| json!({ "counters": counters, "gate": vantage.told() });
    service::report(&vantage.stats(), well, args.json.then_some(state))
}

impl Service for Vantage {
    fn alive(&self) -> bool {
        Vantage::alive(self)
    }

    fn progress(&self) -> Progress {
        Vantage::progress(self)
    }

    fn attend(&mut self) {
        for line in Vantage::attend(self) {
            log::info!("{line}");
        }
    }

    fn problems(&self) -> Vec<String> {
        Vantage::problems(self)
    }

    fn reload(&mut self) -> Result<String, String> {
        Vantage::reload(self).map_err(|error| error.to_string())
    }

    fn stop(&mut self) -> bool {
        Vantage::stop(self)
    }
}
