//! `fingerpost-bench gate`: packets a second through a gate without I/O, on one core: every packet a
//! request from a new source, and packets of granted flows.
//!
//! The ablation of the thesis (figure 4.6), variant after variant on tables of three sizes:
//!
//! | variant | under way | full table | hand-over to the solicitor |
//! |---|---|---|---|
//! | plain | 1 | gives up a request for each | one by one |
//! | drop over batch | 32, first failure ends insertion | keeps all | one by one |
//! | group prefetching | 32 | gives up as many as a group needs | one by one |
//! | coroutines | as many as the tuner finds (4.5.4) | gives up a request for each | one by one |
//! | batched enqueue | group of 32 | as many as a group needs | a batch |
//! | admission | group of 32 | - : new sources are remembered, and get no entry | a batch |
//! | granted | group of 32 | - | none: flows drawn at random among the granted |
//!
//! Before each measurement the table is full, as it is seconds after a flood begins. The clock
//! of the gate advances as if five million packets arrived in a second; the measured time is the
//! CPU time of the thread. Parsing and encapsulation are not part of it. The gate's counters are
//! compared with the packets sent: a result with wrong counters is an error.
//!
//! `--stages` measures each stage of the packet path by itself, including parsing and
//! encapsulation (`stages.rs`); `--worker` the whole path between memory ports (`worker.rs`);
//! `--expiry` the removal of expired flows (`expiry.rs`).

use std::process::ExitCode;

use anyhow::ensure;
use output::progress;
use serde::Serialize;

use super::clock::{Clock, Summary, pin};
use super::record::Figure;

mod course;
mod expiry;
mod flood;
mod stages;
mod worker;

use course::{Course, Variant};

/// Packets of a part.
const PACKETS: usize = 1 << 19;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Entries of the tables, as powers of two
    #[arg(long, value_name = "LOG2", value_delimiter = ',', default_value = "15,20,24")]
    entries: Vec<u32>,
    /// Parts of a measurement; the result is their median
    #[arg(long, value_name = "N", default_value_t = 11)]
    parts: usize,
    /// Measure each stage of the packet path by itself, instead of the variants
    #[arg(long, group = "instead")]
    stages: bool,
    /// Measure a whole worker between memory ports, instead of the variants
    #[arg(long, group = "instead")]
    worker: bool,
    /// Measure the removal of expired flows, instead of the variants
    #[arg(long, group = "instead")]
    expiry: bool,
    #[command(flatten)]
    output: super::Output,
}

/// The result of one variant with one table.
#[derive(Serialize)]
struct Score {
    entries: usize,
    variant: &'static str,
    /// Million packets a second.
    #[serde(flatten)]
    summary: Summary,
    /// The rate over that of `plain` on the same table; absent for granted packets, which differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    /// Bytes of the flow table.
    bytes: usize,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(args.parts > 0, "--parts 0: at least one is needed");
    for log in &args.entries {
        ensure!((6..28).contains(log), "--entries {log}: 6 to 27");
    }
    pin(0);
    if args.stages {
        return stages::run(args);
    }
    if args.worker {
        return worker::run(args);
    }
    if args.expiry {
        return expiry::run(args);
    }
    let mut scores: Vec<Score> = Vec::new();
    for &log in &args.entries {
        let mut plain = None;
        for variant in Variant::ALL {
            let words = format!("2^{log} entries, {}", variant.name());
            let (summary, bytes) =
                progress::during(&words, || measure(1 << log, variant, args.parts))?;
            let plain = *plain.get_or_insert(summary.median);
            let ratio = (variant != Variant::Granted).then_some(summary.median / plain);
            let (entries, variant) = (1 << log, variant.name());
            scores.push(Score { entries, variant, summary, ratio, bytes });
        }
    }
    print(args, &scores)?;
    let figures = scores.iter().map(|score| Figure {
        bench: "gate",
        table: "flood",
        routes: score.entries,
        contestant: score.variant,
        case: "new sources",
        threads: 1,
        unit: "Mpps",
        summary: score.summary,
        samples: args.parts,
        bytes: score.bytes,
    });
    args.output.record(figures)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns million packets a second, and the bytes of the flow table.
fn measure(entries: usize, variant: Variant, parts: usize) -> anyhow::Result<(Summary, usize)> {
    let mut course = Course::new(entries, variant)?;
    course.fill();
    let mut part = || {
        let clock = Clock::start();
        course.send(PACKETS);
        PACKETS as f64 / clock.seconds() / 1e6
    };
    let parts: Vec<f64> = (0..parts).map(|_| part()).collect();
    course.check()?;
    Ok((Summary::of(&parts), course.bytes()))
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print(args: &Args, scores: &[Score]) -> anyhow::Result<()> {
    if args.output.json {
        println!("{}", serde_json::to_string_pretty(scores)?);
        return Ok(());
    }
    println!("one core, no I/O, million packets a second, median of {} parts", args.parts);
    for Score { entries, variant, summary: Summary { median, mad, min, max }, ratio, .. } in scores
    {
        let log = entries.ilog2();
        print!("  2^{log} {variant:<18} {median:>7.2} ±{mad:.2} ({min:.2} to {max:.2})");
        match ratio {
            Some(ratio) => println!("  {ratio:.2} of plain"),
            None => println!(),
        }
    }
    Ok(())
}
