//! `fingerpost show WHAT`: questions to a running router.
//!
//! ```text
//!   show routes ─► {"show":"routes"} ─► control socket ─► items ─► text, or with -j JSON
//! ```
//!
//! In the words of iproute2 where it has some. JSON is one array, written as the answer
//! comes: a million routes need no memory here. An answer that ends without its end is
//! an error, whatever was printed before.

use std::io::{BufRead, BufReader, BufWriter, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Subcommand;
use router::config::CONTROL;
use router::control::api::{self, Item, Line, Request};

/// How long the router may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// What `show` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the router listens (`[control] socket` of its configuration)
    #[arg(long, value_name = "PATH", default_value = CONTROL, global = true)]
    socket: PathBuf,
    /// Write JSON
    #[arg(short, long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The routes that packets are forwarded by
    Routes {
        /// Only those inside this prefix
        #[arg(value_name = "PREFIX")]
        within: Option<String>,
        /// IPv4 only
        #[arg(short = '4', conflicts_with = "six")]
        four: bool,
        /// IPv6 only
        #[arg(short = '6')]
        six: bool,
    },
    /// Where packets to an address go, asked of the workers' table
    ///
    /// Exit status 1 if there is no route.
    Route {
        /// The address
        #[arg(value_name = "ADDR")]
        address: IpAddr,
        /// Tell what the lookup loaded
        #[arg(long)]
        explain: bool,
    },
    /// The neighbours that can be used
    Neighbours,
    /// The ports, and what the steering program left to the kernel
    Interfaces,
    /// The next hops, and what is done with their packets
    Nexthops,
    /// Every packet, by how it ended
    Counters,
    /// The tables
    Fib,
    /// Where the routes come from
    Feeds,
    /// The workers
    Workers,
}

impl What {
    fn request(&self) -> Request {
        match self {
            Self::Routes { within, four, six } => {
                let family = if *four { Some(4) } else { six.then_some(6) };
                Request::Routes { within: within.clone(), family }
            }
            Self::Route { address, .. } => Request::Route { address: *address },
            Self::Neighbours => Request::Neighbours,
            Self::Interfaces => Request::Interfaces,
            Self::Nexthops => Request::NextHops,
            Self::Counters => Request::Counters,
            Self::Fib => Request::Fib,
            Self::Feeds => Request::Feeds,
            Self::Workers => Request::Workers,
        }
    }
}

/// Asks, and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = args.socket.display();
    let stream = UnixStream::connect(&args.socket).with_context(|| {
        format!("{path}: no router answers here (is `fingerpost run` at work, and are you root?)")
    })?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut question = serde_json::to_string(&args.what.request())?;
    question.push('\n');
    (&stream).write_all(question.as_bytes()).with_context(|| format!("{path}: asking"))?;
    let explain = matches!(args.what, What::Route { explain: true, .. });
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut count = 0;
    let mut found = true;
    for line in BufReader::new(&stream).lines() {
        let line = line.with_context(|| format!("{path}: reading the answer"))?;
        match serde_json::from_str(&line).with_context(|| format!("{path}: an answer"))? {
            Line::Item(item) => {
                found &= !matches!(&*item, Item::Answer(answer) if answer.route.is_none());
                if args.json {
                    out.write_all(if count == 0 { b"[" } else { b",\n" })?;
                    json(&mut out, &item)?;
                } else {
                    text(&mut out, &item, explain)?;
                }
                count += 1;
            }
            Line::End { items } if items == count => {
                if args.json {
                    out.write_all(if count == 0 { b"[]\n" } else { b"]\n" })?;
                }
                out.flush()?;
                return Ok(if found { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            Line::End { items } => bail!("{path}: {items} items were told and {count} came"),
            Line::Error(error) => bail!("{error}"),
        }
    }
    bail!("{path}: the router ended in the middle of its answer")
}

/// Writes what is inside an item.
fn json(out: &mut impl Write, item: &Item) -> anyhow::Result<()> {
    match item {
        Item::Route(it) => serde_json::to_writer(out, it)?,
        Item::Answer(it) => serde_json::to_writer(out, it)?,
        Item::Neighbour(it) => serde_json::to_writer(out, it)?,
        Item::Interface(it) => serde_json::to_writer(out, it)?,
        Item::NextHop(it) => serde_json::to_writer(out, it)?,
        Item::Counters(it) => serde_json::to_writer(out, it)?,
        Item::Fib(it) => serde_json::to_writer(out, it)?,
        Item::Feed(it) => serde_json::to_writer(out, it)?,
        Item::Worker(it) => serde_json::to_writer(out, it)?,
    }
    Ok(())
}

fn text(out: &mut impl Write, item: &Item, explain: bool) -> std::io::Result<()> {
    match item {
        Item::Route(it) => writeln!(out, "{}", route(it)),
        Item::Answer(it) => answer(out, it, explain),
        Item::Neighbour(it) => writeln!(out, "{} dev {} lladdr {}", it.address, it.dev, it.mac),
        Item::Interface(it) => {
            let state = if it.up { "up" } else { "down" };
            writeln!(
                out,
                "{}: {} {state} mtu {} lladdr {} table {} {}",
                it.index, it.name, it.mtu, it.mac, it.table, it.mode
            )?;
            for (reason, count) in it.steered.iter().filter(|(_, count)| **count > 0) {
                writeln!(out, "    {reason} {count}")?;
            }
            Ok(())
        }
        Item::NextHop(it) => {
            let kind = if it.kind == "via" { String::new() } else { format!(" {}", it.kind) };
            let ways = vias(&it.via);
            writeln!(out, "{}:{kind}{ways} {} uses {}", it.hop, it.action, it.routes)
        }
        Item::Counters(it) => counters(out, it),
        Item::Fib(it) => {
            let full = it.full.as_ref().map(|full| format!(" FULL: {full}")).unwrap_or_default();
            writeln!(
                out,
                "table {} {}: {} routes, {}, {} bytes, generation {}{full}",
                it.table, it.family, it.routes, it.engine, it.bytes, it.generation
            )
        }
        Item::Feed(it) => {
            writeln!(
                out,
                "{}: {} messages, {} changes in {} commits, {} resynchronisations, {} overruns, \
                 {} damaged, {} troubles",
                it.name,
                it.messages,
                it.changes,
                it.commits,
                it.resynchronisations,
                it.overruns,
                it.damaged,
                it.troubles
            )?;
            it.last_trouble.iter().try_for_each(|trouble| writeln!(out, "    {trouble}"))
        }
        Item::Worker(it) => {
            writeln!(out, "worker {}", it.worker)?;
            counters(out, &it.counters)
        }
    }
}

fn vias(vias: &[api::Via]) -> String {
    let one = |via: &api::Via| {
        let gateway = via.gateway.map(|it| format!(" via {it}")).unwrap_or_default();
        let weight = if vias.len() > 1 { format!(" weight {}", via.weight) } else { String::new() };
        format!("{gateway} dev {}{weight}", via.dev)
    };
    vias.iter().map(one).collect()
}

fn route(route: &api::Route) -> String {
    match route.kind.as_str() {
        "via" => format!("{}{}", route.prefix, vias(&route.via)),
        "neighbour" => {
            let dev = route.via.first().map_or("", |via| via.dev.as_str());
            format!("{} dev {dev} neighbour", route.prefix)
        }
        kind => format!("{kind} {}", route.prefix),
    }
}

fn answer(out: &mut impl Write, answer: &api::Answer, explain: bool) -> std::io::Result<()> {
    let by = answer.route.as_ref().map_or_else(|| "no route".to_owned(), route);
    let dev = answer.dev.as_ref().map(|dev| format!(" dev {dev}")).unwrap_or_default();
    let mac = answer.mac.as_ref().map(|mac| format!(" lladdr {mac}")).unwrap_or_default();
    writeln!(out, "{} {}{dev}{mac} by {by}", answer.address, answer.action)?;
    if explain {
        let hop = answer.hop;
        writeln!(out, "    {} generation {}: hop {hop}", answer.engine, answer.generation)?;
        for load in &answer.loads {
            writeln!(out, "    {load}")?;
        }
    }
    Ok(())
}

/// Writes the counters that are not zero.
pub(crate) fn counters(out: &mut impl Write, it: &api::Counters) -> std::io::Result<()> {
    writeln!(out, "received {} ({} bytes)", it.received, it.received_bytes)?;
    writeln!(out, "sent {} ({} bytes)", it.sent, it.sent_bytes)?;
    for (class, reasons) in [("punted", &it.punted), ("dropped", &it.dropped)] {
        for (reason, count) in reasons.iter().filter(|(_, count)| **count > 0) {
            writeln!(out, "{class} {reason} {count}")?;
        }
    }
    Ok(())
}
