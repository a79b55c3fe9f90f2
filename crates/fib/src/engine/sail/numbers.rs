//! Allocates the numbers of chunks, and keeps them without many gaps.
//!
//! A level's chunks are equal blocks of one array (or of several that are numbered
//! alike). A freed number is used again, the lowest first. Free numbers at the end are cut off; and
//! when more than one in [`SPARE`] of the others is free, the last chunk must move into the lowest
//! gap, so that a table which has shrunk takes little more than a new one. Each chunk has one
//! owner, the entry that leads to it, which the caller then has to change.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// One chunk in so many may be a gap.
const SPARE: usize = 16;

/// The numbers in use, and their owners.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers {
    /// By number; undefined for a free one.
    owners: Vec<u32>,
    free: BTreeSet<u32>,
}

/// A chunk that is to be moved, and the entry that is to lead to its new place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) owner: usize,
}

impl Numbers {
    /// Allocates the lowest free number.
    pub(super) fn take(&mut self, owner: usize) -> usize {
        let owner = owner as u32;
        match self.free.pop_first() {
            Some(number) => {
                self.owners[number as usize] = owner;
                number as usize
            }
            None => {
                self.owners.push(owner);
                self.owners.len() - 1
            }
        }
    }

    /// Frees a number.
    pub(super) fn give(&mut self, number: usize) {
        let fresh = self.free.insert(number as u32);
        debug_assert!(fresh && number < self.owners.len(), "{number} was not in use");
    }

    /// Changes the owner of `number`.
    pub(super) fn hand_over(&mut self, number: usize, owner: usize) {
        self.owners[number] = owner as u32;
    }

    /// Cuts free numbers off the end, and returns the chunk to move to close a gap. The caller
    /// repeats this until it returns `None`.
    pub(super) fn compact(&mut self) -> Option<Move> {
        while self.free.last().is_some_and(|&last| last as usize + 1 == self.owners.len()) {
            self.free.pop_last();
            self.owners.pop();
        }
        if self.free.len() * SPARE <= self.owners.len() {
            return None;
        }
        let from = self.owners.len() - 1;
        let owner = self.owners[from] as usize;
        let to = self.take(owner);
        self.owners.pop();
        Some(Move { from, to, owner })
    }

    /// Returns how many numbers there are, gaps and all.
    pub(super) fn extent(&self) -> usize {
        self.owners.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Numbers, SPARE};
    use alloc::collections::BTreeMap;

    #[test]
    fn numbers_are_unique_and_gaps_are_few() {
        let mut numbers = Numbers::default();
        let mut live: BTreeMap<usize, usize> = BTreeMap::new();
        let mut rng = fastrand::Rng::with_seed(9);
        for owner in 0..20_000 {
            let state = rng.u64(..);
            let dice = (state >> 33) as usize;
            // Grows for a while, then shrinks, and so on.
            let grow = if owner / 2_000 % 2 == 0 { 70 } else { 30 };
            if dice % 100 < grow || live.is_empty() {
                assert_eq!(live.insert(numbers.take(owner), owner), None);
            } else {
                let victim = *live.keys().nth(dice / 100 % live.len()).unwrap();
                live.remove(&victim);
                numbers.give(victim);
            }
            while let Some(moved) = numbers.compact() {
                assert_eq!(live.remove(&moved.from), Some(moved.owner));
                assert_eq!(live.insert(moved.to, moved.owner), None);
            }
            assert!(live.keys().all(|&number| number < numbers.extent()));
            assert!(numbers.extent() <= live.len() + numbers.extent() / SPARE);
        }
    }
}
