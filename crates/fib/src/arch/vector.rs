//! The types that the lanes of all architectures share: tables, kernels and sizes.
//!
//! The back ends (`x86_64/`, `aarch64/`) depend on this file, and `lanes.rs` and `search.rs`
//! select one of them.

use core::sync::atomic::AtomicU32;

/// The number of lanes of a vector.
pub(crate) const LANES: usize = 16;

/// The most items of a table for lanes: an index is a signed number.
pub(crate) const MAX_ITEMS: usize = 1 << 31;

/// The starts of one byte that a vector holds.
pub(crate) const BYTES: usize = 64;

/// The starts of two bytes that a vector holds.
pub(crate) const HALVES: usize = 32;

/// A table whose items are plain numbers.
#[derive(Clone, Copy, Debug)]
pub enum Words<'a> {
    /// Items of 16 bits.
    Half(&'a [u16]),
    /// Items of 32 bits.
    Whole(&'a [u32]),
    /// Items of 32 bits that other threads may write meanwhile: a lane gets the value before or
    /// after the write, as any load of an aligned number does.
    Shared(&'a [AtomicU32]),
    /// Items of 64 bits, loaded as two items of 32 bits, the lower half first.
    Double(&'a [u64]),
}

/// Code to be compiled for a CPU with vectors; `W` is the proof that this CPU has them.
pub(crate) trait WideKernel<W>: Sized {
    /// The result.
    type Out;

    /// Whether the kernel counts the ones of lanes, and is worth compiling once more for CPUs that do so by an
    /// instruction.
    const COUNTS: bool = false;

    /// Runs the kernel. It must be `#[inline(always)]`, and so must all functions that it calls.
    fn run(self, wide: W) -> Self::Out;
}
