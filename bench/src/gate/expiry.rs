//! The cost to remove expired flows, on tables up to the size of the memory.
//!
//! ```text
//!   0 s ──── a flow is declined every so often ──── 300 s ── the first is over ── … ── 600 s, the last
//!            filed in the wheel                               filed anew, lower, and taken out
//! ```
//!
//! Three quarters of the entries are declined for [`LIFETIME`], one after the other over as long a time,
//! which is the most that any of them moves about in the wheel; then time goes on in turns as a worker
//! takes them, each with a bound of [`WORK`] entries, until all are forgotten. What is timed is those turns,
//! of which some do nothing but look. Each part is a hundredth of the time.
//!
//! **250 million entries** are more than most machines hold. What an entry costs grows with the
//! table as its lines come from farther away, and beyond the caches it hardly does; what the table
//! of 250 million would cost is taken from the two largest that were measured, as if it grew by as much with
//! each doubling as between those. If all of them live for five minutes, 833,333 are over in a second.

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
/// How long flows are declined, in seconds.
const LIFETIME: u64 = 300;
/// What a worker does beside packets in a turn, in entries.
const WORK: u32 = 256;
/// Flows that are over in a turn, on the average.
const DUE: u64 = 64;
/// Parts of the time.
const PARTS: u64 = 100;
/// The size of the extrapolated table.
const EXTRAPOLATED: f64 = 250e6;

/// What one table took.
#[derive(Serialize)]
struct Score {
    entries: usize,
    flows: usize,
    /// Nanoseconds to forget one.
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
    let beyond = beyond(&scores);
    if args.output.json {
        let result = serde_json::json!({ "tables": scores, "250_million_ns": beyond });
        println!("{}", serde_json::to_string_pretty(&result)?);
    } else {
        println!("one core, ns to forget a flow, median of {PARTS} parts");
        for Score { entries, flows, summary } in &scores {
            let Summary { median, mad, min, max } = summary;
            print!("  2^{} entries, {flows} flows: ", entries.ilog2());
            print!("{median:>6.1} ±{mad:.1} ({min:.1} to {max:.1}), ");
            println!("{:.1} million a second", 1e3 / median);
        }
        if let Some(ns) = beyond {
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
    args.output.keep(figures)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what a flow of 250 million would take, if two tables were measured.
fn beyond(scores: &[Score]) -> Option<f64> {
    let mut by_size: Vec<_> =
        scores.iter().map(|score| (score.entries as f64, score.summary.median)).collect();
    by_size.sort_by(|one, two| one.0.total_cmp(&two.0));
    let [.., (small, before), (large, last)] = by_size[..] else { return None };
    let doubling = (last - before).max(0.0) / (large / small).log2();
    Some(last + doubling * (EXTRAPOLATED / large).log2())
}

/// Fills a table and forgets all of it.
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
        // What finds no room is missed when the flows are counted.
        let _ = gate.decide(number * gap, &item, Stamp::default(), |flow| key.hash(flow));
    }
    ensure!(gate.table().len() as u64 == flows, "{} of {flows} found room", gate.table().len());
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
        ensure!(forgotten > 0, "nothing was over in a hundredth of the time");
        parts.push(took * 1e9 / forgotten as f64);
    }
    // The wheel is as late as one of its ticks.
    while !gate.table().is_empty() && now < (2 * LIFETIME + 60) * SECOND {
        now += SECOND / 100;
        gate.run_maintenance(now, WORK);
    }
    let left = gate.table().len();
    ensure!(left == 0, "{left} of {flows} are not forgotten after their time");
    ensure!(gate.counts().expired == flows, "the gate has lost count");
    let summary = Summary::of(&parts);
    Ok(Score { entries, flows: flows as usize, summary })
}
