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
use std::time::Duration;

use api::{self, Bond, Item, Request, Vlan};
use clap::Subcommand;

use crate::client::{self, RESPONSE_TIMEOUT};
use crate::{acl, block_lists, bundle, counters, egress_queues, flow, policy};

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
    /// Show the access lists with the packets and bytes of each rule
    Acl {
        /// Show only this list
        #[arg(value_name = "LIST")]
        name: Option<String>,
    },
    /// Show the block lists, with the packets about which each has decided
    BlockLists,
    /// Show the block lists that contain a prefix, and the rate of its packets
    Blocked {
        /// Prefix or address
        #[arg(value_name = "PREFIX")]
        prefix: String,
        /// Time for which packets are counted
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = block_lists::parse_count)]
        count: Duration,
    },
    /// Show the queues of egress interfaces: what left, was dropped, and waits, by class
    EgressQueues,
    /// Show the BGP flow specifications: sessions, and those that are not applied
    Flowspec,
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
            Self::Acl { name } => Request::AccessLists { name: name.clone() },
            Self::BlockLists => Request::BlockLists,
            Self::Blocked { prefix, .. } => Request::Blocked { prefix: prefix.clone() },
            Self::EgressQueues => Request::EgressQueues,
            Self::Flowspec => Request::Flowspec,
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
    if let Query::Blocked { prefix, count } = &args.query {
        return block_lists::show_blocked(&args.socket, prefix, *count, args.json);
    }
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
        Item::AccessList(value) => array.push(value),
        Item::BlockList(value) => array.push(value),
        Item::BlockedPrefix(value) => array.push(value),
        Item::EgressQueue(value) => array.push(value),
        Item::Flowspec(value) => array.push(value),
        Item::Audit(value) => array.push(value),
        Item::Gate(value) => array.push(value),
        Item::Grantor(value) => array.push(value),
        Item::Distribution(value) => array.push(value),
        Item::Flow(value) => array.push(value),
        Item::Program(value) => array.push(value),
        // Items of `monitor`, `capture`, `trace` and `fib diff`, not of `show`.
        Item::Packet(value) => array.push(value),
        Item::Capture(value) => array.push(value),
        Item::Trace(value) => array.push(value),
        Item::Event(value) => array.push(value),
        Item::Difference(value) => array.push(value),
        Item::Compared(value) => array.push(value),
    }
}

fn write_item(out: &mut impl Write, item: &Item, explain: bool) -> std::io::Result<()> {
    match item {
        Item::Route(route) => writeln!(out, "{}", route_text(route)),
        Item::Answer(answer) => write_answer(out, answer, explain),
        Item::Neighbor(neighbor) => {
            writeln!(out, "{} dev {} lladdr {}", neighbor.address, neighbor.dev, neighbor.mac)
        }
        Item::Interface(interface) => {
            let state = if interface.up { "up" } else { "down" };
            writeln!(
                out,
                "{}: {} {state} mtu {} lladdr {} table {} {}{}",
                interface.index,
                interface.name,
                interface.mtu,
                interface.mac,
                interface.table,
                interface.mode,
                if interface.observe { " observed" } else { "" }
            )?;
            write_rp_filters(out, "    ", [&interface.rpf_v4, &interface.rpf_v6])?;
            write_forwarding(out, "    ", &interface.forwarding_off)?;
            for mac in &interface.secondary_macs {
                writeln!(out, "    secondary lladdr {mac}")?;
            }
            if let Some(bond) = &interface.bond {
                write_bond(out, bond)?;
            }
            for vlan in &interface.vlans {
                write_vlan(out, vlan)?;
            }
            if let Some(configured) = &interface.configured {
                writeln!(out, "    configured as {configured}")?;
            }
            if let Some(problem) = &interface.problem {
                writeln!(out, "    does not work as a port: {problem}")?;
            }
            if let Some(rules) = &interface.rules {
                writeln!(
                    out,
                    "    {rules}: not followed, packets go by table {}",
                    interface.table
                )?;
            }
            for (reason, count) in interface.steered.iter().filter(|(_, count)| **count > 0) {
                writeln!(out, "    {reason} {count}")?;
            }
            writeln!(
                out,
                "    received {} packets {} bytes, transmitted {} packets {} bytes",
                interface.received,
                interface.received_bytes,
                interface.transmitted,
                interface.transmitted_bytes
            )?;
            for (reason, count) in interface.lost.iter().filter(|(_, count)| **count > 0) {
                writeln!(out, "    lost {reason} {count}")?;
            }
            Ok(())
        }
        Item::NextHop(hop) => {
            let kind = if hop.kind == "via" { String::new() } else { format!(" {}", hop.kind) };
            let vias = vias_text(&hop.via);
            writeln!(out, "{}:{kind}{vias} {} uses {}", hop.hop, hop.action, hop.routes)
        }
        Item::Counters(counters) => counters::write(out, counters),
        Item::Fib(fib) => {
            let full = fib.full.as_ref().map(|full| format!(" FULL: {full}")).unwrap_or_default();
            writeln!(
                out,
                "table {} {}: {} routes, {}, {} bytes{}, generation {}{full}",
                fib.table,
                fib.family,
                fib.routes,
                fib.engine,
                fib.bytes,
                if fib.shared { " with the others" } else { "" },
                fib.generation
            )
        }
        Item::Feed(feed) => {
            writeln!(
                out,
                "{}: {} messages, {} changes in {} commits, {} resynchronizations, {} overruns, \
                 {} parse errors, {} refused, {} errors",
                feed.name,
                feed.messages,
                feed.changes,
                feed.commits,
                feed.resynchronizations,
                feed.overruns,
                feed.parse_errors,
                feed.refused,
                feed.errors
            )?;
            feed.last_error.iter().try_for_each(|error| writeln!(out, "    {error}"))
        }
        Item::Done(message) => writeln!(out, "{message}"),
        Item::Worker(worker) => {
            writeln!(out, "worker {}", worker.worker)?;
            counters::write(out, &worker.counters)
        }
        Item::AccessList(list) => acl::write(out, list),
        Item::BlockList(list) => block_lists::write(out, list),
        Item::BlockedPrefix(blocked) => block_lists::write_blocked(out, blocked),
        Item::EgressQueue(queue) => egress_queues::write(out, queue),
        Item::Flowspec(flowspec) => acl::write_flowspec(out, flowspec),
        Item::Audit(audit) => {
            let (checks, wrong) = (audit.checks, audit.mismatches);
            let (route_heals, heals) = (audit.route_heals, audit.heals);
            writeln!(
                out,
                "{checks} destinations checked, {wrong} mismatches, {route_heals} healed by route, \
                 {heals} by resynchronization"
            )?;
            audit.last_mismatch.iter().try_for_each(|last| writeln!(out, "    {last}"))
        }
        Item::Gate(gate) => flow::write_gate(out, gate),
        Item::Grantor(grantor) => policy::write_grantor(out, grantor),
        Item::Distribution(distribution) => bundle::write_distribution(out, distribution),
        Item::Flow(flow) => flow::write_flow(out, flow),
        Item::Program(program) => flow::write_program(out, program),
        Item::Event(_) | Item::Difference(_) | Item::Compared(_) => Ok(()),
        Item::Packet(_) | Item::Capture(_) | Item::Trace(_) => Ok(()),
    }
}

/// Formats next hops as iproute2 does.
pub(crate) fn vias_text(vias: &[api::Via]) -> String {
    let text = |via: &api::Via| {
        let gateway = via.gateway.map(|gateway| format!(" via {gateway}")).unwrap_or_default();
        let weight = if vias.len() > 1 { format!(" weight {}", via.weight) } else { String::new() };
        let name = via.name.as_ref().map(|name| format!(" nexthop {name}")).unwrap_or_default();
        format!("{name}{gateway} dev {}{weight}", via.dev)
    };
    vias.iter().map(text).collect()
}

fn route_text(route: &api::Route) -> String {
    match route.kind.as_str() {
        "via" | "static" => format!("{}{}", route.prefix, vias_text(&route.via)),
        "neighbor" => {
            let dev = route.via.first().map_or("", |via| via.dev.as_str());
            format!("{} dev {dev} neighbor", route.prefix)
        }
        kind => format!("{kind} {}", route.prefix),
    }
}

/// Writes the bond of a port.
fn write_bond(out: &mut impl Write, bond: &Bond) -> std::io::Result<()> {
    let Bond { name, mac, mtu, up, table, members } = bond;
    let (state, members) = (if *up { "up" } else { "down" }, members.join(", "));
    writeln!(out, "    bond {name} {state} mtu {mtu} lladdr {mac} table {table} members {members}")
}

/// Writes the families whose packets are dropped.
fn write_forwarding(
    out: &mut impl Write,
    indent: &str,
    families: &[String],
) -> std::io::Result<()> {
    families.iter().try_for_each(|family| {
        writeln!(
            out,
            "{indent}forwarding of {family} is off in the kernel: its packets are dropped"
        )
    })
}

/// Writes the reverse path filters that are on.
fn write_rp_filters(
    out: &mut impl Write,
    indent: &str,
    filters: [&Option<String>; 2],
) -> std::io::Result<()> {
    for (family, filter) in ["IPv4", "IPv6"].into_iter().zip(filters) {
        if let Some(filter) = filter {
            writeln!(out, "{indent}reverse path filter of {family}: {filter}")?;
        }
    }
    Ok(())
}

/// Writes a VLAN device over a port.
fn write_vlan(out: &mut impl Write, vlan: &Vlan) -> std::io::Result<()> {
    if let Some(problem) = &vlan.problem {
        return writeln!(out, "    vlan {} left to Linux: {problem}", vlan.name);
    }
    write!(out, "    vlan {} {}", vlan.name, if vlan.up { "up" } else { "down" })?;
    if let Some(mtu) = vlan.mtu {
        write!(out, " mtu {mtu}")?;
    }
    if let Some(mac) = &vlan.mac {
        write!(out, " lladdr {mac}")?;
    }
    if let Some(table) = vlan.table {
        write!(out, " table {table}")?;
    }
    writeln!(out, " tags {}", vlan.tags.join(", "))?;
    write_rp_filters(out, "        ", [&vlan.rpf_v4, &vlan.rpf_v6])?;
    write_forwarding(out, "        ", &vlan.forwarding_off)
}

/// Writes the result of a lookup; with `explain`, its protocol and the loads of the engine.
pub(crate) fn write_answer(
    out: &mut impl Write,
    answer: &api::Answer,
    explain: bool,
) -> std::io::Result<()> {
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
