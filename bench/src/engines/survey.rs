//! The survey: one engine after the other, with all figures of each.
//!
//! A pass has as many keys as its time permits (`--patience`), because the rates of a scan of all
//! routes and of a table in the first-level cache differ by a factor of a million. Each round
//! continues at the key where the last one stopped, so that a slow engine does not find its few lines
//! in the cache. Accesses are counted with the version of the lookup that reports its loads
//! ([`Fib::trace`]), whose answers are compared, too.

use std::process::ExitCode;

use anyhow::{Context, bail};
use fib::engine::Place;
use fib::{Choice, Family, Fib, Hop, Prefix, Rib, Table, Updater};
use output::progress;

use super::changes::{self, Count, List};
use super::report::{self, Accesses, EngineFigures, Rate};
use super::{Args, BATCH};
use crate::clock::{Clock, Summary};
use crate::contest::{Answers, Contestant, Ours, PROVEN, check, right};
use crate::keys::Stream;

/// The most builds of each engine, and the seconds after which there is no further one.
const BUILDS: usize = 5;
const BUILDING: f64 = 3.0;
/// The most lookups whose accesses are counted, and the time limit in seconds.
const TRACED: usize = 100_000;
const TRACING: f64 = 1.0;
/// The time limit for the comparison of answers, in seconds per stream.
const CHECKING: f64 = 2.0;

/// The keys of a stream and their correct answers.
struct KeyStream<A> {
    stream: Stream,
    keys: Table<A>,
    hops: Vec<Hop>,
}

pub(super) fn run<A: Family>(
    args: &Args,
    table: &str,
    routes: &[(Prefix<A>, Hop)],
) -> anyhow::Result<ExitCode> {
    let choices = args.choices::<A>(|| Ok(Choice::every::<A>()))?;
    let rib = Rib::from_sorted(routes.iter().copied());
    let (kind, list) = changes::list(args, routes)?;
    let streams = key_streams(args, &rib, routes)?;
    let mut all = Vec::new();
    for (i, &choice) in choices.iter().enumerate() {
        let name = choice.name::<A>();
        let what = format!("{name}, {} of {}", i + 1, choices.len());
        let figures = progress::during(&what, || measure(args, &rib, choice, &streams, &list))
            .with_context(|| format!("measuring {name}"))?;
        all.push(figures);
    }
    report::survey(args, table, routes.len(), &kind, &all)?;
    Ok(ExitCode::SUCCESS)
}

/// Draws the keys of each stream and finds the answers with the automatic engine for the table, whose
/// answers are compared with the routing table.
fn key_streams<A: Family>(
    args: &Args,
    rib: &Rib<A>,
    routes: &[(Prefix<A>, Hop)],
) -> anyhow::Result<Vec<KeyStream<A>>> {
    let reference = Fib::build(rib, Choice::Auto, 2).context("building the reference")?;
    let draw = |&stream: &Stream| {
        let keys = Table::new(&stream.keys::<A>(args.keys, routes));
        let mut hops = vec![Hop::NONE; keys.len()];
        reference.lookup_batch(&keys, &mut hops);
        let proven = right(rib, &keys[..keys.len().min(PROVEN)]);
        check(&reference.name(), &keys, &proven, &hops)?;
        Ok(KeyStream { stream, keys, hops })
    };
    progress::during("drawing keys and looking up the answers", || {
        args.streams(&Stream::ALL).iter().map(draw).collect()
    })
}

/// Measures one engine.
fn measure<A: Family>(
    args: &Args,
    rib: &Rib<A>,
    choice: Choice,
    streams: &[KeyStream<A>],
    list: &List<A>,
) -> anyhow::Result<EngineFigures> {
    let mut figures = EngineFigures {
        engine: choice.name::<A>(),
        full: None,
        bytes: 0,
        bytes_per_prefix: 0.0,
        on_chip: None,
        off_chip: None,
        build: None,
        builds: 0,
        rates: Vec::new(),
        accesses: Vec::new(),
        updates: None,
    };
    let (mut updater, times) = match build(rib, choice) {
        Ok(built) => built,
        Err(full) => {
            figures.full = Some(full.to_string());
            return Ok(figures);
        }
    };
    figures.build = Some(Summary::of(&times));
    figures.builds = times.len();
    let parts = updater.fib().parts();
    let placed = |place: Place| {
        let parts = parts.iter().filter(|part| part.place == Some(place));
        parts.map(|part| part.bytes).reduce(|one, two| one + two)
    };
    figures.on_chip = placed(Place::OnChip);
    figures.off_chip = placed(Place::OffChip);
    figures.bytes = updater.fib().footprint();
    figures.bytes_per_prefix = figures.bytes as f64 / rib.len() as f64;
    for keys in streams {
        rates(args, &figures.engine, updater.fib(), keys, &mut figures.rates)?;
        let count = accesses(updater.fib(), keys)?;
        figures.accesses.push(Accesses { stream: keys.stream.to_string(), count });
    }
    match changes::measure(&mut updater, list) {
        Ok(updates) => figures.updates = Some(updates),
        // Updates may exceed the limits of an engine.
        Err(error) if error.downcast_ref::<fib::Full>().is_some() => {
            figures.full = Some(format!("{error:#}"));
        }
        Err(error) => return Err(error),
    }
    Ok(figures)
}

/// Builds a few times, and returns the last table with all times, in milliseconds.
fn build<A: Family>(rib: &Rib<A>, choice: Choice) -> Result<(Updater<A>, Vec<f64>), fib::Full> {
    let mut times: Vec<f64> = Vec::new();
    loop {
        let rib = rib.clone();
        let clock = Clock::start();
        let updater = Updater::new(rib, choice, 1)?;
        times.push(clock.seconds() * 1e3);
        let spent: f64 = times.iter().sum();
        if times.len() == BUILDS || spent * (1.0 + 1.0 / times.len() as f64) > BUILDING * 1e3 {
            return Ok((updater, times));
        }
    }
}

/// Checks the answers to a stream, and then measures it.
fn rates<A: Family>(
    args: &Args,
    name: &str,
    fib: &Fib<A>,
    key_stream: &KeyStream<A>,
    rates: &mut Vec<Rate>,
) -> anyhow::Result<()> {
    let KeyStream { stream, keys, hops } = key_stream;
    let batch = args.burst.unwrap_or(BATCH);
    let mut ours = Ours::new(name, fib, batch, Answers::Used);
    // A first estimate of the rate, with an increasing number of keys.
    let mut few = 64.min(keys.len());
    let rate = loop {
        let rate: f64 = Contestant::<A>::rate(&mut ours, *stream, &keys[..few], 1)?;
        if few == keys.len() || few as f64 / rate / 1e6 > 0.02 {
            break rate * 1e6;
        }
        few = keys.len().min(few * 4);
    };
    let within = |seconds: f64| ((rate * seconds) as usize).clamp(few.min(1024), keys.len());
    let checked = within(CHECKING);
    let mut out = vec![Hop::NONE; checked];
    ours.answer(*stream, &keys[..checked], &mut out)?;
    check(name, keys, &hops[..checked], &out)?;
    let len = within(args.patience);
    for &threads in &args.threads {
        let mut all = Vec::new();
        for round in 0..args.rounds {
            let at = (round * len) % (keys.len() - len + 1);
            all.push(ours.rate(*stream, &keys[at..at + len], threads)?);
        }
        rates.push(Rate {
            stream: stream.to_string(),
            threads,
            summary: Summary::of(&all),
            samples: all.len(),
            keys: len,
        });
    }
    Ok(())
}

/// Counts the loads of lookups, one by one.
fn accesses<A: Family>(fib: &Fib<A>, key_stream: &KeyStream<A>) -> anyhow::Result<Count> {
    let mut counts = Vec::new();
    let clock = Clock::start();
    for (&key, &right) in key_stream.keys.iter().zip(&key_stream.hops).take(TRACED) {
        let (hop, steps) = fib.trace(key);
        if hop != right {
            bail!("the traced lookup is wrong: {key:x?} gives {hop:?}, not {right:?}");
        }
        counts.push(steps.len() as u64);
        if clock.seconds() > TRACING {
            break;
        }
    }
    Ok(Count::of(&counts))
}
