//! The rival: D16X4R as the thesis prints it, lookup by lookup.
//!
//! The same structure as the library's engine, with blocks of the extension and
//! chunks of ranges stored once, but searched by the code of the thesis (sections
//! 3.4 and 4.2): a binary search that compares, branches left or right, and stops
//! early when it has found the range. It does one lookup after the other; only the
//! processor overlaps their loads. Ranges are short (8-bit start from bit 16,
//! 8-bit hop) where all of a chunk are /24 or shorter with hops below 256, else
//! long (16 and 16).
//!
//! ```text
//!   entry: 31 hop?  30 long?  29..12 place  11..0 ranges - 1, or the hop in 29..0
//! ```

use std::collections::HashMap;

use anyhow::bail;
use fib::runs::{Run, split, sweep};
use fib::{Hop, Prefix, Rib};

const D: u32 = 16;
const X: u32 = 4;
const HOP: u32 = 1 << 31;
const LONG: u32 = 1 << 30;

/// A plain D16X4R.
pub(super) struct Plain {
    direct: Vec<u16>,
    extension: Vec<u32>,
    short: Vec<(u8, u8)>,
    long: Vec<(u16, u16)>,
}

impl Plain {
    /// Builds the table.
    ///
    /// # Errors
    ///
    /// If the routes exceed the layout of the thesis: 65,535 next hops, 4,096
    /// ranges a chunk, 2^18 ranges of a format (in units of a short chunk's pair).
    pub(super) fn build(rib: &Rib<u32>) -> anyhow::Result<Self> {
        let mut runs = Vec::new();
        sweep(Prefix::ALL, Hop::NONE, rib, &mut runs);
        let mut plain =
            Self { direct: Vec::new(), extension: Vec::new(), short: Vec::new(), long: Vec::new() };
        let (mut blocks, mut shorts, mut longs) = (HashMap::new(), HashMap::new(), HashMap::new());
        for (part, runs) in split(&runs, Prefix::ALL, D) {
            let mut block = Vec::with_capacity(1 << X);
            for (_, runs) in split(runs, part, X) {
                block.push(plain.entry(runs, &mut shorts, &mut longs)?);
            }
            let next = blocks.len();
            let number = *blocks.entry(block.clone()).or_insert_with(|| {
                plain.extension.extend(&block);
                next
            });
            plain.direct.push(number as u16);
        }
        Ok(plain)
    }

    fn entry(
        &mut self,
        runs: &[Run<u32>],
        shorts: &mut HashMap<Vec<(u8, u8)>, usize>,
        longs: &mut HashMap<Vec<(u16, u16)>, usize>,
    ) -> anyhow::Result<u32> {
        if let [run] = runs {
            return Ok(HOP | run.hop.0);
        }
        let start = |i: usize, run: &Run<u32>| if i == 0 { 0 } else { run.start & 0xffff };
        // The first range of a chunk starts where the chunk does.
        let base = runs[1].start & 0xf000;
        let ranges = runs.iter().enumerate();
        let ranges: Vec<(u32, u32)> =
            ranges.map(|(i, run)| (start(i, run).max(base), run.hop.0)).collect();
        if ranges.len() > 4096 || ranges.iter().any(|&(_, hop)| hop > 0xffff) {
            bail!("the plain rival has no room for a chunk of {} ranges", ranges.len());
        }
        let (at, long) = if ranges.iter().all(|&(start, hop)| start & 0xff == 0 && hop < 256) {
            let chunk =
                ranges.iter().map(|&(start, hop)| ((start >> 8) as u8, hop as u8)).collect();
            (store(&mut self.short, shorts, chunk), 0)
        } else {
            let chunk = ranges.iter().map(|&(start, hop)| (start as u16, hop as u16)).collect();
            (store(&mut self.long, longs, chunk), LONG)
        };
        // Chunks begin at multiples of 4, as the thesis proposes for more room.
        if at >> 2 >= 1 << 18 {
            bail!("the plain rival has no room for so many ranges");
        }
        Ok(long | (at as u32 >> 2) << 12 | (ranges.len() as u32 - 1))
    }

    /// Returns the hop of the longest route that holds `addr`.
    #[inline]
    pub(super) fn lookup(&self, addr: u32) -> Hop {
        let block = usize::from(self.direct[(addr >> 16) as usize]);
        let entry = self.extension[block << X | (addr >> 12 & 0xf) as usize];
        if entry & HOP != 0 {
            return Hop(entry & !HOP);
        }
        let at = (entry >> 12 & 0x3_ffff) as usize * 4;
        let last = (entry & 0xfff) as usize;
        if entry & LONG != 0 {
            let chunk = &self.long[at..=at + last];
            Hop(u32::from(chunk[search(chunk, last, |range| range.0, addr as u16)].1))
        } else {
            let chunk = &self.short[at..=at + last];
            Hop(u32::from(chunk[search(chunk, last, |range| range.0, (addr >> 8) as u8)].1))
        }
    }

    /// Returns the bytes that lookups may touch.
    pub(super) fn footprint(&self) -> usize {
        size_of_val(&self.direct[..])
            + size_of_val(&self.extension[..])
            + size_of_val(&self.short[..])
            + size_of_val(&self.long[..])
    }
}

/// Finds the range that holds `key`, as the thesis does: bounds that close in, and a
/// stop as soon as the next range is seen to start beyond the key.
#[inline(always)]
fn search<R, S: Copy + Ord>(chunk: &[R], last: usize, start: impl Fn(&R) -> S, key: S) -> usize {
    let (mut lower, mut upper) = (0, last);
    let mut middle = upper / 2;
    while lower != upper {
        if key < start(&chunk[middle]) {
            upper = middle;
            middle = usize::midpoint(middle, lower);
        } else if key < start(&chunk[middle + 1]) {
            lower = middle;
            break;
        } else {
            lower = middle + 1;
            middle = usize::midpoint(upper, middle + 1);
        }
    }
    lower
}

/// Stores a chunk once, at a multiple of 4.
fn store<R: Copy + Default + Eq + std::hash::Hash>(
    table: &mut Vec<R>,
    known: &mut HashMap<Vec<R>, usize>,
    chunk: Vec<R>,
) -> usize {
    if let Some(&at) = known.get(&chunk) {
        return at;
    }
    table.resize(table.len().next_multiple_of(4), R::default());
    let at = table.len();
    table.extend(&chunk);
    known.insert(chunk, at);
    at
}

#[cfg(test)]
mod tests {
    use super::Plain;
    use fib::engine::Engine;
    use fib::engine::linear::Linear;
    use fib::{Hop, Prefix, Rib};

    #[test]
    fn the_rival_is_right() {
        let mut rng = fastrand::Rng::with_seed(4);
        for hops in [3, 300] {
            let mut rib = Rib::new();
            for _ in 0..300 {
                let crowded = rng.u32(..) & 0x0103_ffff;
                let len = rng.u32(8..=if hops == 3 { 24 } else { 32 });
                rib.insert(Prefix::truncate(crowded, len), Hop(rng.u32(..hops)));
            }
            let plain = Plain::build(&rib).unwrap();
            let oracle = Linear::new(&rib);
            for _ in 0..20_000 {
                let addr = rng.u32(..) & 0x0103_ffff;
                assert_eq!(plain.lookup(addr), oracle.lookup(addr), "{addr:x}");
            }
        }
    }

    #[test]
    fn build_refuses_a_table_beyond_its_limits() {
        let routes = (0..4096u32).map(|i| (Prefix::truncate(i, 32), Hop(1 + i % 2)));
        assert!(Plain::build(&Rib::from_sorted(routes)).is_ok());
        let many = [(Prefix::truncate(1u32, 32), Hop(70_000))];
        assert!(Plain::build(&Rib::from_sorted(many)).is_err());
    }
}
