//! An allocator of blocks within one array, each block with one owner.
//!
//! It serves the engines whose papers give each node a block of its own: equal blocks are not
//! shared (as [`Pool`](crate::pool::Pool) shares them), and a block moves when it grows:
//!
//! ```text
//!   items   ┃ block of node 7 ┃ hole ┃ block of node 3 ┃ block of node 9 ┃
//! ```
//!
//! The owner keeps the place and the length of its block. A freed block becomes a hole; a hole
//! at the end of the array is cut off. Storing is O(len), and finding a place O(log holes).

use alloc::vec::Vec;
use core::ops::Deref;

use crate::holes::Holes;
use crate::table::{Master, Table};

/// One array of blocks that are stored, moved and freed by their owners.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    items: Master<T>,
    holes: Holes,
    /// The number of items in holes.
    free: usize,
}

impl<T: Copy + PartialEq> Arena<T> {
    pub(crate) fn new() -> Self {
        Self { items: Master::new(Vec::new()), holes: Holes::default(), free: 0 }
    }

    /// Stores `content` in the tightest hole or at the end, and returns its place; 0 for an
    /// empty block.
    pub(crate) fn store(&mut self, content: &[T]) -> usize {
        if content.is_empty() {
            return 0;
        }
        let at = self.take(content.len());
        self.items.write(at, content);
        at
    }

    /// Takes `len` items, one or more, and returns their place. The caller writes them before
    /// it takes any others.
    pub(crate) fn take(&mut self, len: usize) -> usize {
        let hole = self.holes.take(len);
        self.free -= hole.map_or(0, |_| len);
        hole.unwrap_or(self.items.len())
    }

    /// Frees the `len` items at `at`.
    pub(crate) fn free(&mut self, at: usize, len: usize) {
        if len > 0 {
            self.holes.give(at, len);
            self.free += len;
            if let Some(end) = self.holes.take_last(self.items.len()) {
                self.free -= self.items.len() - end;
                self.items.truncate(end);
            }
        }
    }

    /// Stores `content` in place of the `len` items at `at`, at the same place if it has the
    /// same length, and returns its place.
    pub(crate) fn replace(&mut self, at: usize, len: usize, content: &[T]) -> usize {
        if len == content.len() {
            self.write(at, content);
            return at;
        }
        self.free(at, len);
        self.store(content)
    }

    /// Overwrites the items at `at` with `content`.
    pub(crate) fn write(&mut self, at: usize, content: &[T]) {
        if !content.is_empty() {
            self.items.write(at, content);
        }
    }

    /// Returns the items of one block; an empty block may have any place.
    pub(crate) fn get(&self, at: usize, len: usize) -> &[T] {
        if len == 0 { &[] } else { &self.items[at..at + len] }
    }

    /// Frees all but the first `len` items, none of which is in a hole.
    pub(crate) fn clear(&mut self, len: usize) {
        self.items.truncate(len);
        (self.holes, self.free) = (Holes::default(), 0);
    }

    /// Returns whether holes are more than a sixteenth of the array.
    pub(crate) fn is_sparse(&self) -> bool {
        self.free > self.items.len() / 16
    }

    /// Counts the bytes in holes.
    pub(crate) fn holes(&self) -> usize {
        self.free * size_of::<T>()
    }

    /// Counts the 64-bit words written.
    pub(crate) fn written(&self) -> u64 {
        self.items.written()
    }

    /// Counts the items in use.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.items.len() - self.holes.items()
    }

    pub(crate) fn freeze(&self) -> Table<T> {
        self.items.freeze()
    }

    pub(crate) fn refresh(&self, table: &mut Table<T>) {
        self.items.refresh(table);
    }
}

impl<T> Deref for Arena<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.items
    }
}

#[cfg(test)]
mod tests {
    use super::Arena;
    use alloc::vec::Vec;

    #[test]
    fn blocks_stored_and_freed_at_random_keep_their_content() {
        let mut arena: Arena<u32> = Arena::new();
        let mut live: Vec<(usize, Vec<u32>)> = Vec::new();
        let mut rng = fastrand::Rng::with_seed(11);
        let mut next = move || rng.usize(..);
        for step in 0..20_000 {
            let content: Vec<u32> = (0..next() % 9).map(|i| (step * 16 + i) as u32).collect();
            match next() % 3 {
                0 if live.len() < 40 => live.push((arena.store(&content), content)),
                1 if !live.is_empty() => {
                    let (at, old) = live.swap_remove(next() % live.len());
                    arena.free(at, old.len());
                }
                _ if !live.is_empty() => {
                    let index = next() % live.len();
                    let (at, old) = &live[index];
                    live[index] = (arena.replace(*at, old.len(), &content), content);
                }
                _ => {}
            }
            for (at, content) in &live {
                assert_eq!(&arena[*at..*at + content.len()], &content[..]);
            }
            let used: usize = live.iter().map(|(_, content)| content.len()).sum();
            assert_eq!(arena.used(), used);
        }
        for (at, content) in live {
            arena.free(at, content.len());
        }
        assert!(arena.is_empty());
    }
}
