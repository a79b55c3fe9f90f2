//! Updates the overlay trie, its shape and the hops of each FIB.
//!
//! ```text
//!   announce   overlay: prefix new? ─► open the chunks on its way, in all FIBs
//!              paint the prefix in the one FIB: runs, at the depth that the shape has
//!   withdraw   paint; overlay: prefix gone from all? ─► close the chunks that no
//!              prefix is in any more, in all FIBs
//! ```
//!
//! A chunk is opened with the hop that was there before, a FIB at a time, and closed
//! when it is the same everywhere in every FIB, so that the shape changes no answer.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::marker::PhantomData;

use super::super::numbers::{Move, Numbers};
use super::super::{low, pivot, upper};
use super::overlay::Overlay;
use super::pages::Pages;
use super::{Column, SailM, Shape, bit};
use crate::engine::Leaf;
use crate::runs::{Run, split, sweep};
use crate::{Addr, Full, Hop, Prefix};

/// The builder of [`SailM`].
#[derive(Debug)]
pub struct SailMBuilder<A: Addr, L> {
    /// The tables that [`freeze`](Self::freeze) returns: a write copies the pages it shares.
    table: SailM<A, L>,
    overlay: Overlay<A, L>,
    /// The chunks of level 24, owned by indexes of level 16.
    middles: Numbers,
    /// The chunks of level 32, owned by items of level 24.
    bottoms: Numbers,
    /// Words written in FIBs that have been removed since.
    written: u64,
}

/// The bits that level 24 resolves: 8 of IPv4.
const fn mid<A: Addr>() -> u32 {
    pivot::<A>() - upper::<A>()
}

fn set_bit(bits: &mut Pages<u64>, at: usize, answers: bool) {
    let (word, bit) = (bits.get(at / 64), 1u64 << (at % 64));
    bits.amend(at / 64, &[if answers { word | bit } else { word & !bit }]);
}

impl<A: Addr, L: Leaf> SailMBuilder<A, L> {
    /// Starts without FIBs.
    pub fn new() -> Self {
        let level = 1usize << upper::<A>();
        let mut b16 = Pages::new(level.div_ceil(64));
        b16.fill(0, level.div_ceil(64), u64::MAX);
        let shape = Shape { b16, c16: Pages::new(level), b24: Pages::new(0), c24: Pages::new(0) };
        let table = SailM { shape: Arc::new(shape), columns: Vec::new(), family: PhantomData::<A> };
        let (middles, bottoms) = (Numbers::default(), Numbers::default());
        Self { table, overlay: Overlay::new(), middles, bottoms, written: 0 }
    }

    /// Adds a FIB without routes; returns its number, the lowest that is free.
    pub fn add_fib(&mut self) -> usize {
        let fib = self.overlay.add();
        if fib == self.table.columns.len() {
            self.table.columns.push(None);
        }
        self.table.columns[fib] = Some(Arc::new(Column {
            n16: Pages::new(1 << upper::<A>()),
            n24: Pages::new(self.middles.extent() << mid::<A>()),
            n32: Pages::new(self.bottoms.extent() << low::<A>()),
        }));
        fib
    }

    /// Removes a FIB with all of its routes; returns whether it existed.
    pub fn remove_fib(&mut self, fib: usize) -> bool {
        if !self.overlay.has(fib) {
            return false;
        }
        let gone = self.overlay.remove(fib);
        let column = self.table.columns[fib].take();
        self.written += column.map_or(0, |column| column.written());
        while self.table.columns.last().is_some_and(Option::is_none) {
            self.table.columns.pop();
        }
        for prefix in gone {
            self.close(prefix);
        }
        self.apply_moves();
        true
    }

    /// Adds a route to a FIB, or changes its hop.
    ///
    /// # Errors
    ///
    /// [`Full`] if the hop's index is too high; nothing has changed then.
    ///
    /// # Panics
    ///
    /// If there is no such FIB, as for [`load`](Self::load).
    pub fn announce(&mut self, fib: usize, prefix: Prefix<A>, hop: Hop) -> Result<(), Full> {
        assert!(self.overlay.has(fib), "there is no FIB {fib}");
        if self.overlay.announce(fib, prefix, hop)? {
            self.open(prefix);
        }
        self.paint(fib, prefix)?;
        self.overlay.mark_clean();
        Ok(())
    }

    /// Removes a route from a FIB; returns whether it existed.
    pub fn withdraw(&mut self, fib: usize, prefix: Prefix<A>) -> bool {
        if !self.overlay.has(fib) {
            return false;
        }
        let (had, last) = self.overlay.withdraw(fib, prefix);
        if had {
            let painted = self.paint(fib, prefix);
            debug_assert_eq!(painted, Ok(()), "the hops of other routes have been stored before");
        }
        if last {
            self.close(prefix);
            self.apply_moves();
        }
        self.overlay.mark_clean();
        had
    }

    /// Adds many routes to a FIB, in any order; faster than one by one.
    ///
    /// # Errors
    ///
    /// [`Full`] as for [`announce`](Self::announce); those before it are added.
    pub fn load(
        &mut self,
        fib: usize,
        routes: impl IntoIterator<Item = (Prefix<A>, Hop)>,
    ) -> Result<(), Full> {
        assert!(self.overlay.has(fib), "there is no FIB {fib}");
        let mut loaded = Ok(());
        for (prefix, hop) in routes {
            match self.overlay.announce(fib, prefix, hop) {
                Ok(true) => self.open(prefix),
                Ok(false) => {}
                Err(full) => {
                    loaded = Err(full);
                    break;
                }
            }
        }
        self.overlay.mark_clean();
        self.paint(fib, Prefix::ALL)?;
        loaded
    }

    /// Copies the present tables out: references, and no array.
    pub fn freeze(&self) -> SailM<A, L> {
        self.table.clone()
    }

    /// Counts the 64-bit words written so far, as
    /// [`Builder::written`](crate::Builder::written).
    pub fn written(&self) -> u64 {
        let Shape { b16, c16, b24, c24 } = &*self.table.shape;
        let shared = b16.written() + c16.written() + b24.written() + c24.written();
        let own = self.table.columns.iter().flatten().map(|column| column.written());
        self.written + shared + own.sum::<u64>()
    }

    /// Counts the bytes that are the builder's alone: the overlay trie.
    pub fn overhead(&self) -> usize {
        self.overlay.footprint()
    }

    fn shape(&mut self) -> &mut Shape {
        Arc::make_mut(&mut self.table.shape)
    }

    fn each_column(&mut self, mut change: impl FnMut(&mut Column<L>)) {
        for column in self.table.columns.iter_mut().flatten() {
            change(Arc::make_mut(column));
        }
    }

    /// Stretches all tries so that `prefix` has a place at a level of its own.
    fn open(&mut self, prefix: Prefix<A>) {
        let index = prefix.addr().bits(0, upper::<A>());
        if prefix.len() <= upper::<A>() {
            return;
        }
        if bit(&self.table.shape.b16, index) {
            let chunk = self.middles.take(index);
            let (at, len) = (chunk << mid::<A>(), 1 << mid::<A>());
            let extent = self.middles.extent() << mid::<A>();
            let shape = self.shape();
            shape.b24.resize(extent.div_ceil(64));
            shape.c24.resize(extent);
            for middle in at..at + len {
                set_bit(&mut shape.b24, middle, true);
            }
            shape.c16.amend(index, &[chunk as u16]);
            set_bit(&mut shape.b16, index, false);
            self.each_column(|column| {
                column.n24.resize(extent);
                column.n24.fill(at, len, column.n16.get(index));
            });
        }
        let middle = self.table.shape.middle(index, prefix.addr());
        if prefix.len() > pivot::<A>() && bit(&self.table.shape.b24, middle) {
            let chunk = self.bottoms.take(middle);
            let extent = self.bottoms.extent() << low::<A>();
            let shape = self.shape();
            shape.c24.amend(middle, &[chunk as u32]);
            set_bit(&mut shape.b24, middle, false);
            self.each_column(|column| {
                column.n32.resize(extent);
                column.n32.fill(chunk << low::<A>(), 1 << low::<A>(), column.n24.get(middle));
            });
        }
    }

    /// Gives the chunks back that `prefix`, which is gone from all FIBs, was the last
    /// to need.
    fn close(&mut self, prefix: Prefix<A>) {
        let index = prefix.addr().bits(0, upper::<A>());
        if prefix.len() <= upper::<A>() || bit(&self.table.shape.b16, index) {
            return;
        }
        let middle = self.table.shape.middle(index, prefix.addr());
        let node = Prefix::truncate(prefix.addr(), pivot::<A>());
        if !bit(&self.table.shape.b24, middle) && !self.overlay.branches(node) {
            let chunk = self.table.shape.c24.get(middle) as usize;
            self.each_column(|column| {
                let hop = column.n32.get(chunk << low::<A>());
                column.n24.amend(middle, &[hop]);
            });
            set_bit(&mut self.shape().b24, middle, true);
            self.bottoms.give(chunk);
        }
        let node = Prefix::truncate(prefix.addr(), upper::<A>());
        // Several may be gone at once; the chunk waits for the last of them.
        let at = usize::from(self.table.shape.c16.get(index)) << mid::<A>();
        let flat = |shape: &Shape| (at..at + (1 << mid::<A>())).all(|at| bit(&shape.b24, at));
        if !self.overlay.branches(node) && flat(&self.table.shape) {
            self.each_column(|column| {
                let hop = column.n24.get(at);
                column.n16.amend(index, &[hop]);
            });
            set_bit(&mut self.shape().b16, index, true);
            self.middles.give(at >> mid::<A>());
        }
    }

    /// Moves chunks into the gaps that others have left, if there are many, and cuts
    /// the arrays to what is in use.
    fn apply_moves(&mut self) {
        while let Some(Move { from, to, owner }) = self.bottoms.compact() {
            let len = 1usize << low::<A>();
            self.each_column(|column| column.n32.copy(from * len, to * len, len));
            self.shape().c24.amend(owner, &[to as u32]);
        }
        while let Some(Move { from, to, owner }) = self.middles.compact() {
            let len = 1usize << mid::<A>();
            self.each_column(|column| column.n24.copy(from * len, to * len, len));
            let shape = Arc::make_mut(&mut self.table.shape);
            shape.c24.copy(from * len, to * len, len);
            for i in 0..len {
                let answers = bit(&shape.b24, from * len + i);
                set_bit(&mut shape.b24, to * len + i, answers);
                if !answers {
                    let chunk = shape.c24.get(to * len + i) as usize;
                    self.bottoms.hand_over(chunk, to * len + i);
                }
            }
            shape.c16.amend(owner, &[to as u16]);
        }
        let (middles, bottoms) =
            (self.middles.extent() << mid::<A>(), self.bottoms.extent() << low::<A>());
        if self.table.shape.c24.len() != middles {
            let shape = self.shape();
            shape.b24.resize(middles.div_ceil(64));
            shape.c24.resize(middles);
            self.each_column(|column| column.n24.resize(middles));
        }
        if self.table.columns.iter().flatten().any(|column| column.n32.len() != bottoms) {
            self.each_column(|column| column.n32.resize(bottoms));
        }
    }

    /// Writes the hops of a FIB for the addresses of `prefix`, as deep as the shape goes.
    fn paint(&mut self, fib: usize, prefix: Prefix<A>) -> Result<(), Full> {
        let mut runs = Vec::new();
        let cover = self.overlay.cover(fib, prefix);
        sweep(prefix, cover, self.overlay.routes(fib, prefix), &mut runs);
        let Some(column) = self.table.columns[fib].as_mut() else { return Ok(()) };
        let mut painter = Painter {
            shape: &self.table.shape,
            column: Arc::make_mut(column),
            family: PhantomData,
        };
        painter.upper(prefix, &runs)
    }
}

impl<A: Addr, L: Leaf> Default for SailMBuilder<A, L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<L: Leaf> Column<L> {
    fn written(&self) -> u64 {
        self.n16.written() + self.n24.written() + self.n32.written()
    }
}

/// Writes runs into one FIB's arrays.
struct Painter<'a, A, L> {
    shape: &'a Shape,
    column: &'a mut Column<L>,
    family: PhantomData<A>,
}

impl<A: Addr, L: Leaf> Painter<'_, A, L> {
    fn upper(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        let first = block.addr().bits(0, upper::<A>());
        if block.len() > upper::<A>() {
            return self.middle(first, block, runs);
        }
        for (index, (part, runs)) in (first..).zip(split(runs, block, upper::<A>() - block.len())) {
            if bit(&self.shape.b16, index) {
                self.column.n16.amend(index, &[L::pack(runs[0].hop)?]);
            } else {
                self.middle(index, part, runs)?;
            }
        }
        Ok(())
    }

    /// Paints a block within `index` of level 16.
    fn middle(&mut self, index: usize, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        let first = self.shape.middle(index, block.addr());
        if block.len() > pivot::<A>() {
            return self.bottom(first, block, runs);
        }
        let mut hops = Vec::with_capacity(1 << (pivot::<A>() - block.len()));
        for (at, (part, runs)) in (first..).zip(split(runs, block, pivot::<A>() - block.len())) {
            if bit(&self.shape.b24, at) {
                hops.push(L::pack(runs[0].hop)?);
            } else {
                self.bottom(at, part, runs)?;
                hops.push(self.column.n24.get(at));
            }
        }
        self.column.n24.amend(first, &hops);
        Ok(())
    }

    /// Paints a block within item `middle` of level 24.
    fn bottom(&mut self, middle: usize, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        let first = self.shape.bottom(middle, block.addr());
        let mut hops = Vec::with_capacity(1 << (A::BITS - block.len()));
        for (i, run) in runs.iter().enumerate() {
            let next = runs.get(i + 1).map(|next| self.shape.bottom(middle, next.start) - first);
            hops.resize(next.unwrap_or(1 << (A::BITS - block.len())), L::pack(run.hop)?);
        }
        self.column.n32.amend(first, &hops);
        Ok(())
    }
}
