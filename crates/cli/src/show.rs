//! `fingerpost show WHAT`: prints the state of a running router, gate or grantor.
//!
//! ```text
//!   show routes ─► {"show":"routes"} ─► control socket ─► items ─► text, or with -j JSON
//! ```
//!
//! The text follows the format of iproute2 where that has one. JSON is one array, written item by item
//! as the response arrives, so that a million routes need no memory here.

use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::process::ExitCode;

use api::{self, Item, Request};
use clap::Subcommand;

use crate::client::{self, RESPONSE_TIMEOUT};
use crate::{bundle, flow, policy};

/// The arguments of `show`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: client::SocketArgs,
    /// Write JSON
    #[arg(short, long, global = true)]
    json: bool,
    #[command(subcommand)]
    query: Query,
}

#[derive(Subcommand)]
enum Query {
    /// Show the routes of the forwarding tables
    Routes {
        /// Show only the routes inside this prefix
        #[arg(value_name = "PREFIX")]
        within: Option<String>,
        /// Show only IPv4
        #[arg(short = '4', conflicts_with = "six")]
        four: bool,
        /// Show only IPv6
        #[arg(short = '6')]
        six: bool,
    },
    /// Look up an address in the forwarding table of the workers
    ///
    /// Exit status 1 if there is no route.
    Route {
        /// Address to look up
        #[arg(value_name = "ADDR")]
        address: IpAddr,
        /// Show the memory that the lookup loads, and the origin of the route
        #[arg(long)]
        explain: bool,
    },
    /// Show the usable neighbors
    Neighbors,
    /// Show the interfaces, and the packets that the steering program passed to the kernel
    Interfaces,
    /// Show the next hops, and the action for their packets
    Nexthops,
    /// Show the packet counters by verdict
    Counters,
    /// Show the forwarding tables
    Fib,
    /// Show the route feeds
    Feeds,
    /// Show the packet counters of each worker
    Workers,
    /// Show the results of the auditor, which compares lookups with the kernel
    Audit,
    /// Show a gate: policy, packets by verdict, flow table, link and grantors
    Gate,
    /// Show a grantor: policy, decisions sent, and the comparison of a candidate
    Grantor,
    /// Show the flow programs of a gate, or those that a grantor sends to its gates
    Programs,
    /// Show the bundle distribution of a gate or grantor: source, version and state
    Distribution,
    /// Show the flows in the flow table of a gate
    Flows {
        /// Limit the flows of each worker
        #[arg(long, value_name = "COUNT", default_value_t = 1000)]
        most: u32,
    },
}

impl Query {
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

/// Sends the request, and prints the items.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let explain = matches!(args.query, Query::Route { explain: true, .. });
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut found = true;
    let is_found = |item: &Item| !matches!(item, Item::Answer(answer) if answer.route.is_none());
    let (socket, request) = (&args.socket, args.query.request());
    if args.json {
        let mut array = client::JsonArray::new(&mut out);
        client::send(socket, &request, RESPONSE_TIMEOUT, &mut |item| {
            found &= is_found(&item);
            push_json(&mut array, &item)
        })?;
        array.end()?;
    } else {
        client::send(socket, &request, RESPONSE_TIMEOUT, &mut |item| {
            found &= is_found(&item);
            Ok(write_item(&mut out, &item, explain)?)
        })?;
        out.flush()?;
    }
    Ok(if found { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the content of an item.
fn push_json(array: &mut client::JsonArray<impl Write>, item: &Item) -> anyhow::Result<()> {
    match item {
        Item::Route(value) => array.push(value),
        Item::Answer(value) => array.push(value),
        Item::Neighbor(value) => array.push(value),
        Item::Interface(value) => array.push(value),
        Item::NextHop(value) => array.push(value),
        Item::Counters(value) => array.push(value),
        Item::Fib(value) => array.push(value),
        Item::Feed(value) => array.push(value),
        Item::Worker(value) => array.push(value),
        Item::Done(value) => array.push(value),
        Item::Audit(value) => array.push(value),
        Item::Gate(value) => array.push(value),
        Item::Grantor(value) => array.push(value),
        Item::Distribution(value) => array.push(value),
        Item::Flow(value) => array.push(value),
        Item::Program(value) => array.push(value),
        // Items of `monitor` and `fib diff`, not of `show`.
        Item::Event(value) => array.push(value),
        Item::Difference(value) => array.push(value),
        Item::Compared(value) => array.push(value),
    }
}

fn write_item(out: &mut impl Write, item: &Item, explain: bool) -> std::io::Result<()> {
    match item {
        Item::Route(it) => writeln!(out, "{}", route_text(it)),
        Item::Answer(it) => write_answer(out, it, explain),
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
            let vias = vias_text(&it.via);
            writeln!(out, "{}:{kind}{vias} {} uses {}", it.hop, it.action, it.routes)
        }
        Item::Counters(it) => write_counters(out, it),
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
            it.last_error.iter().try_for_each(|error| writeln!(out, "    {error}"))
        }
        Item::Done(it) => writeln!(out, "{it}"),
        Item::Worker(it) => {
            writeln!(out, "worker {}", it.worker)?;
            write_counters(out, &it.counters)
        }
        Item::Audit(it) => {
            let (checks, wrong) = (it.checks, it.mismatches);
            let (route_heals, heals) = (it.route_heals, it.heals);
            writeln!(
                out,
                "{checks} destinations checked, {wrong} mismatches, {route_heals} healed by route, \
                 {heals} by resynchronization"
            )?;
            it.last_mismatch.iter().try_for_each(|last| writeln!(out, "    {last}"))
        }
        Item::Gate(it) => flow::write_gate(out, it),
        Item::Grantor(it) => policy::write_grantor(out, it),
        Item::Distribution(it) => bundle::write_distribution(out, it),
        Item::Flow(it) => flow::write_flow(out, it),
        Item::Program(it) => flow::write_program(out, it),
        Item::Event(_) | Item::Difference(_) | Item::Compared(_) => Ok(()),
    }
}

/// Formats next hops as iproute2 does.
pub(crate) fn vias_text(vias: &[api::Via]) -> String {
    let text = |via: &api::Via| {
        let gateway = via.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
        let weight = if vias.len() > 1 { format!(" weight {}", via.weight) } else { String::new() };
        format!("{gateway} dev {}{weight}", via.dev)
    };
    vias.iter().map(text).collect()
}

fn route_text(route: &api::Route) -> String {
    match route.kind.as_str() {
        "via" => format!("{}{}", route.prefix, vias_text(&route.via)),
        "neighbor" => {
            let dev = route.via.first().map_or("", |via| via.dev.as_str());
            format!("{} dev {dev} neighbor", route.prefix)
        }
        kind => format!("{kind} {}", route.prefix),
    }
}

fn write_answer(out: &mut impl Write, answer: &api::Answer, explain: bool) -> std::io::Result<()> {
    let by = answer.route.as_ref().map_or_else(|| "no route".to_owned(), route_text);
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
pub(crate) fn write_counters(out: &mut impl Write, it: &api::Counters) -> std::io::Result<()> {
    writeln!(out, "received {} ({} bytes)", it.received, it.received_bytes)?;
    writeln!(out, "sent {} ({} bytes)", it.sent, it.sent_bytes)?;
    for (class, reasons) in [("punted", &it.punted), ("dropped", &it.dropped)] {
        for (reason, count) in reasons.iter().filter(|(_, count)| **count > 0) {
            writeln!(out, "{class} {reason} {count}")?;
        }
    }
    Ok(())
}
