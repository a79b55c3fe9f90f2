//! The engines: ways to lay runs out in memory so that a lookup is quick.
//!
//! | engine | idea | source |
//! |---|---|---|
//! | [`linear`] | every route, longest first: the oracle | – |
//! | [`dxr`] | direct tables, then a search among the ranges of one chunk | Zec 2019 |
//! | [`halves`] | the upper half of the address in one table, what is longer in another | HOUSE.md |

use alloc::vec::Vec;

use crate::runs::Run;
use crate::{Addr, Full, Hop, Prefix};

pub mod dxr;
pub mod halves;
pub mod linear;

/// A frozen table: plain arrays, shared by any number of threads.
pub trait Engine<A: Addr>: Send + Sync {
    /// Returns the hop of the longest route that holds `addr`, or [`Hop::NONE`].
    fn lookup(&self, addr: A) -> Hop;

    /// Looks up `addrs[i]` into `out[i]` for every i.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        assert_eq!(addrs.len(), out.len(), "a batch has as many answers as addresses");
        for (addr, out) in addrs.iter().zip(out) {
            *out = self.lookup(*addr);
        }
    }

    /// Lists the arrays that lookups may touch.
    fn parts(&self) -> Vec<Part>;

    /// Looks `addr` up slowly and appends every load it takes to `steps`: the twin
    /// of [`lookup`](Self::lookup) that explains itself.
    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop;

    /// Returns the bytes that lookups may touch.
    fn footprint(&self) -> usize {
        self.parts().iter().map(|part| part.bytes).sum()
    }
}

/// One array of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What the engine's paper calls it.
    pub name: &'static str,
    /// The number of items.
    pub items: usize,
    /// Their bytes.
    pub bytes: usize,
}

impl Part {
    /// Describes `items`.
    pub fn of<T>(name: &'static str, items: &[T]) -> Self {
        Self { name, items: items.len(), bytes: size_of_val(items) }
    }
}

/// One load of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The array's name, as in [`Part`].
    pub part: &'static str,
    /// Which of its items.
    pub index: usize,
    /// The bytes of that item.
    pub bytes: usize,
}

impl Step {
    /// Describes the load of `items[index]`.
    pub fn of<T>(part: &'static str, index: usize, _items: &[T]) -> Self {
        Self { part, index, bytes: size_of::<T>() }
    }
}

/// The mutable side of an engine: owns its pools, and what is needed to share
/// equal parts and to patch.
pub trait Builder<A: Addr>: Send {
    /// What readers get.
    type Engine: Engine<A>;

    /// Returns the length in bits of the smallest blocks that can be patched.
    fn block_len(&self) -> u32;

    /// Returns the length in bits of the blocks between which builders may divide
    /// the space, to be joined with [`absorb`](Self::absorb).
    fn share_len(&self) -> u32;

    /// Lays out `runs`, which tile `block`, in place of what the block held.
    ///
    /// # Errors
    ///
    /// [`Full`] if a limit of the layout is reached; the builder is then of no
    /// further use, what was frozen before stays right.
    ///
    /// # Panics
    ///
    /// If the block is longer than [`block_len`](Self::block_len).
    fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full>;

    /// Takes over what `part`, a builder of the same layout, holds for the
    /// addresses `first` to `last`, which begin and end with blocks of
    /// [`share_len`](Self::share_len) bits. So several threads build one table.
    ///
    /// # Errors
    ///
    /// [`Full`] as for [`patch`](Self::patch).
    fn absorb(&mut self, part: &Self, first: A, last: A) -> Result<(), Full>;

    /// Copies the present table out whole.
    fn freeze(&self) -> Self::Engine;

    /// Brings `idle`, frozen from this builder earlier, up to date by copying
    /// only what has changed since.
    fn refresh(&self, idle: &mut Self::Engine);
}
