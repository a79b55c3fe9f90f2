//! `fingerpost-bench overlap`: two methods to have several lookups in flight.
//!
//! For every engine that chases pointers: one lookup after another; groups that step together (Fu
//! 2020, algorithm 1), 4 to 64 at a time; coroutines that are resumed in turn (algorithm 2), with
//! fixed numbers in flight and with the number that `fib::engine::overlap::Tuner` finds while running
//! (section 4.5.4). All of them use the engine's own `Walk`, so that only the order of the steps
//! differs. The engine's own `lookup` and `lookup_batch` are measured beside them.
//!
//! The tuner receives the time of each batch by the wall clock, as in a datapath: a burst of some
//! hundred lookups is too short for the CPU time account of the kernel.

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

/// Keys per call, as in a datapath.
const BATCH: usize = 256;
/// Answers that are compared with the routing table.
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
    /// Passes of each method
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Keys per pass
    #[arg(long, value_name = "N", default_value_t = 1 << 22)]
    keys: usize,
}

/// A method to look up a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Method {
    Lookup,
    Alone,
    Batch,
    Group(usize),
    Coroutines(usize),
    Tuned,
}

impl Method {
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

impl fmt::Display for Method {
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

/// The result of one method on one stream.
#[derive(Serialize)]
struct Score {
    engine: String,
    stream: String,
    method: String,
    /// In million lookups per second.
    #[serde(flatten)]
    summary: Summary,
    /// The median divided by that of single lookups.
    ratio: f64,
    /// The median number in flight that the tuner chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<usize>,
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
                bail!("--engines {name}: this engine chases no pointers");
            }
            continue;
        };
        for (stream, keys) in &streams {
            prove(&rib, &fib, overlapped, keys)?;
            let what = format!("{name}, {stream}");
            let found = progress::during(&what, || measure(args.rounds, &fib, overlapped, keys));
            for (method, rates, in_flight) in &found {
                let summary = Summary::of(rates);
                scores.push(Score {
                    engine: name.clone(),
                    stream: stream.to_string(),
                    method: method.to_string(),
                    summary,
                    ratio: summary.median / Summary::of(&found[1].1).median,
                    in_flight: *in_flight,
                });
                bytes.push(fib.footprint());
                cases.push(format!("{stream} {method}"));
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

/// Measures all methods in turns. Returns the rates of each, and the number in flight of the tuner.
fn measure<A: Family>(
    rounds: usize,
    fib: &Fib<A>,
    overlapped: &dyn Overlapped<A>,
    keys: &[A],
) -> Vec<(Method, Vec<f64>, Option<usize>)> {
    let mut out = vec![Hop::NONE; keys.len()];
    let mut found: Vec<_> = Method::ALL.iter().map(|&method| (method, Vec::new(), None)).collect();
    let mut tuner = Tuner::new(8);
    for _ in 0..rounds {
        for (method, rates, in_flight) in &mut found {
            let clock = Clock::start();
            let mut seen = Vec::new();
            for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
                if *method == Method::Tuned {
                    seen.push(tuner.in_flight());
                    let start = Instant::now();
                    overlapped.coroutines(keys, out, tuner.in_flight());
                    tuner.observe(start.elapsed().as_nanos() as u64, keys.len());
                } else {
                    pass(*method, fib, overlapped, keys, out);
                }
            }
            rates.push(keys.len() as f64 / clock.seconds() / 1e6);
            seen.sort_unstable();
            *in_flight = seen.get(seen.len() / 2).copied();
        }
    }
    found
}

fn pass<A: Family>(
    method: Method,
    fib: &Fib<A>,
    overlapped: &dyn Overlapped<A>,
    keys: &[A],
    out: &mut [Hop],
) {
    match method {
        Method::Lookup => {
            for (&key, out) in keys.iter().zip(out) {
                *out = fib.lookup(key);
            }
        }
        Method::Alone => overlapped.alone(keys, out),
        Method::Batch => fib.lookup_batch(keys, out),
        Method::Group(size) => overlapped.group(keys, out, size),
        Method::Coroutines(count) => overlapped.coroutines(keys, out, count),
        Method::Tuned => unreachable!("the tuned method is timed by batch"),
    }
}

/// Compares the answers of every method with the routing table.
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
    for method in Method::ALL {
        out.fill(Hop(u32::MAX));
        if method == Method::Tuned {
            overlapped.coroutines(keys, &mut out, 11);
        } else {
            pass(method, fib, overlapped, keys, &mut out);
        }
        if let Some(at) = right.iter().zip(&out).position(|(right, hop)| right != hop) {
            let (key, right, hop) = (keys[at], right[at], out[at]);
            bail!(
                "{}, {method}: {key:x?} gives {hop:?}, the longest match is {right:?}",
                fib.name()
            );
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
    println!("{table}: {} keys per pass, median of {} passes", args.keys, args.rounds);
    println!("Million lookups per second; the ratio is to single lookups by the same steps.");
    let mut case = None;
    for score in scores {
        if case != Some((&score.engine, &score.stream)) {
            case = Some((&score.engine, &score.stream));
            println!("\n{}, {}", score.engine, score.stream);
        }
        let Summary { median, mad, min, max } = score.summary;
        let in_flight = score.in_flight.map(|n| format!("  ({n} in flight)")).unwrap_or_default();
        println!(
            "  {:18} {median:8.1} ±{mad:<6.1} {min:7.1} to {max:<7.1} x{:.2}{in_flight}",
            score.method, score.ratio
        );
    }
    Ok(())
}
