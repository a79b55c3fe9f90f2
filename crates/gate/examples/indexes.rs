//! The seven indexes and `hashbrown` at load factors from 0.1 to 0.9 (the thesis's figure
//! 4.7), without entries: lookups of what is there, of what is not, and a flood, which takes
//! one flow out and another in for each lookup.
//!
//! ```text
//!   cargo run --release -p fingerpost-gate --example indexes [-- LOG2_SLOTS …]
//! ```
//!
//! Lookups go in groups of 32, whose first lines are fetched before any is looked at; the
//! library's table has no such call and goes one by one. Nanoseconds an operation on one
//! core, the median of five parts, by the time that the thread was on a CPU; `full` where
//! a scheme could not take so many. Answers are checked.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use fingerpost_gate::index::chain::Chain;
use fingerpost_gate::index::cuckoo::Cuckoo;
use fingerpost_gate::index::double::Double;
use fingerpost_gate::index::hopscotch::Hopscotch;
use fingerpost_gate::index::linear::Linear;
use fingerpost_gate::index::lines::Lines;
use fingerpost_gate::index::quadratic::Quadratic;
use fingerpost_gate::index::{Full, Index};
use nix::time::ClockId;

const GROUP: usize = 32;
const LOOKUPS: usize = 1 << 18;
const PARTS: usize = 5;

fn on_cpu() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID.now().map(Duration::from).unwrap_or_default()
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

/// Times `LOOKUPS` of what `each` does, by groups; returns nanoseconds each.
fn time(mut group: impl FnMut(usize)) -> f64 {
    let mut parts: Vec<f64> = (0..PARTS)
        .map(|part| {
            let begin = on_cpu();
            for at in 0..LOOKUPS / GROUP {
                group(part * LOOKUPS + at * GROUP);
            }
            (on_cpu() - begin).as_secs_f64() * 1e9 / LOOKUPS as f64
        })
        .collect();
    parts.sort_by(f64::total_cmp);
    parts[PARTS / 2]
}

/// There, absent, flood; nothing if it was full before.
fn measure<I: Index>(slots: usize, flows: u32) -> Option<[f64; 3]> {
    let mut index = I::with_slots(slots);
    for flow in 0..flows {
        index.insert(hash(flow), flow).ok()?;
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
    let there = time(|from| look(&index, draw(from), true));
    let absent = |from: usize| core::array::from_fn(|at| u32::MAX / 2 + (from + at) as u32);
    let missing = time(|from| look(&index, absent(from), false));
    // The oldest goes, a new one comes under its number.
    let mut full = false;
    let flood = time(|from| {
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
    Some([there, missing, if full { f64::NAN } else { flood }])
}

fn row<I: Index>(out: &mut impl Write, log: u32) {
    for tenths in [1u64, 3, 5, 7, 8, 9] {
        let flows = ((1u64 << log) * tenths / 10) as u32;
        let _ = match measure::<I>(1 << log, flows) {
            Some([there, missing, flood]) => writeln!(
                out,
                "2^{log:<4} {:<10} 0.{tenths}  {there:>8.1} {missing:>8.1} {flood:>8.1}",
                I::NAME
            ),
            None => writeln!(out, "2^{log:<4} {:<10} 0.{tenths}      full", I::NAME),
        };
    }
}

fn main() -> ExitCode {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let logs: Result<Vec<u32>, _> = given.iter().map(|log| log.parse()).collect();
    let logs = match logs {
        Ok(logs) if logs.iter().all(|log| (10..29).contains(log)) => logs,
        _ => {
            eprintln!("indexes: the arguments are base-2 logarithms of numbers of slots, 10 to 28");
            return ExitCode::from(2);
        }
    };
    let logs = if logs.is_empty() { vec![16, 20, 25] } else { logs };
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "slots  scheme     load     there   absent    flood   (ns)");
    for log in logs {
        row::<Linear>(&mut out, log);
        row::<Lines>(&mut out, log);
        row::<Quadratic>(&mut out, log);
        row::<Double>(&mut out, log);
        row::<Hopscotch>(&mut out, log);
        row::<Chain>(&mut out, log);
        row::<Cuckoo>(&mut out, log);
        row::<Library>(&mut out, log);
    }
    ExitCode::SUCCESS
}
