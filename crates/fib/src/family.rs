//! The layout of an address family in the tables: its upper half and its range entries.
//!
//! DXR is small because its range entries hold no unneeded bits, and the number of bits left below
//! the first stages differs by family. [`FamilyLayout`] names, for
//! each, the formats of a range entry ([`RangeEntry`]) and the family of its
//! upper half, in which most lookups can be answered (128-bit shifts are the one
//! real cost of IPv6).
//!
//! ```text
//!          short            medium           long              wide
//!  u32   start 8  hop 8   start 8 hop 16   start 16 hop 16   start 32 hop 32    IPv4
//!  u64   start 24 hop 8                    start 48 hop 16   start 64 hop 32    IPv6, upper half
//!  u128  start 48 hop 16                   start 112 hop 16  start 128 hop 32   IPv6
//! ```
//!
//! Short and long are the thesis's (section 3.3). Medium is for exchanges, where
//! hundreds of next hops meet routes of /24: three bytes where long takes four.
//!
//! The start is in the upper bits, so that one integer comparison orders entries
//! by start regardless of their hops, and the entry that matches a key is the last one that is not
//! above the key with all hop bits set.

use core::cmp::Ordering;
use core::fmt::Debug;
use core::hash::Hash;

use crate::arch::lanes::Words;
use crate::item::Item;
use crate::{Addr, Hop};

/// One entry of a range table: where the range starts within its chunk, and its
/// hop, packed so that entries order by start.
pub trait RangeEntry<A>: Item + Ord + Hash + Debug + Send + Sync + 'static {
    /// The number of bits of a start that it holds.
    const START_BITS: u32;
    /// The highest hop index it holds.
    const MAX_HOP: u32;

    /// Packs a start, given as the address shifted left until the chunk's own bits are shifted out,
    /// with a hop of at most `MAX_HOP`. Start bits beyond `START_BITS` are dropped.
    fn pack(tail: A, hop: Hop) -> Self;

    /// Makes the highest entry that starts no later than `tail`.
    fn probe(tail: A) -> Self;

    /// Returns the hop.
    fn hop(self) -> Hop;

    /// Returns the entries as numbers in the same order, if a lane is wide enough for them and for the
    /// bits of an address below the first stages.
    fn as_words(_entries: &[Self]) -> Option<Words<'_>> {
        None
    }
}

/// An integer that lanes may or may not be able to load.
trait Number: Sized {
    fn as_words(numbers: &[Self]) -> Option<Words<'_>>;
}

impl Number for u16 {
    #[inline(always)]
    fn as_words(numbers: &[Self]) -> Option<Words<'_>> {
        Some(Words::Half(numbers))
    }
}

impl Number for u32 {
    #[inline(always)]
    fn as_words(numbers: &[Self]) -> Option<Words<'_>> {
        Some(Words::Whole(numbers))
    }
}

impl Number for u64 {
    #[inline(always)]
    fn as_words(_: &[Self]) -> Option<Words<'_>> {
        None
    }
}

impl Number for u128 {
    #[inline(always)]
    fn as_words(_: &[Self]) -> Option<Words<'_>> {
        None
    }
}

/// An address family as the engines need it: its upper half and its range entries.
pub trait FamilyLayout: Addr {
    /// The family of the upper half of the bits.
    type Upper: FamilyLayout;
    /// A range entry for the common case.
    type Short: RangeEntry<Self>;
    /// A range entry as coarse as a short one, and hops to 65,535; the same as
    /// [`Long`](Self::Long) where that would save nothing.
    type Medium: RangeEntry<Self>;
    /// A range entry for any start, and hops to 65,535.
    type Long: RangeEntry<Self>;
    /// A range entry for any start and hop.
    type Wide: RangeEntry<Self>;

    /// The fewest bits that must be resolved before a chunk, so that any start in
    /// it fits a long entry.
    const MIN_K: u32;
    /// The most bits worth resolving before a chunk.
    const MAX_K: u32;

    /// Returns the upper half.
    fn upper(self) -> Self::Upper;

    /// Returns the first address with that upper half.
    fn from_upper(upper: Self::Upper) -> Self;
}

/// Implements the packing for an integer; the formats differ only in their widths.
macro_rules! slot {
    ($addr:ty, $slot:ty, start $start:literal, hop $hop:literal) => {
        impl RangeEntry<$addr> for $slot {
            const START_BITS: u32 = $start;
            const MAX_HOP: u32 = ((1u64 << $hop) - 1) as u32;

            #[inline(always)]
            fn pack(tail: $addr, hop: Hop) -> Self {
                ((tail >> (<$addr>::BITS - $start)) as Self) << $hop | hop.0 as Self
            }
            #[inline(always)]
            fn probe(tail: $addr) -> Self {
                Self::pack(tail, Hop(<Self as RangeEntry<$addr>>::MAX_HOP))
            }
            #[inline(always)]
            fn hop(self) -> Hop {
                Hop(self as u32 & <Self as RangeEntry<$addr>>::MAX_HOP)
            }
            #[inline(always)]
            fn as_words(entries: &[Self]) -> Option<Words<'_>> {
                if <$addr>::BITS > 32 { None } else { Number::as_words(entries) }
            }
        }
    };
}

slot!(u8, u16, start 3, hop 8);
slot!(u8, u32, start 8, hop 16);
slot!(u8, u64, start 8, hop 32);
slot!(u16, u16, start 8, hop 8);
slot!(u16, u32, start 16, hop 16);
slot!(u16, u64, start 16, hop 32);
slot!(u32, u16, start 8, hop 8);
slot!(u32, u32, start 16, hop 16);
slot!(u32, u64, start 32, hop 32);
slot!(u64, u32, start 24, hop 8);
slot!(u64, u64, start 48, hop 16);
slot!(u64, u128, start 64, hop 32);
slot!(u128, u64, start 48, hop 16);
slot!(u128, u128, start 112, hop 16);

/// Three bytes, big end first: a start of 8 bits and a hop of 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Triple([u8; 3]);

impl Triple {
    #[inline(always)]
    fn key(self) -> u32 {
        let [start, high, low] = self.0;
        u32::from_be_bytes([0, start, high, low])
    }
}

impl PartialOrd for Triple {
    #[inline(always)]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Triple {
    #[inline(always)]
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Item for Triple {
    const BYTES: usize = 3;

    #[inline(always)]
    fn put(self, bytes: &mut [u8]) {
        bytes[..3].copy_from_slice(&self.0);
    }
    #[inline(always)]
    fn get(bytes: &[u8]) -> Self {
        Self([bytes[0], bytes[1], bytes[2]])
    }
}

impl<A: Addr> RangeEntry<A> for Triple {
    const START_BITS: u32 = 8;
    const MAX_HOP: u32 = 0xffff;

    #[inline(always)]
    fn pack(tail: A, hop: Hop) -> Self {
        let [_, _, high, low] = hop.0.to_be_bytes();
        Self([tail.bits(0, 8) as u8, high, low])
    }
    #[inline(always)]
    fn probe(tail: A) -> Self {
        Self([tail.bits(0, 8) as u8, 0xff, 0xff])
    }
    #[inline(always)]
    fn hop(self) -> Hop {
        Hop(self.key() & 0xffff)
    }
}

/// No integer holds 128 bits of start and a hop; a pair orders in the same way.
impl RangeEntry<u128> for (u128, u32) {
    const START_BITS: u32 = 128;
    const MAX_HOP: u32 = u32::MAX;

    #[inline(always)]
    fn pack(tail: u128, hop: Hop) -> Self {
        (tail, hop.0)
    }
    #[inline(always)]
    fn probe(tail: u128) -> Self {
        (tail, u32::MAX)
    }
    #[inline(always)]
    fn hop(self) -> Hop {
        Hop(self.1)
    }
}

/// Lists the families. `u8` is its own upper half: nothing is smaller.
macro_rules! family {
    ($addr:ty, upper $upper:ty, $short:ty, $medium:ty, $long:ty, $wide:ty, k $min:literal to $max:literal) => {
        impl FamilyLayout for $addr {
            type Upper = $upper;
            type Short = $short;
            type Medium = $medium;
            type Long = $long;
            type Wide = $wide;
            const MIN_K: u32 = $min;
            const MAX_K: u32 = $max;

            #[inline(always)]
            fn upper(self) -> $upper {
                (self >> (Self::BITS - <$upper>::BITS)) as $upper
            }
            #[inline(always)]
            fn from_upper(upper: $upper) -> Self {
                Self::from(upper) << (Self::BITS - <$upper>::BITS)
            }
        }
    };
}

family!(u8, upper u8, u16, Triple, u32, u64, k 1 to 6);
family!(u16, upper u8, u16, Triple, u32, u64, k 2 to 12);
family!(u32, upper u16, u16, Triple, u32, u64, k 16 to 24);
family!(u64, upper u32, u32, u64, u64, u128, k 16 to 24);
family!(u128, upper u64, u64, u128, u128, (u128, u32), k 16 to 24);
