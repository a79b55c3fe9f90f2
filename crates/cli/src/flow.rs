//! `fingerpost flow explain SRC DST`: prints the state of a flow at a running gate;
//! `flow flush --sender N`: retracts the decisions of a sender.
//!
//! ```text
//!   192.0.2.1 > 198.51.100.7 granted for 281.4 s by sender 1, decision 1234
//!       1031800 bytes left in this second, renewal request in 221.4 s
//!       by 198.51.100.0/24 (line 14): grantors site, policy generation 1
//!       last dropped packet: over_rate, 0.8 s ago
//! ```
//!
//! Exit status 1 if the gate has no entry for the flow.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::process::ExitCode;

use api::{
    CandidateStatus, FlowStatus, GateStatus, Item, Order, Outcome, OutcomeChange, ProgramInfo,
    Request, RuleTraffic,
};

use crate::client::{self, RESPONSE_TIMEOUT};
use crate::order;

/// The arguments of `flow`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    socket: client::SocketArgs,
    /// Write JSON
    #[arg(short, long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Print state, rule, budget, renewal and last drop of a flow
    ///
    /// Exit status 1 if the gate has no entry for the flow.
    Explain {
        /// Source address
        #[arg(value_name = "SRC")]
        src: IpAddr,
        /// Destination address
        #[arg(value_name = "DST")]
        dst: IpAddr,
    },
    /// Retract all decisions of a sender, so that its flows send requests again
    Flush {
        /// Sender `id` in the configuration of the gate
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        sender: u32,
    },
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (src, dst) = match args.verb {
        Verb::Explain { src, dst } => (src, dst),
        Verb::Flush { sender } => {
            return order::send(&args.socket, &Order::Flush { sender }, args.json);
        }
    };
    let mut known = false;
    let mut out = std::io::stdout().lock();
    client::send(&args.socket, &Request::Flow { src, dst }, RESPONSE_TIMEOUT, &mut |item| {
        if let Item::Flow(status) = item {
            known = status.state != "unknown";
            if args.json {
                serde_json::to_writer(&mut out, &status)?;
                writeln!(out)?;
            } else {
                write_flow(&mut out, &status)?;
            }
        }
        Ok(())
    })?;
    Ok(if known { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the status of a flow.
pub(crate) fn write_flow(out: &mut impl Write, flow: &FlowStatus) -> std::io::Result<()> {
    write!(out, "{} > {} {}", flow.source, flow.destination, flow.state)?;
    if let Some(program) = flow.program {
        write!(out, " {program}")?;
    }
    if let Some(expires) = flow.expires {
        write!(out, " for {expires:.1} s")?;
    }
    if let Some(traffic) = &flow.traffic {
        write!(out, " ({traffic} only)")?;
    }
    if let (Some(sender), Some(decision)) = (flow.sender, flow.decision) {
        write!(out, " by sender {sender}, decision {decision}")?;
    }
    writeln!(out)?;
    if let (Some(priority), Some(ago)) = (flow.priority, flow.last_request_ago) {
        writeln!(out, "    priority {priority}, last request {ago:.3} s ago")?;
    }
    if let Some(ago) = flow.first_seen_ago {
        let next = match flow.address_validation.as_deref() {
            Some("syn-cookie") => ", for TCP with the reply to a SYN cookie",
            _ => "",
        };
        writeln!(out, "    first packet {ago:.3} s ago: the next packet creates an entry{next}")?;
    }
    if let (Some(budget), Some(renewal)) = (flow.budget, flow.renewal) {
        writeln!(out, "    {budget} bytes left in this second, renewal request in {renewal:.1} s")?;
    }
    if let Some(prefix) = &flow.allowed {
        writeln!(out, "    source is on the allow-list: {prefix}")?;
    }
    if let Some(prefix) = &flow.blocked {
        writeln!(out, "    source is blocked: {prefix}")?;
    }
    if let (Some(rule), Some(action)) = (&flow.rule, &flow.action) {
        let line = flow.line.map(|line| format!(" (line {line})")).unwrap_or_default();
        let version = flow.version.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
        let stale = if flow.stale { ", decided by an older policy" } else { "" };
        let generation = flow.generation;
        writeln!(
            out,
            "    by {rule}{line}: {action}, policy{version} generation {generation}{stale}"
        )?;
    }
    if let Some(bits) = flow.limit {
        writeln!(out, "    limit {bits} bit/s to {}", flow.rule.as_deref().unwrap_or("it"))?;
    }
    if let Some(bits) = flow.per_destination_limit {
        writeln!(out, "    limit {bits} bit/s to each destination of the prefix")?;
    }
    if let Some(candidate) = &flow.candidate {
        writeln!(out, "    the candidate decides: {}", outcome_text(candidate))?;
    }
    if flow.xdp_dropped {
        let why = flow.dropped.as_deref().unwrap_or("declined");
        writeln!(out, "    packets are dropped by the XDP program: {why}")?;
    } else if let (Some(dropped), Some(ago)) = (&flow.dropped, flow.last_drop_ago) {
        let meaning = match &**dropped {
            "syn_cookie" => ": a SYN, answered with a SYN cookie to validate its source address",
            "cookie_reset" => ": a valid reply to a SYN cookie",
            _ => "",
        };
        writeln!(out, "    last dropped packet: {dropped}, {ago:.1} s ago{meaning}")?;
    }
    Ok(())
}

/// Writes the status of a gate, without counters that are zero.
pub(crate) fn write_gate(out: &mut impl Write, gate: &GateStatus) -> std::io::Result<()> {
    let version = gate.version.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    writeln!(
        out,
        "front {} back {} {} bit/s, policy{version} generation {}: {} prefixes, {} grantors",
        gate.front,
        gate.back,
        gate.bandwidth,
        gate.generation,
        gate.prefixes,
        gate.grantors.len()
    )?;
    if gate.allowed + gate.blocked > 0 {
        writeln!(out, "sources: {} prefixes allowed, {} blocked", gate.allowed, gate.blocked)?;
    }
    for grantor in &gate.silent {
        writeln!(out, "grantor {grantor} is silent: its flows go to the other grantors")?;
    }
    let parts: [(&str, &BTreeMap<String, u64>); 5] = [
        ("packets", &gate.packets),
        ("bytes", &gate.bytes),
        ("table", &gate.table),
        ("link", &gate.link),
        ("decisions", &gate.decisions),
    ];
    for (part, numbers) in parts {
        for (name, value) in numbers.iter().filter(|(_, value)| **value > 0) {
            writeln!(out, "{part} {name} {value}")?;
        }
    }
    for policy in &gate.policies {
        write_policy(out, policy)?;
    }
    gate.candidate.as_ref().map_or(Ok(()), |candidate| write_candidate(out, candidate))
}

/// Writes the counters of a rule, unless all are zero.
fn write_policy(out: &mut impl Write, traffic: &RuleTraffic) -> std::io::Result<()> {
    let nonzero: Vec<_> = traffic.packets.iter().filter(|(_, packets)| **packets > 0).collect();
    if nonzero.is_empty() {
        return Ok(());
    }
    let action = traffic.action.as_ref().map(|action| format!(" ({action})")).unwrap_or_default();
    write!(out, "policy {}{action}", traffic.policy)?;
    for (name, packets) in nonzero {
        write!(out, " {name} {packets}")?;
    }
    writeln!(out, " bytes {}", traffic.bytes.values().sum::<u64>())
}

/// Writes the comparison of a candidate policy.
fn write_candidate(out: &mut impl Write, status: &CandidateStatus) -> std::io::Result<()> {
    let version = status.version.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    let (prefixes, packets, samples) = (status.prefixes, status.packets, status.samples);
    writeln!(
        out,
        "candidate{version}: {prefixes} prefixes, {packets} packets estimated by {samples} samples"
    )?;
    for change in &status.changes {
        let OutcomeChange { policy, candidate, packets, .. } = change;
        writeln!(out, "    {policy} -> {candidate}: {packets} packets")?;
    }
    for flow in &status.flows {
        let (policy, candidate) = (outcome_text(&flow.policy), outcome_text(&flow.candidate));
        writeln!(
            out,
            "    {} > {}: {policy} -> {candidate}, {} packets, {:.1} s ago",
            flow.source, flow.destination, flow.packets, flow.ago
        )?;
    }
    Ok(())
}

fn outcome_text(outcome: &Outcome) -> String {
    let line = outcome.line.map(|line| format!(" (line {line})")).unwrap_or_default();
    let rule = outcome.rule.as_ref().map(|rule| format!(" by {rule}{line}")).unwrap_or_default();
    format!("{}{rule}", outcome.action)
}

/// Writes the status of a flow program.
pub(crate) fn write_program(out: &mut impl Write, program: &ProgramInfo) -> std::io::Result<()> {
    if let Some(gate) = program.gate {
        write!(out, "gate {gate} ")?;
    }
    let name = program.name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default();
    let state = program.state.replace('_', " ");
    write!(out, "program {}{name} {state}", program.number)?;
    // A grantor always reports `bytes`, and `received_bytes` only during a transfer.
    if let (Some(received), Some(bytes)) = (program.received_bytes, program.bytes) {
        write!(out, " {received} of {bytes} bytes")?;
    }
    let previous = if program.previous_kept { ", previous version kept for its flows" } else { "" };
    writeln!(out, ", of {}, sha256 {}{previous}", program.origin, program.digest)?;
    program.reason.iter().try_for_each(|reason| writeln!(out, "    {reason}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{write_candidate, write_flow};

    /// Asserts that the guide has `text`, which a command prints.
    fn assert_in_guide(text: &[u8]) {
        let text = std::str::from_utf8(text).unwrap();
        assert!(include_str!("../../../docs/guide/gate.md").contains(text), "no {text:?}");
    }

    #[test]
    fn guide_has_the_output_of_flow_explain() {
        let flow = serde_json::from_value(json!({
            "source": "10.1.0.30", "destination": "192.0.2.7", "state": "granted",
            "expires": 57.3, "budget": 1536, "renewal": 47.3,
            "rule": "192.0.2.0/24", "line": 19, "action": "grantors site",
            "version": "2026-11-22", "generation": 1,
            "dropped": "over_rate", "last_drop_ago": 0.2,
        }));
        let mut out = Vec::new();
        write_flow(&mut out, &flow.unwrap()).unwrap();
        assert_in_guide(&out);
    }

    #[test]
    fn guide_has_the_report_of_a_candidate() {
        let change = |candidate, packets| {
            json!({
                "policy": "grantors site", "candidate": candidate,
                "samples": packets, "packets": packets,
            })
        };
        let status = serde_json::from_value(json!({
            "version": "next", "prefixes": 4, "samples": 23, "packets": 23,
            "changes": [change("grantors other", 4), change("drop", 3)],
            "flows": [{
                "source": "10.1.0.9", "destination": "192.0.2.200", "packets": 4, "ago": 0.8,
                "policy": { "action": "grantors site", "rule": "192.0.2.0/24", "line": 16 },
                "candidate": { "action": "grantors other", "rule": "192.0.2.128/25", "line": 11 },
            }],
        }));
        let mut out = Vec::new();
        write_candidate(&mut out, &status.unwrap()).unwrap();
        assert_in_guide(&out);
    }
}
