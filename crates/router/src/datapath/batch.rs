//! The batch: what a worker knows of the frames it has in hand.
//!
//! ```text
//!   frames  │ f0 │ f1 │ f2 │ f3 │ …        as received, at most SIZE
//!   kinds   │ V4 │ V6 │ Arp│ V4 │ …        what parse said of each
//!   keys4   │ dst0 │ dst3 │ …              the IPv4 ones, packed in order
//!   hops4   │ hop0 │ hop3 │ …
//!   keys6   │ dst1 │ …                     the IPv6 ones
//!   hops6   │ hop1 │ …
//! ```
//!
//! Packing the keys of each family makes one lookup batch a family out of mixed
//! traffic; walking `kinds` again in order, each family's hops come out in the order
//! in which its keys went in, so no index is stored. Everything is in arrays of
//! fixed size that are made once: nothing here allocates, and pushing is a store
//! and an addition.

use fib::Hop;

use super::{Lookup, Parsed, Verdict};

/// The most frames in a batch. Larger ones amortise more and leave the L1 cache:
/// 256 headers are 16 KiB.
pub const SIZE: usize = 256;

/// What a frame of the batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An IPv4 packet; its hop is the next of the family's.
    V4,
    /// An IPv6 packet.
    V6,
    /// Decided before the lookup.
    Done(Verdict),
}

/// The keys of one family, and what was found for them.
#[derive(Debug)]
struct Keys<A> {
    keys: [A; SIZE],
    hops: [Hop; SIZE],
    count: usize,
}

impl<A: Copy + Default> Keys<A> {
    fn new() -> Self {
        Self { keys: [A::default(); SIZE], hops: [Hop::NONE; SIZE], count: 0 }
    }

    #[inline(always)]
    fn push(&mut self, key: A) {
        if let Some(slot) = self.keys.get_mut(self.count) {
            *slot = key;
            self.count += 1;
        }
    }
}

/// The fixed arrays of one batch.
#[derive(Debug)]
pub struct Batch {
    kinds: [Kind; SIZE],
    count: usize,
    v4: Keys<u32>,
    v6: Keys<u128>,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// Makes an empty batch.
    pub fn new() -> Self {
        let kinds = [Kind::Done(Verdict::Runt); SIZE];
        Self { kinds, count: 0, v4: Keys::new(), v6: Keys::new() }
    }

    /// Empties the batch.
    #[inline]
    pub fn clear(&mut self) {
        self.count = 0;
        self.v4.count = 0;
        self.v6.count = 0;
    }

    /// Appends what a frame was parsed to. A full batch takes no more; the worker
    /// receives no more than [`SIZE`] frames.
    #[inline(always)]
    pub fn push(&mut self, parsed: Parsed) {
        let Some(slot) = self.kinds.get_mut(self.count) else { return };
        self.count += 1;
        *slot = match parsed {
            Parsed::V4(key) => {
                self.v4.push(key);
                Kind::V4
            }
            Parsed::V6(key) => {
                self.v6.push(key);
                Kind::V6
            }
            Parsed::Done(verdict) => Kind::Done(verdict),
        };
    }

    /// Looks all keys up in one table, one batch a family, and returns how many of
    /// each.
    #[inline]
    pub fn lookup(&mut self, tables: &mut impl Lookup, table: usize) -> (usize, usize) {
        let (v4, v6) = (self.v4.count, self.v6.count);
        if v4 > 0 {
            tables.lookup_v4(table, &self.v4.keys[..v4], &mut self.v4.hops[..v4]);
        }
        if v6 > 0 {
            tables.lookup_v6(table, &self.v6.keys[..v6], &mut self.v6.hops[..v6]);
        }
        (v4, v6)
    }

    /// Walks the frames' kinds in order, with the hop of those that have one.
    #[inline(always)]
    pub fn outcomes(&self) -> impl Iterator<Item = (Kind, Hop)> {
        let mut v4 = self.v4.hops.iter();
        let mut v6 = self.v6.hops.iter();
        self.kinds.iter().take(self.count).map(move |&kind| {
            let hop = match kind {
                Kind::V4 => v4.next(),
                Kind::V6 => v6.next(),
                Kind::Done(_) => None,
            };
            (kind, hop.copied().unwrap_or(Hop::NONE))
        })
    }
}
