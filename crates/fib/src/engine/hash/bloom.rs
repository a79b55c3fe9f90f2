//! The Bloom filter: states that a key is absent, or that it may be present.
//!
//! ```text
//!   hash ─► h + 0·g, h + 1·g, … h + 12·g   13 bits; all set: perhaps
//!                                          one clear: certainly not
//!   readers' bits     0 1 0 0 1 1 0 …      one each, on chip
//!   builder's counts  0 3 0 0 1 1 0 …      how many keys set it
//! ```
//!
//! Bloom, "Space/time trade-offs in hash coding with allowable errors", CACM 13(7),
//! 1970; the counts, by which a key can be taken out again, as in Dharmapurikar et
//! al., SIGCOMM 2003. The size is that of Fu's thesis (section 3.6.3): k = 13
//! functions and m / n = 18.755 bits a key, at which half of the bits are set and
//! one foreign key in 2^13 passes. The k functions are two halves of one hash,
//! added up (Kirsch, Mitzenmacher, "Less hashing, same performance", 2006).
//!
//! A foreign key is refused after two loads on average, a known one takes 13. A
//! count that has reached 255 stays there: its bit is then never cleared, which is
//! safe, until the filter is rebuilt.

use alloc::vec;
use alloc::vec::Vec;

use super::{place, room, suits};
use crate::table::{Master, Table};

/// The number of bits that a key sets (k).
pub(crate) const HASHES: u64 = 13;

/// Returns the 64-bit words of a filter for so many keys: 18.755 bits each.
fn words_for(keys: usize) -> usize {
    (keys as u64 * 18_755).div_ceil(64_000) as usize
}

/// Returns bit number `i` of those that a key with this hash sets, of `bits`.
#[inline(always)]
fn bit(hash: u64, i: u64, bits: usize) -> usize {
    let stride = hash.rotate_left(32) | 1;
    place(hash.wrapping_add(i.wrapping_mul(stride)), bits)
}

/// Returns whether a key may be in the filter.
#[inline(always)]
pub(crate) fn may_hold(words: &[u64], hash: u64) -> bool {
    loads(words, hash, |_| ())
}

/// Does the same, and calls `load` with each word that it loads.
#[inline(always)]
pub(crate) fn loads(words: &[u64], hash: u64, mut load: impl FnMut(usize)) -> bool {
    let bits = words.len() * 64;
    bits > 0
        && (0..HASHES).all(|i| {
            let at = bit(hash, i, bits);
            load(at / 64);
            words[at / 64] >> (at % 64) & 1 == 1
        })
}

/// The builder's filter, whose keys can be taken out again.
#[derive(Debug)]
pub(crate) struct Counting {
    counts: Vec<u8>,
    bits: Master<u64>,
    keys: usize,
    capacity: usize,
}

impl Counting {
    pub(crate) fn new() -> Self {
        Self { counts: Vec::new(), bits: Master::new(Vec::new()), keys: 0, capacity: 0 }
    }

    /// Adds a key. There must be room.
    pub(crate) fn insert(&mut self, hash: u64) {
        self.keys += 1;
        for i in 0..HASHES {
            let at = bit(hash, i, self.counts.len());
            self.counts[at] = self.counts[at].saturating_add(1);
            if self.counts[at] == 1 {
                self.bits.write(at / 64, &[self.bits[at / 64] | 1 << (at % 64)]);
            }
        }
    }

    /// Removes a key that was added.
    pub(crate) fn remove(&mut self, hash: u64) {
        self.keys -= 1;
        for i in 0..HASHES {
            let at = bit(hash, i, self.counts.len());
            if self.counts[at] < u8::MAX {
                self.counts[at] -= 1;
                if self.counts[at] == 0 {
                    self.bits.write(at / 64, &[self.bits[at / 64] & !(1 << (at % 64))]);
                }
            }
        }
    }

    /// Counts the keys in it.
    pub(crate) fn keys(&self) -> usize {
        self.keys
    }

    /// Returns whether there is room for one more key.
    pub(crate) fn has_room(&self) -> bool {
        self.keys < self.capacity
    }

    /// Returns whether its size is right for so many keys.
    pub(crate) fn suits(&self, keys: usize) -> bool {
        suits(self.capacity, keys)
    }

    /// Rebuilds the filter, of `count` keys with these hashes.
    pub(crate) fn rebuild(&mut self, count: usize, hashes: impl Iterator<Item = u64>) {
        self.capacity = room(count);
        self.keys = 0;
        let words = words_for(self.capacity);
        self.counts = vec![0; words * 64];
        let mut fresh = vec![0u64; words];
        for hash in hashes {
            self.keys += 1;
            for i in 0..HASHES {
                let at = bit(hash, i, self.counts.len());
                self.counts[at] = self.counts[at].saturating_add(1);
                fresh[at / 64] |= 1 << (at % 64);
            }
        }
        self.bits.truncate(words);
        self.bits.write(0, &fresh);
    }

    pub(crate) fn freeze(&self) -> Table<u64> {
        self.bits.freeze()
    }

    pub(crate) fn refresh(&self, table: &mut Table<u64>) {
        self.bits.refresh(table);
    }

    pub(crate) fn written(&self) -> u64 {
        self.bits.written()
    }
}

#[cfg(test)]
mod tests {
    use super::{Counting, loads, may_hold};
    use crate::engine::hash::hash;

    #[test]
    fn half_of_the_bits_are_set_and_one_foreign_key_in_eight_thousand_passes() {
        let mut filter = Counting::new();
        filter.rebuild(50_000, (0..50_000u64).map(|key| hash(key, 64)));
        let words = filter.freeze();
        assert!((0..50_000u64).all(|key| may_hold(&words, hash(key, 64))));
        let set: u32 = words.iter().map(|word| word.count_ones()).sum();
        let share = f64::from(set) / (words.len() * 64) as f64;
        assert!((0.48..0.51).contains(&share), "{share} of the bits are set");
        let (mut passed, mut loaded) = (0u32, 0u32);
        for key in 1_000_000..5_000_000u64 {
            passed += u32::from(loads(&words, hash(key, 64), |_| loaded += 1));
        }
        // 2^-13 of four million are 488; the filter has room for a thirtieth more.
        assert!((250..600).contains(&passed), "{passed} passed");
        assert!((1.9..2.1).contains(&(f64::from(loaded) / 4e6)), "{loaded} loads");
    }

    #[test]
    fn removed_keys_leave_the_filter_as_it_was() {
        let mut filter = Counting::new();
        filter.rebuild(500, (0..500u64).map(|key| hash(key, 64)));
        let before = filter.freeze();
        for key in 500..515u64 {
            assert!(filter.has_room());
            filter.insert(hash(key, 64));
        }
        assert!((0..515u64).all(|key| may_hold(&filter.bits, hash(key, 64))));
        for key in 500..515u64 {
            filter.remove(hash(key, 64));
        }
        assert_eq!(before[..], filter.bits[..]);
        assert_eq!(filter.keys(), 500);
    }
}
