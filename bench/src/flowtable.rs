//! `fingerpost-bench flowtable`: the seven schemes for the gate's index and the library's table, at load
//! factors from 0.1 to 0.9 (the thesis's figure 4.7), without entries.
//!
//! The operations are lookups of present flows, lookups of absent flows, and a flood, which removes
//! one flow and inserts another for each lookup. Lookups go in groups of 32, whose first cache lines
//! are prefetched; the library's table has no such call, and looks up one by one. The results are
//! nanoseconds per operation on one core, by the CPU time of the thread. Answers are checked. A scheme
//! that cannot hold the load, or fails during the flood, is reported as full.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::process::ExitCode;

use anyhow::ensure;
use gate::index::chain::Chain;
use gate::index::cuckoo::Cuckoo;
use gate::index::double::Double;
use gate::index::hopscotch::Hopscotch;
use gate::index::linear::Linear;
use gate::index::lines::Lines;
use gate::index::quadratic::Quadratic;
use gate::index::{Full, Index};
use output::progress;
use serde::Serialize;

use super::clock::{Clock, Summary, pin};
use super::record::Figure;

const GROUP: usize = 32;
/// Operations of a part.
const LOOKUPS: usize = 1 << 18;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Slots of the indexes, as powers of two
    #[arg(long, value_name = "LOG2", value_delimiter = ',', default_value = "16,20,25")]
    slots: Vec<u32>,
    /// Tenths of the slots that are taken
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,3,5,7,8,9")]
    tenths: Vec<u32>,
    /// Parts of a measurement; the result is their median
    #[arg(long, value_name = "N", default_value_t = 5)]
    parts: usize,
    #[command(flatten)]
    output: super::Output,
}

/// One scheme at one load.
#[derive(Serialize)]
struct Score {
    scheme: &'static str,
    slots: usize,
    load: f64,
    /// Nanoseconds; nothing where it was full.
    there: Option<Summary>,
    absent: Option<Summary>,
    flood: Option<Summary>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(args.parts > 0, "--parts 0: at least one is needed");
    for log in &args.slots {
        ensure!((10..29).contains(log), "--slots {log}: 10 to 28");
    }
    for tenths in &args.tenths {
        ensure!((1..10).contains(tenths), "--tenths {tenths}: 1 to 9");
    }
    pin(0);
    let mut scores = Vec::new();
    for &log in &args.slots {
        scheme::<Linear>(args, log, &mut scores);
        scheme::<Lines>(args, log, &mut scores);
        scheme::<Quadratic>(args, log, &mut scores);
        scheme::<Double>(args, log, &mut scores);
        scheme::<Hopscotch>(args, log, &mut scores);
        scheme::<Chain>(args, log, &mut scores);
        scheme::<Cuckoo>(args, log, &mut scores);
        scheme::<Library>(args, log, &mut scores);
    }
    print(args, &scores)?;
    let cases = scores.iter().flat_map(|score| {
        let each = [("there", score.there), ("absent", score.absent), ("flood", score.flood)];
        each.into_iter().filter_map(move |(case, summary)| Some((score, case, summary?)))
    });
    let named: Vec<_> = cases
        .map(|(score, case, summary)| (score, format!("{case} at {}", score.load), summary))
        .collect();
    args.output.record(named.iter().map(|(score, case, summary)| Figure {
        bench: "flowtable",
        table: "index",
        routes: score.slots,
        contestant: score.scheme,
        case,
        threads: 1,
        unit: "ns",
        summary: *summary,
        samples: args.parts,
        bytes: 0,
    }))?;
    Ok(ExitCode::SUCCESS)
}

fn scheme<I: Index>(args: &Args, log: u32, scores: &mut Vec<Score>) {
    for &tenths in &args.tenths {
        let slots = 1usize << log;
        let flows = (slots as u64 * u64::from(tenths) / 10) as u32;
        let words = format!("2^{log} slots, {} at 0.{tenths}", I::NAME);
        let [there, absent, flood] = progress::during(&words, || measure::<I>(args, slots, flows));
        let load = f64::from(tenths) / 10.0;
        scores.push(Score { scheme: I::NAME, slots, load, there, absent, flood });
    }
}

/// Measures what is there, what is absent, and a flood.
fn measure<I: Index>(args: &Args, slots: usize, flows: u32) -> [Option<Summary>; 3] {
    let mut index = I::with_slots(slots);
    for flow in 0..flows {
        if index.insert(hash(flow), flow).is_err() {
            return [None; 3];
        }
    }
    let look = |index: &I, flows: [u32; GROUP], expect: bool| {
        let hashes = flows.map(hash);
        hashes.iter().for_each(|&hash| index.fetch(hash));
        for (hash, flow) in hashes.into_iter().zip(flows) {
            let found = index.find(hash, |_| true);
            assert!(found == expect.then_some(flow), "{}: {flow}", I::NAME);
        }
    };
    let draw = |from: usize| {
        core::array::from_fn(|at| {
            ((u64::from(hash((from + at) as u32)) * u64::from(flows)) >> 32) as u32
        })
    };
    let there = time(args.parts, |from| look(&index, draw(from), true));
    let absent = |from: usize| core::array::from_fn(|at| u32::MAX / 2 + (from + at) as u32);
    let missing = time(args.parts, |from| look(&index, absent(from), false));
    // The oldest goes, a new one comes under its number.
    let mut full = false;
    let flood = time(args.parts, |from| {
        let new: [u32; GROUP] = core::array::from_fn(|at| flows + (from + at) as u32);
        look(&index, new, false);
        let old = new.map(|flow| flow - flows);
        old.iter().for_each(|&flow| index.fetch(hash(flow)));
        for (old, new) in old.into_iter().zip(new) {
            let entry = old % flows;
            let there = index.remove(hash(old), entry);
            full |= !there || index.insert(hash(new), entry).is_err();
        }
    });
    [Some(there), Some(missing), (!full).then_some(flood)]
}

/// Times what `group` does with the numbers from one on, part by part.
fn time(parts: usize, mut group: impl FnMut(usize)) -> Summary {
    let mut part = |part: usize| {
        let clock = Clock::start();
        for at in 0..LOOKUPS / GROUP {
            group(part * LOOKUPS + at * GROUP);
        }
        clock.seconds() * 1e9 / LOOKUPS as f64
    };
    Summary::of(&(0..parts).map(&mut part).collect::<Vec<_>>())
}

/// The hash of the flow of this number: a permutation, so that all differ.
fn hash(flow: u32) -> u32 {
    let mut x = flow.wrapping_mul(0x9e37_79b1);
    x = (x ^ (x >> 15)).wrapping_mul(0x85eb_ca6b);
    x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

/// Hands a hash through: both tables are given the same ones.
#[derive(Default)]
struct Given(u64);

impl Hasher for Given {
    fn finish(&self) -> u64 {
        // The library's table takes tags from the upper bits.
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u32(&mut self, hash: u32) {
        self.0 = hash.into();
    }
}

/// The library's table behind the same trait (`std`'s is `hashbrown`).
struct Library {
    map: HashMap<u32, u32, BuildHasherDefault<Given>>,
    slots: usize,
}

impl Index for Library {
    const NAME: &'static str = "hashbrown";

    fn with_slots(slots: usize) -> Self {
        // It fills to seven eighths; half the number given makes so many slots.
        let map = HashMap::with_capacity_and_hasher(slots / 8 * 7, BuildHasherDefault::default());
        Self { map, slots }
    }

    fn fetch(&self, _: u32) {}

    fn find(&self, hash: u32, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        self.map.get(&hash).copied().filter(|&entry| is(entry))
    }

    fn insert(&mut self, hash: u32, entry: u32) -> Result<(), Full> {
        if self.map.len() == self.slots / 8 * 7 {
            return Err(Full);
        }
        self.map.insert(hash, entry);
        Ok(())
    }

    fn remove(&mut self, hash: u32, _: u32) -> bool {
        self.map.remove(&hash).is_some()
    }

    fn len(&self) -> usize {
        self.map.len()
    }
}

#[expect(clippy::print_stdout, reason = "the result")]
fn print(args: &Args, scores: &[Score]) -> anyhow::Result<()> {
    if args.output.json {
        println!("{}", serde_json::to_string_pretty(scores)?);
        return Ok(());
    }
    println!("nanoseconds on one core, median of {} parts", args.parts);
    println!("  slots  scheme      load      there   absent    flood");
    for Score { scheme, slots, load, there, absent, flood } in scores {
        print!("  2^{:<4} {scheme:<10} {load:>5.1} ", slots.ilog2());
        for summary in [there, absent, flood] {
            match summary {
                Some(summary) => print!(" {:>8.1}", summary.median),
                None => print!("     full"),
            }
        }
        println!();
    }
    Ok(())
}
