//! Spans of one array, each distinct content stored once, with a count of its users.
//!
//! In real tables many chunks of ranges, and many blocks of an extension table, are identical
//! (Zec's thesis, sections 3.5 and 4.1). A [`Pool`] stores each distinct span once, in one array
//! that lookups index directly, with a count of its users:
//!
//! ```text
//!   items   ┃ span A (3 users) ┃ hole ┃ span B (1 user) ┃ span C (7 users) ┃
//!   index   content hash ─► (at, len, users)
//!   holes   by place, to join neighbors; by size, to fill the tightest fit
//! ```
//!
//! A span is found by the hash of its content and compared in full, so that two spans with the
//! same hash stay distinct. A freed span becomes a hole, joined with the holes beside it; a hole
//! at the end is cut off. [`Pool::intern`] and [`Pool::release`] are O(len) expected, and
//! O(log holes) for the place.

use core::hash::{BuildHasher, Hash};
use core::ops::Range;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::holes::Holes;
use crate::table::{Master, Table};

/// One array of spans, each distinct content once.
#[derive(Debug)]
pub(crate) struct Pool<T> {
    items: Master<T>,
    index: HashTable<Span>,
    hasher: DefaultHashBuilder,
    holes: Holes,
    /// The number of items in holes.
    free: usize,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    at: u32,
    len: u32,
    users: u32,
}

impl Span {
    fn range(self) -> Range<usize> {
        self.at as usize..self.at as usize + self.len as usize
    }
}

/// Returns whether places of 32 bits can address the whole span.
fn reaches(at: usize, len: usize) -> bool {
    at.checked_add(len).is_some_and(|end| u32::try_from(end).is_ok())
}

/// Adds to a count of users.
fn count_users(users: u32, more: u32) -> u32 {
    match users.checked_add(more) {
        Some(users) => users,
        None => panic!("a span of 2^32 users"),
    }
}

impl<T: Copy + Eq + Hash> Pool<T> {
    pub(crate) fn new() -> Self {
        Self {
            items: Master::new(alloc::vec::Vec::new()),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            holes: Holes::default(),
            free: 0,
        }
    }

    /// Finds or stores `content`, counting `users` more users of it. Returns its place, and
    /// whether it was stored by this call.
    ///
    /// # Panics
    ///
    /// If the array would have more than 2^32 items, or a span 2^32 users. The entries of engines
    /// address fewer places, so that engines return [`Full`](crate::Full) first.
    pub(crate) fn intern(&mut self, content: &[T], users: u32) -> (usize, bool) {
        let hash = self.hasher.hash_one(content);
        let items = &self.items;
        if let Some(span) = self.index.find_mut(hash, |span| &items[span.range()] == content) {
            span.users = count_users(span.users, users);
            return (span.at as usize, false);
        }
        let hole = self.holes.take(content.len());
        self.free -= hole.map_or(0, |_| content.len());
        let at = hole.unwrap_or(self.items.len());
        assert!(reaches(at, content.len()), "a pool of more than 2^32 items");
        self.items.write(at, content);
        let span = Span { at: at as u32, len: content.len() as u32, users };
        let (hasher, items) = (&self.hasher, &self.items);
        self.index.insert_unique(hash, span, |span| hasher.hash_one(&items[span.range()]));
        (at, true)
    }

    /// Counts one user more of the span.
    ///
    /// # Panics
    ///
    /// If no span of that place and length is stored.
    pub(crate) fn retain(&mut self, at: usize, len: usize) {
        let hash = self.hasher.hash_one(&self.items[at..at + len]);
        match self.index.find_mut(hash, |span| span.range() == (at..at + len)) {
            Some(span) => span.users = count_users(span.users, 1),
            None => unreachable!("only an interned span is retained"),
        }
    }

    /// Removes one user of the span, and frees the span with its last user (its items can be
    /// read until the next `intern`). Returns whether it was the last.
    ///
    /// # Panics
    ///
    /// If no span of that place and length is stored.
    pub(crate) fn release(&mut self, at: usize, len: usize) -> bool {
        let last = self.forget(at, len);
        if last {
            self.give(at, len);
        }
        last
    }

    /// Does the same, but leaves the place allocated until [`give`](Self::give) frees it.
    pub(crate) fn forget(&mut self, at: usize, len: usize) -> bool {
        let hash = self.hasher.hash_one(&self.items[at..at + len]);
        let entry = self.index.find_entry(hash, |span| span.range() == (at..at + len));
        let Ok(mut entry) = entry else { unreachable!("only an interned span is released") };
        entry.get_mut().users -= 1;
        if entry.get().users > 0 {
            return false;
        }
        entry.remove();
        true
    }

    /// Frees the place of a span that [`forget`](Self::forget) removed.
    pub(crate) fn give(&mut self, at: usize, len: usize) {
        self.holes.give(at, len);
        self.free += len;
    }

    /// Cuts holes off the end of the array.
    pub(crate) fn trim(&mut self) {
        if let Some(end) = self.holes.take_last(self.items.len()) {
            self.free -= self.items.len() - end;
            self.items.truncate(end);
        }
    }

    /// Returns one span's items.
    pub(crate) fn get(&self, at: usize, len: usize) -> &[T] {
        &self.items[at..at + len]
    }

    /// Returns the whole array, holes and all.
    pub(crate) fn all(&self) -> &[T] {
        &self.items
    }

    /// Returns the length of the array, holes and all.
    #[cfg(test)]
    pub(crate) fn extent(&self) -> usize {
        self.items.len()
    }

    /// Counts the distinct spans.
    #[cfg(test)]
    pub(crate) fn spans(&self) -> usize {
        self.index.len()
    }

    /// Counts the bytes in holes.
    pub(crate) fn holes(&self) -> usize {
        self.free * size_of::<T>()
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

#[cfg(test)]
mod tests {
    use super::{Pool, reaches};
    use alloc::vec::Vec;

    #[test]
    #[should_panic(expected = "a span of 2^32 users")]
    fn span_with_more_users_than_can_be_counted_is_refused() {
        let mut pool = Pool::new();
        pool.intern(&[1], u32::MAX);
        pool.intern(&[1], 1);
    }

    #[test]
    fn pool_reaches_as_far_as_places_of_32_bits() {
        let most = u32::MAX as usize;
        assert!(reaches(0, most) && reaches(most, 0) && reaches(most - 1, 1));
        assert!(!reaches(most, 1) && !reaches(0, most + 1) && !reaches(usize::MAX, 1));
    }

    #[test]
    fn equal_content_is_stored_once_and_freed_with_its_last_user() {
        let mut pool = Pool::new();
        let (a, fresh) = pool.intern(&[1, 2, 3], 1);
        assert!(fresh);
        assert_eq!(pool.intern(&[1, 2, 3], 1), (a, false));
        assert_ne!(pool.intern(&[1, 2], 1).0, a);
        assert!(!pool.release(a, 3));
        assert!(pool.release(a, 3));
        assert_eq!(pool.spans(), 1);
    }

    #[test]
    fn spans_interned_and_released_at_random_neither_leak_nor_overlap() {
        let mut pool: Pool<u8> = Pool::new();
        let mut live: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut rng = fastrand::Rng::with_seed(7);
        let mut next = move || rng.usize(..);
        for _ in 0..20_000 {
            if live.len() < 40 && next() % 2 == 0 {
                let content: Vec<u8> = (0..1 + next() % 9).map(|_| (next() % 3) as u8).collect();
                let (at, _) = pool.intern(&content, 1);
                live.push((at, content));
            } else if !live.is_empty() {
                let (at, content) = live.swap_remove(next() % live.len());
                pool.release(at, content.len());
                pool.trim();
            }
            for (at, content) in &live {
                assert_eq!(pool.get(*at, content.len()), &content[..]);
            }
            let hole = pool.holes.items();
            let mut used: Vec<_> = live.iter().map(|(at, c)| (*at, c.len())).collect();
            used.sort_unstable();
            used.dedup();
            assert_eq!(used.iter().map(|u| u.1).sum::<usize>() + hole, pool.extent());
        }
        for (at, content) in live {
            pool.release(at, content.len());
        }
        pool.trim();
        assert_eq!((pool.extent(), pool.spans()), (0, 0));
    }
}
