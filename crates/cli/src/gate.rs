//! `fingerpost gate -c FILE`: runs a gate at a vantage point until a signal.
//!
//! A [service] that reloads its policy and its senders on SIGHUP. A reload that fails is logged and
//! changes nothing. `fingerpost gate check -c FILE` checks the file and attaches to no interface;
//! `fingerpost gate bgp-config` writes the configuration of a BGP speaker beside the gate
//! (`gate/bgp.rs`). However the process ends, the interfaces return to the kernel, except
//! that a service manager may keep the front closed (`descriptor_store.rs`); whether the kernel
//! then forwards is its own configuration (`net.ipv4.ip_forward`, docs/guide/gate.md).

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use ::bundle::MemberConfig;
use api::Counters;
use gatekeeper::preflight;
use gatekeeper::{Config, GateDaemon};
use output::progress;
use serde_json::json;

use crate::service::{self, DaemonArgs, default_path};
use crate::{bundle, check, descriptor_store};

mod bgp;

/// The default configuration file.
pub(crate) const CONFIG: &str = "/etc/fingerpost/gate.toml";

/// The arguments of `gate`.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, mut_arg("config", default_path(CONFIG)))]
pub(crate) struct Args {
    #[command(flatten)]
    daemon: DaemonArgs,
    /// Wait without limit for interfaces that do not exist yet, as at boot
    #[arg(long)]
    wait_for_interfaces: bool,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Check a configuration, and exit
    #[command(mut_arg("config", default_path(CONFIG)))]
    Check(check::CheckArgs),
    /// Write the configuration of a BGP speaker that announces the protected prefixes
    BgpConfig(bgp::Args),
}

/// Runs the gate until a signal, or the subcommand.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Some(Verb::Check(args)) => check_config(args),
        Some(Verb::BgpConfig(args)) => {
            std::io::stdout().write_all(bgp::speaker_config(args)?.as_bytes())?;
            Ok(ExitCode::SUCCESS)
        }
        None => run_gate(args),
    }
}

fn check_config(args: &check::CheckArgs) -> anyhow::Result<ExitCode> {
    let config: Config = args.load()?;
    let (fixed, rules, trust) = (&config.fixed, &config.rules, &config.trust);
    let summary = format!(
        "front {}, back {}, {} prefixes, {} grantor sets, {} senders, version 1 {}{}",
        fixed.front.name,
        fixed.back.name,
        rules.rules.len(),
        rules.sets.len(),
        trust.senders.len(),
        if trust.v1_sources.is_empty() { "off" } else { "on" },
        bundle::summary_suffix(config.bundle.as_deref())
    );
    check::report(&summary, &preflight::check(&config, args.offline), args.json)
}

fn run_gate(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config::local(&args.daemon.config)?;
    let names = [config.fixed.front.name.as_str(), config.fixed.back.name.as_str()];
    let awaited = args.wait_for_interfaces.then_some(&names[..]);
    let Some(signals) =
        service::prepare(config.fixed.daemon.log, awaited, config.fixed.looks_up_in_xdp())?
    else {
        return Ok(ExitCode::SUCCESS);
    };
    let start = Instant::now();
    let predecessor = service::predecessor("gate")?;
    let stored = descriptor_store::take_link();
    let mut gate = progress::during("reading the kernel's routes", || {
        GateDaemon::start(&config, predecessor, stored)
    })?;
    service::log_ports(&gate.ports());
    match gate.restored() {
        Some(Ok(count)) => log::info!(flows = count; "{count} flows restored"),
        Some(Err(error)) => log::warn!("no flows restored: {error}"),
        None => {}
    }
    let took = start.elapsed().as_secs_f64();
    log::info!("guarding after {took:.2} s; Ctrl-C stops");
    let healthy = signals.serve(&mut gate);
    match gate.save_flows() {
        Some(Ok(count)) => log::info!(flows = count; "{count} flows saved"),
        Some(Err(error)) => log::warn!("no flows saved: {error}"),
        None => {}
    }
    let state = |counters: &Counters| json!({ "counters": counters, "gate": gate.status() });
    service::report(&gate.stats(), healthy, args.daemon.json.then_some(state))
}
