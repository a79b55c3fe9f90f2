//! SAIL for small IPv6 tables: levels 16, 24, 32, 40, 48 and 64.
//!
//! Qiaobin Fu, *High-Performance Software Packet Processing*, PhD thesis, Boston 2020, section
//! 3.6.1 (Yang et al., "Guarantee IP lookup performance with FIB explosion", SIGCOMM
//! 2014, is where SAIL comes from). Every route is pushed down to the next of the
//! levels; a node that is not all one hop has a *chunk* on the level below, one
//! entry for each of its children there:
//!
//! ```text
//!   bits of the address   0…15     16…23    24…31    32…39    40…47    48……63
//!                           │        │        │        │        │        │
//!   BCN16 (2^16 entries) ──►│ chunk ►│ chunk ►│ chunk ►│ chunk ►│ chunk ►│ N64
//!                              BCN24    BCN32    BCN40    BCN48   (2^16 entries
//!                              (chunks of 2^8 entries each)        a chunk)
//!
//!   entry   0 │ hop (31)            the route ends here: B = 1, and N
//!           1 │ chunk (31)          look in that chunk of the next level: C
//! ```
//!
//! The entry is the thesis's combined array BCN (section 3.4.2) with 32 bits: its bit
//! array B, its chunk numbers C and its next hops N in one load. The thesis splits
//! at level 48: the arrays up to there are kept on chip, the rest off it. Here the
//! arrays of levels 16 to 40 are marked on chip, those of 48 and 64 off; an FPGA
//! would keep one bit of each entry of level 48 on chip too. It gives no way for
//! routes longer than /64; here the levels go on, 72, 80, … 128, with chunks of 2^8,
//! which cost nothing while there is no such route.
//!
//! Toys have the same levels by proportion: u16 those of IPv6 divided by eight, u8
//! and the upper half of IPv6 the first six.
//!
//! A lookup loads one entry for each level down to the one where it ends: one at
//! best, six in the worst case up to /64, fourteen in all. An update rewrites the
//! entries below its prefix on the level where the prefix ends and makes or frees
//! the chunks on the way; a chunk that has become all one hop is freed. Chunks that
//! are free beyond a sixteenth are filled with the last ones, so that the arrays
//! shrink with the table; they have no content in common, unlike DXR's. Memory goes
//! with the nodes that have longer routes below them: 1 KiB each, but at level 48
//! 256 KiB, which is what the thesis means by small. Limits: hop indexes of 31 bits,
//! 2^32 entries a level.

use alloc::vec::Vec;
use core::ops::ControlFlow;

use super::overlap::{Overlapped, Walk, alone, group};
use super::{Engine, Part, Step, leaf};
use crate::table::Table;
use crate::{Addr, Full, Hop};

mod builder;

pub use builder::Sail6Builder;

/// The lookups that are under way at once in a batch.
const GROUP: usize = 16;

/// The most levels that any family has.
const MAX_LEVELS: usize = 14;

/// How many levels, from the first on, the thesis keeps on chip whole.
const ON_CHIP: usize = 4;

/// The arrays, by the bits that their levels of IPv6 end at.
const NAMES: [&str; MAX_LEVELS] = [
    "BCN16", "BCN24", "BCN32", "BCN40", "BCN48", "N64", "BCN72", "BCN80", "BCN88", "BCN96",
    "BCN104", "BCN112", "BCN120", "N128",
];

/// Returns how many bits of an address lead to a level's entries: for IPv6 16, 24,
/// 32, 40, 48, 64, and from there on every eight.
#[inline(always)]
fn end<A: Addr>(level: usize) -> u32 {
    let unit = match A::BITS {
        ..32 => 1,
        32 => 4,
        _ => 8,
    };
    unit * (level as u32 + if level < 5 { 2 } else { 3 })
}

/// Returns how many bits select an entry of a chunk; `level` is not the first.
#[inline(always)]
fn stride<A: Addr>(level: usize) -> u32 {
    end::<A>(level) - end::<A>(level - 1)
}

/// Returns how many levels there are.
fn levels<A: Addr>() -> usize {
    (0..MAX_LEVELS).take_while(|&level| end::<A>(level) <= A::BITS).count()
}

/// A hop, or the number of a chunk on the next level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry(u32);

impl Entry {
    const CHUNK: u32 = 1 << 31;

    fn pack(hop: Hop) -> Result<Self, Full> {
        let max = Self::CHUNK - 1;
        if hop.0 > max { Err(leaf::full(hop, max.into())) } else { Ok(Self(hop.0)) }
    }

    fn of_chunk(chunk: usize) -> Self {
        Self(chunk as u32 | Self::CHUNK)
    }

    #[inline(always)]
    fn chunk(self) -> Option<usize> {
        (self.0 & Self::CHUNK != 0).then_some((self.0 & !Self::CHUNK) as usize)
    }

    #[inline(always)]
    fn hop(self) -> Hop {
        Hop(self.0)
    }
}

/// A frozen table.
#[derive(Clone, Debug)]
pub struct Sail6 {
    levels: Vec<Table<Entry>>,
}

/// A lookup before the load of an entry.
#[derive(Clone, Copy, Debug)]
pub struct At<A> {
    addr: A,
    level: usize,
    index: usize,
}

impl<A: Addr> Walk<A> for Sail6 {
    type At = At<A>;

    #[inline(always)]
    fn begin(&self, addr: A) -> At<A> {
        At { addr, level: 0, index: addr.bits(0, end::<A>(0)) }
    }

    #[inline(always)]
    fn prefetch(&self, at: &At<A>) {
        self.levels[at.level].prefetch(at.index);
    }

    #[inline(always)]
    fn step(&self, at: At<A>) -> ControlFlow<Hop, At<A>> {
        let entry = self.levels[at.level][at.index];
        let Some(chunk) = entry.chunk() else { return ControlFlow::Break(entry.hop()) };
        let level = at.level + 1;
        let width = stride::<A>(level);
        let index = chunk << width | at.addr.bits(end::<A>(at.level), width);
        ControlFlow::Continue(At { level, index, ..at })
    }
}

impl<A: Addr> Engine<A> for Sail6 {
    #[inline]
    fn lookup(&self, addr: A) -> Hop {
        alone(self, addr)
    }

    fn lookup_batch(&self, addrs: &[A], out: &mut [Hop]) {
        group::<GROUP, A, Self>(self, addrs, out);
    }

    fn overlapped(&self) -> Option<&dyn Overlapped<A>> {
        Some(self)
    }

    fn parts(&self) -> Vec<Part> {
        let parts = self.levels.iter().zip(NAMES).enumerate();
        let part = |(level, (entries, name)): (usize, (&Table<Entry>, &'static str))| {
            let part = Part::of(name, entries);
            if level < ON_CHIP { part.on_chip() } else { part.off_chip() }
        };
        parts.map(part).collect()
    }

    fn trace(&self, addr: A, steps: &mut Vec<Step>) -> Hop {
        let mut at = self.begin(addr);
        loop {
            steps.push(Step::of(NAMES[at.level], at.index, &self.levels[at.level]));
            match self.step(at) {
                ControlFlow::Continue(next) => at = next,
                ControlFlow::Break(hop) => return hop,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{end, levels};
    use crate::Addr;
    use alloc::vec::Vec;

    fn ends<A: Addr>() -> Vec<u32> {
        (0..levels::<A>()).map(end::<A>).collect()
    }

    #[test]
    fn levels_are_those_of_the_thesis_and_end_with_the_address() {
        assert_eq!(ends::<u64>(), [16, 24, 32, 40, 48, 64]);
        assert_eq!(ends::<u128>(), [16, 24, 32, 40, 48, 64, 72, 80, 88, 96, 104, 112, 120, 128]);
        assert_eq!(ends::<u16>(), [2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
        assert_eq!(ends::<u8>(), [2, 3, 4, 5, 6, 8]);
    }
}
