//! `fingerpost route get ADDR...`: looks up addresses, and prints the memory that each lookup touches.
//!
//! The engine itself traces the lookup: each load, with its array and its number of bytes. The prefix
//! comes from the `Rib`, because a forwarding table has no prefixes. The two must agree on the next
//! hop; each lookup compares them. An image has only the forwarding table.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Subcommand;
use fib::engine::Step;
use fib::{Family, Rib};
use serde::Serialize;

use crate::table::image::{self, ImageTable};
use crate::tables::{self, Built, TableArgs, Tables};

/// The arguments of `route`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look up addresses: prefix, next hop, and the memory touched
    ///
    /// Exit status 1 if an address has no route.
    Get(GetArgs),
}

/// The arguments of `route get`.
#[derive(clap::Args)]
struct GetArgs {
    /// IPv4 or IPv6 addresses
    #[arg(value_name = "ADDR", required_unless_present = "file")]
    addresses: Vec<IpAddr>,
    /// Read more addresses from a file, one per line; `-` for standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Read routes from a file, `-` for standard input; may be repeated, all files form one table
    #[arg(long, value_name = "FILE")]
    table: Vec<PathBuf>,
    /// Use the first table of each family of an image (`fingerpost table save`), which has no prefixes
    #[arg(long, value_name = "FILE", conflicts_with = "table")]
    image: Option<PathBuf>,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    table_args: TableArgs,
}

/// The answer for one address.
#[derive(Debug, Serialize)]
struct Answer {
    address: IpAddr,
    /// The longest matching prefix.
    prefix: Option<String>,
    /// The next hop or label of that prefix in the file.
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

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Get(args) => get(args),
    }
}

fn get(args: &GetArgs) -> anyhow::Result<ExitCode> {
    if args.table.is_empty() && args.image.is_none() {
        // There is no default, because results of a synthetic table would look real. This is a
        // usage error, hence the status.
        eprintln!(
            "fingerpost: no routes: name a file with --table FILE\n\
             (`fingerpost table generate --output FILE` generates a synthetic table)"
        );
        return Ok(ExitCode::from(2));
    }
    let mut addresses = args.addresses.clone();
    if let Some(path) = &args.file {
        addresses.extend(read_addresses(path)?);
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
fn from_files(args: &GetArgs, addresses: &[IpAddr]) -> anyhow::Result<Vec<Answer>> {
    let tables = Tables::load(&args.table, &args.table_args)?;
    let v4 = addresses.iter().any(IpAddr::is_ipv4);
    let v4 = v4.then(|| tables::build(&tables.v4, &args.table_args)).transpose()?;
    let v6 = addresses.iter().any(IpAddr::is_ipv6);
    let v6 = v6.then(|| tables::build(&tables.v6, &args.table_args)).transpose()?;
    let mut answers = Vec::with_capacity(addresses.len());
    for &address in addresses {
        answers.push(match (address, &v4, &v6) {
            (IpAddr::V4(v4_addr), Some(built), _) => {
                answer(address, u32::from(v4_addr), &tables.v4, built, &tables)?
            }
            (IpAddr::V6(v6_addr), _, Some(built)) => {
                answer(address, u128::from(v6_addr), &tables.v6, built, &tables)?
            }
            _ => unreachable!("the table of each requested family was built"),
        });
    }
    Ok(answers)
}

/// Looks the addresses up in the tables of an image.
fn from_image(path: &Path, addresses: &[IpAddr]) -> anyhow::Result<Vec<Answer>> {
    let bytes = image::read(path)?;
    let image = image::open(path, &bytes)?;
    let v4 = addresses.iter().any(IpAddr::is_ipv4);
    let v4 = v4.then(|| ImageTable::<u32>::load(path, &image)).transpose()?;
    let v6 = addresses.iter().any(IpAddr::is_ipv6);
    let v6 = v6.then(|| ImageTable::<u128>::load(path, &image)).transpose()?;
    fn answer<A: Family>(address: IpAddr, key: A, table: &ImageTable<A>) -> Answer {
        let (hop, steps) = table.fib.trace(key);
        let next_hop = table.label(hop).map(str::to_owned);
        make_answer(address, None, next_hop, hop.is_some(), table.fib.name(), steps)
    }
    let one = |&address: &IpAddr| match (address, &v4, &v6) {
        (IpAddr::V4(key), Some(table), _) => answer(address, u32::from(key), table),
        (IpAddr::V6(key), _, Some(table)) => answer(address, u128::from(key), table),
        _ => unreachable!("the table of each requested family was loaded"),
    };
    Ok(addresses.iter().map(one).collect())
}

/// Reads addresses, one per line.
fn read_addresses(path: &Path) -> anyhow::Result<Vec<IpAddr>> {
    let text = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.with_context(|| format!("reading {}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(i, line)| {
            let place = || format!("{}:{}: `{line}` is not an IP address", path.display(), i + 1);
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
    Ok(make_answer(address, prefix, next_hop, longest.is_some(), built.fib.name(), steps))
}

fn make_answer(
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
