//! Lays runs out as `SAIL_L`, and writes only what an update changes.
//!
//! ```text
//!   runs of a block ─split─► one an index of level 16 ─split─► one a node of level 24
//!        one run: a hop in BCN ─┘                                │
//!        more: a chunk of BN24 and C24            one run: a hop ┴ more: a chunk of N32
//! ```
//!
//! A block below level 16 lies in one chunk, which is made, or given back where
//! all of it goes one way again. A chunk keeps its number as long as it lives, so
//! that a change within it writes the words that differ and no others; where it
//! has to be moved (`numbers.rs`), that counts as written.

use alloc::vec::Vec;
use core::marker::PhantomData;

use super::super::numbers::{Move, Numbers};
use super::super::{low, number, pack_number, pivot, upper};
use super::SailL;
use crate::engine::leaf::full;
use crate::engine::{Builder, Leaf};
use crate::runs::{Run, split};
use crate::table::Master;
use crate::{Addr, Full, Hop, Prefix};

/// The builder of [`SailL`].
#[derive(Debug)]
pub struct SailLBuilder<A, L> {
    b16: Master<u64>,
    bcn: Master<L>,
    bn24: Master<L>,
    c24: Master<L>,
    n32: Master<L>,
    /// The chunks of level 24, owned by indexes of `bcn`.
    middles: Numbers,
    /// The chunks of level 32, owned by indexes of `c24`.
    bottoms: Numbers,
    family: PhantomData<A>,
}

/// The bits that level 24 resolves: 8 of IPv4.
const fn mid<A: Addr>() -> u32 {
    pivot::<A>() - upper::<A>()
}

/// Stores a hop in BN24, where 0 is taken.
fn pack_solid<L: Leaf>(hop: Hop) -> Result<L, Full> {
    let raised = hop.0.checked_add(1).and_then(|raised| L::pack(Hop(raised)).ok());
    raised.ok_or_else(|| full(hop, u64::from(L::MAX) - 1))
}

impl<A: Addr, L: Leaf> SailLBuilder<A, L> {
    /// Starts a table without routes.
    pub fn new() -> Self {
        let level = 1usize << upper::<A>();
        let unrouted = L::default();
        debug_assert_eq!(unrouted.hop(), Hop::NONE, "zeroed memory routes nowhere");
        Self {
            b16: Master::new(alloc::vec![u64::MAX; level.div_ceil(64)]),
            bcn: Master::new(alloc::vec![unrouted; level]),
            bn24: Master::new(Vec::new()),
            c24: Master::new(Vec::new()),
            n32: Master::new(Vec::new()),
            middles: Numbers::default(),
            bottoms: Numbers::default(),
            family: PhantomData,
        }
    }

    fn answers(&self, index: usize) -> bool {
        self.b16[index / 64] >> (index % 64) & 1 == 1
    }

    /// Sets `bcn[index]` to a hop, or to a chunk's number.
    fn set(&mut self, index: usize, entry: L, answers: bool) {
        let bit = 1u64 << (index % 64);
        let word = self.b16[index / 64];
        self.b16.write(index / 64, &[if answers { word | bit } else { word & !bit }]);
        self.bcn.write(index, &[entry]);
    }

    /// Makes an index of level 16 a hop, giving its chunks back.
    fn close(&mut self, index: usize, hop: Hop) -> Result<(), Full> {
        let entry = L::pack(hop)?;
        if !self.answers(index) {
            let chunk = number(self.bcn[index]);
            for middle in chunk << mid::<A>()..(chunk + 1) << mid::<A>() {
                if self.leads_below(middle) {
                    self.bottoms.give(number(self.c24[middle]));
                }
            }
            self.middles.give(chunk);
        }
        self.set(index, entry, true);
        Ok(())
    }

    /// Makes an index of level 16 a chunk, if it is none, whose items are all the
    /// hop that was there; returns its number.
    fn open(&mut self, index: usize) -> Result<usize, Full> {
        if !self.answers(index) {
            return Ok(number(self.bcn[index]));
        }
        let hop = self.bcn[index].hop();
        let chunk = self.middles.take(index);
        let solid = alloc::vec![pack_solid::<L>(hop)?; 1 << mid::<A>()];
        let at = chunk << mid::<A>();
        self.bn24.amend(at, &solid);
        self.c24.lengthen(self.bn24.len());
        self.set(index, pack_number(chunk)?, false);
        Ok(chunk)
    }

    fn leads_below(&self, middle: usize) -> bool {
        self.bn24[middle] == L::default()
    }

    /// Lays out `runs`, which tile `block`, in `chunk` of level 24.
    fn fill(&mut self, chunk: usize, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        let start = chunk << mid::<A>() | block.addr().bits(upper::<A>(), mid::<A>());
        let mut solid = Vec::with_capacity(1 << (pivot::<A>() - block.len()));
        let parts = split(runs, block, pivot::<A>() - block.len());
        for (middle, (part, runs)) in (start..).zip(parts) {
            match runs {
                [run] => {
                    if self.leads_below(middle) {
                        self.bottoms.give(number(self.c24[middle]));
                    }
                    solid.push(pack_solid(run.hop)?);
                }
                _ => {
                    self.fill_bottom(middle, part, runs)?;
                    solid.push(L::default());
                }
            }
        }
        self.bn24.amend(start, &solid);
        Ok(())
    }

    /// Lays out `runs`, which tile a node of level 24, in a chunk of level 32.
    fn fill_bottom(&mut self, middle: usize, part: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        let chunk = if self.leads_below(middle) {
            number(self.c24[middle])
        } else {
            self.bottoms.take(middle)
        };
        let mut hops = Vec::with_capacity(1 << low::<A>());
        for (i, run) in runs.iter().enumerate() {
            let end = match runs.get(i + 1) {
                Some(next) => next.start.bits(pivot::<A>(), low::<A>()),
                None => 1 << low::<A>(),
            };
            debug_assert!(part.contains(run.start.max(part.addr())), "{run:?} is not in {part}");
            hops.resize(end, L::pack(run.hop)?);
        }
        self.n32.amend(chunk << low::<A>(), &hops);
        self.c24.write(middle, &[pack_number(chunk)?]);
        Ok(())
    }

    /// Gives the chunk of `index` back if all of it goes one way.
    fn merge(&mut self, index: usize) -> Result<(), Full> {
        let at = number(self.bcn[index]) << mid::<A>();
        let chunk = &self.bn24[at..at + (1 << mid::<A>())];
        let first = chunk[0];
        if first == L::default() || chunk.iter().any(|&item| item != first) {
            return Ok(());
        }
        self.close(index, Hop(first.hop().0 - 1))
    }

    /// Moves chunks into the gaps that others have left, if there are many, and
    /// cuts the arrays to what is in use.
    fn apply_moves(&mut self) -> Result<(), Full> {
        while let Some(Move { from, to, owner }) = self.bottoms.compact() {
            let at = from << low::<A>();
            let hops = self.n32[at..at + (1 << low::<A>())].to_vec();
            self.n32.amend(to << low::<A>(), &hops);
            self.c24.write(owner, &[pack_number(to)?]);
        }
        self.n32.truncate(self.bottoms.extent() << low::<A>());
        while let Some(Move { from, to, owner }) = self.middles.compact() {
            let span = from << mid::<A>()..(from + 1) << mid::<A>();
            let (solid, chunks) = (self.bn24[span.clone()].to_vec(), self.c24[span].to_vec());
            for (i, chunk) in chunks.iter().enumerate() {
                if solid[i] == L::default() {
                    self.bottoms.hand_over(number(*chunk), to << mid::<A>() | i);
                }
            }
            self.bn24.amend(to << mid::<A>(), &solid);
            self.c24.amend(to << mid::<A>(), &chunks);
            self.bcn.write(owner, &[pack_number(to)?]);
        }
        self.bn24.truncate(self.middles.extent() << mid::<A>());
        self.c24.truncate(self.middles.extent() << mid::<A>());
        Ok(())
    }

    /// Takes over the chunk that `part` has at an index of level 16.
    fn adopt(&mut self, part: &Self, index: usize) -> Result<(), Full> {
        let theirs = number(part.bcn[index]) << mid::<A>();
        let ours = self.open(index)? << mid::<A>();
        for i in 0..1 << mid::<A>() {
            let (theirs, ours) = (theirs + i, ours + i);
            if part.leads_below(theirs) {
                let at = number(part.c24[theirs]) << low::<A>();
                let chunk = self.bottoms.take(ours);
                self.n32.amend(chunk << low::<A>(), &part.n32[at..at + (1 << low::<A>())]);
                self.c24.write(ours, &[pack_number(chunk)?]);
            }
        }
        self.bn24.amend(ours, &part.bn24[theirs..theirs + (1 << mid::<A>())]);
        Ok(())
    }
}

impl<A: Addr, L: Leaf> Builder<A> for SailLBuilder<A, L> {
    type Engine = SailL<A, L>;

    fn block_len(&self) -> u32 {
        pivot::<A>()
    }

    fn share_len(&self) -> u32 {
        upper::<A>()
    }

    fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        assert!(block.len() <= pivot::<A>(), "a block to patch ends at the pivot level");
        if block.len() <= upper::<A>() {
            let parts = split(runs, block, upper::<A>() - block.len());
            for (index, (part, runs)) in (block.addr().bits(0, upper::<A>())..).zip(parts) {
                match runs {
                    [run] => self.close(index, run.hop)?,
                    _ => {
                        let chunk = self.open(index)?;
                        self.fill(chunk, part, runs)?;
                    }
                }
            }
        } else {
            let index = block.addr().bits(0, upper::<A>());
            let same = |run: &Run<A>| self.answers(index) && self.bcn[index].hop() == run.hop;
            if !matches!(runs, [run] if same(run)) {
                let chunk = self.open(index)?;
                self.fill(chunk, block, runs)?;
                self.merge(index)?;
            }
        }
        self.apply_moves()
    }

    fn absorb(&mut self, part: &Self, first: A, last: A) -> Result<(), Full> {
        for index in first.bits(0, upper::<A>())..=last.bits(0, upper::<A>()) {
            let answers = part.answers(index);
            self.close(index, if answers { part.bcn[index].hop() } else { Hop::NONE })?;
            if !answers {
                self.adopt(part, index)?;
            }
        }
        self.apply_moves()
    }

    fn freeze(&self) -> SailL<A, L> {
        SailL {
            b16: self.b16.freeze(),
            bcn: self.bcn.freeze(),
            bn24: self.bn24.freeze(),
            c24: self.c24.freeze(),
            n32: self.n32.freeze(),
            family: PhantomData,
        }
    }

    fn refresh(&self, idle: &mut SailL<A, L>) {
        self.b16.refresh(&mut idle.b16);
        self.bcn.refresh(&mut idle.bcn);
        self.bn24.refresh(&mut idle.bn24);
        self.c24.refresh(&mut idle.c24);
        self.n32.refresh(&mut idle.n32);
    }

    fn written(&self) -> u64 {
        let Self { b16, bcn, bn24, c24, n32, .. } = self;
        b16.written() + bcn.written() + bn24.written() + c24.written() + n32.written()
    }
}

impl<A: Addr, L: Leaf> Default for SailLBuilder<A, L> {
    fn default() -> Self {
        Self::new()
    }
}
