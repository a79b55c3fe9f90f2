//! `fingerpost-bench live`: a table that is read at full speed while it changes.
//!
//! ```text
//!   CPU 0   writer: change ─► Updater ─► commit          CPU 1   reader: batch, batch, …
//!                                          │ one pointer           │ a batch's first answer
//!                                          └───────────────────────┴─► seen: how long ago?
//! ```
//!
//! | case | what is kept | how |
//! |---|---|---|
//! | `replay`, `random`, by batches | changes a second | a list, a publication for every 1000 |
//! | the same, one by one | changes a second | a publication for each |
//! | `visible` | microseconds, 50th and 99th percentile | from just before the change is told to the updater until the end of the first batch of a reader that answers by it |
//! | `reader` | lookups a second | no feed; changes at a pace, each published; batches as quickly as they go; in turns |
//!
//! The writer has CPU 0, the first reader CPU 1, the next one CPU 2 or, where there is
//! none, the writer's: it is then said, and the main figures are those of one reader.
//! A reader that shares the writer's CPU does not look up while the writer runs, so
//! that of two such readers the first to see a change is the one with a CPU to itself;
//! the last is told too, and is a matter of the kernel's time slices.
//!
//! Changes a second and lookups a second are of the thread's time on its CPU, times
//! to visibility are of the wall clock: they have everything in them that happened.
//! Afterwards the table is compared, at every border of every route, with one that was
//! built from scratch and with an oracle of hash maps (`check.rs`).

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
use readers::Stage;

/// A stream of updates that is replayed where none is named.
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
    /// Random changes beside them
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    changes: usize,
    /// Changes to a publication, where they come in batches
    #[arg(long, value_name = "N", default_value_t = 1000)]
    batch: usize,
    /// Changes a second, each published, while a reader's speed is measured
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "100,1000,3000")]
    paces: Vec<u32>,
    /// Numbers of readers for the time to visibility
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2")]
    readers: Vec<usize>,
    /// Rounds of each
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
    /// Seconds of a reader's round
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    seconds: f64,
    /// Keys that readers look up, again and again
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
    /// For a reader: its speed over that without a feed, round by round.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
}

#[derive(Serialize)]
struct Outcome<'a> {
    table: &'a str,
    routes: usize,
    placement: String,
    lists: Vec<String>,
    /// How many addresses were compared after each list.
    compared: Vec<usize>,
    scores: Vec<Score>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(args.rounds > 0 && args.batch > 1, "at least one round and two changes a batch");
    ensure!(args.changes >= 1000, "--changes {}: at least 1000", args.changes);
    ensure!(args.keys >= readers::BATCH, "--keys {}: at least a batch", args.keys);
    ensure!(
        !args.readers.contains(&0) && !args.paces.contains(&0),
        "neither readers nor paces of 0"
    );
    ensure!(args.seconds > 0.0, "--seconds {}: some time is needed", args.seconds);
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
        bench.cost(&mut feed)?;
        let most = args.rounds * SIGHTS;
        let (changes, sights) = visible(&rib, list, most);
        ensure!(changes.len() >= args.rounds, "too few of the changes can be seen");
        for &readers in &args.readers {
            // Each number of readers finds the table that the changes were chosen for.
            let mut feed = Feed::new(&rib, choice, &[])?;
            bench.visibility(&mut feed, readers, &changes, &sights)?;
        }
    }
    report(args, &outcome)?;
    Ok(ExitCode::SUCCESS)
}

/// How many changes are watched a round, at the most.
const SIGHTS: usize = 1000;

/// The CPU of a reader; the writer has number 0.
fn cpu_of(reader: usize) -> usize {
    (reader + 1) % std::thread::available_parallelism().map_or(1, usize::from)
}

/// Says who runs where.
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

    /// Has one writer and so many readers at work; returns what the writer says and
    /// the million lookups a second of each reader.
    fn stage<T: Send>(
        &self,
        stage: &Stage<'_, A>,
        feed: &mut Feed<A>,
        readers: usize,
        write: impl FnOnce(&mut Feed<A>) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<(T, Vec<f64>)> {
        let handles: Vec<_> = (0..readers).map(|_| feed.updater.reader()).collect();
        std::thread::scope(|scope| {
            let running: Vec<_> = handles
                .into_iter()
                .enumerate()
                .map(|(who, mut reader)| {
                    scope.spawn(move || stage.read(who, cpu_of(who), &mut reader))
                })
                .collect();
            let writer = scope.spawn(move || {
                pin(0);
                stage.begin();
                // However it ends: readers go on until they are told.
                let _end = stage.ending();
                write(feed)
            });
            let said = joined(writer);
            let rates = running.into_iter().map(|reader| {
                let (lookups, seconds) = joined(reader);
                lookups as f64 / seconds.max(1e-9) / 1e6
            });
            let rates = rates.collect();
            Ok((said?, rates))
        })
    }

    /// Changes a second, while one reader looks up; leaves the changes made.
    fn throughput(&mut self, feed: &mut Feed<A>, name: &str, len: usize) -> anyhow::Result<()> {
        let (engine, batch) = (self.engine.clone(), self.args.batch);
        // One by one is slower: a part of a long list will do.
        for (how, batch, count) in [("one by one", 1, len.min(20_000)), ("by batches", batch, len)]
        {
            let mut rates = Vec::new();
            for round in 1..=self.args.rounds {
                let what = format!("{engine}: {name}, {how}, round {round}");
                let stage = Stage::new(self.keys, &[], 1);
                let (rate, _) = progress::during(&what, || {
                    self.stage(&stage, feed, 1, |feed| feed.forward(count, batch))
                })?;
                rates.push(rate);
                // The last round's changes stay, to be looked at.
                if batch == 1 || round < self.args.rounds {
                    feed.home(count)?;
                }
            }
            let case =
                if batch == 1 { format!("{name}, {how}") } else { format!("{name}, by {batch}") };
            let bytes = feed.updater.fib().footprint();
            self.score(case, 1, "kupdates/s", &rates, bytes);
        }
        Ok(())
    }

    /// What a feed costs a reader, in turns with none.
    fn cost(&mut self, feed: &mut Feed<A>) -> anyhow::Result<()> {
        let time = Duration::from_secs_f64(self.args.seconds);
        let batch = self.args.batch;
        let mut cases = vec![("reader, no feed".to_owned(), Load::None)];
        cases.extend(
            self.args.paces.iter().map(|&pace| {
                (format!("reader, {pace} changes a second"), Load::Paced(pace.into()))
            }),
        );
        cases.push((format!("reader, a flood by {batch}"), Load::Flood { batch }));
        let mut rates = vec![Vec::new(); cases.len()];
        for round in 1..=self.args.rounds {
            // Each round begins with another: none always follows the same one.
            for at in 0..cases.len() {
                let at = (at + round) % cases.len();
                let ((case, load), rates) = (&cases[at], &mut rates[at]);
                let what = format!("{}: {case}, round {round}", self.engine);
                let stage = Stage::new(self.keys, &[], 1);
                let (_, speed) = progress::during(&what, || {
                    self.stage(&stage, feed, 1, |feed| feed.go_on(time, *load, || stage.end()))
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

    /// The time until each change is seen.
    fn visibility(
        &mut self,
        feed: &mut Feed<A>,
        readers: usize,
        changes: &[(Prefix<A>, Hop)],
        sights: &[readers::Sight<A>],
    ) -> anyhow::Result<()> {
        let rounds = self.args.rounds;
        let size = (changes.len() / rounds).min(SIGHTS);
        let mut percentiles = vec![(Vec::new(), Vec::new()); 2];
        for round in 0..rounds {
            let part = round * size..(round + 1) * size;
            let (changes, sights) = (&changes[part.clone()], &sights[part]);
            let what = format!("{}: visible to {readers}, round {}", self.engine, round + 1);
            let stage = &Stage::new(self.keys, sights, readers);
            let (times, _) = progress::during(&what, || {
                self.stage(stage, feed, readers, |feed| watch(feed, stage, changes))
            })?;
            let (first, last): (Vec<f64>, Vec<f64>) = times.into_iter().unzip();
            for (mut times, percentiles) in [first, last].into_iter().zip(&mut percentiles) {
                times.sort_by(f64::total_cmp);
                percentiles.0.push(times[times.len() / 2]);
                percentiles.1.push(times[times.len() * 99 / 100]);
            }
        }
        let bytes = feed.updater.fib().footprint();
        let who = ["first reader", "last reader"];
        for (who, (p50, p99)) in who.iter().zip(percentiles).take(readers.min(2)) {
            self.score(format!("visible to the {who}, p50"), readers, "µs", &p50, bytes);
            self.score(format!("visible to the {who}, p99"), readers, "µs", &p99, bytes);
        }
        Ok(())
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Makes changes one by one, and returns for each the microseconds until the first and
/// the last reader answered by it.
fn watch<A: Family>(
    feed: &mut Feed<A>,
    stage: &Stage<'_, A>,
    changes: &[(Prefix<A>, Hop)],
) -> anyhow::Result<Vec<(f64, f64)>> {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut times = Vec::with_capacity(changes.len());
    for (i, &change) in changes.iter().enumerate() {
        // At no fixed point of the readers' work.
        std::thread::sleep(Duration::from_micros(rng.u64(..200)));
        stage.watch(i + 1);
        let begun = stage.now();
        feed.change(change)?;
        let (first, last) = loop {
            if let Some(seen) = stage.seen(i + 1) {
                break seen;
            }
            // It may be waiting for this very CPU.
            std::thread::sleep(Duration::from_micros(20));
        };
        times.push(((first - begun) as f64 / 1e3, (last - begun) as f64 / 1e3));
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
