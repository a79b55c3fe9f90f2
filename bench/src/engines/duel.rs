//! A few engines and a rival, all in memory, taking turns.
//!
//! Everyone looks the same keys up in bursts of the same length and uses the answers of
//! a burst before the next one takes their place, which is what an application does;
//! SEQ is one lookup a call, of which each waits for the last. The ratios are the
//! medians of a contestant over the median of the rival.

use std::process::ExitCode;

use anyhow::Context;
use fib::{Choice, Family, Fib, Hop, Prefix, Rib, Table, Updater};
use output::progress;

use super::changes::{self, List};
use super::report::{self, Score};
use super::{Args, BURST, DUEL, DUEL6};
use crate::clock::Summary;
use crate::contest::{Answers, Contestant, Ours, check, prove, right, rounds};
use crate::keys::Stream;
use crate::rival::{Function, Rival};

pub(super) fn run<A: Family>(
    args: &Args,
    rival: &str,
    table: &str,
    routes: &[(Prefix<A>, Hop)],
) -> anyhow::Result<ExitCode> {
    let burst = args.burst.unwrap_or(BURST);
    let default = if A::BITS == 32 { DUEL } else { DUEL6 };
    let choices = args.choices::<A>(|| {
        Ok(default.iter().map(|name| Choice::parse::<A>(name)).collect::<Result<_, _>>()?)
    })?;
    let rib = Rib::from_sorted(routes.iter().copied());
    let (kind, list) = changes::list(args, routes)?;
    let ours = |choice: Choice| {
        let name = choice.name::<A>();
        let fib = progress::during(&format!("building {name}"), || Fib::build(&rib, choice, 2));
        let fib = fib.with_context(|| format!("building {name}"))?;
        anyhow::Ok(Ours::new(&name, fib, burst, Answers::Used))
    };
    let mut about = None;
    let mut contestants: Vec<Box<dyn Contestant<A>>> = Vec::new();
    match Function::parse(rival) {
        Some(function) => {
            let rival =
                progress::during("filling DPDK's table", || Rival::dpdk(routes, function, burst))?;
            about = Some(rival.describe());
            contestants.push(Box::new(rival));
        }
        None => {
            let choice = Choice::parse::<A>(rival);
            contestants
                .push(Box::new(ours(choice.with_context(|| format!("--against {rival}"))?)?));
        }
    }
    for &choice in &choices {
        contestants.push(Box::new(ours(choice)?));
    }
    let mut scores = Vec::new();
    for &stream in args.streams(&[Stream::Rnd, Stream::Seq]) {
        let keys = progress::during(&format!("drawing keys for {stream}"), || {
            Table::new(&stream.keys::<A>(args.keys, routes))
        });
        prove(&rib, &mut contestants, stream, &keys)?;
        for &threads in &args.threads {
            let rates = rounds(&mut contestants, stream, &keys, threads, args.rounds)?;
            let rival = Summary::of(&rates[0]).median;
            for (contestant, rates) in contestants.iter().zip(&rates) {
                let summary = Summary::of(rates);
                scores.push(Score {
                    engine: contestant.name().to_owned(),
                    bytes: contestant.bytes(),
                    case: stream.to_string(),
                    threads,
                    unit: "Mlookups/s",
                    summary,
                    samples: rates.len(),
                    ratio: summary.median / rival,
                });
            }
        }
    }
    drop(contestants);
    updates(args, rival, routes, &rib, &choices, &list, &mut scores)?;
    report::duel(args, table, routes.len(), burst, about.as_deref(), &kind, &scores)?;
    Ok(ExitCode::SUCCESS)
}

/// Changes tables, the rival's and then each of ours, which are all built again.
fn updates<A: Family>(
    args: &Args,
    rival: &str,
    routes: &[(Prefix<A>, Hop)],
    rib: &Rib<A>,
    choices: &[Choice],
    list: &List<A>,
    scores: &mut Vec<Score>,
) -> anyhow::Result<()> {
    let mut base = None;
    let mut push = |engine: &str, bytes, case: &str, summary: Summary, samples| {
        let base = *base.get_or_insert(summary.median);
        scores.push(Score {
            engine: engine.to_owned(),
            bytes,
            case: case.to_owned(),
            threads: 1,
            unit: "kupdates/s",
            summary,
            samples,
            ratio: summary.median / base,
        });
    };
    let mut all = choices.to_vec();
    if let Some(function) = Function::parse(rival) {
        let mut rates = Vec::new();
        progress::during("changing DPDK's table", || {
            let mut table = Rival::dpdk(routes, function, args.burst.unwrap_or(BURST))?;
            for part in list.chunks(list.len().div_ceil(10)) {
                rates.push(part.len() as f64 / table.change(part)? / 1e3);
            }
            let mut after = rib.clone();
            changes::apply(&mut after, list);
            let keys = changes::borders(list);
            let mut hops = vec![Hop::NONE; keys.len()];
            table.expect(&keys)?;
            table.answer(Stream::Rnd, &keys, &mut hops)?;
            check(rival, &keys, &right(&after, &keys), &hops)?;
            push(rival, table.bytes(), "updates", Summary::of(&rates), list.len());
            anyhow::Ok(())
        })?;
    } else {
        all.insert(0, Choice::parse::<A>(rival)?);
    }
    for choice in all {
        let name = choice.name::<A>();
        let mut updater = Updater::new(rib.clone(), choice, 2)?;
        let cost =
            progress::during(&format!("changing {name}"), || changes::measure(&mut updater, list))?;
        let bytes = updater.fib().footprint();
        push(&name, bytes, "updates", cost.builder, cost.samples);
        push(&name, bytes, "updates, published", cost.published, cost.samples);
    }
    Ok(())
}
