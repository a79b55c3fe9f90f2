//! `fingerpost flow explain SRC DST`: the state of a flow at a running gate;
//! `flow flush --sender N`: retracts a sender's decisions.
//!
//! ```text
//!   192.0.2.1 > 198.51.100.7 granted for 281.4 s by sender 1, decision 1234
//!       1031800 bytes left in this second, renewal asked for in 221.4 s
//!       by 198.51.100.0/24 (line 14): grantors site, policy generation 1
//!       its last dropped packet: over_rate, 0.8 s ago
//! ```
//!
//! Exit status 1 where the gate has no entry for the flow.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::process::ExitCode;

use router::control::api::{
    CandidateTold, DifferingTold, FlowTold, GateTold, Item, Order, OutcomeTold, PolicyTold,
    ProgramTold, Request,
};

use crate::client::{self, PATIENCE};
use crate::order;

/// What `flow` takes.
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

#[derive(clap::Subcommand)]
enum What {
    /// State, rule, policy, budget, renewal, and why its last packet was dropped
    Explain {
        /// Where its packets come from
        #[arg(value_name = "SRC")]
        src: IpAddr,
        /// Where they go
        #[arg(value_name = "DST")]
        dst: IpAddr,
    },
    /// Retract all decisions of a sender: its flows send requests again
    Flush {
        /// The `id` of its `sender` in the gate's configuration
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        sender: u32,
    },
}

/// Asks, and prints.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (src, dst) = match args.what {
        What::Explain { src, dst } => (src, dst),
        What::Flush { sender } => {
            return order::give(&args.at, &Order::Flush { sender }, args.json);
        }
    };
    let mut known = false;
    let mut out = std::io::stdout().lock();
    client::ask(&args.at, &Request::Flow { src, dst }, PATIENCE, &mut |item| {
        if let Item::Flow(told) = item {
            known = told.state != "unknown";
            if args.json {
                serde_json::to_writer(&mut out, &told)?;
                writeln!(out)?;
            } else {
                flow(&mut out, &told)?;
            }
        }
        Ok(())
    })?;
    Ok(if known { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes what is known of a flow.
pub(crate) fn flow(out: &mut impl Write, it: &FlowTold) -> std::io::Result<()> {
    write!(out, "{} > {} {}", it.source, it.destination, it.state)?;
    if let Some(program) = it.program {
        write!(out, " {program}")?;
    }
    if let Some(expires) = it.expires {
        write!(out, " for {expires:.1} s")?;
    }
    if let Some(traffic) = &it.traffic {
        write!(out, " ({traffic} only)")?;
    }
    if let (Some(sender), Some(decision)) = (it.sender, it.decision) {
        write!(out, " by sender {sender}, decision {decision}")?;
    }
    writeln!(out)?;
    if let (Some(priority), Some(ago)) = (it.priority, it.last_request_ago) {
        writeln!(out, "    priority {priority}, asked {ago:.3} s ago")?;
    }
    if let Some(ago) = it.first_seen_ago {
        let next = match it.address_validation.as_deref() {
            Some("syn-cookie") => ", of TCP with the answer to a SYN cookie",
            _ => "",
        };
        writeln!(out, "    came once, {ago:.3} s ago: an entry with the next packet{next}")?;
    }
    if let (Some(budget), Some(renewal)) = (it.budget, it.renewal) {
        writeln!(
            out,
            "    {budget} bytes left in this second, renewal asked for in {renewal:.1} s"
        )?;
    }
    if let Some(prefix) = &it.allowed {
        writeln!(out, "    its source passes before anything is asked: {prefix}")?;
    }
    if let Some(prefix) = &it.blocked {
        writeln!(out, "    its source is blocked: {prefix}")?;
    }
    if let (Some(rule), Some(action)) = (&it.rule, &it.action) {
        let line = it.line.map(|line| format!(" (line {line})")).unwrap_or_default();
        let version = it.version.as_ref().map(|it| format!(" {it}")).unwrap_or_default();
        let stale = if it.stale { ", decided of by an older one" } else { "" };
        let generation = it.generation;
        writeln!(
            out,
            "    by {rule}{line}: {action}, policy{version} generation {generation}{stale}"
        )?;
    }
    if let Some(bits) = it.limit {
        writeln!(out, "    at most {bits} bit/s to {}", it.rule.as_deref().unwrap_or("it"))?;
    }
    if let Some(bits) = it.per_destination_limit {
        writeln!(out, "    at most {bits} bit/s to each destination within")?;
    }
    if let Some(candidate) = &it.candidate {
        writeln!(out, "    the candidate would say: {}", outcome(candidate))?;
    }
    if it.xdp_dropped {
        let why = it.dropped.as_deref().unwrap_or("declined");
        writeln!(out, "    its packets are dropped in the kernel: {why}")?;
    } else if let (Some(dropped), Some(ago)) = (&it.dropped, it.last_drop_ago) {
        let meant = match &**dropped {
            "syn_cookie" => ": a SYN, answered to see whether its address is its own",
            "cookie_reset" => ": its answer to a SYN cookie, which was right",
            _ => "",
        };
        writeln!(out, "    its last dropped packet: {dropped}, {ago:.1} s ago{meant}")?;
    }
    Ok(())
}

/// Writes what a gate says of itself; numbers that are zero are left out.
pub(crate) fn gate(out: &mut impl Write, it: &GateTold) -> std::io::Result<()> {
    let version = it.version.as_ref().map(|it| format!(" {it}")).unwrap_or_default();
    writeln!(
        out,
        "front {} back {} {} bit/s, policy{version} generation {}: {} prefixes, {} grantors",
        it.front,
        it.back,
        it.bandwidth,
        it.generation,
        it.prefixes,
        it.grantors.len()
    )?;
    if it.allowed + it.blocked > 0 {
        writeln!(out, "sources: {} prefixes allowed, {} blocked", it.allowed, it.blocked)?;
    }
    for grantor in &it.silent {
        writeln!(out, "grantor {grantor} is silent: others get its flows")?;
    }
    let parts: [(&str, &BTreeMap<String, u64>); 5] = [
        ("packets", &it.packets),
        ("bytes", &it.bytes),
        ("table", &it.table),
        ("link", &it.link),
        ("decisions", &it.decisions),
    ];
    for (part, numbers) in parts {
        for (name, value) in numbers.iter().filter(|(_, value)| **value > 0) {
            writeln!(out, "{part} {name} {value}")?;
        }
    }
    for it in &it.policies {
        policy(out, it)?;
    }
    it.candidate.as_ref().map_or(Ok(()), |shadow| candidate(out, shadow))
}

/// Writes what became of packets by a rule, if there were any.
fn policy(out: &mut impl Write, it: &PolicyTold) -> std::io::Result<()> {
    let some: Vec<_> = it.packets.iter().filter(|(_, packets)| **packets > 0).collect();
    if some.is_empty() {
        return Ok(());
    }
    let action = it.action.as_ref().map(|action| format!(" ({action})")).unwrap_or_default();
    write!(out, "policy {}{action}", it.policy)?;
    for (name, packets) in some {
        write!(out, " {name} {packets}")?;
    }
    writeln!(out, " bytes {}", it.bytes.values().sum::<u64>())
}

/// Writes what a candidate would do.
fn candidate(out: &mut impl Write, it: &CandidateTold) -> std::io::Result<()> {
    let version = it.version.as_ref().map(|it| format!(" {it}")).unwrap_or_default();
    let (prefixes, packets, samples) = (it.prefixes, it.packets, it.samples);
    writeln!(
        out,
        "candidate{version}: {prefixes} prefixes, asked about {packets} packets by {samples} samples"
    )?;
    for it in &it.changes {
        let DifferingTold { policy, candidate, packets, .. } = it;
        writeln!(out, "    {policy} -> {candidate}: {packets} packets")?;
    }
    for it in &it.flows {
        let (policy, candidate) = (outcome(&it.policy), outcome(&it.candidate));
        writeln!(
            out,
            "    {} > {}: {policy} -> {candidate}, {} packets, {:.1} s ago",
            it.source, it.destination, it.packets, it.ago
        )?;
    }
    Ok(())
}

fn outcome(it: &OutcomeTold) -> String {
    let line = it.line.map(|line| format!(" (line {line})")).unwrap_or_default();
    let rule = it.rule.as_ref().map(|rule| format!(" by {rule}{line}")).unwrap_or_default();
    format!("{}{rule}", it.action)
}

/// Writes what is known of a flow program.
pub(crate) fn program(out: &mut impl Write, it: &ProgramTold) -> std::io::Result<()> {
    if let Some(gate) = it.gate {
        write!(out, "gate {gate} ")?;
    }
    let name = it.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let state = it.state.replace('_', " ");
    write!(out, "program {}{name} {state}", it.number)?;
    // A grantor knows the size of all, but it is told only of what is coming.
    if let (Some(there), Some(bytes)) = (it.received_bytes, it.bytes) {
        write!(out, " {there} of {bytes} bytes")?;
    }
    let before = if it.previous_kept { ", the version before it kept" } else { "" };
    writeln!(out, ", of {}, sha256 {}{before}", it.origin, it.digest)?;
    it.reason.iter().try_for_each(|why| writeln!(out, "    {why}"))
}
