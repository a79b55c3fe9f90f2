//! `fingerpost grantor -c FILE`: runs a grantor in the protected network until a signal.
//!
//! A [service] that reloads its policy, lists and programs on SIGHUP. A reload that fails is logged
//! and changes nothing. `fingerpost grantor check -c FILE` checks the file and the files that it
//! names, and attaches to no interface.

use std::io::Write;
use std::process::ExitCode;

use ::bundle::MemberConfig;
use anyhow::Context;
use api::Counters;
use grantor::preflight;
use grantor::{Config, GrantorDaemon};
use output::progress;
use serde_json::json;

use crate::service::{self, DaemonArgs, default_path};
use crate::{bundle, check};

/// The default configuration file.
pub(crate) const CONFIG: &str = "/etc/fingerpost/grantor.toml";

/// The arguments of `grantor`.
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
    /// Check a configuration and its policy, and exit
    #[command(mut_arg("config", default_path(CONFIG)))]
    Check(check::CheckArgs),
    /// Write a bundled policy to standard output, or list the bundled policies
    Policy {
        /// Name of the policy [default: list the names]
        #[arg(value_name = "NAME")]
        name: Option<String>,
    },
}

/// Runs the grantor until a signal, or the subcommand.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Some(Verb::Check(args)) => check_config(args),
        Some(Verb::Policy { name }) => print_policy(name.as_deref()),
        None => run_grantor(args),
    }
}

fn print_policy(name: Option<&str>) -> anyhow::Result<ExitCode> {
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
                format!("no bundled policy {name}: `fingerpost grantor policy` lists the names")
            })?;
            out.write_all(found.text.as_bytes())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn check_config(args: &check::CheckArgs) -> anyhow::Result<ExitCode> {
    let config: Config = args.load()?;
    config.try_policies().map_err(|bad| anyhow::anyhow!("{}: {bad}", args.config.display()))?;
    let programs = match config.programs.len() {
        0 => String::new(),
        count => format!(", {count} programs"),
    };
    let summary = format!(
        "{} interfaces, {} tunnel ends, {} gates, {} lists{programs}{}",
        config.fixed.interfaces.len(),
        config.fixed.ends.len(),
        config.fixed.gates.len(),
        config.lists.len(),
        bundle::summary_suffix(config.bundle.as_deref())
    );
    check::report(&summary, &preflight::check(&config, args.offline), args.json)
}

fn run_grantor(args: &Args) -> anyhow::Result<ExitCode> {
    let config = Config::local(&args.daemon.config)?;
    let names: Vec<_> = config.fixed.interfaces.iter().map(String::as_str).collect();
    let awaited = args.wait_for_interfaces.then_some(&names[..]);
    let Some(signals) = service::prepare(config.fixed.daemon.log, awaited, false)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut grantor =
        progress::during("reading the kernel's routes", || GrantorDaemon::start(&config))?;
    service::log_ports(&grantor.ports());
    log::info!("granting; Ctrl-C stops");
    let healthy = signals.serve(&mut grantor);
    let state = |counters: &Counters| json!({ "counters": counters, "grantor": grantor.status() });
    service::report(&grantor.stats(), healthy, args.daemon.json.then_some(state))
}
