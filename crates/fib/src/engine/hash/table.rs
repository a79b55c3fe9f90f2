//! The hash table: exact keys in one array of slots.
//!
//! ```text
//!   home of C ─┐ home of A, B ─┐
//!   slots      │ C │   │   │ A │ B │ D │   │ …      key (K) ┃ value (V)
//!                            └──► searched until found, or until a vacant slot
//! ```
//!
//! Open addressing with linear probing (Knuth, TAOCP 3, section 6.4, algorithm L).
//! At least one slot in two is vacant, so that a key that is there is found after
//! 1.5 slots on average, mostly in one cache line. Taking a key out moves back those
//! behind it that this would cut off (algorithm R): no mark is left, and a table
//! that was emptied is as quick as a new one.
//!
//! Slots are packed to two bytes: 6 for IPv4, 10 for prefixes of IPv6 up to /64. A
//! vacant one has the default value, which no key may have.

use alloc::vec;
use alloc::vec::Vec;
use core::fmt::Debug;

use super::{hash, place, room, suits};
use crate::Addr;
use crate::table::{Master, Table};

/// The value of a key. The default value marks a vacant slot.
pub(crate) trait Value: Copy + Default + PartialEq + Debug + Send + Sync + 'static {}

/// A key and its value, or a vacant place.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[repr(C, packed(2))]
pub(crate) struct Slot<K: Copy, V: Copy> {
    key: K,
    value: V,
}

impl<K: Copy, V: Value> Slot<K, V> {
    fn is_vacant(self) -> bool {
        // Copied out first: a field of a packed slot may not be lent.
        let value = self.value;
        value == V::default()
    }
}

/// Finds the value of `key`, whose hash is `hash`.
#[inline]
pub(crate) fn find<K: Addr, V: Value>(slots: &[Slot<K, V>], hash: u64, key: K) -> Option<V> {
    loads(slots, hash, key, |_| ())
}

/// Does the same, and calls `load` with each slot that it loads.
#[inline(always)]
pub(crate) fn loads<K: Addr, V: Value>(
    slots: &[Slot<K, V>],
    hash: u64,
    key: K,
    mut load: impl FnMut(usize),
) -> Option<V> {
    let mut at = place(hash, slots.len());
    loop {
        // Only an empty table has no slot; any other has a vacant one.
        let Slot { key: present, value } = *slots.get(at)?;
        load(at);
        if value == V::default() {
            return None;
        }
        if present == key {
            return Some(value);
        }
        at = next(at, slots.len());
    }
}

#[inline(always)]
fn next(at: usize, len: usize) -> usize {
    if at + 1 == len { 0 } else { at + 1 }
}

/// The builder's table of the prefixes of one length.
#[derive(Debug)]
pub(crate) struct Open<K: Addr, V: Value> {
    slots: Master<Slot<K, V>>,
    len: u32,
    /// The number of slots for each key there is room for; at least two.
    spread: usize,
    keys: usize,
    capacity: usize,
}

impl<K: Addr, V: Value> Open<K, V> {
    /// Makes an empty table for prefixes of `len` bits.
    pub(crate) fn new(len: u32, spread: usize) -> Self {
        Self { slots: Master::new(Vec::new()), len, spread, keys: 0, capacity: 0 }
    }

    /// Sets the value of a key, and returns the value it had.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (at, old) = self.seek(key);
        if old.is_none() && self.keys == self.capacity {
            self.resize(self.keys + 1);
            return self.insert(key, value);
        }
        self.slots.write(at, &[Slot { key, value }]);
        self.keys += usize::from(old.is_none());
        old
    }

    /// Takes a key out, and returns its value.
    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let (mut hole, old) = self.seek(key);
        old?;
        self.keys -= 1;
        let len = self.slots.len();
        let mut at = next(hole, len);
        while let slot = self.slots[at]
            && !slot.is_vacant()
        {
            let home = self.home(slot.key);
            // How far it is from its home, and how far from the hole, around the end.
            let far = |from: usize| (at + len - from) % len;
            if far(home) >= far(hole) {
                self.slots.write(hole, &[slot]);
                hole = at;
            }
            at = next(at, len);
        }
        self.slots.write(hole, &[Slot::default()]);
        if !suits(self.capacity, self.keys) {
            self.resize(self.keys);
        }
        old
    }

    /// Holds `entries`, different keys and `count` of them, in place of all there was.
    pub(crate) fn fill(&mut self, count: usize, entries: impl Iterator<Item = (K, V)>) {
        let capacity = room(count);
        let fresh = lay(capacity * self.spread, self.len, entries);
        self.replace(capacity, &fresh);
        self.keys = count;
    }

    /// Makes room for `keys` keys in all.
    fn resize(&mut self, keys: usize) {
        let capacity = room(keys);
        let fresh = lay(capacity * self.spread, self.len, self.iter());
        self.replace(capacity, &fresh);
    }

    fn replace(&mut self, capacity: usize, fresh: &[Slot<K, V>]) {
        self.capacity = capacity;
        self.slots.truncate(fresh.len());
        self.slots.write(0, fresh);
    }

    /// Returns the value of a key.
    #[cfg(test)]
    pub(crate) fn get(&self, key: K) -> Option<V> {
        self.seek(key).1
    }

    /// Counts the keys.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> usize {
        self.keys
    }

    /// Lists all keys with their values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, V)> {
        let taken = self.slots.iter().filter(|slot| !slot.is_vacant());
        taken.map(|slot| (slot.key, slot.value))
    }

    /// Returns the slot of a key, or the one where it would be, and its value.
    fn seek(&self, key: K) -> (usize, Option<V>) {
        let mut at = self.home(key);
        let value = loads(&self.slots, hash(key, self.len), key, |slot| at = slot);
        (at, value)
    }

    fn home(&self, key: K) -> usize {
        place(hash(key, self.len), self.slots.len())
    }

    pub(crate) fn freeze(&self) -> Table<Slot<K, V>> {
        self.slots.freeze()
    }

    pub(crate) fn refresh(&self, table: &mut Table<Slot<K, V>>) {
        self.slots.refresh(table);
    }

    pub(crate) fn written(&self) -> u64 {
        self.slots.written()
    }
}

/// Lays different keys out in `size` slots.
fn lay<K: Addr, V: Value>(
    size: usize,
    len: u32,
    entries: impl Iterator<Item = (K, V)>,
) -> Vec<Slot<K, V>> {
    let mut slots = vec![Slot::default(); size];
    for (key, value) in entries {
        let mut at = place(hash(key, len), size);
        while !slots[at].is_vacant() {
            at = next(at, size);
        }
        slots[at] = Slot { key, value };
    }
    slots
}

#[cfg(test)]
mod tests {
    use super::{Open, Slot, Value};
    use alloc::collections::BTreeMap;

    impl Value for u16 {}

    #[test]
    fn slots_are_packed() {
        assert_eq!(size_of::<Slot<u32, u16>>(), 6);
        assert_eq!(size_of::<Slot<u64, u16>>(), 10);
        assert_eq!(size_of::<Slot<u128, u32>>(), 20);
    }

    #[test]
    fn table_agrees_with_a_map_after_random_changes() {
        let mut table: Open<u16, u16> = Open::new(16, 2);
        let mut map: BTreeMap<u16, u16> = BTreeMap::new();
        let mut rng = fastrand::Rng::with_seed(1);
        for step in 0..60_000u64 {
            let state = rng.u64(..);
            // Few keys, so that the same come and go, and now and then a wave of more.
            let among = if step / 10_000 % 2 == 0 { 60 } else { 1200 };
            let key = ((state >> 33) % among) as u16 * 7;
            let value = 1 + (state >> 50) as u16;
            if state >> 62 == 0 {
                assert_eq!(table.insert(key, value), map.insert(key, value));
            } else {
                assert_eq!(table.remove(key), map.remove(&key));
            }
            assert_eq!(table.keys(), map.len());
            if step % 100 == 0 {
                assert!((0..9000).all(|key| table.get(key) == map.get(&key).copied()));
                assert_eq!(table.iter().collect::<BTreeMap<_, _>>(), map);
            }
            assert!(table.slots.len() <= 2 * (map.len() + map.len() / 12 + 8));
        }
    }
}
