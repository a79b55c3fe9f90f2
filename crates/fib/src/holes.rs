//! The free list of an array: its unused stretches, by place and by size.
//!
//! A freed stretch is joined with the holes beside it, so that no two of them are adjacent. A
//! request takes the smallest hole that fits, so that large holes last. Both are O(log holes).

use alloc::collections::{BTreeMap, BTreeSet};

/// The unused stretches of the array, no two of them adjacent.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    by_place: BTreeMap<usize, usize>,
    by_size: BTreeSet<(usize, usize)>,
}

impl Holes {
    /// Takes `len` items from the smallest hole that has them.
    pub(crate) fn take(&mut self, len: usize) -> Option<usize> {
        let &(size, at) = self.by_size.range((len, 0)..).next()?;
        self.remove(at, size);
        if size > len {
            self.insert(at + len, size - len);
        }
        Some(at)
    }

    /// Adds a stretch, joining it with its neighbors.
    pub(crate) fn give(&mut self, mut at: usize, mut len: usize) {
        if let Some((&before, &size)) = self.by_place.range(..at).next_back()
            && before + size == at
        {
            self.remove(before, size);
            (at, len) = (before, len + size);
        }
        if let Some(&size) = self.by_place.get(&(at + len)) {
            self.remove(at + len, size);
            len += size;
        }
        self.insert(at, len);
    }

    /// Takes the hole that ends at `end`, if there is one; returns where it begins.
    pub(crate) fn take_last(&mut self, end: usize) -> Option<usize> {
        let (&at, &len) = self.by_place.last_key_value()?;
        (at + len == end).then(|| {
            self.remove(at, len);
            at
        })
    }

    /// Counts the items of all holes.
    #[cfg(test)]
    pub(crate) fn items(&self) -> usize {
        self.by_place.values().sum()
    }

    fn insert(&mut self, at: usize, len: usize) {
        self.by_place.insert(at, len);
        self.by_size.insert((len, at));
    }

    fn remove(&mut self, at: usize, len: usize) {
        self.by_place.remove(&at);
        self.by_size.remove(&(len, at));
    }
}
