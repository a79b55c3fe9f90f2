//! `fingerpost table save FILE... -o IMAGE` and `fingerpost table load IMAGE`.
//!
//! ```text
//!   files ─► Rib ─► Fib ─► IMAGE: v4/…, v6/…, number of routes, `hops`: labels of the hops
//!   IMAGE ─► read, checksum ─► tables, checked ─► summary and times
//! ```
//!
//! `save` writes a temporary file and renames it, so that a full disk leaves the old image. `load`
//! performs the same steps as a router at its start, and prints a summary. It also reads the images
//! that a running router saves.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use fib::image::{self, Image, Writer};
use fib::{Family, Hop, Rib};
use serde::Serialize;

use crate::tables::{self, TableArgs, Tables};

/// The arguments of `table save`.
#[derive(clap::Args)]
pub(crate) struct SaveArgs {
    /// Files with routes, `-` for standard input; all files form one table
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Image to write
    #[arg(short, long, value_name = "IMAGE")]
    output: PathBuf,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
    #[command(flatten)]
    table_args: TableArgs,
}

/// The arguments of `table load`.
#[derive(clap::Args)]
pub(crate) struct LoadArgs {
    /// Image to load
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Write JSON
    #[arg(short, long)]
    json: bool,
}

/// The summary of an image.
#[derive(Debug, Serialize)]
struct Summary {
    path: PathBuf,
    bytes: usize,
    digest: String,
    tables: Vec<TableSummary>,
    /// The names of the other arrays.
    beside: Vec<String>,
    /// The time to write and sync the file, or to read it.
    file_seconds: f64,
    /// The time to check the file and create its tables.
    #[serde(skip_serializing_if = "Option::is_none")]
    check_seconds: Option<f64>,
}

#[derive(Debug, Serialize)]
struct TableSummary {
    name: String,
    family: &'static str,
    engine: String,
    /// The number of routes, if the image states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    routes: Option<u64>,
    /// The bytes that lookups may touch.
    bytes: usize,
}

/// Saves the table of the files as an image.
pub(crate) fn save(args: &SaveArgs) -> anyhow::Result<ExitCode> {
    let tables = Tables::load(&args.files, &args.table_args)?;
    let mut writer = Writer::new();
    add(&mut writer, "v4", &tables.v4, &args.table_args)?;
    add(&mut writer, "v6", &tables.v6, &args.table_args)?;
    writer.array("hops", &serde_json::to_vec(&tables.labels())?);
    let bytes = writer.finish();
    let start = Instant::now();
    image::replace(&args.output, &bytes)
        .with_context(|| format!("writing {}", args.output.display()))?;
    let took = start.elapsed().as_secs_f64();
    let mut summary = describe(&args.output, &Image::read(&bytes)?)?;
    summary.file_seconds = took;
    print_summary(&summary, args.json)
}

fn add<A: Family>(
    writer: &mut Writer,
    name: &str,
    rib: &Rib<A>,
    table_args: &TableArgs,
) -> anyhow::Result<()> {
    if rib.is_empty() {
        return Ok(());
    }
    let choice = table_args.choice::<A>()?;
    if !choice.is_storable() {
        // Checked before the build, which may take long.
        let engines = fib::Choice::every::<A>().into_iter().filter(|choice| choice.is_storable());
        let names: Vec<_> = engines.map(|choice| choice.name::<A>()).collect();
        bail!(
            "--engine {}: images do not support it: use auto, {}",
            table_args.engine,
            names.join(", ")
        );
    }
    writer.table(name, &tables::build(rib, table_args)?.fib)?;
    writer.array(&format!("{name}/routes"), &[rib.len() as u64]);
    Ok(())
}

/// Loads an image and prints its summary.
pub(crate) fn load(args: &LoadArgs) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let bytes = read(&args.image)?;
    let read = start.elapsed();
    let start = Instant::now();
    let image = open(&args.image, &bytes)?;
    let mut summary = describe(&args.image, &image)?;
    summary.check_seconds = Some(start.elapsed().as_secs_f64());
    summary.file_seconds = read.as_secs_f64();
    print_summary(&summary, args.json)
}

/// Reads the file of an image.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| format!("reading {}", path.display()))
}

/// Parses an image.
pub(crate) fn open<'a>(path: &Path, bytes: &'a [u8]) -> anyhow::Result<Image<'a>> {
    Image::read(bytes).with_context(|| path.display().to_string())
}

/// Returns the labels of the hops of an image.
pub(crate) fn hops(image: &Image<'_>) -> anyhow::Result<Vec<String>> {
    match image.bytes("hops") {
        Ok(text) => serde_json::from_slice(text).context("the image's array `hops`"),
        Err(_) => Ok(Vec::new()),
    }
}

fn describe(path: &Path, image: &Image<'_>) -> anyhow::Result<Summary> {
    let mut summary = Summary {
        path: path.to_owned(),
        bytes: image.file().len(),
        digest: format!("{:016x}", image.digest()),
        tables: Vec::new(),
        beside: Vec::new(),
        file_seconds: 0.0,
        check_seconds: None,
    };
    let tables = image.tables();
    for table in &tables {
        let bytes = match table.bits {
            32 => footprint::<u32>(image, &table.name),
            128 => footprint::<u128>(image, &table.name),
            bits => bail!("{}: table with unsupported addresses of {bits} bits", path.display()),
        };
        let routes = image.array::<u64>(&format!("{}/routes", table.name)).ok();
        summary.tables.push(TableSummary {
            name: table.name.clone(),
            family: if table.bits == 32 { "ipv4" } else { "ipv6" },
            engine: table.engine.clone(),
            routes: routes.and_then(|routes| routes.first().copied()),
            bytes: bytes.with_context(|| path.display().to_string())?,
        });
    }
    let of = |name: &str, table: &image::TableInfo| {
        name.strip_prefix(&*table.name).is_some_and(|rest| rest.starts_with('/'))
    };
    let names = image.arrays().iter().map(|array| &array.name);
    let beside = names.filter(|name| !tables.iter().any(|table| of(name, table)));
    summary.beside = beside.cloned().collect();
    Ok(summary)
}

/// Creates a table and returns the bytes that lookups may touch.
fn footprint<A: Family>(image: &Image<'_>, name: &str) -> Result<usize, image::BadImage> {
    Ok(image.table::<A>(name)?.footprint())
}

fn print_summary(summary: &Summary, json: bool) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    if json {
        serde_json::to_writer_pretty(&mut out, summary)?;
        writeln!(out)?;
    } else {
        let Summary { path, bytes, digest, .. } = summary;
        writeln!(out, "{}: {bytes} bytes, digest {digest}", path.display())?;
        for TableSummary { name, family, engine, routes, bytes } in &summary.tables {
            let routes = routes.map(|routes| format!(" {routes} routes,")).unwrap_or_default();
            writeln!(out, "  {name}: {family},{routes} {engine}, {bytes} bytes")?;
        }
        if !summary.beside.is_empty() {
            writeln!(out, "  other arrays: {}", summary.beside.join(", "))?;
        }
        match summary.check_seconds {
            None => writeln!(out, "  written in {:.1} ms", summary.file_seconds * 1e3)?,
            Some(check) => writeln!(
                out,
                "  read in {:.1} ms, checked and ready in {:.1} ms",
                summary.file_seconds * 1e3,
                check * 1e3
            )?,
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The table of a family in an image, and the labels of its hops.
pub(crate) struct ImageTable<A: Family> {
    pub(crate) fib: fib::Fib<A>,
    hops: Vec<String>,
}

impl<A: Family> ImageTable<A> {
    /// Creates the first table of the family.
    pub(crate) fn load(path: &Path, image: &Image<'_>) -> anyhow::Result<Self> {
        let tables = image.tables();
        let Some(table) = tables.iter().find(|table| table.bits == A::BITS) else {
            bail!("{}: no table of addresses of {} bits", path.display(), A::BITS);
        };
        let fib = image.table(&table.name).with_context(|| path.display().to_string())?;
        Ok(Self { fib, hops: hops(image)? })
    }

    /// Returns the label of a hop.
    pub(crate) fn label(&self, hop: Hop) -> Option<&str> {
        self.hops.get(hop.0 as usize).map(String::as_str).filter(|_| hop.is_some())
    }
}
