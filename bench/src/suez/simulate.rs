//! The simulation: a trace through the HAC and the NART over the modeled memory.
//!
//! ```text
//!   packet ─► HAC, in L1 always ─hit─► 5 + 3·word cycles
//!               └─miss─► + NART: level 1 ─► level 2 ─► level 3, each load through
//!                        L1, L2, memory; 7, 12 or 20 + 4K cycles and the waits
//! ```
//!
//! Both structures are the library's own ([`Hac`] and the `nart` engine), so that the simulation
//! covers the real code; only the sizes are the paper's: a HAC word of 4 bytes, level-1 entries of
//! 2, level-2 entries of 1, rows of 9 (mask 4, address 4, port 1). The loads come from the engine's
//! traced lookup. As in the paper the HAC ignores the last two bits of an address, and the index
//! ends at the same bit for every size of a set.

use fib::engine::hac::{Hac, HacShape};
use fib::engine::{Engine, Step};

use super::cache::Hierarchy;
use super::machine::Machine;

/// The paper's bytes of a HAC word, a level-1 entry, a level-2 entry and a row.
pub(super) const WORD: u64 = 4;
pub(super) const LEVEL_1: u64 = 2;
pub(super) const LEVEL_2: u64 = 1;
pub(super) const ROW: u64 = 9;
/// The last bits of an address, which the HAC ignores.
const BLIND: u32 = 2;

/// The counts and cycles of one pass of the trace.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub(super) struct Outcome {
    pub(super) lookups: u64,
    /// HAC hits by word of the set.
    pub(super) hits: [u64; 8],
    pub(super) hit_cycles: u64,
    /// NART lookups by class.
    pub(super) classes: [u64; 3],
    /// Cycles in HAC sets searched in vain.
    pub(super) vain_cycles: u64,
    pub(super) nart_cycles: u64,
    /// NART loads found in L1, in L2, in memory.
    pub(super) loads: [u64; 3],
}

impl Outcome {
    /// Returns the mean cycles of a lookup.
    pub(super) fn cycles(&self) -> f64 {
        (self.hit_cycles + self.vain_cycles + self.nart_cycles) as f64 / self.lookups as f64
    }

    fn all_hits(&self) -> u64 {
        self.hits.iter().sum()
    }

    /// Returns the share of lookups that the HAC answered, in percent.
    pub(super) fn hit_ratio(&self) -> f64 {
        100.0 * self.all_hits() as f64 / self.lookups as f64
    }

    /// Returns the mean cycles of a hit.
    pub(super) fn hit_time(&self) -> f64 {
        self.hit_cycles as f64 / self.all_hits() as f64
    }

    /// Returns the mean cycles of a NART lookup.
    pub(super) fn nart_time(&self) -> f64 {
        self.nart_cycles as f64 / self.classes.iter().sum::<u64>() as f64
    }

    /// Returns the share of the hits in each word, in percent.
    pub(super) fn by_word(&self) -> [f64; 8] {
        let all = self.all_hits() as f64;
        self.hits.map(|hits| 100.0 * hits as f64 / all)
    }
}

/// Returns the shape of a HAC of the paper's words, indexed as the paper does.
pub(super) fn shape(bytes: u64, ways: u32, duplicate: bool) -> anyhow::Result<HacShape> {
    let shape = HacShape::new((bytes / WORD) as usize, ways, duplicate)?;
    Ok(shape.with_skip(BLIND + shape.stride().ilog2()))
}

/// Where the levels of a NART lie: one after the other, each from a page's start.
pub(super) struct Layout {
    level2: u64,
    level3: u64,
}

impl Layout {
    fn of(nart: &dyn Engine<u32>, page: u64) -> Self {
        let items = |name| {
            let part = nart.parts().into_iter().find(|part| part.name == name);
            part.map_or(0, |part| part.items as u64)
        };
        let level2 = (items("level 1") * LEVEL_1).next_multiple_of(page);
        let level3 = level2 + (items("level 2") * LEVEL_2).next_multiple_of(page);
        Self { level2, level3 }
    }
}

/// Returns the bytes of a NART in the paper's sizes.
pub(super) fn nart_bytes(nart: &dyn Engine<u32>) -> u64 {
    let bytes = |name: &str| match name {
        "level 1" => LEVEL_1,
        "level 2" => LEVEL_2,
        _ => ROW,
    };
    nart.parts().iter().map(|part| part.items as u64 * bytes(part.name)).sum()
}

/// Returns the class of the route an address takes, by how far its lookup went:
/// 0 AB, 1 BC, 2 CD.
pub(super) fn class(steps: &[Step]) -> usize {
    steps.len().clamp(1, 3) - 1
}

/// Sends a trace through a HAC, or none, and the NART.
pub(super) fn simulate(
    machine: &Machine,
    shape: Option<HacShape>,
    nart: &dyn Engine<u32>,
    trace: &[u32],
) -> anyhow::Result<Outcome> {
    let reserved = shape.map_or(0, |shape| shape.entries() as u64 * WORD);
    let mut memory = machine.memory(reserved)?;
    let layout = Layout::of(nart, machine.page());
    let mut hac = shape.map(Hac::<u32>::new);
    let mut outcome = Outcome { lookups: trace.len() as u64, ..Outcome::default() };
    let mut steps = Vec::new();
    for &addr in trace {
        let seen = addr & (u32::MAX << BLIND);
        if let Some(hac) = &mut hac {
            if let Some((word, _)) = hac.probe(seen) {
                outcome.hits[word] += 1;
                outcome.hit_cycles += machine.hit(word);
                continue;
            }
            outcome.vain_cycles += machine.miss(hac.shape().words_per_set());
        }
        steps.clear();
        let hop = nart.trace(addr, &mut steps);
        outcome.classes[class(&steps)] += 1;
        outcome.nart_cycles += nart_cycles(machine, &layout, &mut memory, &steps);
        if let Some(hac) = &mut hac {
            hac.enter(seen, hop);
        }
    }
    outcome.loads = memory.found;
    Ok(outcome)
}

/// Returns the cycles of one NART lookup.
fn nart_cycles(machine: &Machine, layout: &Layout, memory: &mut Hierarchy, steps: &[Step]) -> u64 {
    let mut waits = 0;
    let mut load = |address, bytes| waits += machine.beyond_l1(memory.load(address, bytes));
    for (n, step) in steps.iter().enumerate() {
        let index = step.index as u64;
        match n {
            0 => load(index * LEVEL_1, LEVEL_1),
            1 => load(layout.level2 + index * LEVEL_2, LEVEL_2),
            _ => {
                let row = layout.level3 + index * ROW;
                load(row, 4);
                load(row + 4, 4);
                if n + 1 == steps.len() {
                    load(row + 8, 1);
                }
            }
        }
    }
    waits
        + match class(steps) {
            0 => machine.ab_cycles,
            1 => machine.bc_cycles,
            _ => machine.cd_cycles + machine.row_cycles * (steps.len() as u64 - 3),
        }
}

/// Returns the hit ratio, in percent, of a direct-mapped cache in which addresses
/// are looked up as if they were of memory: the paper's table 5.
pub(super) fn block_hits(bytes: u64, block: u64, trace: &[u32]) -> anyhow::Result<f64> {
    let mut cache = super::cache::Cache::new(bytes, block, 1).map_err(anyhow::Error::msg)?;
    let hit = |addr: &&u32| cache.touch(u64::from(**addr)) == super::cache::Touch::Hit;
    let hits = trace.iter().filter(hit).count();
    Ok(100.0 * hits as f64 / trace.len() as f64)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use fib::{Choice, Fib, Hop, Rib};

    use super::super::{machine::Machine, paper};
    use super::{Outcome, block_hits, nart_bytes, shape, simulate};

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        machine: Machine,
    }

    fn machine(options: &[&str]) -> Machine {
        Line::parse_from([&["model"], options].concat()).machine
    }

    /// 10/8 with a table below 10.1/16 and two rows below 10.1.2/24.
    fn nart() -> Fib<u32> {
        let mut rib = Rib::new();
        for (prefix, hop) in [("10.0.0.0/8", 1), ("10.1.0.0/20", 2), ("10.1.2.0/25", 3)] {
            rib.insert(prefix.parse().unwrap(), Hop(hop));
        }
        Fib::build(&rib, Choice::Nart, 1).unwrap()
    }

    fn run(ways: Option<(u32, bool)>, trace: &[u32]) -> Outcome {
        let machine = machine(&[]);
        let shape = ways.map(|(ways, duplicate)| shape(machine.hac, ways, duplicate).unwrap());
        simulate(&machine, shape, nart().engine(), trace).unwrap()
    }

    const AB: u32 = 0x0a02_0000;
    const BC: u32 = 0x0a01_1000;
    const CD: u32 = 0x0a01_02c8;

    #[test]
    fn a_nart_lookup_takes_its_class_and_its_waits() {
        let cycles = |trace: &[u32]| run(None, trace).nart_cycles;
        assert_eq!(cycles(&[AB]), 7 + 29, "one line from memory");
        assert_eq!(cycles(&[AB, AB]), 36 + 7);
        assert_eq!(cycles(&[AB, BC]), 36 + 12 + 29, "level 1 shares a line, level 2 is new");
        assert_eq!(cycles(&[BC]), 12 + 29 + 29);
        // The row of 25 bits does not match, that of 24 does; both are in one line.
        assert_eq!(cycles(&[BC, CD]), 70 + 20 + 4 + 29);
        assert_eq!(cycles(&[BC, CD, CD]), 123 + 24);
        let outcome = run(None, &[AB, BC, CD, AB]);
        assert_eq!(outcome.classes, [2, 1, 1]);
        // Loads: 4 of level 1, 2 of level 2, and of two rows 2 and 3.
        assert_eq!((outcome.loads, outcome.loads.iter().sum()), ([8, 0, 3], 11u64));
    }

    #[test]
    fn a_hac_lookup_takes_its_words() {
        // 10.2.0.0 and 10.3.0.0 share a set and a line of level 1.
        let other = 0x0a03_0000;
        let outcome = run(Some((7, true)), &[AB, other, AB, AB]);
        assert_eq!((outcome.vain_cycles, outcome.nart_cycles), (2 * 27, 36 + 7));
        assert_eq!((outcome.hits, outcome.hit_cycles), ([1, 1, 0, 0, 0, 0, 0, 0], 8 + 5));
        assert_eq!(outcome.cycles(), (54.0 + 43.0 + 13.0) / 4.0);
        assert_eq!(outcome.hit_ratio(), 50.0);
        // One way: each drives the other out. Two: both stay where they are.
        let outcome = run(Some((1, false)), &[AB, other, AB, AB]);
        assert_eq!((outcome.vain_cycles, outcome.hit_cycles), (3 * 6, 5));
        let outcome = run(Some((2, false)), &[AB, other, AB, other, AB]);
        assert_eq!((outcome.vain_cycles, outcome.hit_cycles), (2 * 9, 5 + 8 + 5));
    }

    #[test]
    fn the_last_two_bits_are_not_looked_at_and_sets_end_at_bit_11() {
        for degree in [(1, false), (2, false), (3, true), (7, true)] {
            assert_eq!(run(Some(degree), &[AB, AB + 3]).hits[0], 1);
            assert_eq!(run(Some(degree), &[AB, AB + 4, AB]).hits.iter().sum::<u64>(), 1);
            // 4 KiB apart is the same set, nearer is another one.
            let driven_out = [AB, AB + 4096, AB + 8192, AB + 12288, AB];
            let cached = [AB, AB + 2048, AB + 1024, AB + 512, AB];
            let hits = |trace: &[u32]| run(Some(degree), trace).hits.iter().sum::<u64>();
            assert_eq!((hits(&driven_out), hits(&cached)), (u64::from(degree.0 > 3), 1));
        }
    }

    #[test]
    fn the_papers_averages_are_those_of_its_cycles() {
        let machine = machine(&[]);
        assert_eq!([8, 4, 2, 1].map(|words| machine.miss(words)), [27, 15, 9, 6]);
        for (_, words, hit_time, _) in paper::TABLE_3 {
            let cycles = words.iter().enumerate().map(|(n, share)| share * machine.hit(n) as f64);
            let mean = cycles.sum::<f64>() / words.iter().sum::<f64>();
            assert!((mean - hit_time).abs() < 0.02, "{mean} cycles, printed {hit_time}");
        }
    }

    #[test]
    fn sizes_and_blocks_are_the_papers() {
        // 65,536 entries of 2 bytes, one table of 256, two rows of 9.
        assert_eq!(nart_bytes(nart().engine()), 131_072 + 256 + 18);
        let trace = [0, 1, 2, 3, 0, 4096, 0];
        assert_eq!(block_hits(4096, 1, &trace).unwrap(), 100.0 / 7.0);
        assert_eq!(block_hits(4096, 4, &trace).unwrap(), 400.0 / 7.0);
    }

    #[test]
    fn less_room_for_the_nart_is_slower() {
        // Lines 12 KiB of level 1 apart: with a quarter of L1 set apart, the same set.
        let near = |n: u32| ((n % 2) * (6 << 10)) << 16;
        let trace: Vec<u32> = (0..100).map(near).collect();
        let whole = simulate(&machine(&[]), None, nart().engine(), &trace).unwrap();
        assert_eq!(whole.nart_cycles, 2 * 29 + 100 * 7);
        let mut outcome = Outcome::default();
        let mut memory = machine(&[]).memory(4 << 10).unwrap();
        for &addr in &trace {
            outcome.nart_cycles += memory.load(u64::from(addr >> 16) * 2, 2);
        }
        assert_eq!(outcome.nart_cycles, 2 * 30 + 98 * 6);
        assert!(machine(&["--hac", "16384"]).memory(16384).is_err());
    }
}
