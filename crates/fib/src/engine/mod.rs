//! The engines: ways to lay runs out in memory so that a lookup is quick.
//!
//! | engine | idea | source |
//! |---|---|---|
//! | [`linear`] | every route, longest first: the oracle | – |

use crate::runs::Run;
use crate::{Addr, Full, Hop, Prefix};

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

    /// Returns the bytes that lookups may touch.
    fn footprint(&self) -> usize;
}

/// The mutable side of an engine: owns its pools, and what is needed to share
/// equal parts and to patch.
pub trait Builder<A: Addr>: Send {
    /// What readers get.
    type Engine: Engine<A>;

    /// Lays out `runs`, which tile `block`, in place of what the block held.
    ///
    /// # Errors
    ///
    /// [`Full`] if a limit of the layout is reached; the builder is then of no
    /// further use, what was frozen before stays right.
    fn patch(&mut self, block: Prefix<A>, runs: &[Run<A>]) -> Result<(), Full>;

    /// Copies the present table out whole.
    fn freeze(&mut self) -> Self::Engine;

    /// Brings `idle`, frozen from this builder earlier, up to date by copying
    /// only what has changed since.
    fn refresh(&mut self, idle: &mut Self::Engine);
}
