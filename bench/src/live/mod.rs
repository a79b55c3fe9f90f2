//! `fingerpost-bench live`: measures a table that readers use at full speed while it changes.
//!
//! ```text
//!   CPU 0   writer: change ─► Updater ─► commit          CPU 1   reader: batch, batch, …
//!                                          │ one pointer           │ first answer of a batch
//!                                          └───────────────────────┴─► time to visibility
//! ```
//!
//! | case | figure | conditions |
//! |---|---|---|
//! | `replay`, `random`, by batches | changes per second | a list, a publication for every 1000 |
//! | the same, one by one | changes per second | a publication for each |
//! | `visible` | microseconds, 50th and 99th percentile | from just before the call of the updater to the end of the first batch of a reader that contains the new answer |
//! | `reader` | lookups per second | without a feed; changes at a rate, each published; batches at full speed; in turns |
//!
//! The writer has CPU 0, the first reader CPU 1, the next one CPU 2 or, on two CPUs, that of the
//! writer. The report states the placement, and the main figures are those of one reader. A reader
//! that shares the writer's CPU does not look up while the writer runs. So of two readers the first to
//! see a change is the one with its own CPU; the time of the last depends on the time slices of the
//! kernel.
//!
//! Rates of changes and lookups refer to the CPU time of the thread, times to visibility to the wall
//! clock, which includes all interruptions. Afterwards the table is compared, at every border of every
//! route, with one built from scratch and with an oracle of hash maps (`check.rs`).

use std::path::PathBuf;
use std::process::ExitCode;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Context, ensure};
use fib::{Choice, Family, Hop, Prefix, Rib, Table};
use output::progress;
use serde::Serialize;

use super::Setting;
use super::clock::{Summary, pin};
use super::engines::changes::{random, replayed};
use super::keys::Stream;
use super::record::Figure;

mod check;
mod feed;
mod readers;

use feed::{Feed, Load, visible};
use readers::Session;

/// The default stream of updates.
const UPDATES: &str = "updates-20260222.1530-routeviews-bgp4mp_et.mrt.bz2";

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    setting: Setting,
    /// Measure IPv6
    #[arg(short = '6')]
    v6: bool,
    /// The engines
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "auto")]
    engines: Vec<String>,
    /// A stream of updates to replay [default: that of 2026 in FINGERPOST_DATA]
    #[arg(long, value_name = "FILE")]
    updates: Option<PathBuf>,
    /// Random changes beside the stream
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    changes: usize,
    /// Changes per publication, in batches
    #[arg(long, value_name = "N", default_value_t = 1000)]
    batch: usize,
    /// Changes per second, each published, during the measurement of a reader
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100,1000,3000")]
    paces: Vec<u32>,
    /// Numbers of readers in the measurement of visibility
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2")]
    readers: Vec<usize>,
    /// Rounds of each
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
    /// Seconds per round of a reader
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    seconds: f64,
    /// Keys that readers look up in a loop
    #[arg(long, value_name = "N", default_value_t = 1 << 22)]
    keys: usize,
}

/// One figure of one engine.
#[derive(Serialize)]
struct Score {
    engine: String,
    case: String,
    readers: usize,
    unit: &'static str,
    #[serde(flatten)]
    summary: Summary,
    samples: usize,
    bytes: usize,
    /// For a reader: the median ratio of its rate to that without a feed, by round.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
}

#[derive(Serialize)]
struct Outcome<'a> {
    table: &'a str,
    routes: usize,
    placement: String,
    lists: Vec<String>,
    /// The number of compared addresses after each list.
    compared: Vec<usize>,
    scores: Vec<Score>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(args.rounds > 0 && args.batch > 1, "at least one round and two changes per batch");
    ensure!(args.changes >= 1000, "--changes {}: at least 1000", args.changes);
    ensure!(args.keys >= readers::BATCH, "--keys {}: at least a batch", args.keys);
    ensure!(
        !args.readers.contains(&0) && !args.paces.contains(&0),
        "--readers and --paces must not contain 0"
    );
    ensure!(args.seconds > 0.0, "--seconds {}: must be a positive number", args.seconds);
    let routes = args.setting.routes()?;
    if args.v6 {
        family(args, &routes.name, &routes.v6)
    } else {
        family(args, &routes.name, &routes.v4)
    }
}

fn family<A: Family>(
    args: &Args,
    table: &str,
    routes: &[(Prefix<A>, Hop)],
) -> anyhow::Result<ExitCode> {
    ensure!(!routes.is_empty(), "{table} has no route of this family");
    let choices: Vec<Choice> = args
        .engines
        .iter()
        .map(|name| Choice::parse::<A>(name).with_context(|| format!("--engines {name}")))
        .collect::<Result<_, _>>()?;
    let rib = Rib::from_sorted(routes.iter().copied());
    let keys = Table::new(&Stream::Rnd.keys::<A>(args.keys, routes));
    let data = crate::data();
    let updates = args.updates.clone().or_else(|| Some(data.join(UPDATES)).filter(|p| p.exists()));
    let mut lists = Vec::new();
    if let Some(path) = &updates {
        match replayed(path, args.setting.hops, routes) {
            Ok((what, list)) => lists.push(("replay", what, list)),
            Err(error) if args.updates.is_some() => return Err(error),
            Err(error) => eprintln!("fingerpost-bench: no replay: {error:#}"),
        }
    }
    lists.push((
        "random",
        format!("{} random changes", args.changes),
        random(routes, args.changes),
    ));
    let mut outcome = Outcome {
        table,
        routes: routes.len(),
        placement: placement(args.readers.iter().copied().max().unwrap_or(1)),
        lists: lists.iter().map(|(name, what, _)| format!("{name}: {what}")).collect(),
        compared: Vec::new(),
        scores: Vec::new(),
    };
    for choice in choices {
        for (name, _, list) in &lists {
            let mut feed = Feed::new(&rib, choice, list)?;
            let engine = feed.updater.fib().name();
            let mut bench = Bench { args, keys: &keys, engine, scores: &mut outcome.scores };
            bench.throughput(&mut feed, name, list.len())?;
            let what = format!("comparing {} after {name}", bench.engine);
            let compared = progress::during(&what, || {
                check::verify(feed.updater.fib(), choice, routes, list)
            })?;
            outcome.compared.push(compared);
        }
        let (name, _, list) = &lists[lists.len() - 1];
        debug_assert_eq!(*name, "random");
        let mut feed = Feed::new(&rib, choice, list)?;
        let engine = feed.updater.fib().name();
        let mut bench = Bench { args, keys: &keys, engine, scores: &mut outcome.scores };
        bench.reader_cost(&mut feed)?;
        let most = args.rounds * MOST_OBSERVED;
        let (changes, probes) = visible(&rib, list, most);
        ensure!(changes.len() >= args.rounds, "too few of the changes are visible to a lookup");
        for &readers in &args.readers {
            // The changes were chosen for the initial table.
            let mut feed = Feed::new(&rib, choice, &[])?;
            bench.visibility(&mut feed, readers, &changes, &probes)?;
        }
    }
    report(args, &outcome)?;
    Ok(ExitCode::SUCCESS)
}

/// The most observed changes per round.
const MOST_OBSERVED: usize = 1000;

/// Returns the CPU of a reader; the writer has CPU 0.
fn cpu_of(reader: usize) -> usize {
    (reader + 1) % std::thread::available_parallelism().map_or(1, usize::from)
}

/// Describes the CPU of each thread.
fn placement(readers: usize) -> String {
    let places: Vec<String> = (0..readers)
        .map(|reader| match cpu_of(reader) {
            0 => format!("reader {} on CPU 0, which it shares with the writer", reader + 1),
            cpu => format!("reader {} on CPU {cpu}", reader + 1),
        })
        .collect();
    format!("writer on CPU 0, {}", places.join(", "))
}

struct Bench<'a, A> {
    args: &'a Args,
    keys: &'a [A],
    engine: String,
    scores: &'a mut Vec<Score>,
}

impl<A: Family> Bench<'_, A> {
    fn score(
        &mut self,
        case: String,
        readers: usize,
        unit: &'static str,
        rounds: &[f64],
        bytes: usize,
    ) {
        self.scores.push(Score {
            engine: self.engine.clone(),
            case,
            readers,
            unit,
            summary: Summary::of(rounds),
            samples: rounds.len(),
            bytes,
            ratio: None,
        });
    }

    /// Runs one writer and `readers` readers. Returns the result of the writer and the million lookups
    /// per second of each reader.
    fn run_session<T: Send>(
        &self,
        session: &Session<'_, A>,
        feed: &mut Feed<A>,
        readers: usize,
        write: impl FnOnce(&mut Feed<A>) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<(T, Vec<f64>)> {
        let handles: Vec<_> = (0..readers).map(|_| feed.updater.reader()).collect();
        std::thread::scope(|scope| {
            let running: Vec<_> = handles
                .into_iter()
                .enumerate()
                .map(|(number, mut reader)| {
                    scope.spawn(move || session.read(number, cpu_of(number), &mut reader))
                })
                .collect();
            let writer = scope.spawn(move || {
                pin(0);
                session.begin();
                // Ends the readers also after a panic of the writer.
                let _end = session.end_on_drop();
                write(feed)
            });
            let result = joined(writer);
            let rates = running.into_iter().map(|reader| {
                let (lookups, seconds) = joined(reader);
                lookups as f64 / seconds.max(1e-9) / 1e6
            });
            let rates = rates.collect();
            Ok((result?, rates))
        })
    }

    /// Measures changes per second while one reader looks up. The table contains the changes
    /// afterwards.
    fn throughput(&mut self, feed: &mut Feed<A>, name: &str, len: usize) -> anyhow::Result<()> {
        let (engine, batch) = (self.engine.clone(), self.args.batch);
        // Single changes are slower: a part of a long list is enough.
        for (how, batch, count) in [("one by one", 1, len.min(20_000)), ("by batches", batch, len)]
        {
            let mut rates = Vec::new();
            for round in 1..=self.args.rounds {
                let what = format!("{engine}: {name}, {how}, round {round}");
                let session = Session::new(self.keys, &[], 1);
                let (rate, _) = progress::during(&what, || {
                    self.run_session(&session, feed, 1, |feed| feed.forward(count, batch))
                })?;
                rates.push(rate);
                // The changes of the last round remain for the comparison.
                if batch == 1 || round < self.args.rounds {
                    feed.revert(count)?;
                }
            }
            let case =
                if batch == 1 { format!("{name}, {how}") } else { format!("{name}, by {batch}") };
            let bytes = feed.updater.fib().footprint();
            self.score(case, 1, "kupdates/s", &rates, bytes);
        }
        Ok(())
    }

    /// Measures the rate of a reader with feeds and without one, in turns.
    fn reader_cost(&mut self, feed: &mut Feed<A>) -> anyhow::Result<()> {
        let time = Duration::from_secs_f64(self.args.seconds);
        let batch = self.args.batch;
        let mut cases = vec![("reader, no feed".to_owned(), Load::None)];
        cases.extend(
            self.args.paces.iter().map(|&pace| {
                (format!("reader, {pace} changes per second"), Load::Paced(pace.into()))
            }),
        );
        cases.push((format!("reader, a flood by {batch}"), Load::Flood { batch }));
        let mut rates = vec![Vec::new(); cases.len()];
        for round in 1..=self.args.rounds {
            // Each round starts with another case, so that none always follows the same one.
            for at in 0..cases.len() {
                let at = (at + round) % cases.len();
                let ((case, load), rates) = (&cases[at], &mut rates[at]);
                let what = format!("{}: {case}, round {round}", self.engine);
                let session = Session::new(self.keys, &[], 1);
                let (_, speed) = progress::during(&what, || {
                    self.run_session(&session, feed, 1, |feed| {
                        feed.run_for(time, *load, || session.end())
                    })
                })?;
                rates.extend(speed);
            }
        }
        let bytes = feed.updater.fib().footprint();
        let quiet = rates[0].clone();
        for ((case, _), rates) in cases.into_iter().zip(rates) {
            self.score(case, 1, "Mlookups/s", &rates, bytes);
            let ratios: Vec<f64> =
                rates.iter().zip(&quiet).map(|(rate, none)| rate / none).collect();
            if let Some(score) = self.scores.last_mut() {
                score.ratio = Some(Summary::of(&ratios).median);
            }
        }
        Ok(())
    }

    /// Measures the time until each change is visible to readers.
    fn visibility(
        &mut self,
        feed: &mut Feed<A>,
        readers: usize,
        changes: &[(Prefix<A>, Hop)],
        probes: &[readers::Probe<A>],
    ) -> anyhow::Result<()> {
        let rounds = self.args.rounds;
        let size = (changes.len() / rounds).min(MOST_OBSERVED);
        let mut percentiles = vec![(Vec::new(), Vec::new()); 2];
        for round in 0..rounds {
            let part = round * size..(round + 1) * size;
            let (changes, probes) = (&changes[part.clone()], &probes[part]);
            let what = format!("{}: visible to {readers}, round {}", self.engine, round + 1);
            let session = &Session::new(self.keys, probes, readers);
            let (times, _) = progress::during(&what, || {
                self.run_session(session, feed, readers, |feed| observe(feed, session, changes))
            })?;
            let (first, last): (Vec<f64>, Vec<f64>) = times.into_iter().unzip();
            for (mut times, percentiles) in [first, last].into_iter().zip(&mut percentiles) {
                times.sort_by(f64::total_cmp);
                percentiles.0.push(times[times.len() / 2]);
                percentiles.1.push(times[times.len() * 99 / 100]);
            }
        }
        let bytes = feed.updater.fib().footprint();
        let names = ["first reader", "last reader"];
        for (name, (p50, p99)) in names.iter().zip(percentiles).take(readers.min(2)) {
            self.score(format!("visible to the {name}, p50"), readers, "µs", &p50, bytes);
            self.score(format!("visible to the {name}, p99"), readers, "µs", &p99, bytes);
        }
        Ok(())
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Makes changes one by one. Returns for each the microseconds until the first and the last reader had
/// the new answer.
fn observe<A: Family>(
    feed: &mut Feed<A>,
    session: &Session<'_, A>,
    changes: &[(Prefix<A>, Hop)],
) -> anyhow::Result<Vec<(f64, f64)>> {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut times = Vec::with_capacity(changes.len());
    for (i, &change) in changes.iter().enumerate() {
        // At a random point of the readers' loop.
        std::thread::sleep(Duration::from_micros(rng.u64(..200)));
        session.observe(i + 1);
        let start = session.now();
        feed.change(change)?;
        let (first, last) = loop {
            if let Some(seen) = session.seen(i + 1) {
                break seen;
            }
            // A reader may wait for this CPU.
            std::thread::sleep(Duration::from_micros(20));
        };
        times.push(((first - start) as f64 / 1e3, (last - start) as f64 / 1e3));
    }
    Ok(times)
}

#[expect(clippy::print_stdout, reason = "the result")]
fn report(args: &Args, outcome: &Outcome<'_>) -> anyhow::Result<()> {
    let Outcome { table, routes, placement, lists, compared, scores } = outcome;
    args.setting.record(scores.iter().map(|score| Figure {
        bench: "live",
        table,
        routes: *routes,
        contestant: &score.engine,
        case: &score.case,
        threads: score.readers,
        unit: score.unit,
        summary: score.summary,
        samples: score.samples,
        bytes: score.bytes,
    }))?;
    if args.setting.output.json {
        println!("{}", serde_json::to_string_pretty(outcome)?);
        return Ok(());
    }
    println!("{table}: {routes} routes; {}", lists.join("; "));
    println!("{placement}");
    println!("After each list equal to a rebuild and to the oracle at {compared:?} addresses");
    println!("Medians of {} rounds; ratios are to the reader without a feed.", args.rounds);
    let mut engine = "";
    for score in scores {
        if score.engine != engine {
            println!("\n{}, {} bytes", score.engine, score.bytes);
            engine = &score.engine;
        }
        let Summary { median, mad, min, max } = score.summary;
        let ratio = score.ratio.map_or(String::new(), |ratio| format!("  x{ratio:.3}"));
        println!(
            "  {:34} {} reader(s) {median:10.1} ±{mad:<8.1} {min:9.1} to {max:<9.1} {}{ratio}",
            score.case, score.readers, score.unit
        );
    }
    Ok(())
}
