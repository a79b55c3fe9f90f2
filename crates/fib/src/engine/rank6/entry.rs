//! The entry: a hop, or where and how to look further.
//!
//! ```text
//!    31 29 28                                   6 5          0
//!   ┌─────┬──────────────────────────────────────┬────────────┐
//!   │  0  │ hop                                               │
//!   │ 1 2 │ place in chunks                      │ starts − 1 │  few: up to 32 starts
//!   │ 3 4 │L│ place in chunks                                 │  many: separators first
//!   │  5  │L│ place in deep                                   │  many, entries as values
//!   │  6  │ place in nodes                       │ starts − 1 │  a node of up to 64 starts
//!   │  7  │ place in nodes                                    │  a table of all its slots;
//!   │     │ place in long                                     │  behind chunks: ranges
//!   └─────┴──────────────────────────────────────┴────────────┘
//! ```
//!
//! L says that a chunk is large: its separators are more than a vector, or none.
//! Of each pair the first has values of one byte and the second of two. Places are
//! counted in words of 32 bits.

use crate::{Full, Hop};

/// The kinds of entries.
pub(super) mod kind {
    pub(in crate::engine::rank6) const HOP: u32 = 0;
    pub(in crate::engine::rank6) const FEW_BYTES: u32 = 1;
    pub(in crate::engine::rank6) const FEW_HALVES: u32 = 2;
    pub(in crate::engine::rank6) const MANY_BYTES: u32 = 3;
    pub(in crate::engine::rank6) const MANY_HALVES: u32 = 4;
    pub(in crate::engine::rank6) const DEEP: u32 = 5;
    pub(in crate::engine::rank6) const NODE: u32 = 6;
    pub(in crate::engine::rank6) const TABLE: u32 = 7;
    /// Behind the second chunk: ranges of whole addresses.
    pub(in crate::engine::rank6) const LONG: u32 = 7;
}

/// The bits behind the kind.
pub(super) const PAYLOAD: u32 = 29;
/// The bits of those that count starts.
const COUNT: u32 = 6;

/// Returns the kind of an entry.
#[inline(always)]
pub(super) fn kind_of(entry: u32) -> u32 {
    entry >> PAYLOAD
}

/// Returns all behind the kind: a hop, or a place that has no count beside it.
#[inline(always)]
pub(super) fn payload(entry: u32) -> u32 {
    entry & ((1 << PAYLOAD) - 1)
}

/// Beside the place of many starts: the separators are not one vector.
pub(super) const LARGE: u32 = 1 << (PAYLOAD - 1);

/// Returns whether a chunk of many has other than one vector of separators.
#[inline(always)]
pub(super) fn is_large(entry: u32) -> bool {
    entry & LARGE != 0
}

/// Returns the place of many starts.
#[inline(always)]
pub(super) fn many_at(entry: u32) -> usize {
    (entry & (LARGE - 1)) as usize
}

/// Makes the entry of a chunk of many.
///
/// # Errors
///
/// [`Full`] if the place has more than 28 bits.
pub(super) fn many(kind: u32, at: usize, large: bool) -> Result<u32, Full> {
    if at >= LARGE as usize {
        return Err(Full { what: Full::RANGES, limit: u64::from(LARGE) - 1, seen: at as u64 });
    }
    Ok(kind << PAYLOAD | if large { LARGE } else { 0 } | at as u32)
}

/// Returns the place and the number of starts, 1 to 64.
#[inline(always)]
pub(super) fn counted(entry: u32) -> (usize, usize) {
    let payload = payload(entry);
    ((payload >> COUNT) as usize, (payload & ((1 << COUNT) - 1)) as usize + 1)
}

/// Makes the entry of a hop.
///
/// # Errors
///
/// [`Full`] if it has more than 29 bits.
pub(super) fn hop(hop: Hop) -> Result<u32, Full> {
    place(kind::HOP, hop.0 as usize, Full::HOPS)
}

/// Makes an entry without a count.
///
/// # Errors
///
/// [`Full`] of `what` if the place has more than 29 bits.
pub(super) fn place(kind: u32, at: usize, what: &'static str) -> Result<u32, Full> {
    let limit = (1 << PAYLOAD) - 1;
    if at > limit {
        return Err(Full { what, limit: limit as u64, seen: at as u64 });
    }
    Ok(kind << PAYLOAD | at as u32)
}

/// Returns whether an entry with such a place has room for a count too.
pub(super) fn counts(at: usize) -> bool {
    at < 1 << (PAYLOAD - COUNT)
}

/// Makes an entry with a count of 1 to 64 starts, for which there [is room](counts).
pub(super) fn with_count(kind: u32, at: usize, starts: usize) -> u32 {
    debug_assert!(counts(at) && (1..=1 << COUNT).contains(&starts), "{starts} at {at}");
    kind << PAYLOAD | (at as u32) << COUNT | (starts as u32 - 1)
}

#[cfg(test)]
mod tests {
    use super::{
        counted, counts, hop, is_large, kind, kind_of, many, many_at, payload, place, with_count,
    };
    use crate::{Full, Hop};

    #[test]
    fn entries_hold_what_fits_and_refuse_what_does_not() {
        for number in [0, 1, (1 << 20) + 1, (1 << 29) - 1] {
            let entry = hop(Hop(number)).unwrap();
            assert_eq!((kind_of(entry), payload(entry)), (kind::HOP, number));
            let entry = place(kind::TABLE, number as usize, Full::RANGES).unwrap();
            assert_eq!((kind_of(entry), payload(entry)), (kind::TABLE, number));
        }
        assert_eq!(hop(Hop(1 << 29)).unwrap_err().what, Full::HOPS);
        assert_eq!(place(kind::TABLE, 1 << 29, Full::RANGES).unwrap_err().what, Full::RANGES);
        for at in [0, 1, (1 << 28) - 1] {
            for large in [false, true] {
                let entry = many(kind::DEEP, at, large).unwrap();
                assert_eq!((many_at(entry), is_large(entry)), (at, large));
                assert_eq!(kind_of(entry), kind::DEEP);
            }
        }
        assert_eq!(many(kind::DEEP, 1 << 28, false).unwrap_err().what, Full::RANGES);
        for at in [0, 1, (1 << 23) - 1] {
            for starts in [1, 2, 63, 64] {
                let entry = with_count(kind::NODE, at, starts);
                assert_eq!((kind_of(entry), counted(entry)), (kind::NODE, (at, starts)));
            }
        }
        assert!(counts((1 << 23) - 1) && !counts(1 << 23));
    }
}
