//! `fingerpost-bench run`: measures all contestants of a definition in turns, with the limit of the machine.
//!
//! ```text
//!   bench/definitions/NAME.toml ─► routes, keys, right answers       definition.rs, hops.rs
//!     sums that differ are refused                                   sums.rs
//!   bench/rivals/rivals.toml    ─► programs of others, built         rival/registry.rs
//!   rounds: all in fresh processes, answers first, passes in turns         course.rs
//!   loads from 32 KiB to 64 MiB, and what each lookup touches        limit.rs
//!   ─► standard output, a record, JSON, one HTML page                report.rs, html.rs
//! ```
//!
//! A definition is data that others can read, run and discuss. All contestants, ours too, implement
//! the line protocol of `bench/rivals/README.md`. `bench/METHOD.md` describes the method, `bench/BIAS.md`
//! its limits.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use fib::{Choice, Family, Fib, Hop, Prefix, Rib};
use output::progress;

use super::contest::{PROVEN, check, enough_cores, right};
use super::keys::{Locality, Stream};
use super::rival::Registry;
use course::{Course, Entrant};
use definition::{Definition, QUICK, Strict, same};
use limit::Touched;

mod course;
mod definition;
mod export;
mod hops;
mod html;
mod limit;
mod report;
mod sums;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The definition: a file, or the name of one in bench/definitions
    definition: String,
    /// Rounds, instead of those of the definition
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Use the first 2^20 keys of each stream and at most three rounds, to check that it works
    #[arg(long)]
    quick: bool,
    /// Measure only these engines and rivals
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Write the report, one page of HTML
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print the checksums of the definition, and measure nothing
    #[arg(long, conflicts_with_all = ["html", "export", "only"])]
    sums: bool,
    /// Write routes, keys and answers for other programs, and measure nothing
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
    /// The folder of tables [default: FINGERPOST_DATA, or ../shared/data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The list of rivals [default: bench/rivals/rivals.toml by the definition]
    #[arg(long, value_name = "FILE")]
    rivals: Option<PathBuf>,
    /// The folder for records [default: bench/record, where there is one]
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(short, long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let path = args.path();
    let mut definition = Definition::read(&path)?;
    let measure = &mut definition.measure;
    if args.quick {
        measure.rounds = measure.rounds.min(3);
        measure.keys = measure.keys.min(QUICK);
        measure.changes = measure.changes.min(1000);
    }
    measure.rounds = args.rounds.unwrap_or(measure.rounds);
    if measure.rounds == 0 {
        bail!("--rounds 0: at least one is needed");
    }
    match definition.family {
        4 => family::<u32>(args, &path, &definition),
        _ => family::<u128>(args, &path, &definition),
    }
}

impl Args {
    /// Finds the definition.
    fn path(&self) -> PathBuf {
        let named = PathBuf::from(&self.definition);
        let known = Path::new("bench/definitions").join(&self.definition).with_extension("toml");
        if !named.exists() && known.exists() { known } else { named }
    }

    /// Finds the rivals, and the folder for what is built of them: the definition is
    /// in `bench/definitions`, they are in `bench/rivals`.
    fn rivals(&self, definition: &Path) -> (PathBuf, PathBuf) {
        let bench = definition.parent().unwrap_or(Path::new(".")).join("..");
        let file = self.rivals.clone().unwrap_or_else(|| bench.join("rivals/rivals.toml"));
        (file, bench.join("target/rivals"))
    }
}

fn family<A: Family>(
    args: &Args,
    path: &Path,
    definition: &Definition,
) -> anyhow::Result<ExitCode> {
    let strict = if args.sums { Strict::Accept } else { Strict::Refuse };
    let beside = path.parent().unwrap_or(Path::new(".")).to_owned();
    let folders = [args.data.clone().unwrap_or_else(super::data), beside];
    let (routes, found) = definition.routes::<A>(&folders, strict)?;
    let rib = Rib::from_sorted(routes.iter().copied());
    if args.sums {
        return export::sums(definition, &rib, &routes, &found);
    }
    let courses = courses(definition, &rib, &routes)?;
    if let Some(folder) = &args.export {
        export::write(folder, &routes, &courses)?;
        return Ok(ExitCode::SUCCESS);
    }
    enough_cores(&definition.measure.threads)?;
    let (entrants, mut missing) = entrants::<A>(args, path, definition)?;
    let (found, limits) = course::run(&definition.measure, &routes, &courses, &entrants)?;
    let mut measured = Vec::new();
    for (entrant, found) in entrants.into_iter().zip(found) {
        match &found.out {
            Some(why) => missing.push((entrant.name().to_owned(), why.clone())),
            None => measured.push((entrant, found)),
        }
    }
    let touched = progress::during("counting what a lookup touches", || {
        let counts = measured.iter().map(|(entrant, _)| touched(entrant, &rib, &courses));
        counts.collect::<anyhow::Result<Vec<_>>>()
    })?;
    let curve = limit::curve(&limits);
    let localities: Vec<(Stream, Locality)> = progress::during("looking for locality", || {
        courses.iter().map(|course| (course.stream, Locality::of(&course.keys))).collect()
    });
    let outcome = report::Outcome::new(report::Parts {
        definition,
        quick: args.quick,
        routes: &routes,
        missing: &missing,
        measured: &measured,
        touched,
        curve,
        localities: &localities,
    });
    outcome.record(args.record.as_deref())?;
    if let Some(file) = &args.html {
        fib::image::replace(file, html::page(&outcome).as_bytes())?;
        eprintln!("fingerpost-bench: the report is {}", file.display());
    }
    outcome.print(args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Draws the keys and finds the right answers, and checks their checksums.
fn courses<A: Family>(
    definition: &Definition,
    rib: &Rib<A>,
    routes: &[(Prefix<A>, Hop)],
) -> anyhow::Result<Vec<Course<A>>> {
    let count = definition.measure.keys;
    let reference = Fib::build(rib, Choice::Auto, 2).context("building the reference")?;
    let mut courses = Vec::new();
    for asked in &definition.streams {
        let stream = asked.name;
        let course = progress::during(&format!("drawing {stream} and its answers"), || {
            let keys = stream.keys::<A>(count, routes);
            let mut hops = vec![Hop::NONE; keys.len()];
            reference.lookup_batch(&keys, &mut hops);
            Course { stream, keys, hops }
        });
        let proven = right(rib, &course.keys[..course.keys.len().min(PROVEN)]);
        check(&reference.name(), &course.keys, &proven, &course.hops)?;
        let wanted = if count == QUICK { &asked.quick } else { &asked.answers };
        same(Strict::Refuse, wanted, &sums::of_answers(&course.hops), || {
            format!("the answers to {stream} are not those of the definition")
        })?;
        courses.push(course);
    }
    Ok(courses)
}

/// The names of missing contestants with the reasons.
type Missing = Vec<(String, String)>;

/// Returns the contestants: engines, and the rivals that can be built. Also returns the missing ones with
/// the reasons.
fn entrants<A: Family>(
    args: &Args,
    path: &Path,
    definition: &Definition,
) -> anyhow::Result<(Vec<Entrant>, Missing)> {
    let measure = &definition.measure;
    let wanted = |name: &str| args.only.is_empty() || args.only.iter().any(|only| only == name);
    let named = measure.engines.iter().chain(&measure.rivals);
    if let Some(stranger) = args.only.iter().find(|only| !named.clone().any(|name| name == *only)) {
        let all: Vec<&str> = named.map(String::as_str).collect();
        bail!("--only {stranger}: the definition has {}", all.join(", "));
    }
    let mut entrants = Vec::new();
    let mut missing = Missing::new();
    let rivals: Vec<&String> = measure.rivals.iter().filter(|name| wanted(name)).collect();
    if !rivals.is_empty() {
        let (file, out) = args.rivals(path);
        let registry = Registry::read(&file, &out)?;
        for name in rivals {
            match progress::during(&format!("building {name}"), || registry.build::<A>(name))? {
                Ok(built) => entrants.push(Entrant::Rival(built)),
                Err(why) => {
                    eprintln!("fingerpost-bench: {name} is missing: {why}");
                    missing.push((name.clone(), why));
                }
            }
        }
    }
    let ours = measure.engines.iter().filter(|name| wanted(name));
    entrants.extend(ours.map(|name| Entrant::Ours(name.clone())));
    Ok((entrants, missing))
}

/// Counts the accesses of an engine's lookups; those of a rival are unknown.
fn touched<A: Family>(
    entrant: &Entrant,
    rib: &Rib<A>,
    courses: &[Course<A>],
) -> anyhow::Result<Vec<Touched>> {
    let Entrant::Ours(name) = entrant else { return Ok(Vec::new()) };
    let fib = Fib::build(rib, Choice::parse::<A>(name)?, 2)?;
    Ok(courses.iter().map(|course| limit::touched(&fib, course.stream, &course.keys)).collect())
}

/// Serializes the name of a stream.
fn by_name<S: serde::Serializer>(stream: &Stream, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(stream)
}
