//! The pointer of a head: to a next hop, or to a chunk of the next level.
//!
//! ```text
//!  16 bits    kind 2 │ index 14      the paper's
//!  32 bits    kind 2 │ index 30      for tables of more chunks or next hops
//! ```

use core::fmt::Debug;

use crate::engine::leaf::full;
use crate::{Full, Hop};

/// The target of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The index is a hop's.
    Hop,
    /// A chunk of few heads.
    Sparse,
    /// A chunk of code words under one base index.
    Dense,
    /// A chunk of code words under four.
    VeryDense,
}

/// A kind and an index.
pub trait Pointer: Copy + Default + Eq + Debug + Send + Sync + 'static {
    /// How many bits an index has.
    const INDEX_BITS: u32;

    /// Packs two bits of kind and an index that fits.
    fn join(kind: u32, index: u32) -> Self;

    /// Returns the kind and the index.
    fn part(self) -> (u32, u32);

    /// Packs a pointer.
    ///
    /// # Errors
    ///
    /// [`Full`] if the index is wider than [`INDEX_BITS`](Self::INDEX_BITS).
    fn pack(kind: Kind, index: usize) -> Result<Self, Full> {
        let limit = 1u64 << Self::INDEX_BITS;
        if index as u64 >= limit {
            return Err(match kind {
                Kind::Hop => full(Hop(index as u32), limit - 1),
                _ => Full { what: Full::CHUNKS, limit, seen: index as u64 + 1 },
            });
        }
        Ok(Self::join(kind as u32, index as u32))
    }

    /// Reads a pointer.
    #[inline(always)]
    fn unpack(self) -> (Kind, usize) {
        let (kind, index) = self.part();
        let kind = match kind {
            0 => Kind::Hop,
            1 => Kind::Sparse,
            2 => Kind::Dense,
            _ => Kind::VeryDense,
        };
        (kind, index as usize)
    }
}

impl Pointer for u16 {
    const INDEX_BITS: u32 = 14;

    fn join(kind: u32, index: u32) -> Self {
        (kind << 14 | index) as Self
    }

    #[inline(always)]
    fn part(self) -> (u32, u32) {
        (u32::from(self) >> 14, u32::from(self) & 0x3fff)
    }
}

impl Pointer for u32 {
    const INDEX_BITS: u32 = 30;

    fn join(kind: u32, index: u32) -> Self {
        kind << 30 | index
    }

    #[inline(always)]
    fn part(self) -> (u32, u32) {
        (self >> 30, self & 0x3fff_ffff)
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, Pointer};
    use crate::Full;

    fn check_round_trip<P: Pointer>() {
        for kind in [Kind::Hop, Kind::Sparse, Kind::Dense, Kind::VeryDense] {
            let last = (1usize << P::INDEX_BITS) - 1;
            for index in [0, 1, last] {
                assert_eq!(P::pack(kind, index).unwrap().unpack(), (kind, index));
            }
            let error = P::pack(kind, last + 1).unwrap_err();
            assert_eq!(error.what == Full::HOPS, kind == Kind::Hop);
        }
    }

    #[test]
    fn pointers_are_unpacked_as_packed_up_to_their_limit() {
        check_round_trip::<u16>();
        check_round_trip::<u32>();
    }
}
