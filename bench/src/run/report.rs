//! The results of a run: as text, as JSON, and as lines of the record.
//!
//! [`Outcome`] holds all results as plain data. `-j` prints it as JSON; the HTML page (`html.rs`)
//! is drawn from it alone.

use std::path::Path;

use fib::{Addr, Caches, Hop, Prefix};
use serde::Serialize;

use super::course::{Case, Entrant, Found, cases};
use super::definition::Definition;
use super::hops::Rule;
use super::limit::{Point, Touched, at};
use crate::append_to_record;
use crate::clock::Summary;
use crate::keys::{Locality, Stream};
use crate::record::{self, Figure};

/// All results of a run.
#[derive(Serialize)]
pub(super) struct Outcome {
    pub(super) name: String,
    pub(super) about: String,
    /// Whether the run only shows that the benchmark works.
    pub(super) quick: bool,
    pub(super) machine: Machine,
    pub(super) family: u8,
    pub(super) routes: usize,
    pub(super) hops: Hops,
    pub(super) keys: usize,
    pub(super) rounds: usize,
    pub(super) bursts: Vec<usize>,
    pub(super) chain: usize,
    pub(super) changes: usize,
    pub(super) streams: Vec<Place>,
    pub(super) limit: Vec<Point>,
    pub(super) missing: Vec<Missing>,
    pub(super) contestants: Vec<Contestant>,
}

#[derive(Serialize)]
pub(super) struct Machine {
    pub(super) cpu: String,
    pub(super) cores: usize,
    /// Bytes for one core; of the last level, the share of one core.
    pub(super) level_2: usize,
    pub(super) level_3: usize,
    pub(super) time: String,
    pub(super) commit: String,
    pub(super) rustc: String,
}

#[derive(Serialize)]
pub(super) struct Hops {
    rule: Rule,
    pub(super) distinct: usize,
    /// The share of routes that the most frequent ones have, in per cent.
    pub(super) shares: Vec<f64>,
}

#[derive(Serialize)]
pub(super) struct Place {
    #[serde(serialize_with = "super::by_name")]
    pub(super) stream: Stream,
    #[serde(flatten)]
    pub(super) locality: Locality,
}

#[derive(Serialize)]
pub(super) struct Missing {
    pub(super) name: String,
    pub(super) reason: String,
}

#[derive(Serialize)]
pub(super) struct Contestant {
    pub(super) name: String,
    pub(super) ours: bool,
    pub(super) what: String,
    pub(super) license: String,
    pub(super) version: String,
    /// Whether one process served all rounds.
    pub(super) single_process: bool,
    /// The bytes that lookups may touch; 0 if unknown.
    pub(super) bytes: usize,
    pub(super) bytes_per_prefix: f64,
    pub(super) fill_seconds: Summary,
    pub(super) touched: Vec<Touched>,
    pub(super) scores: Vec<Score>,
    /// Nanoseconds.
    pub(super) latency: Option<Latency>,
    /// Thousand changes a second, one by one.
    pub(super) changes: Option<Summary>,
    pub(super) samples: usize,
}

/// Million lookups a second.
#[derive(Serialize)]
pub(super) struct Score {
    #[serde(serialize_with = "super::by_name")]
    pub(super) stream: Stream,
    pub(super) burst: usize,
    pub(super) threads: usize,
    #[serde(flatten)]
    pub(super) summary: Summary,
    /// The rate over the machine's limit for the lines that a lookup touches; for one thread.
    pub(super) share: Option<f64>,
    /// The rate over the machine's limit for one line per lookup; for one thread.
    pub(super) of_one_load: Option<f64>,
}

/// The latency of dependent lookups, over chains: medians of the rounds.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
}

/// A line of the record.
struct Line<'a> {
    contestant: &'a str,
    bytes: usize,
    case: String,
    threads: usize,
    unit: &'static str,
    summary: Summary,
    samples: usize,
}

impl Line<'_> {
    fn figure<'a>(&'a self, of: &'a Outcome) -> Figure<'a> {
        let Self { contestant, bytes, case, threads, unit, summary, samples } = self;
        Figure {
            bench: "run",
            table: &of.name,
            routes: of.routes,
            contestant,
            case,
            threads: *threads,
            unit,
            summary: *summary,
            samples: *samples,
            bytes: *bytes,
        }
    }
}

/// The parts of an outcome.
pub(super) struct Parts<'a, A> {
    pub(super) definition: &'a Definition,
    pub(super) quick: bool,
    pub(super) routes: &'a [(Prefix<A>, Hop)],
    pub(super) missing: &'a [(String, String)],
    pub(super) measured: &'a [(Entrant, Found)],
    pub(super) touched: Vec<Vec<Touched>>,
    pub(super) curve: Vec<Point>,
    pub(super) localities: &'a [(Stream, Locality)],
}

impl Outcome {
    /// Computes the results of a run.
    pub(super) fn new<A: Addr>(parts: Parts<'_, A>) -> Self {
        let Parts { definition, routes, curve, .. } = parts;
        let measure = &definition.measure;
        let streams: Vec<Stream> = parts.localities.iter().map(|(stream, _)| *stream).collect();
        let cases = cases(&streams, measure);
        let caches = Caches::of_this_machine();
        let contestants = parts
            .measured
            .iter()
            .zip(parts.touched)
            .map(|((entrant, found), touched)| {
                contestant(entrant, found, touched, &cases, &curve, routes.len())
            })
            .collect();
        Self {
            name: definition.name.clone(),
            about: definition.about.clone(),
            quick: parts.quick,
            machine: Machine {
                cpu: record::cpu(),
                cores: std::thread::available_parallelism().map_or(1, usize::from),
                level_2: caches.second,
                level_3: caches.last,
                time: record::now(),
                commit: record::commit(),
                rustc: record::rustc(),
            },
            family: definition.family,
            routes: routes.len(),
            hops: hops(definition, routes),
            keys: measure.keys,
            rounds: measure.rounds,
            bursts: measure.bursts.clone(),
            chain: measure.chain,
            changes: measure.changes,
            streams: parts
                .localities
                .iter()
                .map(|&(stream, locality)| Place { stream, locality })
                .collect(),
            limit: curve,
            missing: parts
                .missing
                .iter()
                .map(|(name, reason)| Missing { name: name.clone(), reason: reason.clone() })
                .collect(),
            contestants,
        }
    }

    /// Appends all figures to the record.
    pub(super) fn record(&self, folder: Option<&Path>) -> anyhow::Result<()> {
        let lines = self.lines();
        append_to_record(folder, lines.iter().map(|line| line.figure(self)))
    }

    /// Lists the figures as the record has them.
    fn lines(&self) -> Vec<Line<'_>> {
        let mut lines = Vec::new();
        for one in &self.contestants {
            let line = |case, threads, unit, summary| Line {
                contestant: &one.name,
                bytes: one.bytes,
                case,
                threads,
                unit,
                summary,
                samples: one.samples,
            };
            for score in &one.scores {
                let Score { stream, burst, threads, summary, .. } = score;
                let case = format!("{stream} burst {burst}");
                lines.push(line(case, *threads, "Mlookups/s", *summary));
            }
            if let Some(Latency { p50, p99, .. }) = one.latency {
                let median = "latency, median of chains".to_owned();
                lines.push(line(median, 1, "ns", Summary::of(&[p50])));
                lines.push(line(
                    "latency, 99 % of chains".to_owned(),
                    1,
                    "ns",
                    Summary::of(&[p99]),
                ));
            }
            if let Some(changes) = one.changes {
                lines.push(line("changes".to_owned(), 1, "kupdates/s", changes));
            }
            lines.push(line("fill".to_owned(), 1, "s", one.fill_seconds));
        }
        for Point { bytes, independent, dependent, .. } in &self.limit {
            let line = |case: &str, unit, summary| Line {
                contestant: "the machine's limit",
                bytes: *bytes,
                case: case.to_owned(),
                threads: 1,
                unit,
                summary,
                samples: self.rounds,
            };
            lines.push(line("independent loads", "Mloads/s", *independent));
            lines.push(line("dependent loads", "ns", *dependent));
        }
        lines
    }

    /// Prints all results as JSON, or the main ones as text.
    #[expect(clippy::print_stdout, reason = "the result")]
    pub(super) fn print(&self, json: bool) -> anyhow::Result<()> {
        if json {
            println!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        let Self { name, routes, keys, rounds, family, machine, .. } = self;
        println!("{name}: {routes} IPv{family} routes; {keys} keys a pass; {}", machine.cpu);
        if self.quick {
            println!(
                "A quick run: it shows that the benchmark works, not how fast the tables are."
            );
        }
        println!("Medians of {rounds} rounds, all in fresh processes; every answer was checked.");
        for place in &self.streams {
            let Place { stream, .. } = place;
            for case in self.cases(*stream) {
                println!("\n{}", self.heading(case));
                for (one, score) in self.scores(case) {
                    let Summary { median, mad, min, max } = score.summary;
                    let share = score.share.map(percent).unwrap_or_default();
                    println!(
                        "  {:16} {median:8.1} ±{mad:<6.1} {min:7.1} to {max:<7.1} {share:>5}  {}",
                        one.name,
                        size(one.bytes),
                    );
                }
            }
        }
        println!("\nA dependent lookup, ns: the median chain of {}, 99 %", self.chain);
        for one in &self.contestants {
            if let Some(Latency { p50, p99, .. }) = one.latency {
                println!("  {:16} {p50:8.1} {p99:8.1}", one.name);
            }
        }
        if self.changes > 0 {
            println!("\nThousand changes a second, one by one");
            for one in &self.contestants {
                if let Some(Summary { median, mad, .. }) = one.changes {
                    println!("  {:16} {median:8.1} ±{mad:.1}", one.name);
                }
            }
        }
        println!(
            "\nThe machine's limit: million independent loads a second; ns of a dependent one"
        );
        for Point { bytes, independent, dependent, .. } in &self.limit {
            println!("  {:>10} {:8.0} {:8.1}", size(*bytes), independent.median, dependent.median);
        }
        for Missing { name, reason } in &self.missing {
            println!("\nMissing: {name}: {reason}");
        }
        Ok(())
    }

    /// Lists the cases of a stream.
    pub(super) fn cases(&self, stream: Stream) -> Vec<Case> {
        let Some(one) = self.contestants.first() else { return Vec::new() };
        let scores = one.scores.iter().filter(|score| score.stream == stream);
        scores
            .map(|&Score { stream, burst, threads, .. }| Case { stream, burst, threads })
            .collect()
    }

    /// Names a case.
    pub(super) fn heading(&self, Case { stream, burst, threads }: Case) -> String {
        let threads = if threads == 1 { "1 thread" } else { &format!("{threads} threads") };
        match stream {
            Stream::Seq => format!("{stream}, {threads}, million lookups a second"),
            _ => format!("{stream}, {threads}, bursts of {burst}, million lookups a second"),
        }
    }

    /// Lists the scores of all contestants in a case, the best first.
    pub(super) fn scores(&self, case: Case) -> Vec<(&Contestant, &Score)> {
        let mut scores: Vec<_> = self
            .contestants
            .iter()
            .filter_map(|one| {
                let score = one.scores.iter().find(|score| {
                    (score.stream, score.burst, score.threads)
                        == (case.stream, case.burst, case.threads)
                });
                score.map(|score| (one, score))
            })
            .collect();
        scores.sort_by(|one, two| two.1.summary.median.total_cmp(&one.1.summary.median));
        scores
    }
}

fn contestant(
    entrant: &Entrant,
    found: &Found,
    touched: Vec<Touched>,
    cases: &[Case],
    curve: &[Point],
    routes: usize,
) -> Contestant {
    let (ours, what, license, single_process) = match entrant {
        Entrant::Ours(_) => (true, String::new(), "MIT OR Apache-2.0".to_owned(), false),
        Entrant::Rival(built) => {
            (false, built.what.clone(), built.license.clone(), built.single_process)
        }
    };
    let scores = cases.iter().zip(&found.rates).map(|(case, rates)| {
        let summary = Summary::of(rates);
        let of_one_load = (case.threads == 1 && found.bytes > 0)
            .then(|| share(case.stream, summary.median, found.bytes, curve));
        let lines = touched.iter().find(|touched| touched.stream == case.stream);
        Score {
            stream: case.stream,
            burst: case.burst,
            threads: case.threads,
            summary,
            share: of_one_load.zip(lines).map(|(one, touched)| one * touched.lines),
            of_one_load,
        }
    });
    let place = |at: usize| -> f64 {
        Summary::of(&found.latency.iter().map(|places| places[at]).collect::<Vec<_>>()).median
    };
    Contestant {
        name: entrant.name().to_owned(),
        ours,
        what,
        license,
        version: found.version.clone(),
        single_process,
        bytes: found.bytes,
        bytes_per_prefix: found.bytes as f64 / routes as f64,
        fill_seconds: Summary::of(&found.fill_seconds),
        scores: scores.collect(),
        touched,
        latency: (!found.latency.is_empty()).then(|| Latency {
            p50: place(0),
            p90: place(1),
            p99: place(2),
            p999: place(3),
        }),
        changes: (!found.changes.is_empty()).then(|| Summary::of(&found.changes)),
        samples: found.rates.first().map_or(0, Vec::len),
    }
}

/// Returns the rate over the limit, for a lookup of one load.
fn share(stream: Stream, rate: f64, bytes: usize, curve: &[Point]) -> f64 {
    match stream {
        Stream::Seq => rate * at(curve, bytes, |point| point.dependent.median) / 1e3,
        _ => rate / at(curve, bytes, |point| point.independent.median),
    }
}

fn hops<A: Addr>(definition: &Definition, routes: &[(Prefix<A>, Hop)]) -> Hops {
    let mut counts = std::collections::HashMap::<Hop, usize>::new();
    routes.iter().for_each(|(_, hop)| *counts.entry(*hop).or_default() += 1);
    let mut shares: Vec<f64> =
        counts.values().map(|&count| count as f64 / routes.len() as f64 * 100.0).collect();
    shares.sort_by(|one, two| two.total_cmp(one));
    let distinct = shares.len();
    shares.truncate(5);
    Hops { rule: definition.hops.clone(), distinct, shares }
}

/// Formats a number of bytes with a unit.
pub(super) fn size(bytes: usize) -> String {
    match bytes {
        0 => "unknown".to_owned(),
        1..10_000 => format!("{bytes} B"),
        10_000..0x10_0000 => format!("{:.0} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
