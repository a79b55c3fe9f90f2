//! `fingerpost table info FILE...`, `table convert`, `table generate`, `table save` and `table load`.
//!
//! `info` prints the contents and the costs of a table: prefixes by length, next hops, the bytes of
//! each array that a lookup may touch, the times of loading and building, the engine and why it was
//! chosen, the costs of other engines, and the loads of lookups. `generate` writes the synthetic table of the demo.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use feed::{Format, Recipe, WriteOptions};
use fib::engine::Place;
use fib::{Family, Rib};
use output::progress;
use serde::Serialize;

use crate::tables::{self, TableArgs, Tables};

mod alternatives;
mod chunks;
mod convert;
pub(crate) mod image;
mod loads;

use alternatives::Alternative;
use chunks::ChunkSummary;
use loads::LoadSummary;

/// The arguments of `table`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Describe a table: prefixes, engine, bytes and build time
    Info(InfoArgs),
    /// Convert a table to another format
    Convert(convert::ConvertArgs),
    /// Generate a synthetic table with the prefix lengths of the Internet
    Generate(GenerateArgs),
    /// Build a table and save it as an image, which loads without a build
    Save(image::SaveArgs),
    /// Load an image, check it, and describe it
    Load(image::LoadArgs),
}

/// The arguments of `table info`.
#[derive(clap::Args)]
struct InfoArgs {
    /// Files with routes, `-` for standard input; all files form one table
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
    /// Also build the other engines of the automatic choice, and print the size and the lookup rate
    /// of each
    #[arg(long)]
    alternatives: bool,
    /// Also count the loads of the lookups of all routes, and of all IPv4 addresses
    #[arg(long)]
    loads: bool,
    #[command(flatten)]
    table_args: TableArgs,
}

/// The arguments of `table generate`.
#[derive(clap::Args)]
struct GenerateArgs {
    /// Number of IPv4 routes [default: as in the Internet]
    #[arg(long, value_name = "N")]
    v4: Option<usize>,
    /// Number of IPv6 routes [default: as in the Internet]
    #[arg(long, value_name = "N")]
    v6: Option<usize>,
    /// Seed of the random generator: the same seed generates the same table
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of next hops; 0 for the origin AS of each route, as in RouteViews tables
    /// [default: 148]
    #[arg(long, value_name = "N")]
    labels: Option<u32>,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The output of `table info`.
#[derive(Debug, Serialize)]
struct Summary {
    files: Vec<FileSummary>,
    load_seconds: f64,
    insert_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    v4: Option<FamilySummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    v6: Option<FamilySummary>,
}

#[derive(Debug, Serialize)]
struct FileSummary {
    path: PathBuf,
    format: Option<String>,
    compression: String,
    unpacked_bytes: u64,
    records: u64,
    duplicates: u64,
    peers: usize,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct FamilySummary {
    prefixes: usize,
    next_hops: usize,
    prefixes_by_length: BTreeMap<u32, usize>,
    engine: String,
    /// The reason of the choice of the engine.
    why: String,
    /// The engines of the automatic choice.
    alternatives: Vec<Alternative>,
    parts: Vec<PartSummary>,
    bytes: usize,
    bytes_per_prefix: f64,
    /// Of a DXR table.
    #[serde(skip_serializing_if = "Option::is_none")]
    chunks: Option<ChunkSummary>,
    build_seconds: f64,
    build_threads: usize,
    /// With `--loads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    loads: Option<LoadSummary>,
}

#[derive(Debug, Serialize)]
struct PartSummary {
    name: &'static str,
    items: usize,
    bytes: usize,
    /// The memory of the part in the paper of the scheme, if the paper distinguishes.
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<&'static str>,
}

/// Runs the subcommand.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Info(args) => info(args),
        Command::Convert(args) => convert::convert(args),
        Command::Generate(args) => generate(args),
        Command::Save(args) => image::save(args),
        Command::Load(args) => image::load(args),
    }
}

fn info(args: &InfoArgs) -> anyhow::Result<ExitCode> {
    let tables = Tables::load(&args.files, &args.table_args)?;
    let files = tables.files.iter().map(|(path, report)| FileSummary {
        path: path.clone(),
        format: report.format.map(|format| format.to_string()),
        compression: report.compression.to_string(),
        unpacked_bytes: report.bytes,
        records: report.records,
        duplicates: report.duplicates,
        peers: report.peers,
        warnings: report.warnings.clone(),
    });
    let summary = Summary {
        files: files.collect(),
        load_seconds: tables.loading.as_secs_f64(),
        insert_seconds: tables.inserting.as_secs_f64(),
        v4: family(&tables.v4, args)?,
        v6: family(&tables.v6, args)?,
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    if args.json {
        serde_json::to_writer_pretty(&mut out, &summary)?;
        writeln!(out)?;
    } else {
        write(&summary, &mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn generate(args: &GenerateArgs) -> anyhow::Result<ExitCode> {
    let default = Recipe::default();
    let recipe = Recipe {
        seed: args.seed,
        v4: args.v4.unwrap_or(default.v4),
        v6: args.v6.unwrap_or(default.v6),
        labels: args.labels.map_or(default.labels, |count| (count > 0).then_some(count)),
    };
    let table = progress::during("generating a table", || feed::generate(&recipe));
    for warning in &table.report.warnings {
        eprintln!("fingerpost: warning: {warning}");
    }
    match &args.output {
        None => {
            let mut out = BufWriter::new(std::io::stdout().lock());
            feed::write(&table, Format::Table, &WriteOptions::default(), &mut out)?;
            out.flush()?;
        }
        Some(path) => {
            let mut text = Vec::new();
            feed::write(&table, Format::Table, &WriteOptions::default(), &mut text)?;
            fib::image::replace(path, &text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Describes the routes of one family; returns `None` without routes.
fn family<A: Family>(rib: &Rib<A>, args: &InfoArgs) -> anyhow::Result<Option<FamilySummary>> {
    if rib.is_empty() {
        return Ok(None);
    }
    let built = tables::build(rib, &args.table_args)?;
    let alternatives = alternatives::list(rib, args.alternatives, built.threads)?;
    let mut prefixes_by_length = BTreeMap::new();
    let mut hops: Vec<u32> = Vec::with_capacity(rib.len());
    for (prefix, hop) in rib {
        *prefixes_by_length.entry(prefix.len()).or_default() += 1;
        hops.push(hop.0);
    }
    hops.sort_unstable();
    hops.dedup();
    let bytes = built.fib.footprint();
    Ok(Some(FamilySummary {
        prefixes: rib.len(),
        next_hops: hops.len(),
        prefixes_by_length,
        engine: built.fib.name(),
        why: built.fib.why().to_owned(),
        alternatives,
        parts: built
            .fib
            .parts()
            .into_iter()
            .map(|part| PartSummary {
                name: part.name,
                items: part.items,
                bytes: part.bytes,
                place: part.place.map(|place| match place {
                    Place::OnChip => "on chip",
                    Place::OffChip => "off chip",
                }),
            })
            .collect(),
        bytes,
        bytes_per_prefix: bytes as f64 / rib.len() as f64,
        chunks: built.fib.engine().chunks().as_ref().map(ChunkSummary::from),
        build_seconds: built.took.as_secs_f64(),
        build_threads: built.threads,
        loads: args.loads.then(|| LoadSummary::count(&built.fib, rib)),
    }))
}

fn write(summary: &Summary, out: &mut impl Write) -> std::io::Result<()> {
    for file in &summary.files {
        let format = file.format.as_deref().unwrap_or("generated");
        write!(out, "{}: {format}, compression: {}", file.path.display(), file.compression)?;
        write!(out, ", {} bytes, {} records", file.unpacked_bytes, file.records)?;
        if file.duplicates > 0 {
            write!(out, ", {} duplicates", file.duplicates)?;
        }
        if file.peers > 0 {
            write!(out, ", {} peers", file.peers)?;
        }
        writeln!(out)?;
    }
    writeln!(
        out,
        "loaded in {:.3} s, sorted in {:.3} s",
        summary.load_seconds, summary.insert_seconds
    )?;
    for (name, family) in [("IPv4", &summary.v4), ("IPv6", &summary.v6)] {
        let Some(family) = family else { continue };
        writeln!(out, "\n{name}: {} prefixes, {} next hops", family.prefixes, family.next_hops)?;
        for (row, lengths) in length_lines(&family.prefixes_by_length).into_iter().enumerate() {
            let title = if row == 0 { "by length" } else { "" };
            writeln!(out, "  {title:<20}{lengths}")?;
        }
        writeln!(out, "  {:<20}{} ({})", "engine", family.engine, family.why)?;
        for (row, alternative) in family.alternatives.iter().enumerate() {
            let title = if row == 0 { "candidates" } else { "" };
            writeln!(out, "  {title:<20}{alternative}")?;
        }
        for part in &family.parts {
            let PartSummary { name, items, bytes, place } = part;
            let place = place.map(|place| format!("  {place}")).unwrap_or_default();
            writeln!(out, "  {name:<20}{bytes:>12} bytes {items:>12} items{place}")?;
        }
        writeln!(
            out,
            "  {:<20}{:>12} bytes {:>12.3} per prefix",
            "total", family.bytes, family.bytes_per_prefix
        )?;
        for line in family.chunks.iter().flat_map(ChunkSummary::lines) {
            writeln!(out, "  {line}")?;
        }
        let threads = family.build_threads;
        let plural = if threads == 1 { "" } else { "s" };
        writeln!(
            out,
            "  {:<20}in {:.3} s by {threads} thread{plural}",
            "built", family.build_seconds
        )?;
        for line in family.loads.iter().flat_map(LoadSummary::lines) {
            writeln!(out, "  {line}")?;
        }
    }
    Ok(())
}

/// Formats the counts by length, eight per line.
fn length_lines(lengths: &BTreeMap<u32, usize>) -> Vec<String> {
    let all: Vec<String> = lengths.iter().map(|(len, count)| format!("/{len} {count}")).collect();
    all.chunks(8).map(|line| line.join("  ")).collect()
}
