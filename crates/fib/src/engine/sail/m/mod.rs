//! `SAIL_M`: many FIBs over one shared structure (Fu 2020, section 3.4.3).
//!
//! A router with virtual routers has a FIB for each. The tries of all are overlaid:
//! where any of them goes below level 16 or 24, all are stretched to go there too,
//! so that bitmaps and chunk numbers are the same for all, and stay on chip however
//! many there are. Only the hops are each FIB's own.
//!
//! ```text
//!   shared, on chip           shared, off chip         a FIB's own, off chip
//!   B16 ┃1┃0┃…  C16 ┃-┃n┃…                             N16 ┃hop┃   ┃…
//!            │ n·2^8 + 16..24                               where B16 = 1
//!            ▼
//!   B24 ┃1┃0┃…                C24 ┃-┃m┃…               N24 ┃hop┃   ┃…
//!                                    │ m·2^8 + 24..32       where B24 = 1
//!                                    └────────────────► N32 ┃hop┃hop┃…
//! ```
//!
//! The thesis makes each item of the next-hop arrays an array of one hop a FIB.
//! Here each FIB has an array of its own with the same numbering: one can be added
//! or removed while others are used, and what one FIB's packets touch lies together.
//!
//! It is no [`Engine`] by itself, for a lookup names a FIB; [`SailM::view`] gives one
//! of its FIBs as an engine. FIBs are numbered from 0; one that is not there routes
//! nowhere.
//!
//! - On chip: 2^16 · 17 + 2^24 bits at the most, 2.13 MB, for any number of FIBs. A
//!   lookup loads 2 words on chip, and 1 or 2 off chip.
//! - Arrays come in pages that the builder and the frozen tables share (`pages.rs`):
//!   freezing copies references alone, and an update the pages that it writes to.
//! - Unlike `SAIL_L`, a chunk is there as long as any FIB has a prefix in it,
//!   whatever its hops: it has to be right for all of them.
//! - Hops up to 65,534 in 16 bits, more in 32 ([`Leaf`]); chunks are never too many.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::marker::PhantomData;

use super::{low, pivot, upper};
use crate::engine::{Engine, Leaf, Part, Place, Step};
use crate::{Addr, Hop};

mod builder;
mod overlay;
mod pages;
#[cfg(test)]
mod tests;

pub use builder::SailMBuilder;
use pages::Pages;

/// How many addresses are looked up at once.
const GROUP: usize = 64;

/// The structure that all FIBs share.
#[derive(Clone, Debug)]
struct Shape {
    /// A bit an index of level 16: 1 where N16 answers.
    b16: Pages<u64>,
    /// Otherwise the number of a chunk of level 24.
    c16: Pages<u16>,
    /// A bit an item of the chunks of level 24: 1 where N24 answers.
    b24: Pages<u64>,
    /// Otherwise the number of a chunk of level 32.
    c24: Pages<u32>,
}

/// The hops of one FIB.
#[derive(Clone, Debug)]
struct Column<L> {
    n16: Pages<L>,
    n24: Pages<L>,
    n32: Pages<L>,
}

/// Frozen tables of many FIBs. A clone shares all memory.
#[derive(Clone, Debug)]
pub struct SailM<A, L> {
    shape: Arc<Shape>,
    /// By FIB.
    columns: Vec<Option<Arc<Column<L>>>>,
    family: PhantomData<A>,
}

#[inline(always)]
fn bit(bits: &Pages<u64>, at: usize) -> bool {
    bits.get(at / 64) >> (at % 64) & 1 == 1
}

/// The place of an answer in the shared structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    N16(usize),
    N24(usize),
    N32(usize),
}

impl Shape {
    /// Returns the item of level 24 in the chunk of `index`.
    #[inline(always)]
    fn middle<A: Addr>(&self, index: usize, addr: A) -> usize {
        let width = pivot::<A>() - upper::<A>();
        usize::from(self.c16.get(index)) << width | addr.bits(upper::<A>(), width)
    }

    #[inline(always)]
    fn bottom<A: Addr>(&self, middle: usize, addr: A) -> usize {
        (self.c24.get(middle) as usize) << low::<A>() | addr.bits(pivot::<A>(), low::<A>())
    }

    #[inline(always)]
    fn find<A: Addr>(&self, addr: A) -> Found {
        let index = addr.bits(0, upper::<A>());
        if bit(&self.b16, index) {
            return Found::N16(index);
        }
        let middle = self.middle(index, addr);
        if bit(&self.b24, middle) {
            Found::N24(middle)
        } else {
            Found::N32(self.bottom(middle, addr))
        }
    }
}

impl<L: Leaf> Column<L> {
    #[inline(always)]
    fn hop(&self, found: Found) -> Hop {
        match found {
            Found::N16(at) => self.n16.get(at).hop(),
            Found::N24(at) => self.n24.get(at).hop(),
            Found::N32(at) => self.n32.get(at).hop(),
        }
    }
}

impl<A: Addr, L: Leaf> SailM<A, L> {
    /// Returns the hop that `fib` has for `addr`; [`Hop::NONE`] if there is no such
    /// FIB.
    #[inline]
    pub fn lookup(&self, fib: usize, addr: A) -> Hop {
        match self.column(fib) {
            Some(column) => column.hop(self.shape.find(addr)),
            None => Hop::NONE,
        }
    }

    /// Looks up `addrs[i]` into `out[i]` for every i, all in one FIB.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn lookup_batch(&self, fib: usize, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        let Some(column) = self.column(fib) else { return out.fill(Hop::NONE) };
        let mut found = [Found::N16(0); GROUP];
        for (addrs, out) in addrs.chunks(GROUP).zip(out.chunks_mut(GROUP)) {
            // The loads on chip first; then those that have to wait, together.
            for (&addr, found) in addrs.iter().zip(&mut found) {
                *found = self.shape.find(addr);
            }
            for (&found, out) in found.iter().zip(out) {
                *out = column.hop(found);
            }
        }
    }

    /// Looks up `addrs[i]` in the FIB `fibs[i]` into `out[i]` for every i.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn lookup_mixed(&self, fibs: &[usize], addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        assert_eq!(addrs.len(), fibs.len(), "a batch has as many FIBs as addresses");
        let mut found = [Found::N16(0); GROUP];
        let groups = addrs.chunks(GROUP).zip(fibs.chunks(GROUP)).zip(out.chunks_mut(GROUP));
        for ((addrs, fibs), out) in groups {
            for (&addr, found) in addrs.iter().zip(&mut found) {
                *found = self.shape.find(addr);
            }
            for ((&found, &fib), out) in found.iter().zip(fibs).zip(out) {
                *out = self.column(fib).map_or(Hop::NONE, |column| column.hop(found));
            }
        }
    }

    /// Returns one of the FIBs as an engine, which does not change any more.
    pub fn view(&self, fib: usize) -> View<A, L> {
        View { table: self.clone(), fib }
    }

    /// Lists the FIBs there are.
    pub fn fibs(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().enumerate().filter(|(_, column)| column.is_some()).map(|(fib, _)| fib)
    }

    /// Lists the arrays; those of the FIBs are summed up.
    pub fn parts(&self) -> Vec<Part> {
        self.parts_of(|_| true)
    }

    /// Counts the bytes of the arrays that are to be on chip, as table 3.2 does.
    pub fn on_chip_bytes(&self) -> usize {
        let Shape { b16, c16, b24, .. } = &*self.shape;
        b16.len() * 8 + c16.len() * 2 + b24.len() * 8
    }

    /// Counts the bytes of all pages, those that nothing was ever written to left out.
    pub fn footprint(&self) -> usize {
        let Shape { b16, c16, b24, c24 } = &*self.shape;
        let columns = self.columns.iter().flatten();
        let own = columns.map(|c| c.n16.resident() + c.n24.resident() + c.n32.resident());
        let shared = b16.resident() + c16.resident() + b24.resident() + c24.resident();
        shared + own.sum::<usize>()
    }

    #[inline(always)]
    fn column(&self, fib: usize) -> Option<&Column<L>> {
        self.columns.get(fib)?.as_deref()
    }

    fn parts_of(&self, which: impl Fn(usize) -> bool) -> Vec<Part> {
        let Shape { b16, c16, b24, c24 } = &*self.shape;
        let columns = || self.fibs().filter(|&fib| which(fib)).filter_map(|fib| self.column(fib));
        let own = |name, len: fn(&Column<L>) -> usize| {
            let items = columns().map(len).sum();
            part(name, items, size_of::<L>(), Place::OffChip)
        };
        Vec::from([
            part("B16", b16.len(), 8, Place::OnChip),
            part("C16", c16.len(), 2, Place::OnChip),
            part("B24", b24.len(), 8, Place::OnChip),
            part("C24", c24.len(), 4, Place::OffChip),
            own("N16", |column| column.n16.len()),
            own("N24", |column| column.n24.len()),
            own("N32", |column| column.n32.len()),
        ])
    }
}

fn part(name: &'static str, items: usize, each: usize, place: Place) -> Part {
    Part { name, items, bytes: items * each, place: Some(place) }
}

/// One FIB of many, as an engine.
#[derive(Clone, Debug)]
pub struct View<A, L> {
    table: SailM<A, L>,
    fib: usize,
}

impl<A: Addr, L: Leaf> Engine<A> for View<A, L> {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        self.table.lookup(self.fib, addr)
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        self.table.lookup_batch(self.fib, addrs, out);
    }

    fn parts(&self) -> Vec<Part> {
        self.table.parts_of(|fib| fib == self.fib)
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let shape = &self.table.shape;
        let mut load = |part, index, bytes| steps.push(Step { part, index, bytes });
        let index = addr.bits(0, upper::<A>());
        load("B16", index / 64, 8);
        let found = shape.find(addr);
        if found != Found::N16(index) {
            let middle = shape.middle(index, addr);
            load("C16", index, 2);
            load("B24", middle / 64, 8);
            if found != Found::N24(middle) {
                load("C24", middle, 4);
            }
        }
        let Some(column) = self.table.column(self.fib) else { return Hop::NONE };
        match found {
            Found::N16(at) => load("N16", at, size_of::<L>()),
            Found::N24(at) => load("N24", at, size_of::<L>()),
            Found::N32(at) => load("N32", at, size_of::<L>()),
        }
        column.hop(found)
    }
}
