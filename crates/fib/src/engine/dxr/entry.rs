//! The entry of the direct or extension table: a hop, or the place of a chunk.
//!
//! ```text
//!             31 30 29                                              0
//!   u32      ┌──┬────────────────────────────────────────────────────┐
//!            │00│ hop                                                │
//!            │kk│ place in the range table    │ length of the chunk  │
//!            └──┴────────────────────────────────────────────────────┘
//!                                              ◄──── len_bits ──────►
//!   u64      the same with 3 bits of kind and 61 others, of which 24 for the length
//! ```
//!
//! The thesis splits its 32 bits 19 / 1 / 12 (section 3.3) and says the split may
//! be chosen when a table is built. Here two bits name the kind (a hop, or a chunk
//! of short, medium or long ranges, each kind in an array of its own, indexed in
//! whole entries), and the split of the other thirty is `len_bits`, kept by the
//! table. Entries that do not fit 32 bits (among them wide ranges, for more than 65,535 next hops)
//! take 64, at twice the bytes for the direct and extension tables; the factory chooses.

use core::fmt::Debug;
use core::hash::Hash;

use crate::arch::lanes::Words;
use crate::item::Item;
use crate::{Full, Hop};

/// The meaning of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// All addresses of this index have one hop.
    Hop(Hop),
    /// A chunk of ranges must be searched.
    Chunk {
        /// In which of the range tables.
        kind: Kind,
        /// The chunk's first range.
        at: usize,
        /// The number of ranges, two at least.
        len: usize,
    },
}

/// The format of a chunk's ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// [`crate::FamilyLayout::Short`].
    Short = 1,
    /// [`crate::FamilyLayout::Medium`].
    Medium = 2,
    /// [`crate::FamilyLayout::Long`].
    Long = 3,
    /// [`crate::FamilyLayout::Wide`].
    Wide = 4,
}

/// An entry of 32 or 64 bits.
pub trait Entry: Item + Eq + Hash + Default + Debug + Send + Sync + 'static {
    /// The bits for a hop, or for a chunk's place and length together.
    const PAYLOAD: u32;
    /// The bits for the length where a table does not choose them.
    const LEN_BITS: u32;
    /// The highest kind it can name.
    const MAX_KIND: u8;

    /// Makes an entry from a kind and the payload.
    fn new(kind: u8, payload: u64) -> Self;
    /// Returns the kind, 0 for a hop.
    fn kind(self) -> u8;
    /// Returns the payload.
    fn payload(self) -> u64;
    /// Returns the entries as numbers, if a lane is wide enough for them.
    fn as_words(entries: &[Self]) -> Option<Words<'_>>;
}

impl Entry for u32 {
    const PAYLOAD: u32 = 30;
    const LEN_BITS: u32 = 9;
    const MAX_KIND: u8 = Kind::Long as u8;

    #[inline(always)]
    fn new(kind: u8, payload: u64) -> Self {
        u32::from(kind) << 30 | payload as u32
    }
    #[inline(always)]
    fn kind(self) -> u8 {
        (self >> 30) as u8
    }
    #[inline(always)]
    fn payload(self) -> u64 {
        u64::from(self & ((1 << 30) - 1))
    }
    #[inline(always)]
    fn as_words(entries: &[Self]) -> Option<Words<'_>> {
        Some(Words::Whole(entries))
    }
}

impl Entry for u64 {
    const PAYLOAD: u32 = 61;
    const LEN_BITS: u32 = 24;
    const MAX_KIND: u8 = Kind::Wide as u8;

    #[inline(always)]
    fn new(kind: u8, payload: u64) -> Self {
        u64::from(kind) << 61 | payload
    }
    #[inline(always)]
    fn kind(self) -> u8 {
        (self >> 61) as u8
    }
    #[inline(always)]
    fn payload(self) -> u64 {
        self & ((1 << 61) - 1)
    }
    #[inline(always)]
    fn as_words(_: &[Self]) -> Option<Words<'_>> {
        None
    }
}

/// How one table splits its entries' payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    pub(super) len_bits: u32,
}

impl Split {
    /// Packs a target.
    ///
    /// # Errors
    ///
    /// [`Full`] if the hop, the chunk's place or its length has no room.
    pub(super) fn pack<E: Entry>(self, target: Target) -> Result<E, Full> {
        let room = |value: usize, bits: u32, what: &'static str| {
            let limit = (1u64 << bits) - 1;
            let seen = value as u64;
            if seen <= limit { Ok(seen) } else { Err(Full { what, limit, seen }) }
        };
        match target {
            Target::Hop(hop) => {
                let payload = room(hop.0 as usize, E::PAYLOAD, Full::HOPS)?;
                Ok(E::new(0, payload))
            }
            Target::Chunk { kind, .. } if kind as u8 > E::MAX_KIND => {
                Err(Full { what: Full::HOPS, limit: 0xffff, seen: 0x1_0000 })
            }
            Target::Chunk { kind, at, len } => {
                let len = room(len, self.len_bits, Full::CHUNK)?;
                let at = room(at, E::PAYLOAD - self.len_bits, Full::RANGES)?;
                Ok(E::new(kind as u8, at << self.len_bits | len))
            }
        }
    }

    /// Unpacks a target.
    #[inline(always)]
    pub(super) fn unpack<E: Entry>(self, entry: E) -> Target {
        let kind = match entry.kind() {
            0 => return Target::Hop(Hop(entry.payload() as u32)),
            1 => Kind::Short,
            2 => Kind::Medium,
            3 => Kind::Long,
            _ => Kind::Wide,
        };
        let (at, len) = self.chunk(entry);
        Target::Chunk { kind, at, len }
    }

    /// Returns place and length of an entry known to name a chunk.
    #[inline(always)]
    pub(super) fn chunk<E: Entry>(self, entry: E) -> (usize, usize) {
        let payload = entry.payload();
        let len = payload & ((1 << self.len_bits) - 1);
        ((payload >> self.len_bits) as usize, len as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::{Entry, Kind, Split, Target};
    use crate::{Full, Hop};

    fn battery<E: Entry>(split: Split) {
        let most_at = (1usize << (E::PAYLOAD - split.len_bits)) - 1;
        let most_len = (1usize << split.len_bits) - 1;
        for kind in [Kind::Short, Kind::Medium, Kind::Long, Kind::Wide] {
            if kind as u8 > E::MAX_KIND {
                let refused = split.pack::<E>(Target::Chunk { kind, at: 0, len: 2 });
                assert_eq!(refused.unwrap_err().what, Full::HOPS);
                continue;
            }
            for (at, len) in [(0, 2), (most_at, most_len), (5, most_len), (most_at, 2)] {
                let target = Target::Chunk { kind, at, len };
                assert_eq!(split.unpack(split.pack::<E>(target).unwrap()), target);
            }
        }
        let chunk = |at, len| split.pack::<E>(Target::Chunk { kind: Kind::Short, at, len });
        assert_eq!(chunk(0, most_len + 1).unwrap_err().what, Full::CHUNK);
        assert_eq!(chunk(most_at + 1, 2).unwrap_err().what, Full::RANGES);
        for hop in [0, 1, (1 << 30) - 1] {
            let target = Target::Hop(Hop(hop));
            assert_eq!(split.unpack(split.pack::<E>(target).unwrap()), target);
        }
        assert_eq!(split.pack::<E>(Target::Hop(Hop::NONE)).unwrap(), E::default());
    }

    #[test]
    fn entries_are_packed_up_to_their_limits_and_refused_beyond() {
        battery::<u32>(Split { len_bits: 9 });
        battery::<u32>(Split { len_bits: 17 });
        battery::<u64>(Split { len_bits: 24 });
        let hop = Split { len_bits: 9 }.pack::<u32>(Target::Hop(Hop(1 << 30)));
        assert_eq!(hop.unwrap_err().what, Full::HOPS);
    }
}
