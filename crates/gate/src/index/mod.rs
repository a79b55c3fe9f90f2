//! Indexes: from a flow's hash to the number of its entry.
//!
//! ```text
//!   hash:32 ──► index │ tag:32 entry:32 │ … ──► entries │ 128 bytes a flow │ …
//! ```
//!
//! Index and entries are apart (thesis, 4.4.2): a probe reads 8 bytes a flow, a line of the cache
//! holds eight of them, and entries never move. The tag is the whole hash. It distinguishes two
//! flows but for one pair in 2^32, so that a lookup loads only the entry it is about, and a removal
//! or a displacement finds the home of its neighbors by it.
//!
//! The six schemes of the thesis (4.5.6) and one more, all behind [`Index`]:
//!
//! | scheme | file | where a flow may be | absent after | removal |
//! |---|---|---|---|---|
//! | linear probing (Knuth, vol. 3, 6.4, algorithm L) | [`linear`] | anywhere after its home | an empty slot | shifts back (algorithm R) |
//! | the same over whole lines (6.4, buckets) | [`lines`] | its home line, rarely the next | an empty slot in it | shifts back |
//! | quadratic probing, triangular steps | [`quadratic`] | by a sequence | no flow passed here | counts back |
//! | double hashing (Knuth, 6.4, algorithm D) | [`double`] | by a sequence of its own | no flow passed here | counts back |
//! | hopscotch (Herlihy, Shavit, Tzafrir, DISC 2008) | [`hopscotch`] | the 32 slots from its home | the home's bitmap | clears a bit |
//! | separate chaining | [`chain`] | the list of its home | the end of the list | unlinks |
//! | cuckoo (Pagh, Rodler, ESA 2001), 8 slots a bucket | [`cuckoo`] | two lines | both lines | empties |
//!
//! All are made with a number of slots, a power of two, and allocate nothing after. All
//! refuse with [`Full`] and are then as before. None compares flows: that is the caller's,
//! by the number of the entry, and so is it to insert no flow twice.
//!
//! A batch goes through an index in steps, so that its waits overlap (thesis, 4.5.3):
//! [`Index::fetch`] for all, then [`Index::find`] for all, with entries fetched between.

pub mod chain;
pub mod cuckoo;
pub mod double;
pub mod hopscotch;
pub mod linear;
pub mod lines;
mod probe;
pub mod quadratic;

/// The most entries that every scheme can number.
pub const MAX_ENTRIES: usize = (1 << 28) - 1;

/// The error that an index has no slot for a flow; the index is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl core::fmt::Display for Full {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the flow index has no place left for this flow: give the table more entries")
    }
}

impl core::error::Error for Full {}

/// From hashes to numbers of entries.
pub trait Index {
    /// The scheme's name.
    const NAME: &'static str;

    /// Makes an empty index of `slots`, a power of two from 64 on, for entries numbered
    /// below `slots` and up to [`MAX_ENTRIES`].
    ///
    /// # Panics
    ///
    /// If `slots` is not such a number.
    fn with_slots(slots: usize) -> Self;

    /// Prefetches what [`find`](Self::find) reads first.
    fn fetch(&self, hash: u32);

    /// Returns the first entry under `hash` that `is` the one looked for.
    fn find(&self, hash: u32, is: impl FnMut(u32) -> bool) -> Option<u32>;

    /// Files `entry`, which is not in the index, under `hash`.
    ///
    /// # Errors
    ///
    /// [`Full`] if the scheme has no place for it; nothing has changed then.
    fn insert(&mut self, hash: u32, entry: u32) -> Result<(), Full>;

    /// Removes `entry`, filed under `hash`, and returns whether it was there.
    fn remove(&mut self, hash: u32, entry: u32) -> bool;

    /// Counts the entries.
    fn len(&self) -> usize;

    /// Returns whether there are no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The value of an empty slot.
const EMPTY: u32 = u32::MAX;

/// A place of an index that has its entries one by one.
#[derive(Clone, Copy)]
struct Slot {
    tag: u32,
    entry: u32,
}

impl Slot {
    const FREE: Self = Self { tag: 0, entry: EMPTY };
}

/// Eight places in one line of the cache, tags and entries apart, so that eight tags are
/// compared at once.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line {
    tags: [u32; Line::SLOTS],
    entries: [u32; Line::SLOTS],
}

impl Line {
    const SLOTS: usize = 8;
    const FREE: Self = Self { tags: [0; Self::SLOTS], entries: [EMPTY; Self::SLOTS] };

    /// Returns a bit for each slot of which `is` holds.
    #[inline(always)]
    fn mask(words: &[u32; Self::SLOTS], word: u32) -> u32 {
        let mut mask = 0;
        for (i, &have) in words.iter().enumerate() {
            mask |= u32::from(have == word) << i;
        }
        mask
    }

    /// Returns a bit for each empty slot.
    #[inline(always)]
    fn empty(&self) -> u32 {
        Self::mask(&self.entries, EMPTY)
    }

    /// Returns the first entry under `tag` that `is` the one looked for.
    #[inline(always)]
    fn find(&self, tag: u32, is: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let mut mask = Self::mask(&self.tags, tag);
        while mask != 0 {
            let entry = self.entries[mask.trailing_zeros() as usize];
            if entry != EMPTY && is(entry) {
                return Some(entry);
            }
            mask &= mask - 1;
        }
        None
    }

    /// Returns the slot of `entry`.
    #[inline]
    fn slot_of(&self, entry: u32) -> Option<usize> {
        let mask = Self::mask(&self.entries, entry);
        (mask != 0).then(|| mask.trailing_zeros() as usize)
    }

    /// Puts an entry into the first empty slot and returns whether there was one.
    #[inline]
    fn put(&mut self, tag: u32, entry: u32) -> bool {
        let empty = self.empty();
        if empty == 0 {
            return false;
        }
        self.set(empty.trailing_zeros() as usize, tag, entry);
        true
    }

    #[inline]
    fn set(&mut self, slot: usize, tag: u32, entry: u32) {
        self.tags[slot] = tag;
        self.entries[slot] = entry;
    }
}

/// Checks the number of slots that an index is to have.
fn checked(slots: usize) -> usize {
    assert!(
        slots.is_power_of_two() && (64..=1 << 31).contains(&slots),
        "an index has a power of two of slots, 64 to 2^31"
    );
    slots
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::flow::permute;

    /// Goes through random insertions, lookups and removals of up to `most` flows whose
    /// hashes are as few as `spread` says, against a map.
    fn random<I: Index>(slots: usize, most: usize, spread: u32, steps: u32, seed: u64) {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut index = I::with_slots(slots);
        // By flow: its entry, and what flow an entry has.
        let mut model: HashMap<u32, u32> = HashMap::new();
        let mut flows = vec![u32::MAX; slots];
        let mut free: Vec<u32> = (0..slots as u32).collect();
        let hash = |flow: u32| permute(flow % spread);
        for step in 0..steps {
            let flow = rng.u32(..4 * most as u32);
            index.fetch(hash(flow));
            let found = index.find(hash(flow), |entry| flows[entry as usize] == flow);
            assert_eq!(found, model.get(&flow).copied(), "{} step {step}", I::NAME);
            // Fills up, then empties, then fills again.
            let filling = (step / (6 * most as u32)).is_multiple_of(2);
            match found {
                None if model.len() < most && (filling || rng.u8(..4) == 0) => {
                    let entry = free.pop().unwrap();
                    match index.insert(hash(flow), entry) {
                        Ok(()) => {
                            flows[entry as usize] = flow;
                            model.insert(flow, entry);
                        }
                        Err(Full) => free.push(entry),
                    }
                }
                Some(entry) if !filling || rng.u8(..4) == 0 => {
                    assert!(index.remove(hash(flow), entry), "{}", I::NAME);
                    assert!(!index.remove(hash(flow), entry), "{}", I::NAME);
                    model.remove(&flow);
                    flows[entry as usize] = u32::MAX;
                    free.push(entry);
                }
                _ => {}
            }
            assert_eq!(index.len(), model.len());
        }
        for (&flow, &entry) in &model {
            let found = index.find(hash(flow), |entry| flows[entry as usize] == flow);
            assert_eq!(found, Some(entry), "{}", I::NAME);
        }
    }

    /// Inserts until it is full; returns how many there were. Refusals change nothing.
    fn fill<I: Index>(slots: usize) -> usize {
        let mut index = I::with_slots(slots);
        let mut filed = Vec::new();
        for (entry, flow) in (0..slots as u32).zip(1000..) {
            if index.insert(permute(flow), entry).is_ok() {
                filed.push((permute(flow), entry));
            } else {
                assert_eq!(index.insert(permute(flow), entry), Err(Full));
            }
        }
        assert_eq!(index.len(), filed.len());
        for &(hash, entry) in &filed {
            assert_eq!(index.find(hash, |found| found == entry), Some(entry));
        }
        for flow in 1_000_000..1_000_500 {
            assert_eq!(index.find(permute(flow), |_| false), None);
        }
        // As many entries are removed and inserted again.
        let count = filed.len();
        for (hash, entry) in filed {
            assert!(index.remove(hash, entry));
            assert_eq!(index.insert(hash, entry), Ok(()), "{}", I::NAME);
        }
        count
    }

    /// The tests of every scheme, and the minimum share of its slots that it can use.
    fn battery<I: Index>(usable: f64) {
        for seed in 0..3 {
            random::<I>(256, 128, u32::MAX, 20_000, seed);
            random::<I>(256, 256, u32::MAX, 20_000, 10 + seed);
            // Few hashes, and one: everything meets everything.
            random::<I>(256, 128, 40, 10_000, 20 + seed);
            random::<I>(64, 40, 1, 5_000, 30 + seed);
        }
        random::<I>(1 << 14, (1 << 14) * 4 / 5, u32::MAX, 300_000, 7);
        let filled = fill::<I>(4096);
        assert!(filled as f64 >= usable * 4096.0, "{}: {filled} of 4096", I::NAME);
        // Nothing is allocated once it is made.
        let mut index = I::with_slots(1024);
        let allocated = allocation_counter::measure(|| {
            for entry in 0..1000 {
                if index.insert(permute(entry), entry).is_ok() && entry % 3 == 0 {
                    index.remove(permute(entry), entry);
                }
            }
        });
        assert_eq!(allocated.count_total, 0, "{}", I::NAME);
    }

    #[test]
    fn linear_passes_the_common_tests() {
        battery::<linear::Linear>(0.99);
    }

    #[test]
    fn lines_passes_the_common_tests() {
        battery::<lines::Lines>(0.99);
    }

    #[test]
    fn quadratic_passes_the_common_tests() {
        battery::<quadratic::Quadratic>(0.99);
    }

    #[test]
    fn double_passes_the_common_tests() {
        battery::<double::Double>(0.99);
    }

    #[test]
    fn hopscotch_passes_the_common_tests() {
        battery::<hopscotch::Hopscotch>(0.85);
    }

    #[test]
    fn chain_passes_the_common_tests() {
        battery::<chain::Chain>(1.0);
    }

    #[test]
    fn cuckoo_passes_the_common_tests() {
        battery::<cuckoo::Cuckoo>(0.97);
    }
}
