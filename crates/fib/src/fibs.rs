//! Many tables with one publication: for virtual routers, customers or policies.
//!
//! ```text
//!   announce(table, …) ─► Rib 0 ┐
//!                         Rib 1 ├─ dirty blocks ─► one builder ─► Fibs ─► readers
//!   add, remove ────────► …     ┘                  (shared pools)
//! ```
//!
//! [`Fib`](crate::Fib) is one table; [`Fibs`] holds any number of them, by number. Parts that are
//! equal in several are stored once (`engine/dxr/shared`): a table of a few routes takes a few KiB,
//! and one that differs from another in some routes little more than the blocks of those. A commit
//! publishes the changes of all tables at once, so that a reader of several sees one state of all.
//!
//! The traits [`Layout`] and [`Tables`] separate the layout from its users.

#![cfg_attr(
    not(feature = "std"),
    expect(dead_code, reason = "only publication, which needs `std`, applies changes")
)]

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use crate::engine::dxr::Entry;
use crate::engine::dxr::shared::{Shared, SharedBuilder};
use crate::engine::{Part, Step};
use crate::runs::{Run, sweep_block};
use crate::{Addr, Family, Full, Hop, Prefix, Rib};

/// Frozen tables of some layout.
pub(crate) trait Tables<A: Addr>: Any + Send + Sync {
    /// Does as [`Fibs::lookup`].
    fn lookup(&self, table: usize, addr: A) -> Hop;
    /// Does as [`Fibs::lookup_batch`].
    fn lookup_batch(&self, table: usize, addrs: &[A], out: &mut [Hop]);
    /// Does as [`Fibs::trace`].
    fn trace(&self, table: usize, addr: A, steps: &mut Vec<Step>) -> Hop;
    /// Does as [`Fibs::parts`].
    fn parts(&self) -> Vec<Part>;
}

/// A builder of tables.
pub(crate) trait Layout<A: Addr>: Send {
    /// Returns the length in bits of the smallest blocks that can be patched.
    fn block_len(&self) -> u32;
    /// Makes room for tables of numbers below `count`; new ones are empty.
    fn extend(&mut self, count: usize);
    /// Lays out `runs`, which tile `block`, in place of the table's present content there. After an
    /// error the builder must not be used any more.
    fn patch(&mut self, table: usize, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full>;
    /// Copies the present tables.
    fn freeze(&self) -> Box<dyn Tables<A>>;
    /// Brings `idle`, which this builder froze, up to date.
    fn refresh(&self, idle: &mut dyn Tables<A>);
    /// Counts the unused bytes within the tables.
    fn holes(&self) -> usize;
}

impl<A: Family, E: Entry> Tables<A> for Shared<A, E> {
    fn lookup(&self, table: usize, addr: A) -> Hop {
        Self::lookup(self, table, addr)
    }
    fn lookup_batch(&self, table: usize, addrs: &[A], out: &mut [Hop]) {
        Self::lookup_batch(self, table, addrs, out);
    }
    fn trace(&self, table: usize, addr: A, steps: &mut Vec<Step>) -> Hop {
        Self::trace(self, table, addr, steps)
    }
    fn parts(&self) -> Vec<Part> {
        Self::parts(self)
    }
}

impl<A: Family, E: Entry> Layout<A> for SharedBuilder<A, E> {
    fn block_len(&self) -> u32 {
        Self::block_len(self)
    }
    fn extend(&mut self, count: usize) {
        Self::extend(self, count);
    }
    fn patch(&mut self, table: usize, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full> {
        Self::patch(self, table, block, runs)
    }
    fn freeze(&self) -> Box<dyn Tables<A>> {
        Box::new(Self::freeze(self))
    }
    fn refresh(&self, idle: &mut dyn Tables<A>) {
        let idle: &mut dyn Any = idle;
        match idle.downcast_mut() {
            Some(idle) => Self::refresh(self, idle),
            None => unreachable!("a builder refreshes what it froze"),
        }
    }
    fn holes(&self) -> usize {
        Self::holes(self)
    }
}

/// The widths of a layout, the narrowest first: the bits for a chunk's length in narrow entries;
/// `None` for wide entries, which hold every chunk.
const WIDTHS: [Option<u32>; 3] = [Some(8), Some(10), None];

fn new_layout<A: Family>(width: Option<u32>) -> Box<dyn Layout<A>> {
    match width {
        Some(bits) => Box::new(SharedBuilder::<A, u32>::with_len_bits(bits)),
        None => Box::new(SharedBuilder::<A, u64>::with_len_bits(<u64 as Entry>::LEN_BITS)),
    }
}

/// Lays out all routes of one table; none if there is no such table.
fn lay_out<A: Family>(
    layout: &mut dyn Layout<A>,
    table: usize,
    rib: Option<&Rib<A>>,
) -> Result<(), Full> {
    let mut runs = Vec::new();
    match rib {
        Some(rib) => sweep_block(rib, Prefix::ALL, &mut runs),
        None => runs.push(Run { start: A::MIN, hop: Hop::NONE }),
    }
    layout.patch(table, Prefix::ALL, &runs)
}

/// Builds all tables in the narrowest layout that holds them.
fn build<'a, A: Family>(
    ribs: &(impl ExactSizeIterator<Item = Option<&'a Rib<A>>> + Clone),
) -> Result<Box<dyn Layout<A>>, Full> {
    let mut widths = WIDTHS.into_iter();
    loop {
        let mut layout = new_layout(widths.next().flatten());
        layout.extend(ribs.len());
        let mut each = ribs.clone().enumerate();
        match each.try_for_each(|(table, rib)| lay_out(&mut *layout, table, rib)) {
            Err(_) if widths.len() > 0 => {}
            done => return done.map(|()| layout),
        }
    }
}

/// Frozen tables of many routers, by number from 0.
pub struct Fibs<A: Family> {
    tables: Box<dyn Tables<A>>,
}

impl<A: Family> Fibs<A> {
    /// Builds tables of the routes of each as they are now, numbered in order.
    ///
    /// # Errors
    ///
    /// [`Full`] if they exceed every width of the layout together.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_fib::{Fibs, Hop, Rib};
    /// let mut ribs = [Rib::<u32>::new(), Rib::new()];
    /// ribs[0].insert("10.0.0.0/8".parse()?, Hop(1));
    /// ribs[1].insert("10.0.0.0/8".parse()?, Hop(2));
    /// let fibs = Fibs::build(&ribs).unwrap();
    /// assert_eq!(fibs.lookup(0, 0x0a00_0001), Hop(1));
    /// assert_eq!(fibs.lookup(1, 0x0a00_0001), Hop(2));
    /// assert_eq!(fibs.lookup(9, 0x0a00_0001), Hop::NONE);
    /// # Ok::<(), fingerpost_fib::BadPrefix>(())
    /// ```
    pub fn build(ribs: &[Rib<A>]) -> Result<Self, Full> {
        Ok(Self { tables: build(&ribs.iter().map(Some))?.freeze() })
    }

    /// Returns the hop of the longest route of a table that holds `addr`;
    /// [`Hop::NONE`] too where there is no such table.
    #[inline]
    pub fn lookup(&self, table: usize, addr: A) -> Hop {
        self.tables.lookup(table, addr)
    }

    /// Looks up `addrs[i]` into `out[i]` for every i, in one table; several times
    /// faster a lookup than one by one.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    #[inline]
    pub fn lookup_batch(&self, table: usize, addrs: &[A], out: &mut [Hop]) {
        self.tables.lookup_batch(table, addrs, out);
    }

    /// Looks `addr` up in a table and returns every load: slow, for explanation and counting.
    pub fn trace(&self, table: usize, addr: A) -> (Hop, Vec<Step>) {
        let mut steps = Vec::new();
        let hop = self.tables.trace(table, addr, &mut steps);
        (hop, steps)
    }

    /// Lists the arrays that lookups may touch, those of all tables together.
    pub fn parts(&self) -> Vec<Part> {
        self.tables.parts()
    }

    /// Returns the bytes that lookups may touch, of all tables together.
    pub fn footprint(&self) -> usize {
        self.parts().iter().map(|part| part.bytes).sum()
    }
}

impl<A: Family> fmt::Debug for Fibs<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fibs({} bytes)", self.footprint())
    }
}

#[cfg(feature = "std")]
mod updater;
#[cfg(feature = "std")]
pub use updater::FibsUpdater;
