//! The map of one address family.
//!
//! [`LpmMap`] translates keys to prefixes and slots to values; the structure is the trie's
//! ([`trie`](crate::trie)). Its order is that of [`Prefix`]: by address, and the shorter first, so
//! that a prefix comes directly before all that it covers. All walks are in that order.
//!
//! Every operation on one prefix or address visits at most one node for each six bits; paths
//! without a fork are compressed. O(1) below stands for that bound: 6 nodes of IPv4, 22 of IPv6.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Bound, Index, IndexMut, RangeBounds};

use alloc::vec::Vec;

use fib::{Addr, Prefix};

use crate::cursor::Cursor;
use crate::key::PrefixKey;
use crate::trie::Trie;

mod aggregate;
mod entry;
mod iter;
mod sets;

pub use entry::{Entry, OccupiedEntry, VacantEntry};
pub use iter::{Children, Covering, IntoIter, Iter, IterMut, Keys, Range, Values};
pub use sets::{CoveringUnion, Difference, Intersection, Pair, Union};

/// A map from prefixes of one address family to values.
///
/// Keys are of any type of prefixes ([`PrefixKey`]); the map returns them without host bits.
///
/// # Examples
///
/// ```
/// use std::net::Ipv4Addr;
/// use fingerpost_lpm::LpmMap;
/// use ipnet::Ipv4Net;
///
/// let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
/// let mut map = LpmMap::new();
/// map.insert(net("10.0.0.0/8"), "backbone");
/// map.insert(net("10.1.0.0/16"), "Zagreb");
/// map.insert(net("10.1.2.0/24"), "laboratory");
///
/// assert_eq!(map.get(&net("10.1.0.0/16")), Some(&"Zagreb"));
/// let longest = map.longest(Ipv4Addr::new(10, 1, 3, 4));
/// assert_eq!(longest, Some((net("10.1.0.0/16"), &"Zagreb")));
/// assert!(map.covered(&net("10.1.0.0/16")).map(|(net, _)| net.prefix_len()).eq([16, 24]));
/// ```
pub struct LpmMap<P: PrefixKey, T> {
    trie: Trie<P::Bits, T>,
    key: PhantomData<fn() -> P>,
}

impl<P: PrefixKey, T> LpmMap<P, T> {
    /// Makes an empty map, which allocates nothing.
    pub fn new() -> Self {
        Self { trie: Trie::new(), key: PhantomData }
    }

    /// Makes an empty map with room for `capacity` values; its nodes grow as they are needed.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut map = Self::new();
        map.trie.reserve(capacity);
        map
    }

    /// Returns the number of prefixes.
    pub fn len(&self) -> usize {
        self.trie.len()
    }

    /// Returns whether the map has no prefix.
    pub fn is_empty(&self) -> bool {
        self.trie.len() == 0
    }

    /// Removes all prefixes, and frees their memory.
    pub fn clear(&mut self) {
        self.trie = Trie::new();
    }

    /// Returns the bytes on the heap, without those that values own.
    pub fn footprint(&self) -> usize {
        self.trie.footprint()
    }

    /// Puts a value at a prefix; returns the value that was there.
    ///
    /// # Panics
    ///
    /// If the map would need 2^32 slots: with at least 2.8 billion prefixes.
    ///
    /// # Complexity
    ///
    /// O(1), amortized for the growth of the two vectors. Moves at most 126 values and 63 nodes.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use fingerpost_lpm::LpmMap;
    /// let mut map = LpmMap::new();
    /// assert_eq!(map.insert((Ipv4Addr::new(192, 0, 2, 0), 24), 1), None);
    /// assert_eq!(map.insert((Ipv4Addr::new(192, 0, 2, 77), 24), 2), Some(1), "the same prefix");
    /// ```
    #[inline]
    pub fn insert(&mut self, prefix: P, value: T) -> Option<T> {
        self.trie.insert(prefix.to_prefix(), value).1
    }

    /// Returns the value of exactly this prefix.
    ///
    /// # Complexity
    ///
    /// O(1), as for [`get_mut`](Self::get_mut), [`remove`](Self::remove) and
    /// [`longest`](Self::longest).
    #[inline]
    pub fn get(&self, prefix: &P) -> Option<&T> {
        self.trie.find(prefix.to_prefix()).map(|place| self.trie.value(place.slot))
    }

    /// Returns the value of exactly this prefix, to be changed.
    #[inline]
    pub fn get_mut(&mut self, prefix: &P) -> Option<&mut T> {
        self.trie.find(prefix.to_prefix()).map(|place| self.trie.value_mut(place.slot))
    }

    /// Returns whether the map has exactly this prefix.
    #[inline]
    pub fn contains_key(&self, prefix: &P) -> bool {
        self.trie.find(prefix.to_prefix()).is_some()
    }

    /// Removes a prefix; returns its value, `None` if it was not there.
    pub fn remove(&mut self, prefix: &P) -> Option<T> {
        self.trie.remove(prefix.to_prefix())
    }

    /// Returns the longest prefix that holds an address, and its value.
    ///
    /// For many lookups between changes see [`freeze`](Self::freeze).
    #[inline]
    pub fn longest(&self, address: P::Address) -> Option<(P, &T)> {
        self.longest_of(P::to_bits(address), P::Bits::BITS)
    }

    /// Returns the longest prefix that holds an address, and its value, to be changed.
    #[inline]
    pub fn longest_mut(&mut self, address: P::Address) -> Option<(P, &mut T)> {
        let (prefix, slot) = self.trie.longest(P::to_bits(address), P::Bits::BITS)?;
        Some((P::from_prefix(prefix), self.trie.value_mut(slot)))
    }

    /// Returns the longest prefix that covers `prefix`, which may be itself, and its value.
    #[inline]
    pub fn longest_covering(&self, prefix: &P) -> Option<(P, &T)> {
        let prefix = prefix.to_prefix();
        self.longest_of(prefix.addr(), prefix.len())
    }

    /// Returns the longest prefix that covers `prefix` and is shorter, and its value.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_lpm::LpmMap;
    /// use ipnet::Ipv6Net;
    /// let net = |text: &str| text.parse::<Ipv6Net>().unwrap();
    /// let map = LpmMap::from([(net("2001:db8::/32"), 1), (net("2001:db8:7::/48"), 2)]);
    /// assert_eq!(map.parent(&net("2001:db8:7::/48")), Some((net("2001:db8::/32"), &1)));
    /// assert_eq!(map.parent(&net("2001:db8::/32")), None);
    /// ```
    pub fn parent(&self, prefix: &P) -> Option<(P, &T)> {
        let prefix = prefix.to_prefix();
        self.longest_of(prefix.addr(), prefix.len().checked_sub(1)?)
    }

    /// Iterates over the prefixes within `prefix` that are in no other one of them: the first
    /// ones below it, in order. The prefix itself is not one of them and need not be in the map.
    ///
    /// # Complexity
    ///
    /// O(1) for each of them, whatever lies below.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_lpm::LpmMap;
    /// use ipnet::Ipv4Net;
    /// let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
    /// let nets = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.9.0.0/16"].map(net);
    /// let map: LpmMap<Ipv4Net, ()> = nets.map(|net| (net, ())).into();
    /// assert!(map.children(&nets[0]).map(|(net, _)| net).eq([nets[1], nets[3]]));
    /// ```
    pub fn children(&self, prefix: &P) -> Children<'_, P, T> {
        Children::new(&self.trie, prefix.to_prefix())
    }

    /// Iterates over the prefixes that cover `prefix`, shortest first, its own included.
    pub fn covering(&self, prefix: &P) -> Covering<'_, P, T> {
        Covering::new(&self.trie, prefix.to_prefix())
    }

    /// Iterates over the prefixes that hold an address, shortest first.
    pub fn matches(&self, address: P::Address) -> Covering<'_, P, T> {
        Covering::new(&self.trie, Prefix::truncate(P::to_bits(address), P::Bits::BITS))
    }

    /// Iterates over the prefixes that `prefix` covers, in order, its own included.
    ///
    /// # Complexity
    ///
    /// O(1 + n) for n prefixes, without allocation.
    pub fn covered(&self, prefix: &P) -> Range<'_, P, T> {
        Range::covered(&self.trie, prefix.to_prefix())
    }

    /// Iterates over the prefixes between two of them, in order: by address, the shorter first.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_lpm::LpmMap;
    /// use ipnet::Ipv4Net;
    /// let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
    /// let nets = ["10.0.0.0/8", "10.0.0.0/9", "10.128.0.0/9", "11.0.0.0/8"].map(net);
    /// let map: LpmMap<Ipv4Net, ()> = nets.map(|net| (net, ())).into();
    /// assert!(map.range(nets[1]..nets[3]).map(|(net, _)| net).eq([nets[1], nets[2]]));
    /// ```
    pub fn range(&self, range: impl RangeBounds<P>) -> Range<'_, P, T> {
        let bound = |bound: Bound<&P>| bound.map(PrefixKey::to_prefix);
        Range::new(&self.trie, bound(range.start_bound()), bound(range.end_bound()))
    }

    /// Iterates over all prefixes and values in order.
    pub fn iter(&self) -> Iter<'_, P, T> {
        Iter::new(&self.trie)
    }

    /// Iterates over all prefixes in order, and over their values, to be changed.
    ///
    /// It allocates 8 bytes a value, because safe code can hand out references in another order
    /// than that of memory only from a list; [`for_each_mut`](Self::for_each_mut) allocates nothing.
    pub fn iter_mut(&mut self) -> IterMut<'_, P, T> {
        IterMut::new(&mut self.trie)
    }

    /// Calls `change` with each prefix and its value, in order.
    pub fn for_each_mut(&mut self, mut change: impl FnMut(P, &mut T)) {
        let (nodes, slots) = self.trie.parts_mut();
        let mut cursor = Cursor::start(nodes);
        while let Some((prefix, slot)) = cursor.next(nodes) {
            if let Some(value) = &mut slots[slot as usize] {
                change(P::from_prefix(prefix), value);
            }
        }
    }

    /// Iterates over all prefixes in order.
    pub fn keys(&self) -> Keys<'_, P, T> {
        Keys::new(self.iter())
    }

    /// Iterates over all values in the order of their prefixes.
    pub fn values(&self) -> Values<'_, P, T> {
        Values::new(self.iter())
    }

    /// Iterates over all values as they lie in memory, in no particular order: the fastest walk.
    pub fn values_unordered(&self) -> impl Iterator<Item = &T> {
        self.trie.slots().iter().flatten()
    }

    /// Returns the place of a prefix, to insert, change or remove its value.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use fingerpost_lpm::LpmMap;
    /// let mut packets = LpmMap::new();
    /// for last in [1, 2, 130] {
    ///     *packets.entry((Ipv4Addr::new(192, 0, 2, last), 25)).or_insert(0) += 1;
    /// }
    /// assert!(packets.values().eq(&[2, 1]));
    /// ```
    pub fn entry(&mut self, prefix: P) -> Entry<'_, P, T> {
        Entry::new(self, prefix.to_prefix())
    }

    /// Keeps the prefixes for which `is_kept` returns true, which it gets in order.
    pub fn retain(&mut self, mut is_kept: impl FnMut(P, &mut T) -> bool) {
        let (nodes, slots) = self.trie.parts_mut();
        let mut cursor = Cursor::start(nodes);
        let mut removed = Vec::new();
        while let Some((prefix, slot)) = cursor.next(nodes) {
            let value = &mut slots[slot as usize];
            if value.as_mut().is_some_and(|value| !is_kept(P::from_prefix(prefix), value)) {
                removed.push(prefix);
            }
        }
        for prefix in removed {
            self.trie.remove(prefix);
        }
    }

    /// Removes the prefixes that `prefix` covers, its own included; returns how many.
    pub fn remove_covered(&mut self, prefix: &P) -> usize {
        let covered = Range::<P, T>::covered(&self.trie, prefix.to_prefix());
        let removed: Vec<_> = covered.map(|(covered, _)| covered.to_prefix()).collect();
        for prefix in &removed {
            self.trie.remove(*prefix);
        }
        removed.len()
    }

    /// Iterates over all prefixes and values as the library's own.
    pub(crate) fn prefixes(&self) -> Iter<'_, Prefix<P::Bits>, T> {
        Iter::new(&self.trie)
    }

    fn longest_of(&self, addr: P::Bits, len: u32) -> Option<(P, &T)> {
        let (prefix, slot) = self.trie.longest(addr, len)?;
        Some((P::from_prefix(prefix), self.trie.value(slot)))
    }
}

impl<P: PrefixKey, T> Default for LpmMap<P, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: PrefixKey, T: Clone> Clone for LpmMap<P, T> {
    fn clone(&self) -> Self {
        Self { trie: self.trie.clone(), key: PhantomData }
    }
}

impl<P: PrefixKey, T: fmt::Debug> fmt::Debug for LpmMap<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.prefixes()).finish()
    }
}

impl<P: PrefixKey, T: PartialEq> PartialEq for LpmMap<P, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.prefixes().eq(other.prefixes())
    }
}

impl<P: PrefixKey, T: Eq> Eq for LpmMap<P, T> {}

/// The value of a prefix.
///
/// # Panics
///
/// If the prefix is not in the map.
impl<P: PrefixKey, T> Index<&P> for LpmMap<P, T> {
    type Output = T;

    fn index(&self, prefix: &P) -> &T {
        self.get(prefix).expect("the index is a prefix that the map has")
    }
}

impl<P: PrefixKey, T> IndexMut<&P> for LpmMap<P, T> {
    fn index_mut(&mut self, prefix: &P) -> &mut T {
        self.get_mut(prefix).expect("the index is a prefix that the map has")
    }
}

/// Of several values of one prefix the last is kept.
impl<P: PrefixKey, T> Extend<(P, T)> for LpmMap<P, T> {
    fn extend<I: IntoIterator<Item = (P, T)>>(&mut self, entries: I) {
        for (prefix, value) in entries {
            self.insert(prefix, value);
        }
    }
}

/// Of several values of one prefix the last is kept. Entries in order are inserted the fastest.
impl<P: PrefixKey, T> FromIterator<(P, T)> for LpmMap<P, T> {
    fn from_iter<I: IntoIterator<Item = (P, T)>>(entries: I) -> Self {
        let entries = entries.into_iter();
        let mut map = Self::with_capacity(entries.size_hint().0);
        map.extend(entries);
        map
    }
}

impl<P: PrefixKey, T, const N: usize> From<[(P, T); N]> for LpmMap<P, T> {
    fn from(entries: [(P, T); N]) -> Self {
        entries.into_iter().collect()
    }
}

impl<P: PrefixKey, T> IntoIterator for LpmMap<P, T> {
    type Item = (P, T);
    type IntoIter = IntoIter<P, T>;

    fn into_iter(self) -> IntoIter<P, T> {
        IntoIter::new(self.trie)
    }
}

impl<'a, P: PrefixKey, T> IntoIterator for &'a LpmMap<P, T> {
    type Item = (P, &'a T);
    type IntoIter = Iter<'a, P, T>;

    fn into_iter(self) -> Iter<'a, P, T> {
        self.iter()
    }
}

impl<'a, P: PrefixKey, T> IntoIterator for &'a mut LpmMap<P, T> {
    type Item = (P, &'a mut T);
    type IntoIter = IterMut<'a, P, T>;

    fn into_iter(self) -> IterMut<'a, P, T> {
        self.iter_mut()
    }
}

#[cfg(test)]
mod tests;
