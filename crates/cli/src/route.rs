//! `fingerpost route get ADDR...`: one lookup, and what it touched.
//!
//! The lookup is traced by the engine itself: every load it takes, in which of
//! its arrays, and of how many bytes. The prefix comes from the `Rib`, because a
//! forwarding table does not know prefixes any more; the two must agree on the
//! next hop, and are compared each time.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Subcommand;
use fib::{Family, Rib};
use serde::Serialize;

use crate::tables::{self, Built, Reading, Tables};

/// What `route` takes.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look addresses up: prefix, next hop, and what the lookup touched
    ///
    /// Exit status 1 if an address has no route.
    Get(Get),
}

/// What `route get` takes.
#[derive(clap::Args)]
struct Get {
    /// The addresses, IPv4 or IPv6
    #[arg(value_name = "ADDR", required_unless_present = "file")]
    addresses: Vec<IpAddr>,
    /// A file with more addresses, one a line, `-` for standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// A file with routes, `-` for standard input; several make one table
    #[arg(long, value_name = "FILE")]
    table: Vec<PathBuf>,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    reading: Reading,
}

/// The answer for one address.
#[derive(Debug, Serialize)]
struct Answer {
    address: IpAddr,
    /// The longest prefix that holds it.
    prefix: Option<String>,
    /// What the file has behind that prefix.
    next_hop: Option<String>,
    engine: String,
    /// The loads of the lookup, in order.
    path: Vec<Load>,
    bytes_touched: usize,
}

#[derive(Debug, Serialize)]
struct Load {
    part: &'static str,
    index: usize,
    bytes: usize,
}

/// Does what `route` is asked for.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Get(args) => get(args),
    }
}

fn get(args: &Get) -> anyhow::Result<ExitCode> {
    if args.table.is_empty() {
        // Answers from a made-up table would look like real ones, so there is no
        // default. This is a mistake of usage, hence the status.
        eprintln!(
            "fingerpost: no routes to look up in: name a file with --table FILE\n\
             (`fingerpost table generate --output FILE` makes a synthetic one)"
        );
        return Ok(ExitCode::from(2));
    }
    let mut addresses = args.addresses.clone();
    if let Some(path) = &args.file {
        addresses.extend(listed(path)?);
    }
    let tables = Tables::load(&args.table, &args.reading)?;
    let v4 = addresses.iter().any(IpAddr::is_ipv4);
    let v4 = v4.then(|| tables::build(&tables.v4, &args.reading)).transpose()?;
    let v6 = addresses.iter().any(IpAddr::is_ipv6);
    let v6 = v6.then(|| tables::build(&tables.v6, &args.reading)).transpose()?;
    let mut answers = Vec::with_capacity(addresses.len());
    for &address in &addresses {
        answers.push(match (address, &v4, &v6) {
            (IpAddr::V4(v4_addr), Some(built), _) => {
                answer(address, u32::from(v4_addr), &tables.v4, built, &tables)?
            }
            (IpAddr::V6(v6_addr), _, Some(built)) => {
                answer(address, u128::from(v6_addr), &tables.v6, built, &tables)?
            }
            _ => unreachable!("a table was built for each family that is asked for"),
        });
    }
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &answers)?;
        writeln!(out)?;
    } else {
        for answer in &answers {
            write(answer, &mut out)?;
        }
    }
    let all = answers.iter().all(|answer| answer.prefix.is_some());
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads addresses, one a line.
fn listed(path: &Path) -> anyhow::Result<Vec<IpAddr>> {
    let text = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.with_context(|| format!("reading {}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(i, line)| {
            let place = || format!("{}, line {}: `{line}` is no address", path.display(), i + 1);
            line.trim().parse().with_context(place)
        })
        .collect()
}

fn answer<A: Family>(
    address: IpAddr,
    key: A,
    rib: &Rib<A>,
    built: &Built<A>,
    tables: &Tables,
) -> anyhow::Result<Answer> {
    let (hop, steps) = built.fib.trace(key);
    let longest = rib.longest(key);
    if longest.map_or(fib::Hop::NONE, |(_, hop)| hop) != hop || built.fib.lookup(key) != hop {
        bail!("{address}: the table and its routes disagree; this is a bug, please report it");
    }
    Ok(Answer {
        address,
        prefix: longest.map(|(prefix, _)| prefix.to_string()),
        next_hop: tables.label(hop).map(str::to_owned),
        engine: built.fib.name(),
        bytes_touched: steps.iter().map(|step| step.bytes).sum(),
        path: steps
            .into_iter()
            .map(|step| Load { part: step.part, index: step.index, bytes: step.bytes })
            .collect(),
    })
}

fn write(answer: &Answer, out: &mut impl Write) -> std::io::Result<()> {
    let Answer { address, prefix, next_hop, engine, path, bytes_touched } = answer;
    match prefix {
        None => writeln!(out, "{address} no route")?,
        Some(prefix) => match next_hop.as_deref() {
            None | Some("") => writeln!(out, "{address} in {prefix}")?,
            Some(next_hop) => writeln!(out, "{address} in {prefix} via {next_hop}")?,
        },
    }
    let path: Vec<String> =
        path.iter().map(|Load { part, index, .. }| format!("{part}[{index}]")).collect();
    writeln!(out, "    {engine}: {} ({bytes_touched} bytes touched)", path.join(" > "))
}
