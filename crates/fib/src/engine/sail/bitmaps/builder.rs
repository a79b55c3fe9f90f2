//! Updates the bitmaps for each changed route.
//!
//! The trie that the thesis keeps on the control plane is the [`Rib`]. For a changed route, the
//! builder reads from it the content of the nodes of the level to which the route is pushed: their
//! bits are in one word of `B` (section 3.4.1), the only word written on chip. The hop that a node
//! inherits is not in the table and comes from the `Rib` too, so that a deleted route uncovers the
//! shorter one behind it.
//!
//! Off chip, every chunk under a changed shorter route is laid out again, and the
//! words that differ are written.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::marker::PhantomData;

use super::super::numbers::{Move, Numbers};
use super::super::{low, pack_number, pivot};
use super::levels::lay;
use super::{Bitmaps, Level, Levels, sign};
use crate::engine::leaf::full;
use crate::engine::{Leaf, RouteBuilder};
use crate::runs::{Run, sweep_block};
use crate::table::Master;
use crate::{Addr, Full, Hop, Prefix, Rib};

/// The builder of [`Bitmaps`].
#[derive(Debug)]
pub struct BitmapsBuilder<A, L, S> {
    /// From the pivot upwards.
    levels: Vec<Level>,
    b: Master<u64>,
    n: Master<L>,
    n32: Master<L>,
    /// The chunks of level 32, owned by indexes of the pivot level.
    chunks: Numbers,
    /// The indexes of the pivot level that have one.
    internal: BTreeSet<usize>,
    kind: PhantomData<(A, S)>,
}

/// Stores a hop as an item, whose sign distinguishes it from a chunk.
fn pack_hop<L: Leaf>(hop: Hop) -> Result<L, Full> {
    let limit = u64::from(sign::<L>()) - 1;
    if u64::from(hop.0) > limit { Err(full(hop, limit)) } else { L::pack(hop) }
}

/// Stores a chunk's number as an item.
fn pack_chunk<L: Leaf>(number: usize) -> Result<L, Full> {
    let limit = sign::<L>();
    if number >= limit as usize {
        return Err(Full { what: Full::CHUNKS, limit: limit.into(), seen: number as u64 + 1 });
    }
    pack_number(number | limit as usize)
}

impl<A: Addr, L: Leaf, S: Levels> BitmapsBuilder<A, L, S> {
    /// Starts a table without routes.
    pub fn new() -> Self {
        let (levels, nodes) = lay::<A, S>();
        Self {
            levels,
            b: Master::new(alloc::vec![0; nodes.div_ceil(64)]),
            n: Master::new(alloc::vec![L::default(); nodes]),
            n32: Master::new(Vec::new()),
            chunks: Numbers::default(),
            internal: BTreeSet::new(),
            kind: PhantomData,
        }
    }

    /// Counts the words of the bitmaps that were written: what the thesis counts as
    /// the on-chip accesses of an update (table 3.2).
    pub fn on_chip_written(&self) -> u64 {
        self.b.written()
    }

    /// Returns the level to which routes of a length are pushed.
    fn level(&self, len: u32) -> Level {
        let fits = |level: &&Level| level.above < len as i32;
        *self.levels.iter().find(fits).unwrap_or_else(|| unreachable!("the first takes length 0"))
    }

    fn pivot(&self) -> Level {
        self.levels[0]
    }

    /// Returns the hop of the longest route that is pushed to a node.
    fn solid(rib: &Rib<A>, level: Level, index: usize) -> Option<Hop> {
        let node = Prefix::truncate(A::from_bits(index, 0, level.len), level.len);
        if level.above + 1 == level.len as i32 {
            return rib.get(node);
        }
        let pushed = rib.covering(node).filter(|(prefix, _)| prefix.len() as i32 > level.above);
        pushed.last().map(|(_, hop)| hop)
    }

    /// Writes the present content of the nodes to which `prefix` is pushed. Nodes with a chunk keep
    /// it.
    fn repaint(&mut self, rib: &Rib<A>, level: Level, prefix: Prefix<A>) -> Result<(), Full> {
        let width = level.len - prefix.len();
        let first = prefix.addr().bits(0, level.len);
        let node = level.base + first;
        let mut word = self.b[node / 64];
        let mut items = Vec::with_capacity(1 << width);
        for index in first..first + (1 << width) {
            let node = level.base + index;
            if level.len == pivot::<A>() && self.internal.contains(&index) {
                items.push(self.n[node]);
                continue;
            }
            let solid = Self::solid(rib, level, index);
            let bit = 1u64 << (node % 64);
            word = if solid.is_some() { word | bit } else { word & !bit };
            items.push(pack_hop(solid.unwrap_or(Hop::NONE))?);
        }
        self.b.write(node / 64, &[word]);
        self.n.amend(node, &items);
        Ok(())
    }

    /// Lays the chunk of a node of the pivot level out, which has longer routes.
    fn lay_chunk(
        &mut self,
        rib: &Rib<A>,
        index: usize,
        runs: &mut Vec<Run<A>>,
    ) -> Result<(), Full> {
        let node = self.pivot().base + index;
        let number = if self.internal.insert(index) {
            self.chunks.take(index)
        } else {
            super::chunk(self.n[node]).unwrap_or_else(|| unreachable!("{index} has a chunk"))
        };
        let block = Prefix::truncate(A::from_bits(index, 0, pivot::<A>()), pivot::<A>());
        runs.clear();
        sweep_block(rib, block, runs);
        let mut hops = Vec::with_capacity(1 << low::<A>());
        for (i, run) in runs.iter().enumerate() {
            let next = runs.get(i + 1).map(|next| next.start.bits(pivot::<A>(), low::<A>()));
            hops.resize(next.unwrap_or(1 << low::<A>()), L::pack(run.hop)?);
        }
        self.n32.amend(number << low::<A>(), &hops);
        self.n.write(node, &[pack_chunk(number)?]);
        let word = self.b[node / 64];
        self.b.write(node / 64, &[word | 1 << (node % 64)]);
        Ok(())
    }

    /// Moves chunks into the gaps that others have left, if there are many.
    fn apply_moves(&mut self) -> Result<(), Full> {
        while let Some(Move { from, to, owner }) = self.chunks.compact() {
            let at = from << low::<A>();
            let hops = self.n32[at..at + (1 << low::<A>())].to_vec();
            self.n32.amend(to << low::<A>(), &hops);
            self.n.write(self.pivot().base + owner, &[pack_chunk(to)?]);
        }
        self.n32.truncate(self.chunks.extent() << low::<A>());
        Ok(())
    }
}

impl<A: Addr, L: Leaf, S: Levels> RouteBuilder<A> for BitmapsBuilder<A, L, S> {
    type Engine = Bitmaps<A, L, S>;

    fn fill(&mut self, rib: &Rib<A>) -> Result<(), Full> {
        let (levels, nodes) = lay::<A, S>();
        self.levels = levels;
        let mut b = alloc::vec![0u64; nodes.div_ceil(64)];
        let mut n = alloc::vec![L::default(); nodes];
        let mut internal = BTreeSet::new();
        // In the order of the Rib, a longer route comes after those that cover it,
        // and paints over them.
        for (prefix, hop) in rib {
            if prefix.len() > pivot::<A>() {
                internal.insert(prefix.addr().bits(0, pivot::<A>()));
                continue;
            }
            let level = self.level(prefix.len());
            let first = level.base + prefix.addr().bits(0, level.len);
            let nodes = first..first + (1 << (level.len - prefix.len()));
            for node in nodes.clone() {
                b[node / 64] |= 1 << (node % 64);
            }
            n[nodes].fill(pack_hop(hop)?);
        }
        (self.b, self.n, self.n32) = (Master::new(b), Master::new(n), Master::new(Vec::new()));
        (self.chunks, self.internal) = (Numbers::default(), BTreeSet::new());
        let mut runs = Vec::new();
        for index in internal {
            self.lay_chunk(rib, index, &mut runs)?;
        }
        Ok(())
    }

    fn change(&mut self, rib: &Rib<A>, prefix: Prefix<A>) -> Result<(), Full> {
        let mut runs = Vec::new();
        let first = prefix.addr().bits(0, pivot::<A>());
        if prefix.len() <= pivot::<A>() {
            // A hop that no item can hold is refused even where longer routes cover all
            // of its nodes, as `fill` refuses it.
            if let Some(hop) = rib.get(prefix) {
                pack_hop::<L>(hop)?;
            }
            self.repaint(rib, self.level(prefix.len()), prefix)?;
            let last = prefix.last().bits(0, pivot::<A>());
            let below: Vec<usize> = self.internal.range(first..=last).copied().collect();
            for index in below {
                self.lay_chunk(rib, index, &mut runs)?;
            }
            return Ok(());
        }
        let node = Prefix::truncate(prefix.addr(), pivot::<A>());
        if rib.covered(node).any(|(longer, _)| longer.len() > pivot::<A>()) {
            return self.lay_chunk(rib, first, &mut runs);
        }
        if self.internal.remove(&first) {
            let number = super::chunk(self.n[self.pivot().base + first]);
            self.chunks.give(number.unwrap_or_else(|| unreachable!("{first} has a chunk")));
            self.repaint(rib, self.pivot(), node)?;
        }
        self.apply_moves()
    }

    fn freeze(&self) -> Bitmaps<A, L, S> {
        Bitmaps {
            levels: self.levels.clone(),
            b: self.b.freeze(),
            n: self.n.freeze(),
            n32: self.n32.freeze(),
            kind: PhantomData,
        }
    }

    fn refresh(&self, idle: &mut Bitmaps<A, L, S>) {
        self.b.refresh(&mut idle.b);
        self.n.refresh(&mut idle.n);
        self.n32.refresh(&mut idle.n32);
    }

    fn written(&self) -> u64 {
        self.b.written() + self.n.written() + self.n32.written()
    }
}

impl<A: Addr, L: Leaf, S: Levels> Default for BitmapsBuilder<A, L, S> {
    fn default() -> Self {
        Self::new()
    }
}
