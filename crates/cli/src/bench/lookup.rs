//! `bench lookup`: lookups a second, every engine and the plain rival in turns.
//!
//! A pass looks a whole array of keys up and stores every answer. Before any time
//! is kept, each contestant's answers to each stream are compared: the first
//! million with the routing table's own longest match, all of them with each
//! other's. Then the contestants take turns, round after round, so that a slow
//! minute of the machine hits all; the median of a contestant's passes counts, and
//! ratios are between medians. With several threads each has a core and a section
//! of the keys to itself, and all share one table, as workers do.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Barrier;

use anyhow::{Context, bail};
use fib::{Choice, Family, Fib, Hop, Prefix, Rib};
use serde::Serialize;

use super::Setting;
use super::clock::{Clock, Summary, pin};
use super::keys::Stream;
use super::plain::Plain;
use super::record::Figure;
use crate::progress;

/// How many keys are looked up in one call, as in a datapath.
const BATCH: usize = 256;
/// How many answers are held against the routing table.
const PROVEN: usize = 1 << 20;
/// The rival's name.
const PLAIN: &str = "plain-D16X4R";

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    setting: Setting,
    /// Measure IPv6
    #[arg(short = '6')]
    v6: bool,
    /// The engines; `plain-D16X4R` is the thesis's search, one lookup after another
    /// [default: a choice for the family]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    engines: Vec<String>,
    /// The streams [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    streams: Vec<Stream>,
    /// Numbers of threads, each measured
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Passes of each contestant
    #[arg(long, value_name = "N", default_value_t = 7)]
    rounds: usize,
    /// Keys of a pass
    #[arg(long, value_name = "N", default_value_t = 1 << 25)]
    keys: usize,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.rounds == 0 || args.keys < BATCH || args.threads.contains(&0) {
        bail!("at least one round, one thread and {BATCH} keys are needed");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(threads) = args.threads.iter().find(|&&threads| threads > cores) {
        bail!("--threads {threads}: there are {cores} cores, and each thread is to have one");
    }
    let routes = args.setting.routes()?;
    if args.v6 {
        let default = ["D16X4R/64", "D16X8R/64", "D16X8R"];
        compare(args, &routes.name, &routes.v6, &default, |_| bail!("{PLAIN} is for IPv4 only"))
    } else {
        let default = [PLAIN, "D16R", "D18R", "D20R", "D16X2R", "D16X4R", "D16X6R"];
        compare(args, &routes.name, &routes.v4, &default, |rib| {
            Ok(Box::new(Plain::build(rib)?) as Box<dyn Contestant<u32>>)
        })
    }
}

/// Something that looks addresses up.
trait Contestant<A>: Sync {
    /// Looks all `keys` up, in the dependence that the stream asks for.
    fn pass(&self, stream: Stream, keys: &[A], out: &mut [Hop]);
    fn bytes(&self) -> usize;
}

impl<A: Family> Contestant<A> for Fib<A> {
    fn pass(&self, stream: Stream, keys: &[A], out: &mut [Hop]) {
        if stream == Stream::Seq {
            return one_by_one(keys, out, |key| self.lookup(key));
        }
        for (keys, out) in keys.chunks(BATCH).zip(out.chunks_mut(BATCH)) {
            self.lookup_batch(keys, out);
        }
    }

    fn bytes(&self) -> usize {
        self.footprint()
    }
}

impl Contestant<u32> for Plain {
    fn pass(&self, stream: Stream, keys: &[u32], out: &mut [Hop]) {
        if stream == Stream::Seq {
            return one_by_one(keys, out, |key| self.lookup(key));
        }
        for (key, out) in keys.iter().zip(out) {
            *out = self.lookup(*key);
        }
    }

    fn bytes(&self) -> usize {
        self.footprint()
    }
}

/// Looks keys up so that each waits for the answer before it: some bits of the
/// answer, which are none, but which the compiler cannot know to be none, are part
/// of the next key.
#[inline(always)]
fn one_by_one<A: Family>(keys: &[A], out: &mut [Hop], lookup: impl Fn(A) -> Hop) {
    let none = black_box(0);
    let mut before = Hop::NONE;
    for (&key, out) in keys.iter().zip(out) {
        let key = A::from_u128(key.to_u128() ^ u128::from(before.0 & none));
        before = lookup(key);
        *out = before;
    }
}

/// What one contestant did in one case.
#[derive(Serialize)]
struct Score {
    engine: String,
    bytes: usize,
    stream: String,
    threads: usize,
    /// In million lookups a second.
    #[serde(flatten)]
    summary: Summary,
    /// The median over that of the first contestant.
    ratio: f64,
}

#[derive(Serialize)]
struct Outcome<'a> {
    table: &'a str,
    routes: usize,
    keys: usize,
    rounds: usize,
    scores: &'a [Score],
}

fn compare<A: Family>(
    args: &Args,
    table: &str,
    routes: &[(Prefix<A>, Hop)],
    default: &[&str],
    plain: impl Fn(&Rib<A>) -> anyhow::Result<Box<dyn Contestant<A>>>,
) -> anyhow::Result<ExitCode> {
    if routes.is_empty() {
        bail!("{table} has no route of this family");
    }
    let rib = Rib::from_sorted(routes.iter().copied());
    let names: Vec<&str> = match &args.engines[..] {
        [] => default.to_vec(),
        engines => engines.iter().map(String::as_str).collect(),
    };
    let mut contestants: Vec<(String, Box<dyn Contestant<A>>)> = Vec::new();
    for name in names {
        let contestant = if name == PLAIN {
            plain(&rib)?
        } else {
            let choice = Choice::parse::<A>(name).with_context(|| format!("--engines {name}"))?;
            Box::new(Fib::build(&rib, choice, 2).with_context(|| format!("building {name}"))?)
        };
        contestants.push((name.to_owned(), contestant));
    }
    let streams = if args.streams.is_empty() { &Stream::ALL[..] } else { &args.streams };
    let mut out = vec![Hop::NONE; args.keys];
    let mut scores = Vec::new();
    for &stream in streams {
        let keys = progress::during(&format!("drawing keys for {stream}"), || {
            stream.keys::<A>(args.keys, routes)
        });
        prove(&rib, &contestants, stream, &keys, &mut out)?;
        for &threads in &args.threads {
            let mut rates = vec![Vec::new(); contestants.len()];
            for round in 0..args.rounds {
                let what = format!("{stream}, {threads} threads, round {}", round + 1);
                progress::during(&what, || {
                    for ((_, contestant), rates) in contestants.iter().zip(&mut rates) {
                        rates.push(rate(&**contestant, stream, &keys, &mut out, threads));
                    }
                });
            }
            let first = Summary::of(&rates[0]).median;
            for ((name, contestant), rates) in contestants.iter().zip(&rates) {
                let summary = Summary::of(rates);
                scores.push(Score {
                    engine: name.clone(),
                    bytes: contestant.bytes(),
                    stream: stream.to_string(),
                    threads,
                    summary,
                    ratio: summary.median / first,
                });
            }
        }
    }
    args.setting.record(scores.iter().map(|score| Figure {
        bench: "lookup",
        table,
        routes: routes.len(),
        contestant: &score.engine,
        case: &score.stream,
        threads: score.threads,
        unit: "Mlookups/s",
        summary: score.summary,
        samples: args.rounds,
        bytes: score.bytes,
    }))?;
    print(
        args,
        &Outcome {
            table,
            routes: routes.len(),
            keys: args.keys,
            rounds: args.rounds,
            scores: &scores,
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Holds every contestant's answers against the routing table and each other.
fn prove<A: Family>(
    rib: &Rib<A>,
    contestants: &[(String, Box<dyn Contestant<A>>)],
    stream: Stream,
    keys: &[A],
    out: &mut [Hop],
) -> anyhow::Result<()> {
    let longest = |key: &A| rib.longest(*key).map_or(Hop::NONE, |(_, hop)| hop);
    let proven: Vec<Hop> = progress::during(&format!("checking {stream}"), || {
        keys.iter().take(PROVEN).map(longest).collect()
    });
    let mut agreed = Vec::new();
    for (name, contestant) in contestants {
        contestant.pass(stream, keys, out);
        if let Some(at) = proven.iter().zip(&*out).position(|(right, hop)| right != hop) {
            let (key, right, hop) = (keys[at], proven[at], out[at]);
            bail!("{name} is wrong: {key:x?} gives {hop:?}, the longest match is {right:?}");
        }
        if agreed.is_empty() {
            agreed.extend_from_slice(out);
        } else if agreed != out {
            bail!("{name} and {} differ on {stream}", contestants[0].0);
        }
    }
    Ok(())
}

/// Returns the million lookups a second of one pass, over all threads.
fn rate<A: Family>(
    contestant: &dyn Contestant<A>,
    stream: Stream,
    keys: &[A],
    out: &mut [Hop],
    threads: usize,
) -> f64 {
    let section = keys.len().div_ceil(threads);
    let ready = Barrier::new(threads);
    std::thread::scope(|scope| {
        let work = |cpu: usize, keys: &[A], out: &mut [Hop]| {
            pin(cpu);
            ready.wait();
            let clock = Clock::start();
            contestant.pass(stream, keys, out);
            keys.len() as f64 / clock.seconds() / 1e6
        };
        let sections = keys.chunks(section).zip(out.chunks_mut(section)).enumerate();
        let running: Vec<_> =
            sections.map(|(cpu, (keys, out))| scope.spawn(move || work(cpu, keys, out))).collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .sum()
    })
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print(args: &Args, outcome: &Outcome<'_>) -> anyhow::Result<()> {
    if args.setting.json {
        println!("{}", serde_json::to_string_pretty(outcome)?);
        return Ok(());
    }
    let Outcome { table, routes, keys, rounds, scores } = outcome;
    println!("{table}: {routes} routes; {keys} keys a pass, median of {rounds} passes");
    println!("Million lookups a second; the ratio is to the first engine of the list.");
    let mut case = None;
    for score in *scores {
        if case != Some((&score.stream, score.threads)) {
            case = Some((&score.stream, score.threads));
            println!("\n{}, {} thread(s)", score.stream, score.threads);
        }
        let Score { engine, bytes, ratio, .. } = score;
        let Summary { median, mad, min, max } = score.summary;
        println!(
            "  {engine:14} {median:8.1} ±{mad:<6.1} {min:7.1} to {max:<7.1} x{ratio:.2}  {bytes} bytes"
        );
    }
    Ok(())
}
