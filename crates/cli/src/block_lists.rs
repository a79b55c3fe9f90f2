//! `fingerpost show block-lists`, `show blocked`, `ban` and `unban`: the block lists of a running process.
//!
//! ```text
//!   show blocked PREFIX ─► request ─ begins to count ─► --count later: request ─► lists, packets a second
//! ```

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use anyhow::bail;
use api::{BlockList, BlockedPrefix, Item, Order, Request};

use crate::client::{self, RESPONSE_TIMEOUT, SocketArgs};
use crate::order;

/// The longest time for which packets are counted.
const MAX_COUNT: Duration = Duration::from_secs(3600);

/// The arguments of `ban`.
#[derive(clap::Args)]
pub(crate) struct BanArgs {
    /// Prefix or address
    #[arg(value_name = "PREFIX")]
    prefix: String,
    /// Seconds until the ban ends by itself; without, it does not end
    #[arg(long = "for", value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    #[command(flatten)]
    socket: SocketArgs,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

/// The arguments of `unban`.
#[derive(clap::Args)]
pub(crate) struct UnbanArgs {
    /// Prefix or address
    #[arg(value_name = "PREFIX")]
    prefix: String,
    #[command(flatten)]
    socket: SocketArgs,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

/// Puts a prefix into the list of bans.
pub(crate) fn ban(args: &BanArgs) -> anyhow::Result<ExitCode> {
    let order = Order::Ban { prefix: args.prefix.clone(), seconds: args.seconds };
    order::send(&args.socket, &order, args.json)
}

/// Takes a prefix out of the list of bans.
pub(crate) fn unban(args: &UnbanArgs) -> anyhow::Result<ExitCode> {
    order::send(&args.socket, &Order::Unban { prefix: args.prefix.clone() }, args.json)
}

/// Parses the time for which packets are counted.
pub(crate) fn parse_count(text: &str) -> Result<Duration, String> {
    client::parse_time(text, MAX_COUNT)
}

/// Shows the lists that contain a prefix, and the packets from it while this function counts.
pub(crate) fn show_blocked(
    socket: &SocketArgs,
    prefix: &str,
    count: Duration,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let request = Request::Blocked { prefix: prefix.to_owned() };
    let ask = || {
        let mut answer = None;
        client::send(socket, &request, RESPONSE_TIMEOUT, &mut |item| {
            if let Item::BlockedPrefix(blocked) = item {
                answer = Some(blocked);
            }
            Ok(())
        })?;
        let Some(answer) = answer else { bail!("the response has no prefix") };
        anyhow::Ok(answer)
    };
    let before = ask()?;
    sleep(count);
    let after = ask()?;
    // Another process's request for a ninth prefix has ended the count if it is behind.
    let blocked = BlockedPrefix {
        packets: after.packets.saturating_sub(before.packets),
        bytes: after.bytes.saturating_sub(before.bytes),
        counted_ms: after.counted_ms.saturating_sub(before.counted_ms),
        ..after
    };
    let mut out = io::stdout().lock();
    if json {
        writeln!(out, "{}", serde_json::to_string(&[&blocked])?)?;
    } else {
        write_blocked(&mut out, &blocked)?;
    }
    Ok(if !blocked.lines.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes a list in a line.
pub(crate) fn write(out: &mut impl Write, list: &BlockList) -> io::Result<()> {
    let BlockList { name, action, v4, v6, expiring, packets, bytes, .. } = list;
    write!(out, "{action} {name} prefixes {} packets {packets} bytes {bytes}", v4 + v6)?;
    if *expiring > 0 {
        write!(out, " expiring {expiring}")?;
    }
    writeln!(out, "{}", notes(list))
}

/// Returns why the present content of a list is not in force, or may not be that of its source.
pub(crate) fn notes(list: &BlockList) -> String {
    let note = |name, reason: &Option<String>| {
        reason.as_ref().map_or_else(String::new, |reason| format!("  {name}: {reason}"))
    };
    note("held", &list.held) + &note("error", &list.error)
}

/// Writes a prefix, its lists and its packets.
pub(crate) fn write_blocked(out: &mut impl Write, blocked: &BlockedPrefix) -> io::Result<()> {
    let BlockedPrefix { prefix, action, lines, within, packets, bytes, counted_ms } = blocked;
    let otherwise = if lines.is_empty() { "not listed" } else { "by destination" };
    writeln!(out, "{prefix} {}", action.as_deref().unwrap_or(otherwise))?;
    for line in lines {
        writeln!(out, "    {} {} by {}", line.action, line.prefix, line.list)?;
    }
    if *within > 0 {
        writeln!(out, "    {within} lines within it")?;
    }
    let seconds = *counted_ms as f64 / 1e3;
    writeln!(out, "    packets {packets} bytes {bytes} in {seconds:.1} s")
}
