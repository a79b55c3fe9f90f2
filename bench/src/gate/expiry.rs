//! The cost to remove expired flows, on tables up to the size of the memory.
//!
//! ```text
//!   0 s ──── flows are declined at even intervals ──── 300 s ── the first expires ── … ── 600 s, the last
//!            inserted into the timer wheel                     cascaded to lower levels, and removed
//! ```
//!
//! Three quarters of the entries are declined for [`LIFETIME`], evenly spread over the same time, so
//! that each cascades as often as any flow can. Then time advances in steps as in a worker, each with
//! at most [`WORK`] entries of maintenance, until the table is empty. The timed part is those steps,
//! including those that find nothing to remove. Each part is a hundredth of the time.
//!
//! **250 million entries** are more than most machines hold. The cost of an entry grows with the
//! table, because its cache lines come from farther away, and hardly grows beyond the caches. The cost
//! for 250 million is extrapolated from the two largest tables measured, with the same growth for each
//! doubling as between those. If all entries live for five minutes, 833,333 expire in a second.

use std::process::ExitCode;

use anyhow::ensure;
use fib::{Prefix, Publisher};
use gate::decision::{FlowCommand, Item, Scope};
use gate::flow::{Flow, Key};
use gate::gate::Gate;
use gate::policy::{Action, Address, Grantor, PolicyBuilder};
use gate::state::{Decision, Grant, Stamp};
use output::progress;
use serde::Serialize;

use super::Args;
use super::course::{PROTECTED, source};
use crate::clock::{Clock, Summary};
use crate::record::Figure;

const SECOND: u64 = 1_000_000_000;
/// The lifetime of a decline, in seconds.
const LIFETIME: u64 = 300;
/// Entries of maintenance that a worker does beside packets in one step.
const WORK: u32 = 256;
/// Flows that expire in a step, on average.
const DUE: u64 = 64;
/// Parts of the time.
const PARTS: u64 = 100;
/// The size of the extrapolated table.
const EXTRAPOLATED: f64 = 250e6;

/// The result for one table.
#[derive(Serialize)]
struct Score {
    entries: usize,
    flows: usize,
    /// Nanoseconds to remove a flow.
    #[serde(flatten)]
    summary: Summary,
}

/// Measures tables of all sizes.
#[expect(clippy::print_stdout, reason = "the result")]
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut scores = Vec::new();
    for &log in &args.entries {
        let words = format!("expiry, 2^{log} entries");
        scores.push(progress::during(&words, || measure(1 << log))?);
    }
    let extrapolated = extrapolate(&scores);
    if args.output.json {
        let result = serde_json::json!({ "tables": scores, "250_million_ns": extrapolated });
        println!("{}", serde_json::to_string_pretty(&result)?);
    } else {
        println!("one core, ns to remove an expired flow, median of {PARTS} parts");
        for Score { entries, flows, summary } in &scores {
            let Summary { median, mad, min, max } = summary;
            print!("  2^{} entries, {flows} flows: ", entries.ilog2());
            print!("{median:>6.1} ±{mad:.1} ({min:.1} to {max:.1}), ");
            println!("{:.1} million a second", 1e3 / median);
        }
        if let Some(ns) = extrapolated {
            let share = EXTRAPOLATED / LIFETIME as f64 * ns / 1e9 * 100.0;
            println!(
                "  250 million, extrapolated: {ns:.0} ns; {share:.1} % of a core if they live {LIFETIME} s"
            );
        }
    }
    let figures = scores.iter().map(|score| Figure {
        bench: "gate",
        table: "declined",
        routes: score.entries,
        contestant: "wheels",
        case: "expiry",
        threads: 1,
        unit: "ns/flow",
        summary: score.summary,
        samples: PARTS as usize,
        bytes: score.entries * size_of::<gate::table::Entry>(),
    });
    args.output.record(figures)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the extrapolated cost of a flow among 250 million, if two tables were measured.
fn extrapolate(scores: &[Score]) -> Option<f64> {
    let mut by_size: Vec<_> =
        scores.iter().map(|score| (score.entries as f64, score.summary.median)).collect();
    by_size.sort_by(|one, two| one.0.total_cmp(&two.0));
    let [.., (small, before), (large, last)] = by_size[..] else { return None };
    let doubling = (last - before).max(0.0) / (large / small).log2();
    Some(last + doubling * (EXTRAPOLATED / large).log2())
}

/// Fills a table, and measures until every flow has expired.
fn measure(entries: usize) -> anyhow::Result<Score> {
    let mut draft = PolicyBuilder::new();
    let set = draft.set(&[Grantor { address: Address::V4(0x0a00_0001), weight: 1 }]);
    draft.v4(Prefix::truncate(PROTECTED, 24), Action::Grantors(set));
    let policy = Publisher::new(draft.build(1)?);
    let mut gate: Gate = Gate::new(entries, policy.reader(), 0);
    let key = Key::random();
    let flows = (entries / 4 * 3) as u64;
    let gap = LIFETIME * SECOND / flows;
    let terms = Grant { rate_kib: 1, expire_s: LIFETIME as u32, ..Grant::default() };
    let command = FlowCommand::Decide(Decision::Grant(terms));
    for number in 0..flows {
        let flow = Flow::v4(source(number as u32), PROTECTED);
        let item = Item { scope: Scope::of(&flow), command };
        // A flow that finds no room is missing from the count below.
        let _ = gate.decide(number * gap, &item, Stamp::default(), |flow| key.hash(flow));
    }
    ensure!(
        gate.table().len() as u64 == flows,
        "only {} of {flows} flows found room",
        gate.table().len()
    );
    let turns = flows.div_ceil(DUE).next_multiple_of(PARTS);
    let (mut now, step) = (LIFETIME * SECOND, LIFETIME * SECOND / turns);
    let mut parts = Vec::new();
    for _ in 0..PARTS {
        let (clock, before) = (Clock::start(), gate.counts().expired);
        for _ in 0..turns / PARTS {
            now += step;
            gate.run_maintenance(now, WORK);
        }
        let (took, forgotten) = (clock.seconds(), gate.counts().expired - before);
        ensure!(forgotten > 0, "no flow expired in a hundredth of the time");
        parts.push(took * 1e9 / forgotten as f64);
    }
    // The wheel is late by up to one tick.
    while !gate.table().is_empty() && now < (2 * LIFETIME + 60) * SECOND {
        now += SECOND / 100;
        gate.run_maintenance(now, WORK);
    }
    let left = gate.table().len();
    ensure!(left == 0, "{left} of {flows} flows remain after their lifetime");
    ensure!(gate.counts().expired == flows, "the gate's counter of expired flows is wrong");
    let summary = Summary::of(&parts);
    Ok(Score { entries, flows: flows as usize, summary })
}
