//! SAIL: a splitting approach to IP lookup.
//!
//! Qiaobin Fu, *High-Performance Software Packet Processing*, PhD thesis, Boston 2020,
//! chapter 3; Yang, Xie, Li, Fu, Liu, Li, Mathy, "Guarantee IP Lookup Performance
//! with FIB Explosion", SIGCOMM 2014.
//!
//! Two splittings. One is of the work: first find how *long* the longest prefix
//! is, in bitmaps small enough for on-chip memory, then load the next hop from one
//! large array off chip. The other is of the prefixes: at the *pivot level*, 24,
//! which nearly no traffic goes below. With *pivot pushing* one bit determines on which side of it
//! an answer is: a node at the pivot that has longer prefixes under it hands
//! its hop (or the one it inherits) down to a *chunk* of 2^8 hops at level 32, so
//! that an address passes a node at the pivot if and only if its answer is there
//! or below.
//!
//! ```text
//!                 on chip                      off chip
//!   ≤ 24   B: which level answers?    N: the hop of that level's node
//!   > 24   (nothing)                  C: which chunk; N32: the hop
//! ```
//!
//! | engine | levels | for |
//! |---|---|---|
//! | [`SailB`] | 0 to 24, a bitmap each | hardware: 4 MB on chip, one bit written by an update |
//! | [`SailU`] | 6, 12, 18, 24, a bitmap each | updates: 2 MB on chip, one word written |
//! | [`SailL`] | 16, 24, 32 | CPUs: two loads answer nearly always |
//! | [`SailM`] | 16, 24, 32, shared | many FIBs: on-chip memory as for one |
//!
//! The papers' levels are for 32 bits; narrower families have theirs at the same
//! fractions (16 is half the bits, 24 three quarters). Wider ones are refused:
//! arrays of 2^(BITS / 2) items would not fit memory.

use crate::engine::Leaf;
use crate::{Addr, Full, Hop};

mod bitmaps;
mod l;
mod m;
mod numbers;

pub use bitmaps::{Bitmaps, BitmapsBuilder, Every, Levels, Quarters};
pub use bitmaps::{SailB, SailBBuilder, SailU, SailUBuilder};
pub use l::{SailL, SailLBuilder};
pub use m::{SailM, SailMBuilder, View};

/// The first level of [`SailL`]: 16 of IPv4.
pub(super) const fn upper<A: Addr>() -> u32 {
    A::BITS / 2
}

/// The pivot level: 24 of IPv4.
pub(super) const fn pivot<A: Addr>() -> u32 {
    A::BITS / 4 * 3
}

/// How many bits the last level resolves: 8 of IPv4.
pub(super) const fn low<A: Addr>() -> u32 {
    A::BITS - pivot::<A>()
}

/// Stores a chunk's number where a hop may be instead.
fn pack_number<L: Leaf>(number: usize) -> Result<L, Full> {
    let full = Full { what: Full::CHUNKS, limit: u64::from(L::MAX) + 1, seen: number as u64 + 1 };
    u32::try_from(number).ok().and_then(|number| L::pack(Hop(number)).ok()).ok_or(full)
}

/// Returns the chunk's number that [`pack_number`] stored.
#[inline(always)]
fn number<L: Leaf>(stored: L) -> usize {
    stored.hop().0 as usize
}
