//! `fingerpost reload`, `upgrade`, `save`, `promote`, `demote`, `bundle rollback` and `bundle retry`: orders to a
//! running router, gate or grantor.
//!
//! ```text
//!   promote eth0 ─► {"do":"promote","interface":"eth0"} ─► control socket ─► the result
//! ```

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use api::{Item, Order};

use crate::client::{self, RESPONSE_TIMEOUT};

/// The longest time until a successor has read all routes, and runs.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(330);

/// The arguments of an order without parameters.
#[derive(clap::Args)]
pub(crate) struct OrderArgs {
    #[command(flatten)]
    socket: client::SocketArgs,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

/// The arguments of `promote` and `demote`.
#[derive(clap::Args)]
pub(crate) struct InterfaceArgs {
    /// Name of the interface
    #[arg(value_name = "INTERFACE")]
    interface: String,
    #[command(flatten)]
    socket: client::SocketArgs,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

/// Makes the router reload its configuration.
pub(crate) fn reload(args: &OrderArgs) -> anyhow::Result<ExitCode> {
    send(&args.socket, &Order::Reload, args.json)
}

/// The arguments of `upgrade`.
#[derive(clap::Args)]
pub(crate) struct UpgradeArgs {
    #[command(flatten)]
    order: OrderArgs,
    /// If the installed program is the running one, reload the configuration instead
    #[arg(long)]
    or_reload: bool,
}

/// Makes the installed program take over from the running one.
pub(crate) fn upgrade(args: &UpgradeArgs) -> anyhow::Result<ExitCode> {
    let order = Order::Upgrade { or_reload: args.or_reload };
    send_within(UPGRADE_TIMEOUT, &args.order.socket, &order, args.order.json)
}

/// Makes the router save an image of its tables.
pub(crate) fn save(args: &OrderArgs) -> anyhow::Result<ExitCode> {
    send(&args.socket, &Order::Save, args.json)
}

/// Makes the router forward the packets of an interface.
pub(crate) fn promote(args: &InterfaceArgs) -> anyhow::Result<ExitCode> {
    send(&args.socket, &Order::Promote { interface: args.interface.clone() }, args.json)
}

/// Makes the router leave the packets of an interface to the kernel.
pub(crate) fn demote(args: &InterfaceArgs) -> anyhow::Result<ExitCode> {
    send(&args.socket, &Order::Demote { interface: args.interface.clone() }, args.json)
}

/// Applies the block lists that are held because they have become short.
pub(crate) fn apply_lists(args: &OrderArgs) -> anyhow::Result<ExitCode> {
    send(&args.socket, &Order::ApplyLists, args.json)
}

/// Rolls the member back to its previous bundle.
pub(crate) fn rollback(args: &OrderArgs) -> anyhow::Result<ExitCode> {
    send(&args.socket, &Order::Rollback, args.json)
}

/// Clears the refused versions of the member.
pub(crate) fn retry(args: &OrderArgs) -> anyhow::Result<ExitCode> {
    send(&args.socket, &Order::Retry, args.json)
}

/// Sends an order, and writes its result.
pub(crate) fn send(
    socket: &client::SocketArgs,
    order: &Order,
    json: bool,
) -> anyhow::Result<ExitCode> {
    send_within(RESPONSE_TIMEOUT, socket, order, json)
}

/// Sends an order whose result may take a time, and writes it.
fn send_within(
    timeout: Duration,
    socket: &client::SocketArgs,
    order: &Order,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    client::send(socket, order, timeout, &mut |item| {
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
