//! One engine after the other, everything about each.
//!
//! A pass takes as many keys as there is time for (`--patience`), because a scan of
//! all routes and a table in the first-level cache are a million times apart; each
//! round goes on in the keys where the last one stopped, so that a slow engine does
//! not find the few lines it needs in the cache. Accesses are counted on the twin of
//! the lookup that tells its loads ([`Fib::trace`]), whose answers are compared too.

use std::process::ExitCode;

use anyhow::{Context, bail};
use fib::engine::Place;
use fib::{Choice, Family, Fib, Hop, Prefix, Rib, Table, Updater};
use output::progress;
use serde::Serialize;

use super::changes::{self, Count, List, Updates};
use super::report;
use super::{Args, BATCH};
use crate::clock::{Clock, Summary};
use crate::contest::{Answers, Contestant, Ours, PROVEN, check, right};
use crate::keys::Stream;

/// Builds of each engine, and the seconds after which there is no further one.
const BUILDS: usize = 5;
const BUILDING: f64 = 3.0;
/// Lookups of which the accesses are counted, and the seconds that may take.
const TRACED: usize = 100_000;
const TRACING: f64 = 1.0;
/// Seconds that comparing an engine's answers may take, for each stream.
const CHECKING: f64 = 2.0;

/// What was found of one engine.
#[derive(Serialize)]
pub(super) struct Found {
    pub(super) engine: String,
    /// What the engine says of a table that it cannot hold; the rest is empty then.
    pub(super) full: Option<String>,
    pub(super) bytes: usize,
    pub(super) bytes_a_prefix: f64,
    /// The bytes that the paper puts on chip and off it, if it tells them apart.
    pub(super) on_chip: Option<usize>,
    pub(super) off_chip: Option<usize>,
    /// Milliseconds.
    pub(super) build: Option<Summary>,
    pub(super) builds: usize,
    pub(super) rates: Vec<Rate>,
    pub(super) accesses: Vec<Accesses>,
    pub(super) updates: Option<Updates>,
}

/// Million lookups a second.
#[derive(Serialize)]
pub(super) struct Rate {
    pub(super) stream: String,
    pub(super) threads: usize,
    #[serde(flatten)]
    pub(super) summary: Summary,
    pub(super) samples: usize,
    /// Keys of a pass.
    pub(super) keys: usize,
}

/// Loads of a lookup.
#[derive(Serialize)]
pub(super) struct Accesses {
    pub(super) stream: String,
    #[serde(flatten)]
    pub(super) count: Count,
}

/// Keys, and the answers that all must give.
struct Asked<A> {
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
    let asked = ask(args, &rib, routes)?;
    let mut found = Vec::new();
    for (i, &choice) in choices.iter().enumerate() {
        let name = choice.name::<A>();
        let what = format!("{name}, {} of {}", i + 1, choices.len());
        let one = progress::during(&what, || one(args, &rib, choice, &asked, &list))
            .with_context(|| format!("measuring {name}"))?;
        found.push(one);
    }
    report::survey(args, table, routes.len(), &kind, &found)?;
    Ok(ExitCode::SUCCESS)
}

/// Draws the keys of each stream and finds the answers: with the engine that is
/// chosen for the table, which is held against the routing table.
fn ask<A: Family>(
    args: &Args,
    rib: &Rib<A>,
    routes: &[(Prefix<A>, Hop)],
) -> anyhow::Result<Vec<Asked<A>>> {
    let reference = Fib::build(rib, Choice::Auto, 2).context("building the reference")?;
    let ask = |&stream: &Stream| {
        let keys = Table::new(&stream.keys::<A>(args.keys, routes));
        let mut hops = vec![Hop::NONE; keys.len()];
        reference.lookup_batch(&keys, &mut hops);
        let proven = right(rib, &keys[..keys.len().min(PROVEN)]);
        check(&reference.name(), &keys, &proven, &hops)?;
        Ok(Asked { stream, keys, hops })
    };
    progress::during("drawing keys and looking up what is right", || {
        args.streams(&Stream::ALL).iter().map(ask).collect()
    })
}

fn one<A: Family>(
    args: &Args,
    rib: &Rib<A>,
    choice: Choice,
    asked: &[Asked<A>],
    list: &List<A>,
) -> anyhow::Result<Found> {
    let mut found = Found {
        engine: choice.name::<A>(),
        full: None,
        bytes: 0,
        bytes_a_prefix: 0.0,
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
            found.full = Some(full.to_string());
            return Ok(found);
        }
    };
    found.build = Some(Summary::of(&times));
    found.builds = times.len();
    let parts = updater.fib().parts();
    let placed = |place: Place| {
        let parts = parts.iter().filter(|part| part.place == Some(place));
        parts.map(|part| part.bytes).reduce(|one, two| one + two)
    };
    found.on_chip = placed(Place::OnChip);
    found.off_chip = placed(Place::OffChip);
    found.bytes = updater.fib().footprint();
    found.bytes_a_prefix = found.bytes as f64 / rib.len() as f64;
    for asked in asked {
        rates(args, &found.engine, updater.fib(), asked, &mut found.rates)?;
        let count = accesses(updater.fib(), asked)?;
        found.accesses.push(Accesses { stream: asked.stream.to_string(), count });
    }
    match changes::measure(&mut updater, list) {
        Ok(updates) => found.updates = Some(updates),
        // A stream may bring what the engine has no room for, which is its right.
        Err(error) if error.downcast_ref::<fib::Full>().is_some() => {
            found.full = Some(format!("{error:#}"));
        }
        Err(error) => return Err(error),
    }
    Ok(found)
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
    asked: &Asked<A>,
    rates: &mut Vec<Rate>,
) -> anyhow::Result<()> {
    let Asked { stream, keys, hops } = asked;
    let batch = args.burst.unwrap_or(BATCH);
    let mut ours = Ours::new(name, fib, batch, Answers::Used);
    // A first look at how fast it is, on ever more keys.
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
fn accesses<A: Family>(fib: &Fib<A>, asked: &Asked<A>) -> anyhow::Result<Count> {
    let mut counts = Vec::new();
    let clock = Clock::start();
    for (&key, &right) in asked.keys.iter().zip(&asked.hops).take(TRACED) {
        let (hop, steps) = fib.trace(key);
        if hop != right {
            bail!("the twin that counts is wrong: {key:x?} gives {hop:?}, not {right:?}");
        }
        counts.push(steps.len() as u64);
        if clock.seconds() > TRACING {
            break;
        }
    }
    Ok(Count::of(&counts))
}
