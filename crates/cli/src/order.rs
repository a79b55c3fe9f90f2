//! `fingerpost reload`, `save`, `promote`, `demote`, `bundle rollback` and `bundle retry`: what a running router is told to do.
//!
//! ```text
//!   promote eth0 ─► {"do":"promote","interface":"eth0"} ─► control socket ─► what was done
//! ```

use std::io::Write;
use std::process::ExitCode;

use router::control::api::{Item, Order};

use crate::client::{self, PATIENCE};

/// What `reload` takes, and orders that name nothing.
#[derive(clap::Args)]
pub(crate) struct Reload {
    #[command(flatten)]
    at: client::At,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

/// What `save` takes.
#[derive(clap::Args)]
pub(crate) struct Save {
    #[command(flatten)]
    at: client::At,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

/// What `promote` and `demote` take.
#[derive(clap::Args)]
pub(crate) struct Of {
    /// The interface
    #[arg(value_name = "INTERFACE")]
    interface: String,
    #[command(flatten)]
    at: client::At,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

/// Has the router read its configuration again.
pub(crate) fn reload(args: &Reload) -> anyhow::Result<ExitCode> {
    give(&args.at, &Order::Reload, args.json)
}

/// Has the router save an image of its tables.
pub(crate) fn save(args: &Save) -> anyhow::Result<ExitCode> {
    give(&args.at, &Order::Save, args.json)
}

/// Has the router take an interface's packets.
pub(crate) fn promote(args: &Of) -> anyhow::Result<ExitCode> {
    give(&args.at, &Order::Promote { interface: args.interface.clone() }, args.json)
}

/// Has the router leave an interface's packets to the kernel.
pub(crate) fn demote(args: &Of) -> anyhow::Result<ExitCode> {
    give(&args.at, &Order::Demote { interface: args.interface.clone() }, args.json)
}

/// Has the member go back to the version of the bundles before.
pub(crate) fn rollback(args: &Reload) -> anyhow::Result<ExitCode> {
    give(&args.at, &Order::Rollback, args.json)
}

/// Has the member take versions again that were refused.
pub(crate) fn retry(args: &Reload) -> anyhow::Result<ExitCode> {
    give(&args.at, &Order::Retry, args.json)
}

/// Sends a command, and writes its result.
pub(crate) fn give(at: &client::At, order: &Order, json: bool) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    client::ask(at, order, PATIENCE, &mut |item| {
        if let Item::Done(done) = item {
            if json {
                serde_json::to_writer(&mut out, &serde_json::json!({ "done": done }))?;
                writeln!(out)?;
            } else {
                writeln!(out, "{done}")?;
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
