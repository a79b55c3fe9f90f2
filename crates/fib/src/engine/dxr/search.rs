//! The range search: one chunk, or many chunks in lockstep, without a branch that
//! depends on the data.
//!
//! The thesis's search (section 3.4) compares, branches left or right, and stops
//! early on a match: on random keys each comparison is a coin toss to the branch
//! predictor. Here a step halves the chunk and *selects* which half remains; the
//! number of steps depends on the chunk's length alone. In a batch, [`LANES`]
//! searches take each step together, so that their loads overlap, and stop when
//! the longest is done: to a search that has finished, further steps do nothing.
//! (Thesis 4.2 interleaves by a sliding window for the same reason.)

use core::hint::select_unpredictable;

use super::entry::{Entry, Split};
use crate::table::Table;
use crate::{FamilyLayout, Hop, RangeEntry};

/// How many searches go in lockstep: enough loads in flight to hide the
/// second-level cache, few enough lanes for their state to stay close.
pub(super) const LANES: usize = 8;

/// How many lookups share one pass through the stages: the more, the fewer idle lanes a lockstep
/// has. A position in the group fits a byte.
pub(super) const GROUP: usize = 128;

/// Returns the last slot not above `probe`; the first never is.
///
/// O(log n) loads, and as many steps for every key of a chunk.
#[inline(always)]
pub(super) fn last_not_above<S: Copy + Ord>(chunk: &[S], probe: S) -> S {
    let mut base = 0;
    let mut len = chunk.len();
    while len > 1 {
        let half = len / 2;
        base = select_unpredictable(chunk[base + half] <= probe, base + half, base);
        len -= half;
    }
    chunk[base]
}

/// Answers the lookups whose positions in the group are listed in `positions`, all of
/// which have chunks in `table`.
#[inline(always)]
pub(super) fn lockstep<A: FamilyLayout, E: Entry, S: RangeEntry<A>>(
    table: &Table<S>,
    positions: &[u8],
    k: u32,
    split: Split,
    addrs: &[A],
    entries: &[E; GROUP],
    out: &mut [Hop],
) {
    // The middle is the first slot read; most chunks have it on a line of its own.
    for &i in positions {
        let (at, len) = split.chunk(entries[usize::from(i) % GROUP]);
        table.prefetch(at + len / 2);
    }
    for positions in positions.chunks(LANES) {
        let mut base = [0usize; LANES];
        let mut len = [1usize; LANES];
        let mut probe = [S::probe(A::MIN); LANES];
        let mut longest = 1;
        for (lane, &i) in positions.iter().enumerate() {
            let i = usize::from(i) % GROUP;
            (base[lane], len[lane]) = split.chunk(entries[i]);
            probe[lane] = S::probe(addrs[i].tail(k));
            longest = longest.max(len[lane]);
        }
        // An idle lane reads the items of the first lane, without effect.
        for lane in positions.len()..LANES {
            base[lane] = base[0];
        }
        while longest > 1 {
            for lane in 0..LANES {
                let half = len[lane] / 2;
                let next = base[lane] + half;
                base[lane] = select_unpredictable(table[next] <= probe[lane], next, base[lane]);
                len[lane] -= half;
            }
            longest -= longest / 2;
        }
        for (lane, &i) in positions.iter().enumerate() {
            out[usize::from(i) % GROUP] = table[base[lane]].hop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::last_not_above;
    use alloc::vec::Vec;

    #[test]
    fn every_key_of_every_length_agrees_with_a_scan() {
        for len in 1..40u16 {
            let chunk: Vec<u16> = (0..len).map(|i| i * 3).collect();
            for key in 0..len * 3 + 2 {
                let scan = chunk.iter().copied().filter(|&slot| slot <= key).max();
                assert_eq!(Some(last_not_above(&chunk, key)), scan, "{len} slots, key {key}");
            }
        }
    }
}
