//! `fingerpost show WHAT`: questions to a running router.
//!
//! ```text
//!   show routes ─► {"show":"routes"} ─► control socket ─► items ─► text, or with -j JSON
//! ```
//!
//! In the words of iproute2 where it has some. JSON is one array, written as the answer
//! comes: a million routes need no memory here.

use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::process::ExitCode;

use clap::Subcommand;
use router::control::api::{self, Item, Request};

use crate::client::{self, PATIENCE};
use crate::{bundle, flow, policy};

/// What `show` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    at: client::At,
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
    /// The neighbors that can be used
    Neighbors,
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
    /// What the auditor has come to: where packets went, and where they should
    Audit,
    /// A gate: its policy, its packets by verdict, its flow table, its link, its grantors
    Gate,
    /// A grantor: what its policy says, its decisions on their way, what a candidate would say
    Grantor,
    /// Flow programs: those of a gate, or those that a grantor has for its gates, and how it stands
    Programs,
    /// Where a gate's or grantor's policy comes from as bundles, which is in force, and why
    Distribution,
    /// Flows that a gate remembers
    Flows {
        /// At most so many of each worker
        #[arg(long, value_name = "COUNT", default_value_t = 1000)]
        most: u32,
    },
}

impl What {
    fn request(&self) -> Request {
        match self {
            Self::Routes { within, four, six } => {
                let family = if *four { Some(4) } else { six.then_some(6) };
                Request::Routes { within: within.clone(), family }
            }
            Self::Route { address, .. } => Request::Route { address: *address },
            Self::Neighbors => Request::Neighbors,
            Self::Interfaces => Request::Interfaces,
            Self::Nexthops => Request::NextHops,
            Self::Counters => Request::Counters,
            Self::Fib => Request::Fib,
            Self::Feeds => Request::Feeds,
            Self::Workers => Request::Workers,
            Self::Audit => Request::Audit,
            Self::Gate => Request::Gate,
            Self::Grantor => Request::Grantor,
            Self::Programs => Request::Programs,
            Self::Distribution => Request::Distribution,
            Self::Flows { most } => Request::Flows { most: *most },
        }
    }
}

/// Asks, and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let explain = matches!(args.what, What::Route { explain: true, .. });
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut found = true;
    let is_found = |item: &Item| !matches!(item, Item::Answer(it) if it.route.is_none());
    let (at, request) = (&args.at, args.what.request());
    if args.json {
        let mut array = client::Array::new(&mut out);
        client::ask(at, &request, PATIENCE, &mut |item| {
            found &= is_found(&item);
            json(&mut array, &item)
        })?;
        array.end()?;
    } else {
        client::ask(at, &request, PATIENCE, &mut |item| {
            found &= is_found(&item);
            Ok(text(&mut out, &item, explain)?)
        })?;
        out.flush()?;
    }
    Ok(if found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes what is inside an item.
fn json(array: &mut client::Array<impl Write>, item: &Item) -> anyhow::Result<()> {
    match item {
        Item::Route(it) => array.item(it),
        Item::Answer(it) => array.item(it),
        Item::Neighbor(it) => array.item(it),
        Item::Interface(it) => array.item(it),
        Item::NextHop(it) => array.item(it),
        Item::Counters(it) => array.item(it),
        Item::Fib(it) => array.item(it),
        Item::Feed(it) => array.item(it),
        Item::Worker(it) => array.item(it),
        Item::Done(it) => array.item(it),
        Item::Audit(it) => array.item(it),
        Item::Gate(it) => array.item(it),
        Item::Grantor(it) => array.item(it),
        Item::Distribution(it) => array.item(it),
        Item::Flow(it) => array.item(it),
        Item::Program(it) => array.item(it),
        // Of `monitor` and `fib diff`, not of `show`.
        Item::Event(it) => array.item(it),
        Item::Difference(it) => array.item(it),
        Item::Compared(it) => array.item(it),
    }
}

fn text(out: &mut impl Write, item: &Item, explain: bool) -> std::io::Result<()> {
    match item {
        Item::Route(it) => writeln!(out, "{}", route(it)),
        Item::Answer(it) => answer(out, it, explain),
        Item::Neighbor(it) => writeln!(out, "{} dev {} lladdr {}", it.address, it.dev, it.mac),
        Item::Interface(it) => {
            let state = if it.up { "up" } else { "down" };
            writeln!(
                out,
                "{}: {} {state} mtu {} lladdr {} table {} {}{}",
                it.index,
                it.name,
                it.mtu,
                it.mac,
                it.table,
                it.mode,
                if it.observe { " observed" } else { "" }
            )?;
            if let Some(configured) = &it.configured {
                writeln!(out, "    configured as {configured}")?;
            }
            if let Some(problem) = &it.problem {
                writeln!(out, "    does not work as a port: {problem}")?;
            }
            if let Some(rules) = &it.rules {
                writeln!(out, "    {rules}: not followed, packets go by table {}", it.table)?;
            }
            for (reason, count) in it.steered.iter().filter(|(_, count)| **count > 0) {
                writeln!(out, "    {reason} {count}")?;
            }
            writeln!(
                out,
                "    received {} packets {} bytes, transmitted {} packets {} bytes",
                it.received, it.received_bytes, it.transmitted, it.transmitted_bytes
            )?;
            for (reason, count) in it.lost.iter().filter(|(_, count)| **count > 0) {
                writeln!(out, "    lost {reason} {count}")?;
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
                "table {} {}: {} routes, {}, {} bytes{}, generation {}{full}",
                it.table,
                it.family,
                it.routes,
                it.engine,
                it.bytes,
                if it.shared { " with the others" } else { "" },
                it.generation
            )
        }
        Item::Feed(it) => {
            writeln!(
                out,
                "{}: {} messages, {} changes in {} commits, {} resynchronizations, {} overruns, \
                 {} parse errors, {} refused, {} errors",
                it.name,
                it.messages,
                it.changes,
                it.commits,
                it.resynchronizations,
                it.overruns,
                it.parse_errors,
                it.refused,
                it.errors
            )?;
            it.last_error.iter().try_for_each(|trouble| writeln!(out, "    {trouble}"))
        }
        Item::Done(it) => writeln!(out, "{it}"),
        Item::Worker(it) => {
            writeln!(out, "worker {}", it.worker)?;
            counters(out, &it.counters)
        }
        Item::Audit(it) => {
            let (checks, wrong) = (it.checks, it.mismatches);
            let (route_heals, heals) = (it.route_heals, it.heals);
            writeln!(
                out,
                "{checks} destinations checked, {wrong} mismatches, {route_heals} healed by route, \
                 {heals} by reading all routes again"
            )?;
            it.last_mismatch.iter().try_for_each(|last| writeln!(out, "    {last}"))
        }
        Item::Gate(it) => flow::gate(out, it),
        Item::Grantor(it) => policy::grantor(out, it),
        Item::Distribution(it) => bundle::distribution(out, it),
        Item::Flow(it) => flow::flow(out, it),
        Item::Program(it) => flow::program(out, it),
        Item::Event(_) | Item::Difference(_) | Item::Compared(_) => Ok(()),
    }
}

pub(crate) fn vias(vias: &[api::Via]) -> String {
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
        "neighbor" => {
            let dev = route.via.first().map_or("", |via| via.dev.as_str());
            format!("{} dev {dev} neighbor", route.prefix)
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
        if let (Some(protocol), Some(metric)) = (&answer.protocol, answer.metric) {
            let more = if answer.age_or_more { "at least " } else { "" };
            let age = answer.age.unwrap_or(0);
            writeln!(out, "    proto {protocol} metric {metric}, unchanged for {more}{age} s")?;
        }
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
