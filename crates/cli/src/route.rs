//! `fingerpost route get ADDR...`: one lookup, and what it touched.
//!
//! The lookup is traced by the engine itself: every load it takes, in which of
//! its arrays, and of how many bytes. The prefix comes from the `Rib`, because a
//! forwarding table does not know prefixes any more; the two must agree on the
//! next hop, and are compared each time. An image has the forwarding table alone.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Subcommand;
use fib::engine::Step;
use fib::{Family, Rib};
use serde::Serialize;

use crate::table::image::{self, Imaged};
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
    /// An image of a table (`fingerpost table save`): the first of each family in it.
    /// There are no prefixes in one
    #[arg(long, value_name = "FILE", conflicts_with = "table")]
    image: Option<PathBuf>,
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
    /// Whether there is a route.
    #[serde(skip)]
    routed: bool,
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
    if args.table.is_empty() && args.image.is_none() {
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
    let answers = match &args.image {
        Some(path) => from_image(path, &addresses)?,
        None => from_files(args, &addresses)?,
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        serde_json::to_writer_pretty(&mut out, &answers)?;
        writeln!(out)?;
    } else {
        for answer in &answers {
            write(answer, &mut out)?;
        }
    }
    let all = answers.iter().all(|answer| answer.routed);
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Looks the addresses up in a table of files.
fn from_files(args: &Get, addresses: &[IpAddr]) -> anyhow::Result<Vec<Answer>> {
    let tables = Tables::load(&args.table, &args.reading)?;
    let v4 = addresses.iter().any(IpAddr::is_ipv4);
    let v4 = v4.then(|| tables::build(&tables.v4, &args.reading)).transpose()?;
    let v6 = addresses.iter().any(IpAddr::is_ipv6);
    let v6 = v6.then(|| tables::build(&tables.v6, &args.reading)).transpose()?;
    let mut answers = Vec::with_capacity(addresses.len());
    for &address in addresses {
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
    Ok(answers)
}

/// Looks the addresses up in the tables of an image.
fn from_image(path: &Path, addresses: &[IpAddr]) -> anyhow::Result<Vec<Answer>> {
    let bytes = image::read(path)?;
    let image = image::open(path, &bytes)?;
    let v4 = addresses.iter().any(IpAddr::is_ipv4);
    let v4 = v4.then(|| Imaged::<u32>::of(path, &image)).transpose()?;
    let v6 = addresses.iter().any(IpAddr::is_ipv6);
    let v6 = v6.then(|| Imaged::<u128>::of(path, &image)).transpose()?;
    fn answer<A: Family>(address: IpAddr, key: A, table: &Imaged<A>) -> Answer {
        let (hop, steps) = table.fib.trace(key);
        let next_hop = table.label(hop).map(str::to_owned);
        told(address, None, next_hop, hop.is_some(), table.fib.name(), steps)
    }
    let one = |&address: &IpAddr| match (address, &v4, &v6) {
        (IpAddr::V4(key), Some(table), _) => answer(address, u32::from(key), table),
        (IpAddr::V6(key), _, Some(table)) => answer(address, u128::from(key), table),
        _ => unreachable!("there is a table for each family that is asked for"),
    };
    Ok(addresses.iter().map(one).collect())
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
    let prefix = longest.map(|(prefix, _)| prefix.to_string());
    let next_hop = tables.label(hop).map(str::to_owned);
    Ok(told(address, prefix, next_hop, longest.is_some(), built.fib.name(), steps))
}

fn told(
    address: IpAddr,
    prefix: Option<String>,
    next_hop: Option<String>,
    routed: bool,
    engine: String,
    steps: Vec<Step>,
) -> Answer {
    let bytes_touched = steps.iter().map(|step| step.bytes).sum();
    let load = |step: Step| Load { part: step.part, index: step.index, bytes: step.bytes };
    let path = steps.into_iter().map(load).collect();
    Answer { address, prefix, next_hop, routed, engine, path, bytes_touched }
}

fn write(answer: &Answer, out: &mut impl Write) -> std::io::Result<()> {
    let Answer { address, prefix, next_hop, routed, engine, path, bytes_touched } = answer;
    if *routed {
        let prefix = prefix.as_ref().map(|prefix| format!(" in {prefix}")).unwrap_or_default();
        let via = next_hop.as_ref().filter(|next_hop| !next_hop.is_empty());
        let via = via.map(|next_hop| format!(" via {next_hop}")).unwrap_or_default();
        writeln!(out, "{address}{prefix}{via}")?;
    } else {
        writeln!(out, "{address} no route")?;
    }
    let path: Vec<String> =
        path.iter().map(|Load { part, index, .. }| format!("{part}[{index}]")).collect();
    writeln!(out, "    {engine}: {} ({bytes_touched} bytes touched)", path.join(" > "))
}
