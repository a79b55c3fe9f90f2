//! Nodes of one size in one array, by number: taken, given back, kept dense.
//!
//! ```text
//!   node 0      1       2       3       4       5
//!   ┌───────┬───────┬───────┬───────┬───────┬───────┐   a node is `size` items
//!   │ live  │ free  │ live  │ live  │ free  │ live  │   (1, or 2^stride entries)
//!   └───────┴───────┴───────┴───────┴───────┴───────┘
//!                ▲       next_move: 5 into 1  ──┘
//! ```
//!
//! The tries link their nodes by `u32` number, half a pointer. A node given back
//! is used again, the lowest first; free nodes at the end are cut off. Free nodes elsewhere may be
//! a sixteenth of the array: beyond that the last node moves into the lowest hole
//! ([`Nodes::next_move`]), and the trie corrects the links to it. So an array is never more than that larger than a fresh build's,
//! and each node given back costs at most one move.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Deref;

use crate::Full;
use crate::table::{Master, Table};

/// The most items: a number has a bit to spare, and all ones is none.
const LIMIT: usize = (1 << 31) - 1;

/// One array of nodes, each `size` items.
#[derive(Debug)]
pub(crate) struct Nodes<T> {
    items: Master<T>,
    size: usize,
    limit: usize,
    free: BTreeSet<u32>,
}

impl<T: Copy + PartialEq> Nodes<T> {
    /// Starts without a node; each will be `size` items, at least one.
    pub(crate) fn new(size: usize) -> Self {
        Self { items: Master::new(Vec::new()), size, limit: LIMIT, free: BTreeSet::new() }
    }

    /// Stores a node, and returns its number.
    ///
    /// # Errors
    ///
    /// [`Full`] if there are 2^31 - 1 items.
    pub(crate) fn add(&mut self, content: &[T]) -> Result<u32, Full> {
        debug_assert_eq!(content.len(), self.size, "all nodes are of one size");
        let end = self.items.len() / self.size;
        let at = match self.free.pop_first() {
            Some(at) => at,
            None if self.items.len() + self.size > self.limit => {
                return Err(Full {
                    what: "items of nodes",
                    limit: self.limit as u64,
                    seen: (self.items.len() + self.size) as u64,
                });
            }
            None => end as u32,
        };
        self.items.write(at as usize * self.size, content);
        Ok(at)
    }

    /// Removes all nodes. Tables frozen before can still be refreshed.
    pub(crate) fn clear(&mut self) {
        self.items.truncate(0);
        self.free.clear();
    }

    /// Writes one item of those there are.
    pub(crate) fn set(&mut self, index: usize, item: T) {
        self.items.write(index, &[item]);
    }

    /// Gives a node back. Nothing may link to it any more.
    pub(crate) fn give_back(&mut self, at: u32) {
        self.free.insert(at);
    }

    /// Cuts free nodes off the end and, if still too many are free, moves the last
    /// node into a hole, and returns both numbers. The caller repeats this until it returns `None`.
    pub(crate) fn next_move(&mut self) -> Option<(u32, u32)> {
        let mut count = self.items.len() / self.size;
        while self.free.last().is_some_and(|&last| last as usize + 1 == count) {
            self.free.pop_last();
            count -= 1;
        }
        self.items.truncate(count * self.size);
        if self.free.len() <= count / 16 {
            return None;
        }
        let to = self.free.pop_first()?;
        let from = count - 1;
        let content = self.items[from * self.size..].to_vec();
        self.items.write(to as usize * self.size, &content);
        self.items.truncate(from * self.size);
        Some((from as u32, to))
    }

    /// Counts the nodes there is room for, free ones and all.
    #[cfg(test)]
    pub(crate) fn extent(&self) -> usize {
        self.items.len() / self.size
    }

    /// Counts the 64-bit words written.
    pub(crate) fn written(&self) -> u64 {
        self.items.written()
    }

    pub(crate) fn freeze(&self) -> Table<T> {
        self.items.freeze()
    }

    pub(crate) fn refresh(&self, table: &mut Table<T>) {
        self.items.refresh(table);
    }
}

impl<T> Deref for Nodes<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

/// Writes `value` at `at` of what a builder notes beside its nodes, making room.
pub(crate) fn note(notes: &mut Vec<u32>, at: u32, value: u32) {
    if notes.len() <= at as usize {
        notes.resize(at as usize + 1, 0);
    }
    notes[at as usize] = value;
}

#[cfg(test)]
mod tests {
    use super::Nodes;
    use alloc::collections::BTreeMap;

    #[test]
    fn array_stays_dense_as_nodes_are_removed() {
        let mut nodes: Nodes<u32> = Nodes::new(3);
        // The expected content of each live node, by number.
        let mut live: BTreeMap<u32, u32> = BTreeMap::new();
        let mut rng = fastrand::Rng::with_seed(5);
        for step in 0..20_000u32 {
            let state = rng.u64(..);
            // Grows for a while, then shrinks, and so on.
            let grow = step / 2_500 % 2 == 0;
            if live.is_empty() || (state & 3 != 0) == grow {
                let at = nodes.add(&[step, step + 1, step + 2]).unwrap();
                assert_eq!(live.insert(at, step), None);
            } else {
                let victim = *live.keys().nth((state >> 32) as usize % live.len()).unwrap();
                live.remove(&victim);
                nodes.give_back(victim);
            }
            while let Some((from, to)) = nodes.next_move() {
                let moved = live.remove(&from).expect("only a live node is moved");
                assert_eq!(live.insert(to, moved), None);
            }
            assert!(nodes.extent() <= live.len() + live.len() / 8 + 1);
            if step % 97 == 0 {
                for (&at, &first) in &live {
                    let at = at as usize * 3;
                    assert_eq!(nodes[at..at + 3], [first, first + 1, first + 2]);
                }
            }
        }
    }

    #[test]
    fn full_array_is_an_error_until_a_node_is_removed() {
        let mut nodes: Nodes<u8> = Nodes { limit: 6, ..Nodes::new(2) };
        for _ in 0..3 {
            nodes.add(&[1, 2]).unwrap();
        }
        let full = nodes.add(&[1, 2]).unwrap_err();
        assert_eq!((full.limit, full.seen), (6, 8));
        nodes.give_back(1);
        assert_eq!(nodes.add(&[3, 4]), Ok(1));
        assert_eq!(nodes[..], [1, 2, 3, 4, 1, 2]);
    }
}
