//! `fingerpost forward [-c FILE]`: runs the router with the routes of a configuration until a signal.
//!
//! A [service] as `run`, ready once the tables are built and the XDP programs are attached: it has
//! a control socket, metrics and a final report. SIGHUP and `fingerpost reload` read the
//! configuration and its files of routes again. However the process ends, the interfaces return to
//! the kernel with its descriptors; no handler has to clean up.

use std::process::ExitCode;

use anyhow::{Context, bail};
use config::Config;
use control::preflight::Finding;
use control::routes::StaticRoutes;
use control::{Daemon, block_lists};
use output::progress;

use crate::service::{self, DaemonArgs, default_path};
use crate::{check, run};

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
        return check_config(&config, args.daemon.json);
    }
    let Some(signals) = service::prepare(config.daemon.log, None, config.block.is_some())? else {
        return Ok(ExitCode::SUCCESS);
    };
    let predecessor = service::predecessor("router")?;
    let mut daemon =
        progress::during("loading the routes", || router::start_static_after(predecessor, config))?;
    run::log_warnings(&mut daemon);
    log_start(&daemon)?;
    run::serve(&signals, daemon, args.daemon.json)
}

/// Checks the configuration and the routes without touching the system.
fn check_config(config: &Config, json: bool) -> anyhow::Result<ExitCode> {
    router::preflight::check_static(config)?;
    if let Some(block) = &config.block {
        let held = block_lists::check(block)?;
        if let Some(list) = held.first() {
            bail!(
                "block: {} would be held: {}",
                list.name,
                list.held.as_deref().unwrap_or_default()
            );
        }
    }
    let (routes, tables) = progress::during("loading the routes", || {
        let routes = StaticRoutes::read(config)?;
        let tables = routes.build(config, 1)?;
        anyhow::Ok((routes, tables))
    })?;
    let summary = format!(
        "{} IPv4 and {} IPv6 routes, {} next hops",
        tables.v4.rib().len(),
        tables.v6.rib().len(),
        tables.hops.len()
    );
    let warnings = routes.warnings.iter().map(|warning| Finding::Warning(warning.to_string()));
    check::report(&summary, &warnings.collect::<Vec<_>>(), json)
}

/// Logs the ports and the size of the tables.
fn log_start(daemon: &Daemon) -> anyhow::Result<()> {
    service::log_ports(&daemon.ports());
    let text = daemon.control_handle().call(|sync| {
        let table = sync.plane.tables().next()?;
        let (v4, v6) = (table.v4, table.v6);
        Some(format!(
            "{} IPv4 routes ({}, {} bytes) and {} IPv6 routes ({}, {} bytes) to {} next hops",
            v4.rib().len(),
            v4.engine(),
            v4.footprint(),
            v6.rib().len(),
            v6.engine(),
            v6.footprint(),
            sync.plane.hops().count()
        ))
    });
    let text = text.flatten().context("the control thread does not answer")?;
    let socket = daemon.config().daemon.control.as_ref();
    let socket = socket.map(|path| format!(", control socket {}", path.display()));
    log::info!("forwarding by {text}{}; Ctrl-C stops", socket.unwrap_or_default());
    Ok(())
}
