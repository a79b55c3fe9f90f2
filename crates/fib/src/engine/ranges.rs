//! Binary search on address ranges, over the whole space or below a first table.
//!
//! Butler Lampson, Venkatachary Srinivasan, George Varghese, "IP Lookups Using
//! Multiway and Multicolumn Search", INFOCOM 1998; Zec's thesis (2019, section 3.1,
//! figures 3.1 to 3.3) begins with it, and chapter 6 compares. Routes become
//! disjoint ranges, of which it is enough to keep the first address and the hop; the
//! last range that begins no later than an address holds it.
//!
//! ```text
//!   ranges     base ┃ 0.0.0.0 │ 1.0.0.0 │ 1.2.3.0 │ 1.2.4.0 │ … ┃  sorted, A::BITS each
//!              hop  ┃    A    │    B    │    D    │    C    │ … ┃  16 bits, or 32
//!
//!   ranges16   table                  base, hop: a row for each entry that needs one
//!              ┌──────────┬─────────┐
//!              │ hop      │ 0       │──► the answer
//!              │ place    │ ranges  │──► ┃ … ┃   of those of one index, the first
//!              └──────────┴─────────┘           reaching in from before perhaps
//!               2^16      32 + 32 bits
//! ```
//!
//! Where the thesis's DXR cuts the bits that the first table has resolved off each
//! start, and shares equal rows, this keeps starts whole and rows apart, as the
//! paper has it; the hops lie beside the starts, so that the search loads nothing but
//! starts. (The paper's six-way nodes, made to fill a cache line, are not here.)
//!
//! log2(n) + 1 loads for n ranges, 20 for a full IPv4 table, every one of them a
//! choice that no predictor guesses: each step selects a half without a branch, and
//! a batch takes sixteen searches through each step together. With the table, one
//! load and then log2 of the longest row.
//!
//! An update lays out its block again: for `ranges` that is the whole array, so that
//! changes are best committed many at a time; for `ranges16` the row of one index.
//! Limits: 2^32 ranges. O(ranges of the block) a patch.

use alloc::vec;
use alloc::vec::Vec;
use core::hint::select_unpredictable;

use super::{Builder, Engine, Leaf, Part, Step};
use crate::arena::Arena;
use crate::runs::{Run, split};
use crate::table::{Master, Table};
use crate::{Addr, Full, Hop, Prefix};

/// How many searches go in lockstep.
const LANES: usize = 16;

/// How many lookups pass through the table together; a position in it fits a byte.
const GROUP: usize = 128;

/// An entry of the first table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    /// The place of the row; without a row, the hop.
    at: u32,
    /// The number of ranges of the row, 0 for none.
    len: u32,
}

/// A frozen table of ranges.
#[derive(Clone, Debug)]
pub struct Ranges<A: Addr, L: Leaf> {
    /// The bits that the first table resolves, or 0.
    bits: u32,
    /// Without a first table: its one entry, which needs no load.
    whole: Entry,
    table: Table<Entry>,
    base: Table<A>,
    hop: Table<L>,
}

impl<A: Addr, L: Leaf> Ranges<A, L> {
    #[inline(always)]
    fn entry(&self, addr: A) -> Entry {
        if self.bits == 0 { self.whole } else { self.table[addr.bits(0, self.bits)] }
    }

    /// Answers the lookups whose positions in the group are listed in `positions`, all of
    /// which have rows; further steps do not change a search that is done.
    #[inline(always)]
    fn lockstep(&self, positions: &[u8], addrs: &[A], entries: &[Entry; GROUP], out: &mut [Hop]) {
        let mut base = [0usize; LANES];
        let mut len = [1usize; LANES];
        let mut probe = [A::MIN; LANES];
        let mut longest = 1;
        for (lane, &i) in positions.iter().enumerate().take(LANES) {
            let i = usize::from(i) % GROUP;
            (base[lane], len[lane]) = (entries[i].at as usize, entries[i].len as usize);
            probe[lane] = addrs[i];
            longest = longest.max(len[lane]);
        }
        while longest > 1 {
            for lane in 0..LANES {
                let half = len[lane] / 2;
                let next = base[lane] + half;
                let above = self.base[next] <= probe[lane];
                base[lane] = select_unpredictable(above, next, base[lane]);
                len[lane] -= half;
            }
            longest -= longest / 2;
        }
        for (&base, &i) in base.iter().zip(positions) {
            out[usize::from(i) % GROUP] = self.hop[base].hop();
        }
    }
}

impl<A: Addr, L: Leaf> Engine<A> for Ranges<A, L> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        let entry = self.entry(addr);
        if entry.len == 0 {
            return Hop(entry.at);
        }
        let (mut base, mut len) = (entry.at as usize, entry.len as usize);
        while len > 1 {
            let half = len / 2;
            base = select_unpredictable(self.base[base + half] <= addr, base + half, base);
            len -= half;
        }
        self.hop[base].hop()
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            let mut entries = [Entry::default(); GROUP];
            // Each position is written at the list's end, which moves on for a row.
            let mut list = [0u8; GROUP];
            let mut listed = 0;
            let each = addrs.iter().zip(entries.iter_mut().zip(&mut *out)).enumerate();
            for (i, (&addr, (entry, out))) in each {
                *entry = self.entry(addr);
                *out = Hop(entry.at);
                list[listed % GROUP] = i as u8;
                listed += usize::from(entry.len != 0);
            }
            for positions in list[..listed.min(GROUP)].chunks(LANES) {
                self.lockstep(positions, addrs, &entries, out);
            }
        }
    }

    fn parts(&self) -> Vec<Part> {
        let mut parts = Vec::new();
        if self.bits > 0 {
            parts.push(Part::of("table", &self.table));
        }
        parts.extend([Part::of("base", &self.base), Part::of("hop", &self.hop)]);
        parts
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        if self.bits > 0 {
            steps.push(Step::of("table", addr.bits(0, self.bits), &self.table));
        }
        let entry = self.entry(addr);
        if entry.len == 0 {
            return Hop(entry.at);
        }
        let (mut base, mut len) = (entry.at as usize, entry.len as usize);
        while len > 1 {
            let half = len / 2;
            steps.push(Step::of("base", base + half, &self.base));
            if self.base[base + half] <= addr {
                base += half;
            }
            len -= half;
        }
        steps.push(Step::of("hop", base, &self.hop));
        self.hop[base].hop()
    }
}

/// The builder of [`Ranges`].
#[derive(Debug)]
pub struct RangesBuilder<A: Addr, L: Leaf> {
    bits: u32,
    table: Master<Entry>,
    /// The starts, and in the same places the hops.
    base: Arena<A>,
    hop: Arena<L>,
}

impl<A: Addr, L: Leaf> RangesBuilder<A, L> {
    /// Starts an empty table of one array.
    pub fn new() -> Self {
        Self::with_bits(0)
    }

    /// Starts an empty table with a first stage of 2^16 entries; for toys, of half
    /// the bits.
    pub fn with_table() -> Self {
        Self::with_bits(16.min(A::BITS / 2))
    }

    fn with_bits(bits: u32) -> Self {
        let table = Master::new(vec![Entry::default(); 1 << bits]);
        Self { bits, table, base: Arena::new(), hop: Arena::new() }
    }

    /// Puts a row, or without ranges a hop, in place of the entry `old`.
    fn put(&mut self, old: Entry, none: L, base: &[A], hop: &[L]) -> Result<Entry, Full> {
        let (at, len) = (if old.len == 0 { 0 } else { old.at as usize }, old.len as usize);
        let base_at = self.base.replace(at, len, base);
        let hop_at = self.hop.replace(at, len, hop);
        debug_assert_eq!(base_at, hop_at, "both arenas hold the same rows");
        if base.is_empty() {
            return Ok(Entry { at: none.hop().0, len: 0 });
        }
        let (limit, seen) = (u32::MAX.into(), (base_at + base.len()) as u64);
        if seen > limit {
            return Err(Full { what: Full::RANGES, limit, seen });
        }
        Ok(Entry { at: base_at as u32, len: base.len() as u32 })
    }
}

impl<A: Addr, L: Leaf> Default for RangesBuilder<A, L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<A: Addr, L: Leaf> Builder<A> for RangesBuilder<A, L> {
    type Engine = Ranges<A, L>;

    fn block_len(&self) -> u32 {
        self.bits
    }

    /// With one array there is one share: threads do not help.
    fn share_len(&self) -> u32 {
        self.bits
    }

    fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        assert!(block.len() <= self.bits, "a block to patch has at most the table's bits");
        let width = self.bits - block.len();
        let first = block.addr().bits(0, self.bits);
        let mut fresh = Vec::with_capacity(1 << width);
        let (mut base, mut hop) = (Vec::new(), Vec::new());
        for (index, (part, runs)) in split(runs, block, width).enumerate() {
            base.clear();
            hop.clear();
            let mut only = L::default();
            for run in runs {
                only = L::pack(run.hop)?;
                base.push(run.start.max(part.addr()));
                hop.push(only);
            }
            if let [_] = runs {
                base.clear();
                hop.clear();
            }
            fresh.push(self.put(self.table[first + index], only, &base, &hop)?);
        }
        self.table.write(first, &fresh);
        Ok(())
    }

    fn absorb(&mut self, part: &Self, first: A, last: A) -> Result<(), Full> {
        let (first, last) = (first.bits(0, self.bits), last.bits(0, self.bits));
        let mut fresh = part.table[first..=last].to_vec();
        for (index, entry) in fresh.iter_mut().enumerate() {
            let old = self.table[first + index];
            let (at, len) = (entry.at as usize, entry.len as usize);
            let none = if len == 0 { L::pack(Hop(entry.at))? } else { L::default() };
            let row = (part.base.get(at, len), part.hop.get(at, len));
            *entry = self.put(old, none, row.0, row.1)?;
        }
        self.table.write(first, &fresh);
        Ok(())
    }

    fn freeze(&self) -> Ranges<A, L> {
        Ranges {
            bits: self.bits,
            whole: self.table[0],
            table: self.table.freeze(),
            base: self.base.freeze(),
            hop: self.hop.freeze(),
        }
    }

    fn refresh(&self, idle: &mut Ranges<A, L>) {
        idle.whole = self.table[0];
        self.table.refresh(&mut idle.table);
        self.base.refresh(&mut idle.base);
        self.hop.refresh(&mut idle.hop);
    }

    fn written(&self) -> u64 {
        self.table.written() + self.base.written() + self.hop.written()
    }

    fn holes(&self) -> usize {
        self.base.holes() + self.hop.holes()
    }
}
