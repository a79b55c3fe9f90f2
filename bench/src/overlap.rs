//! `fingerpost-bench overlap`: two ways of looking several addresses up at once.
//!
//! For every engine that chases pointers: one lookup after another; groups that
//! step together (Fu 2020, algorithm 1), 4 to 64 at a time; coroutines that are
//! resumed in turn (algorithm 2), with fixed numbers in flight and with the number
//! found while running (section 4.5.4, `fib::engine::overlap::Tuner`). All of them
//! are the engine's own `Walk`, so that nothing but the order of the steps differs.
//! The engine's own `lookup` and `lookup_batch` run beside them.
//!
//! The tuner is told the time of each batch by the wall clock, as a datapath would
//! tell it: a burst of some hundred lookups is too short for the kernel's account.

use std::fmt;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail};
use fib::engine::overlap::{Overlapped, Tuner};
use fib::{Choice, Family, Fib, Hop, Prefix, Rib};
use output::progress;
use serde::Serialize;

use super::Setting;
use super::clock::{Clock, Summary, pin};
use super::keys::Stream;
use super::record::Figure;

/// How many keys a call is given, as in a datapath.
const BATCH: usize = 256;
/// How many answers are held against the routing table.
const PROVEN: usize = 1 << 18;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    setting: Setting,
    /// Measure IPv6
    #[arg(short = '6')]
    v6: bool,
    /// The engines [default: all that chase pointers]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    engines: Vec<String>,
    /// The streams
    #[arg(long, value_enum, value_delimiter = ',', default_value = "rnd,pfx")]
    streams: Vec<Stream>,
    /// Passes of each way
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Keys of a pass
    #[arg(long, value_name = "N", default_value_t = 1 << 22)]
    keys: usize,
}

/// One way of looking a batch up.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Lookup,
    Alone,
    Batch,
    Group(usize),
    Coroutines(usize),
    Tuned,
}

impl Way {
    const ALL: [Self; 13] = [
        Self::Lookup,
        Self::Alone,
        Self::Batch,
        Self::Group(4),
        Self::Group(8),
        Self::Group(16),
        Self::Group(32),
        Self::Group(64),
        Self::Coroutines(4),
        Self::Coroutines(8),
        Self::Coroutines(16),
        Self::Coroutines(32),
        Self::Tuned,
    ];
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Lookup => "lookup".to_owned(),
            Self::Alone => "one by one".to_owned(),
            Self::Batch => "lookup_batch".to_owned(),
            Self::Group(size) => format!("group of {size}"),
            Self::Coroutines(count) => format!("{count} coroutines"),
            Self::Tuned => "coroutines, tuned".to_owned(),
        };
        f.pad(&name)
    }
}

/// What one way did on one stream.
#[derive(Serialize)]
struct Score {
    engine: String,
    stream: String,
    way: String,
    /// In million lookups a second.
    #[serde(flatten)]
    summary: Summary,
    /// The median over that of one by one.
    ratio: f64,
    /// The number in flight that the tuner was at, in the middle of its batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    settled: Option<usize>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.rounds == 0 || args.keys < BATCH {
        bail!("at least one round and {BATCH} keys are needed");
    }
    let routes = args.setting.routes()?;
    if args.v6 {
        compare(args, &routes.name, &routes.v6)
    } else {
        compare(args, &routes.name, &routes.v4)
    }
}

fn compare<A: Family>(
    args: &Args,
    table: &str,
    routes: &[(Prefix<A>, Hop)],
) -> anyhow::Result<ExitCode> {
    if routes.is_empty() {
        bail!("{table} has no route of this family");
    }
    let rib = Rib::from_sorted(routes.iter().copied());
    let choices = match &args.engines[..] {
        [] => Choice::every::<A>(),
        names => names
            .iter()
            .map(|name| Choice::parse::<A>(name).with_context(|| format!("--engines {name}")))
            .collect::<anyhow::Result<_>>()?,
    };
    let streams: Vec<(Stream, Vec<A>)> =
        args.streams.iter().map(|&stream| (stream, stream.keys(args.keys, routes))).collect();
    pin(0);
    let mut scores = Vec::new();
    let mut bytes = Vec::new();
    let mut cases = Vec::new();
    for choice in choices {
        let name = choice.name::<A>();
        if choice == Choice::Linear {
            continue;
        }
        let fib = progress::during(&format!("building {name}"), || Fib::build(&rib, choice, 2))
            .with_context(|| format!("building {name}"))?;
        let Some(overlapped) = fib.overlapped() else {
            if !args.engines.is_empty() {
                bail!("--engines {name}: it follows no pointers");
            }
            continue;
        };
        for (stream, keys) in &streams {
            prove(&rib, &fib, overlapped, keys)?;
            let what = format!("{name}, {stream}");
            let found = progress::during(&what, || measure(args.rounds, &fib, overlapped, keys));
            for (way, rates, settled) in &found {
                let summary = Summary::of(rates);
                scores.push(Score {
                    engine: name.clone(),
                    stream: stream.to_string(),
                    way: way.to_string(),
                    summary,
                    ratio: summary.median / Summary::of(&found[1].1).median,
                    settled: *settled,
                });
                bytes.push(fib.footprint());
                cases.push(format!("{stream} {way}"));
            }
        }
    }
    let figures = scores.iter().zip(&cases).zip(&bytes);
    args.setting.record(figures.map(|((score, case), &bytes)| Figure {
        bench: "overlap",
        table,
        routes: routes.len(),
        contestant: &score.engine,
        case,
        threads: 1,
        unit: "Mlookups/s",
        summary: score.summary,
        samples: args.rounds,
        bytes,
    }))?;
    print(args, table, &scores)?;
    Ok(ExitCode::SUCCESS)
}

/// Measures every way in turns; the rates of each, and where the tuner settled.
fn measure<A: Family>(
    rounds: usize,
    fib: &Fib<A>,
    overlapped: &dyn Overlapped<A>,
    keys: &[A],
) -> Vec<(Way, Vec<f64>, Option<usize>)> {
    let mut out = vec![Hop::NONE; keys.len()];
    let mut found: Vec<_> = Way::ALL.iter().map(|&way| (way, Vec::new(), None)).collect();
    let mut tuner = Tuner::new(8);
    for _ in 0..rounds {
        for (way, rates, settled) in &mut found {
            let clock = Clock::start();
            let mut seen = Vec::new();
            for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
                if *way == Way::Tuned {
                    seen.push(tuner.in_flight());
                    let start = Instant::now();
                    overlapped.coroutines(keys, out, tuner.in_flight());
                    tuner.observe(start.elapsed().as_nanos() as u64, keys.len());
                } else {
                    pass(*way, fib, overlapped, keys, out);
                }
            }
            rates.push(keys.len() as f64 / clock.seconds() / 1e6);
            seen.sort_unstable();
            *settled = seen.get(seen.len() / 2).copied();
        }
    }
    found
}

fn pass<A: Family>(
    way: Way,
    fib: &Fib<A>,
    overlapped: &dyn Overlapped<A>,
    keys: &[A],
    out: &mut [Hop],
) {
    match way {
        Way::Lookup => {
            for (&key, out) in keys.iter().zip(out) {
                *out = fib.lookup(key);
            }
        }
        Way::Alone => overlapped.alone(keys, out),
        Way::Batch => fib.lookup_batch(keys, out),
        Way::Group(size) => overlapped.group(keys, out, size),
        Way::Coroutines(count) => overlapped.coroutines(keys, out, count),
        Way::Tuned => unreachable!("the tuned way is timed batch by batch"),
    }
}

/// Holds the answers of every way against the routing table.
fn prove<A: Family>(
    rib: &Rib<A>,
    fib: &Fib<A>,
    overlapped: &dyn Overlapped<A>,
    keys: &[A],
) -> anyhow::Result<()> {
    let keys = &keys[..keys.len().min(PROVEN)];
    let longest = |key: &A| rib.longest(*key).map_or(Hop::NONE, |(_, hop)| hop);
    let right: Vec<Hop> = keys.iter().map(longest).collect();
    let mut out = vec![Hop::NONE; keys.len()];
    for way in Way::ALL {
        out.fill(Hop(u32::MAX));
        if way == Way::Tuned {
            overlapped.coroutines(keys, &mut out, 11);
        } else {
            pass(way, fib, overlapped, keys, &mut out);
        }
        if let Some(at) = right.iter().zip(&out).position(|(right, hop)| right != hop) {
            let (key, right, hop) = (keys[at], right[at], out[at]);
            bail!("{}, {way}: {key:x?} gives {hop:?}, the longest match is {right:?}", fib.name());
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print(args: &Args, table: &str, scores: &[Score]) -> anyhow::Result<()> {
    if args.setting.output.json {
        let result = serde_json::json!({ "table": table, "keys": args.keys, "scores": scores });
        println!("{}", serde_json::to_string_pretty(&result)?);
        return Ok(());
    }
    println!("{table}: {} keys a pass, median of {} passes", args.keys, args.rounds);
    println!("Million lookups a second; the ratio is to the engine's own steps one by one.");
    let mut case = None;
    for score in scores {
        if case != Some((&score.engine, &score.stream)) {
            case = Some((&score.engine, &score.stream));
            println!("\n{}, {}", score.engine, score.stream);
        }
        let Summary { median, mad, min, max } = score.summary;
        let settled = score.settled.map(|n| format!("  ({n} in flight)")).unwrap_or_default();
        println!(
            "  {:18} {median:8.1} ±{mad:<6.1} {min:7.1} to {max:<7.1} x{:.2}{settled}",
            score.way, score.ratio
        );
    }
    Ok(())
}
