//! `fingerpost acl`: the access lists of a configuration or of the running router, explained; those of a
//! configuration as a ruleset of nftables; and the text of `show acl` and `show flowspec`.
//!
//! ```text
//!   acl explain [-c FILE] LIST from 192.0.2.1 to 198.51.100.7 ipproto tcp dport 22
//!       3: count ipproto tcp
//!       7: deny from 192.0.2.0/24          the packet ends here
//!   acl nft -c FILE | nft -f -
//! ```

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use acl::nft::{self, AppliedList};
use acl::{AccessList, DescribedPacket, Rule};
use anyhow::{Context, bail};
use api::{AccessInterface, Item, Request};
use config::{AccessListConfig, Config};
use serde_json::json;

use crate::client::{self, RESPONSE_TIMEOUT};

/// The arguments of `acl`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Print the rules that act on a packet, and whether it passes
    ///
    /// Exit status 1 if the packet is denied.
    Explain {
        #[command(flatten)]
        socket: client::SocketArgs,
        /// Configuration file; without it the lists are those of the running router, with `flowspec`
        #[arg(short, long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// Write JSON
        #[arg(short, long)]
        json: bool,
        /// Access list
        #[arg(value_name = "LIST")]
        list: String,
        /// Packet, in the words of a rule: from ADDR to ADDR [ipproto PROTO] [sport N] [dport N] …
        #[arg(value_name = "PACKET", required = true, num_args = 1.., trailing_var_arg = true)]
        packet: Vec<String>,
    },
    /// Write the lists as a ruleset of nftables, for the packets that Linux forwards
    Nft {
        /// Configuration file
        #[arg(short, long, value_name = "FILE")]
        config: PathBuf,
    },
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.verb {
        Verb::Explain { socket, config, json, list, packet } => {
            let list = match config {
                Some(config) => configured(&Config::load(config)?, list)?,
                None => running(socket, list)?,
            };
            explain(&list, &packet.join(" "), *json)
        }
        Verb::Nft { config } => write_ruleset(&Config::load(config)?),
    }
}

fn build(config: &AccessListConfig) -> anyhow::Result<AccessList> {
    let AccessListConfig { name, permits, rules, .. } = config;
    AccessList::build(name, *permits, rules.clone()).with_context(|| name.clone())
}

/// Returns a list of a configuration.
fn configured(config: &Config, name: &str) -> anyhow::Result<AccessList> {
    let Some(list) = config.access_lists.iter().find(|list| list.name == name) else {
        let names: Vec<_> = config.access_lists.iter().map(|list| &*list.name).collect();
        bail!("{name}: no access list of the configuration (there is: {})", names.join(", "));
    };
    build(list)
}

/// Returns a list of the running router.
fn running(socket: &client::SocketArgs, name: &str) -> anyhow::Result<AccessList> {
    let mut found = None;
    let request = Request::AccessLists { name: Some(name.to_owned()) };
    client::send(socket, &request, RESPONSE_TIMEOUT, &mut |item| {
        if let Item::AccessList(list) = item {
            found = Some(list);
        }
        Ok(())
    })?;
    let list = found.with_context(|| format!("{name}: no access list"))?;
    let rule = |rule: &api::AccessRule| {
        let with_hint = || format!("rule {}: state the configuration by -c", rule.number);
        Rule::parse(&rule.rule, &|_| None).with_context(with_hint)
    };
    let rules = list.rules.iter().map(rule).collect::<anyhow::Result<_>>()?;
    AccessList::build(name, list.default == "permit", rules).with_context(|| name.to_owned())
}

fn explain(list: &AccessList, packet: &str, json: bool) -> anyhow::Result<ExitCode> {
    let rules: Vec<usize> = match DescribedPacket::parse(packet)? {
        DescribedPacket::V4(fields) => list.matches(&fields).collect(),
        DescribedPacket::V6(fields) => list.matches(&fields).collect(),
    };
    let last = rules.last().map(|rule| &list.rules()[*rule].action);
    let ended = last.filter(|action| action.is_terminal());
    let passes = ended.map_or(list.permits, |action| *action == acl::Action::Permit);
    let result = if passes { "permit" } else { "deny" };
    let mut out = std::io::stdout().lock();
    if json {
        let rule =
            |&rule: &usize| json!({ "number": rule + 1, "rule": list.rules()[rule].to_string() });
        let rules: Vec<_> = rules.iter().map(rule).collect();
        let by_default = ended.is_none();
        let value = json!({ "result": result, "by_default": by_default, "rules": rules });
        writeln!(out, "{value}")?;
    } else {
        for rule in &rules {
            writeln!(out, "{}: {}", rule + 1, list.rules()[*rule])?;
        }
        if ended.is_none() {
            writeln!(out, "default: {result}")?;
        }
    }
    Ok(if passes { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write_ruleset(config: &Config) -> anyhow::Result<ExitCode> {
    let lists: Vec<_> = config.access_lists.iter().map(build).collect::<Result<_, _>>()?;
    let applied = lists.iter().zip(&config.access_lists).map(|(list, config)| AppliedList {
        list,
        inbound: &config.inbound,
        outbound: &config.outbound,
    });
    let ruleset = nft::ruleset(&applied.collect::<Vec<_>>());
    std::io::stdout().lock().write_all(ruleset.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the BGP flow specifications.
pub(crate) fn write_flowspec(
    out: &mut impl Write,
    flowspec: &api::Flowspec,
) -> std::io::Result<()> {
    let api::Flowspec { listen, flows, rules, refused_flows, malformed, .. } = flowspec;
    writeln!(
        out,
        "listening on {listen}: {flows} flow specifications, {rules} rules, {refused_flows} not applied, \
         {malformed} malformed, {} connections refused",
        flowspec.refused_connections
    )?;
    for session in &flowspec.sessions {
        let state = if session.established { "established" } else { "opening" };
        let api::FlowspecSession { peer, flows, seconds, .. } = session;
        writeln!(out, "    session {peer}: {state}, {flows} flow specifications, {seconds} s")?;
    }
    for refused in &flowspec.refused {
        writeln!(out, "    not applied: {}: {} not supported", refused.flow, refused.reason)?;
    }
    flowspec.last_end.iter().try_for_each(|end| writeln!(out, "    last end: {end}"))?;
    flowspec.last_refused.iter().try_for_each(|last| writeln!(out, "    last refusal: {last}"))
}

/// Writes a list as `show acl` prints it.
pub(crate) fn write(out: &mut impl Write, list: &api::AccessList) -> std::io::Result<()> {
    let interfaces = |interfaces: &[AccessInterface]| {
        let text = |interface: &AccessInterface| match interface.is_port {
            true => interface.name.clone(),
            false => format!("{} (no port)", interface.name),
        };
        interfaces.iter().map(text).collect::<Vec<_>>().join(", ")
    };
    write!(out, "{}:", list.name)?;
    for (word, names) in [("inbound", &list.inbound), ("outbound", &list.outbound)] {
        if !names.is_empty() {
            write!(out, " {word} {}", interfaces(names))?;
        }
    }
    writeln!(out, " {} rules, {} bytes", list.rules.len(), list.memory_bytes)?;
    for rule in &list.rules {
        let api::AccessRule { number, rule, packets, bytes, exceeded } = rule;
        write!(out, "    {number}: {rule}: {packets} packets {bytes} bytes")?;
        writeln!(
            out,
            "{}",
            if *exceeded > 0 { format!(", {exceeded} exceeded") } else { String::new() }
        )?;
    }
    let api::AccessList { default, default_packets, default_bytes, .. } = list;
    writeln!(out, "    default: {default}: {default_packets} packets {default_bytes} bytes")
}
