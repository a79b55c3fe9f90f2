//! The next hop, as the tables store it: a small dense index.
//!
//! ```text
//! next hop (anything) ──HopTable──► Hop(1), Hop(2), … ──► Rib, runs, engines
//! ```
//!
//! The tables hold indexes only; a [`HopTable`] maps each to its next hop (an interface, a MAC,
//! a label). It counts references, normally one for each route, so that the index of a next hop
//! that no route uses becomes free. It assigns the lowest free index, because engines need fewer
//! bits for small ones. DXR (Zec, 2019, section 3.3) keeps ranges short while their hops are
//! below 256; a table that is loaded whole is therefore [`ranked`](HopTable::ranked), the next
//! hops with the most routes first.
//!
//! An index becomes free with its last reference. Readers of an older table may still hold it
//! then: before the caller assigns another next hop to it, it waits until they have passed (see
//! [`Publisher`](crate::Publisher)).

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::Full;

/// A small dense index that stands for a next hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Hop(pub u32);

impl Hop {
    /// No route: the result of a lookup that no route matches. Its index is 0, so that zeroed
    /// memory has no routes.
    pub const NONE: Self = Self(0);

    /// Returns whether this is a route's hop and not [`NONE`](Self::NONE).
    #[inline]
    pub fn is_some(self) -> bool {
        self != Self::NONE
    }
}

/// One next hop and its number of references, at least one.
#[derive(Clone)]
struct Entry<N> {
    next: N,
    count: u64,
}

/// Next hops and their indexes, with reference counts.
///
/// # Examples
///
/// ```
/// use fingerpost_fib::{Hop, HopTable};
/// let mut hops = HopTable::new();
/// let east = hops.acquire(&"east")?;
/// assert_eq!(hops.acquire(&"west")?, Hop(2));
/// assert_eq!(hops.acquire(&"east")?, east);
/// assert_eq!(hops.count(east), 2);
/// assert_eq!(hops.release(east), None);
/// assert_eq!(hops.release(east), Some("east"));
/// assert_eq!(hops.acquire(&"north")?, Hop(1));
/// # Ok::<(), fingerpost_fib::Full>(())
/// ```
#[derive(Clone)]
pub struct HopTable<N> {
    /// The entry of hop h is `entries[h - 1]`; [`Hop::NONE`] has none.
    entries: Vec<Option<Entry<N>>>,
    /// The hops in use, by the hash of their next hop.
    index: HashTable<Hop>,
    hasher: DefaultHashBuilder,
    /// The gaps in `entries`, lowest first.
    gaps: BinaryHeap<Reverse<u32>>,
    limit: u32,
}

impl<N: Clone + Eq + Hash> HopTable<N> {
    /// Makes an empty table of at most 2^32 - 2 next hops.
    pub fn new() -> Self {
        Self {
            entries: Vec::new(),
            index: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            gaps: BinaryHeap::new(),
            limit: u32::MAX - 1,
        }
    }

    /// Lowers the number of next hops, and with it the highest index.
    ///
    /// Next hops that the table already holds beyond the limit stay in it.
    #[must_use]
    pub fn limited(mut self, limit: u32) -> Self {
        self.limit = limit.min(u32::MAX - 1);
        self
    }

    /// Makes a table in which the next hop with the highest count has the lowest index; equal
    /// counts keep their order. Counts of the same next hop are added up, and become its
    /// reference count; a count of 0 makes no entry.
    ///
    /// # Errors
    ///
    /// [`Full`] if there are more than 2^32 - 2 next hops.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_fib::{Hop, HopTable};
    /// let hops = HopTable::ranked([("east", 20), ("west", 700), ("none", 0)])?;
    /// assert_eq!(hops.find(&"west"), Some(Hop(1)));
    /// assert_eq!(hops.find(&"east"), Some(Hop(2)));
    /// assert_eq!(hops.find(&"none"), None);
    /// # Ok::<(), fingerpost_fib::Full>(())
    /// ```
    pub fn ranked(counts: impl IntoIterator<Item = (N, u64)>) -> Result<Self, Full> {
        let mut sums = Self::new();
        for (next, count) in counts.into_iter().filter(|&(_, count)| count > 0) {
            sums.add(&next, count)?;
        }
        let mut order: Vec<_> = sums.entries.into_iter().flatten().collect();
        order.sort_by_key(|entry| Reverse(entry.count));
        let mut table = Self::new();
        for Entry { next, count } in order {
            table.add(&next, count)?;
        }
        Ok(table)
    }

    /// Adds a reference to `next`, giving it the lowest free index if it is new.
    ///
    /// # Errors
    ///
    /// [`Full`] if it is new and the limit is reached.
    pub fn acquire(&mut self, next: &N) -> Result<Hop, Full> {
        self.add(next, 1)
    }

    /// Drops a reference; returns the next hop if that was the last one.
    ///
    /// [`Hop::NONE`] has no references: nothing happens.
    ///
    /// # Panics
    ///
    /// If `hop` is not in the table: more was released than acquired.
    pub fn release(&mut self, hop: Hop) -> Option<N> {
        let at = hop.0.checked_sub(1)?;
        let slot = self.entries.get_mut(at as usize);
        let slot = slot.filter(|slot| slot.is_some());
        let slot = slot.expect("a hop is released only while it is held");
        let entry = slot.take_if(|entry| {
            entry.count -= 1;
            entry.count == 0
        })?;
        let hash = self.hasher.hash_one(&entry.next);
        if let Ok(found) = self.index.find_entry(hash, |&other| other == hop) {
            found.remove();
        }
        self.gaps.push(Reverse(at));
        Some(entry.next)
    }

    /// Returns the next hop of the index `hop`.
    pub fn get(&self, hop: Hop) -> Option<&N> {
        let at = hop.0.checked_sub(1)?;
        self.entries.get(at as usize)?.as_ref().map(|entry| &entry.next)
    }

    /// Returns the index of `next`, without taking a reference.
    pub fn find(&self, next: &N) -> Option<Hop> {
        let hash = self.hasher.hash_one(next);
        self.index.find(hash, |&hop| self.get(hop) == Some(next)).copied()
    }

    /// Returns the number of references to `hop`.
    pub fn count(&self, hop: Hop) -> u64 {
        let entry = hop.0.checked_sub(1).and_then(|at| self.entries.get(at as usize));
        entry.and_then(Option::as_ref).map_or(0, |entry| entry.count)
    }

    /// Returns the number of next hops.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns whether there is no next hop.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Iterates over the hops by index, each with its next hop and its reference count.
    pub fn iter(&self) -> impl Iterator<Item = (Hop, &N, u64)> {
        self.entries.iter().enumerate().filter_map(|(at, entry)| {
            entry.as_ref().map(|entry| (Hop(at as u32 + 1), &entry.next, entry.count))
        })
    }

    fn add(&mut self, next: &N, count: u64) -> Result<Hop, Full> {
        if let Some(hop) = self.find(next) {
            let entry = self.entries[hop.0 as usize - 1].as_mut();
            let entry = entry.unwrap_or_else(|| unreachable!("the index names only hops in use"));
            entry.count += count;
            return Ok(hop);
        }
        // Every gap is lower than the end; beyond a lowered limit it cannot be used.
        let at = self.gaps.peek().map_or(self.entries.len() as u32, |&Reverse(at)| at);
        if at >= self.limit {
            return Err(Full {
                what: Full::HOPS,
                limit: self.limit.into(),
                seen: u64::from(self.limit) + 1,
            });
        }
        let entry = Some(Entry { next: next.clone(), count });
        if self.gaps.pop().is_some() {
            self.entries[at as usize] = entry;
        } else {
            self.entries.push(entry);
        }
        let (hop, entries, hasher) = (Hop(at + 1), &self.entries, &self.hasher);
        self.index.insert_unique(hasher.hash_one(next), hop, |&hop| {
            let entry = entries[hop.0 as usize - 1].as_ref();
            entry.map_or(0, |entry| hasher.hash_one(&entry.next))
        });
        Ok(hop)
    }
}

impl<N: Clone + Eq + Hash> Default for HopTable<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N: Clone + Eq + Hash + fmt::Debug> fmt::Debug for HopTable<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(hop, next, count)| (hop, (next, count)))).finish()
    }
}
