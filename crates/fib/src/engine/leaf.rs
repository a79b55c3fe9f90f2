//! The stored form of a hop: 16 bits if they suffice, otherwise 32.
//!
//! Next hops are few (tens at an edge, hundreds at an exchange), and a table of half the size
//! stays in a nearer cache. Every engine is generic over the width; the factory builds the narrow
//! form first, and the wide one if that is [`Full`].

use core::fmt::Debug;
use core::hash::Hash;

use crate::arch::lanes::Words;
use crate::item::Item;
use crate::{Full, Hop};

/// A stored hop.
pub trait Leaf: Item + Default + Ord + Hash + Debug + Send + Sync + 'static {
    /// The highest hop index it holds.
    const MAX: u32;

    /// Stores a hop.
    ///
    /// # Errors
    ///
    /// [`Full`] if its index is above [`MAX`](Self::MAX).
    fn pack(hop: Hop) -> Result<Self, Full>;

    /// Returns the hop.
    fn hop(self) -> Hop;

    /// Returns the items as numbers, for lookups in lanes.
    fn as_words(items: &[Self]) -> Words<'_>;
}

impl Leaf for u16 {
    const MAX: u32 = 0xffff;

    #[inline(always)]
    fn pack(hop: Hop) -> Result<Self, Full> {
        Self::try_from(hop.0).map_err(|_| full(hop, Self::MAX.into()))
    }

    #[inline(always)]
    fn hop(self) -> Hop {
        Hop(self.into())
    }

    #[inline(always)]
    fn as_words(items: &[Self]) -> Words<'_> {
        Words::Half(items)
    }
}

impl Leaf for u32 {
    const MAX: u32 = u32::MAX;

    #[inline(always)]
    fn pack(hop: Hop) -> Result<Self, Full> {
        Ok(hop.0)
    }

    #[inline(always)]
    fn hop(self) -> Hop {
        Hop(self)
    }

    #[inline(always)]
    fn as_words(items: &[Self]) -> Words<'_> {
        Words::Whole(items)
    }
}

/// Makes the error of a `hop` above `max`, the highest index that a table can store.
pub(crate) fn full(hop: Hop, max: u64) -> Full {
    Full { what: Full::HOPS, limit: max, seen: hop.0.into() }
}
