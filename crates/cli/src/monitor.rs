//! `fingerpost monitor`: prints the events of a running router as they occur.
//!
//! ```text
//!   added 10.1.0.0/16 via 10.0.1.2 dev r1 generation 7
//!   neighbor 10.0.1.2 dev r1 lladdr 02:00:00:00:02:02
//!   lost 1234
//! ```
//!
//! Events are added, changed and removed routes, changes of neighbors and interfaces, and events of
//! the feeds, until Ctrl-C or the end of the router. With `-j` each line is an object with the time in
//! seconds since 1970. The router never waits for a slow reader: the event `lost` states the number
//! of events that it dropped at that place.

use std::io::Write;
use std::process::ExitCode;

use api::{Event, EventKind, Item, Request};
use control::items::difference;

use crate::client::{self, SocketArgs};
use crate::show::vias_text;

/// The arguments of `monitor`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: SocketArgs,
    /// Write JSON, one object per line
    #[arg(short, long)]
    json: bool,
}

/// Prints events until the router ends.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // Line-buffered: each event appears at once.
    let mut out = std::io::stdout().lock();
    client::send(&args.socket, &Request::Monitor, None, &mut |item| {
        let Item::Event(event) = item else { return Ok(()) };
        if args.json {
            serde_json::to_writer(&mut out, &event)?;
            writeln!(out)?;
        } else if event.kind == EventKind::Started {
            eprintln!("fingerpost: monitoring; Ctrl-C stops");
        } else {
            writeln!(out, "{}", event_text(&event))?;
        }
        Ok(())
    })?;
    eprintln!("fingerpost: the router has ended");
    Ok(ExitCode::SUCCESS)
}

fn event_text(event: &Event) -> String {
    match &event.kind {
        EventKind::Started => String::new(),
        EventKind::Route { change, table, prefix, kind, via, generation } => {
            let table = if *table == 254 { String::new() } else { format!(" table {table}") };
            let kind = match kind.as_str() {
                "via" | "none" => String::new(),
                kind => format!(" {kind}"),
            };
            format!("{change}{kind} {prefix}{}{table} generation {generation}", vias_text(via))
        }
        EventKind::Neighbor { address, dev, mac } => match mac {
            Some(mac) => format!("neighbor {address} dev {dev} lladdr {mac}"),
            None => format!("neighbor {address} dev {dev} unknown"),
        },
        EventKind::Interface { name, present, up, mtu, mac } => {
            if !present {
                return format!("interface {name} gone");
            }
            let state = if *up { "up" } else { "down" };
            let mac = mac.as_ref().map(|mac| format!(" lladdr {mac}")).unwrap_or_default();
            format!("interface {name} {state} mtu {mtu}{mac}")
        }
        EventKind::Feed { feed, what, total } => format!("feed {feed} {what} {total}"),
        EventKind::Audit(found) => format!("audit {}", difference(found)),
        EventKind::Distribution { version, what, reason } => {
            let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
            format!("distribution version {version} {}{reason}", what.replace('_', " "))
        }
        EventKind::Lost { lost } => format!("lost {lost}"),
    }
}
