//! The map of both address families: one map for each, behind one key.
//!
//! The order is that of [`IpPrefix`]: all of IPv4, then all of IPv6. Operations that concern one
//! family, such as sets and frozen tables, are those of the two maps, which are public.

use core::fmt;
use core::marker::PhantomData;
use core::net::IpAddr;

use fib::Prefix;

use crate::key::{IpPrefix, IpPrefixKey};
use crate::map::LpmMap;

/// A map from prefixes of either address family to values.
///
/// # Examples
///
/// ```
/// use fingerpost_lpm::IpLpmMap;
/// use ipnet::IpNet;
/// let net = |text: &str| text.parse::<IpNet>().unwrap();
/// let mut map = IpLpmMap::new();
/// map.insert(net("0.0.0.0/0"), "IPv4");
/// map.insert(net("2001:db8::/32"), "documentation");
/// let (longest, value) = map.longest("2001:db8::1".parse()?).unwrap();
/// assert_eq!((longest, *value), (net("2001:db8::/32"), "documentation"));
/// assert_eq!(map.longest("::1".parse()?), None);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub struct IpLpmMap<P, T> {
    /// The prefixes of IPv4.
    pub v4: LpmMap<Prefix<u32>, T>,
    /// The prefixes of IPv6.
    pub v6: LpmMap<Prefix<u128>, T>,
    key: PhantomData<fn() -> P>,
}

impl<P: IpPrefixKey, T> IpLpmMap<P, T> {
    /// Makes an empty map, which allocates nothing.
    pub fn new() -> Self {
        Self { v4: LpmMap::new(), v6: LpmMap::new(), key: PhantomData }
    }

    /// Returns the number of prefixes of both families.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns whether the map has no prefix.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes all prefixes, and frees their memory.
    pub fn clear(&mut self) {
        self.v4.clear();
        self.v6.clear();
    }

    /// Puts a value at a prefix; returns the value that was there.
    pub fn insert(&mut self, prefix: P, value: T) -> Option<T> {
        match prefix.to_ip_prefix() {
            IpPrefix::V4(prefix) => self.v4.insert(prefix, value),
            IpPrefix::V6(prefix) => self.v6.insert(prefix, value),
        }
    }

    /// Returns the value of exactly this prefix.
    pub fn get(&self, prefix: &P) -> Option<&T> {
        match prefix.to_ip_prefix() {
            IpPrefix::V4(prefix) => self.v4.get(&prefix),
            IpPrefix::V6(prefix) => self.v6.get(&prefix),
        }
    }

    /// Returns the value of exactly this prefix, to be changed.
    pub fn get_mut(&mut self, prefix: &P) -> Option<&mut T> {
        match prefix.to_ip_prefix() {
            IpPrefix::V4(prefix) => self.v4.get_mut(&prefix),
            IpPrefix::V6(prefix) => self.v6.get_mut(&prefix),
        }
    }

    /// Returns whether the map has exactly this prefix.
    pub fn contains_key(&self, prefix: &P) -> bool {
        self.get(prefix).is_some()
    }

    /// Removes a prefix; returns its value, `None` if it was not there.
    pub fn remove(&mut self, prefix: &P) -> Option<T> {
        match prefix.to_ip_prefix() {
            IpPrefix::V4(prefix) => self.v4.remove(&prefix),
            IpPrefix::V6(prefix) => self.v6.remove(&prefix),
        }
    }

    /// Returns the longest prefix that holds an address, and its value.
    pub fn longest(&self, address: IpAddr) -> Option<(P, &T)> {
        match address {
            IpAddr::V4(address) => self.v4.longest(address.into()).map(key_of_v4),
            IpAddr::V6(address) => self.v6.longest(address.into()).map(key_of_v6),
        }
    }

    /// Returns the longest prefix that covers `prefix`, which may be itself, and its value.
    pub fn longest_covering(&self, prefix: &P) -> Option<(P, &T)> {
        match prefix.to_ip_prefix() {
            IpPrefix::V4(prefix) => self.v4.longest_covering(&prefix).map(key_of_v4),
            IpPrefix::V6(prefix) => self.v6.longest_covering(&prefix).map(key_of_v6),
        }
    }

    /// Iterates over all prefixes and values in order, those of IPv4 first.
    pub fn iter(&self) -> impl Iterator<Item = (P, &T)> {
        self.v4.iter().map(key_of_v4).chain(self.v6.iter().map(key_of_v6))
    }

    /// Iterates over the prefixes that `prefix` covers, in order, its own included.
    pub fn covered(&self, prefix: &P) -> impl Iterator<Item = (P, &T)> {
        let (v4, v6) = match prefix.to_ip_prefix() {
            IpPrefix::V4(prefix) => (Some(self.v4.covered(&prefix)), None),
            IpPrefix::V6(prefix) => (None, Some(self.v6.covered(&prefix))),
        };
        v4.into_iter().flatten().map(key_of_v4).chain(v6.into_iter().flatten().map(key_of_v6))
    }

    /// Iterates over the prefixes that cover `prefix`, shortest first, its own included.
    pub fn covering(&self, prefix: &P) -> impl Iterator<Item = (P, &T)> {
        let (v4, v6) = match prefix.to_ip_prefix() {
            IpPrefix::V4(prefix) => (Some(self.v4.covering(&prefix)), None),
            IpPrefix::V6(prefix) => (None, Some(self.v6.covering(&prefix))),
        };
        v4.into_iter().flatten().map(key_of_v4).chain(v6.into_iter().flatten().map(key_of_v6))
    }

    /// Keeps the prefixes for which `is_kept` returns true, which it gets in order.
    pub fn retain(&mut self, mut is_kept: impl FnMut(P, &mut T) -> bool) {
        self.v4.retain(|prefix, value| is_kept(P::from_ip_prefix(IpPrefix::V4(prefix)), value));
        self.v6.retain(|prefix, value| is_kept(P::from_ip_prefix(IpPrefix::V6(prefix)), value));
    }
}

fn key_of_v4<P: IpPrefixKey, T>((prefix, value): (Prefix<u32>, T)) -> (P, T) {
    (P::from_ip_prefix(IpPrefix::V4(prefix)), value)
}

fn key_of_v6<P: IpPrefixKey, T>((prefix, value): (Prefix<u128>, T)) -> (P, T) {
    (P::from_ip_prefix(IpPrefix::V6(prefix)), value)
}

impl<P: IpPrefixKey, T> Default for IpLpmMap<P, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P, T: Clone> Clone for IpLpmMap<P, T> {
    fn clone(&self) -> Self {
        Self { v4: self.v4.clone(), v6: self.v6.clone(), key: PhantomData }
    }
}

impl<P, T: fmt::Debug> fmt::Debug for IpLpmMap<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.v4).entries(&self.v6).finish()
    }
}

impl<P, T: PartialEq> PartialEq for IpLpmMap<P, T> {
    fn eq(&self, other: &Self) -> bool {
        self.v4 == other.v4 && self.v6 == other.v6
    }
}

impl<P, T: Eq> Eq for IpLpmMap<P, T> {}

/// Of several values of one prefix the last is kept.
impl<P: IpPrefixKey, T> Extend<(P, T)> for IpLpmMap<P, T> {
    fn extend<I: IntoIterator<Item = (P, T)>>(&mut self, entries: I) {
        for (prefix, value) in entries {
            self.insert(prefix, value);
        }
    }
}

/// Of several values of one prefix the last is kept.
impl<P: IpPrefixKey, T> FromIterator<(P, T)> for IpLpmMap<P, T> {
    fn from_iter<I: IntoIterator<Item = (P, T)>>(entries: I) -> Self {
        let mut map = Self::new();
        map.extend(entries);
        map
    }
}
