//! `fingerpost monitor`: what happens in a running router, while it happens.
//!
//! ```text
//!   added 10.1.0.0/16 via 10.0.1.2 dev r1 generation 7
//!   neighbor 10.0.1.2 dev r1 lladdr 02:00:00:00:02:02
//!   lost 1234
//! ```
//!
//! Routes taken over, changed and given up, neighbors, interfaces, and what happens to
//! the feeds as a whole, until Ctrl-C or the router's end. With `-j` an object a line, each with
//! the time in seconds since 1970. Whoever reads too slowly is told how much was lost, in the place
//! where it was; the router waits for nobody.

use std::io::Write;
use std::process::ExitCode;

use router::control::answer::difference;
use router::control::api::{Event, Happened, Item, Request};

use crate::client::{self, At};
use crate::show::vias;

/// What `monitor` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: At,
    /// Write JSON, an object a line
    #[arg(short, long)]
    json: bool,
}

/// Listens, and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // By lines: what has happened is to be seen at once.
    let mut out = std::io::stdout().lock();
    client::ask(&args.at, &Request::Monitor, None, &mut |item| {
        let Item::Event(event) = item else { return Ok(()) };
        if args.json {
            serde_json::to_writer(&mut out, &event)?;
            writeln!(out)?;
        } else if event.what == Happened::Started {
            eprintln!("fingerpost: listening; Ctrl-C ends");
        } else {
            writeln!(out, "{}", text(&event))?;
        }
        Ok(())
    })?;
    eprintln!("fingerpost: the router has ended");
    Ok(ExitCode::SUCCESS)
}

fn text(event: &Event) -> String {
    match &event.what {
        Happened::Started => String::new(),
        Happened::Route { change, table, prefix, kind, via, generation } => {
            let table = if *table == 254 { String::new() } else { format!(" table {table}") };
            let kind = match kind.as_str() {
                "via" | "none" => String::new(),
                kind => format!(" {kind}"),
            };
            format!("{change}{kind} {prefix}{}{table} generation {generation}", vias(via))
        }
        Happened::Neighbor { address, dev, mac } => match mac {
            Some(mac) => format!("neighbor {address} dev {dev} lladdr {mac}"),
            None => format!("neighbor {address} dev {dev} unknown"),
        },
        Happened::Interface { name, present, up, mtu, mac } => {
            if !present {
                return format!("interface {name} gone");
            }
            let state = if *up { "up" } else { "down" };
            let mac = mac.as_ref().map(|mac| format!(" lladdr {mac}")).unwrap_or_default();
            format!("interface {name} {state} mtu {mtu}{mac}")
        }
        Happened::Feed { feed, what, total } => format!("feed {feed} {what} {total}"),
        Happened::Audit(it) => format!("audit {}", difference(it)),
        Happened::Distribution { version, what, reason } => {
            let reason = reason.as_ref().map(|it| format!(": {it}")).unwrap_or_default();
            format!("distribution version {version} {}{reason}", what.replace('_', " "))
        }
        Happened::Lost { lost } => format!("lost {lost}"),
    }
}
