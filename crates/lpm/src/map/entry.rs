//! The place of one prefix in a map, in the style of the standard library's maps.
//!
//! [`LpmMap::entry`] searches the prefix once. An entry that is occupied knows its slot; one that
//! is vacant inserts by a second search, which also makes the missing nodes.

use fib::Prefix;

use super::LpmMap;
use crate::key::PrefixKey;
use crate::trie::Place;

/// The place of a prefix in a map.
pub enum Entry<'a, P: PrefixKey, T> {
    /// The map has the prefix.
    Occupied(OccupiedEntry<'a, P, T>),
    /// The map does not have it.
    Vacant(VacantEntry<'a, P, T>),
}

/// A prefix that is in the map.
pub struct OccupiedEntry<'a, P: PrefixKey, T> {
    map: &'a mut LpmMap<P, T>,
    prefix: Prefix<P::Bits>,
    place: Place,
}

/// A prefix that is not in the map.
pub struct VacantEntry<'a, P: PrefixKey, T> {
    map: &'a mut LpmMap<P, T>,
    prefix: Prefix<P::Bits>,
}

impl<'a, P: PrefixKey, T> Entry<'a, P, T> {
    pub(super) fn new(map: &'a mut LpmMap<P, T>, prefix: Prefix<P::Bits>) -> Self {
        match map.trie.find(prefix) {
            Some(place) => Self::Occupied(OccupiedEntry { map, prefix, place }),
            None => Self::Vacant(VacantEntry { map, prefix }),
        }
    }

    /// Returns the prefix.
    pub fn key(&self) -> P {
        match self {
            Self::Occupied(entry) => entry.key(),
            Self::Vacant(entry) => entry.key(),
        }
    }

    /// Changes the value if there is one.
    #[must_use]
    pub fn and_modify(mut self, change: impl FnOnce(&mut T)) -> Self {
        if let Self::Occupied(entry) = &mut self {
            change(entry.get_mut());
        }
        self
    }

    /// Inserts `value` if there is none; returns the value of the prefix.
    pub fn or_insert(self, value: T) -> &'a mut T {
        self.or_insert_with(|| value)
    }

    /// Inserts what `make` returns if there is no value; returns the value of the prefix.
    pub fn or_insert_with(self, make: impl FnOnce() -> T) -> &'a mut T {
        match self {
            Self::Occupied(entry) => entry.into_mut(),
            Self::Vacant(entry) => entry.insert(make()),
        }
    }

    /// Inserts the default value if there is none; returns the value of the prefix.
    pub fn or_default(self) -> &'a mut T
    where
        T: Default,
    {
        self.or_insert_with(T::default)
    }
}

impl<'a, P: PrefixKey, T> OccupiedEntry<'a, P, T> {
    /// Returns the prefix.
    pub fn key(&self) -> P {
        P::from_prefix(self.prefix)
    }

    /// Returns the value.
    pub fn get(&self) -> &T {
        self.map.trie.value(self.place.slot)
    }

    /// Returns the value, to be changed.
    pub fn get_mut(&mut self) -> &mut T {
        self.map.trie.value_mut(self.place.slot)
    }

    /// Returns the value for as long as the map is borrowed.
    pub fn into_mut(self) -> &'a mut T {
        self.map.trie.value_mut(self.place.slot)
    }

    /// Replaces the value; returns the old one.
    pub fn insert(&mut self, value: T) -> T {
        core::mem::replace(self.get_mut(), value)
    }

    /// Removes the prefix; returns its value.
    pub fn remove(self) -> T {
        self.map.trie.remove_at(self.prefix, self.place)
    }
}

impl<'a, P: PrefixKey, T> VacantEntry<'a, P, T> {
    /// Returns the prefix.
    pub fn key(&self) -> P {
        P::from_prefix(self.prefix)
    }

    /// Inserts a value.
    pub fn insert(self, value: T) -> &'a mut T {
        let (slot, _) = self.map.trie.insert(self.prefix, value);
        self.map.trie.value_mut(slot)
    }
}
