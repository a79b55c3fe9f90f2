//! Fewer prefixes with the same longest matches.
//!
//! Three steps, none of which changes the value that an address gets, or whether it gets one:
//!
//! ```text
//!   10.0.0.0/8    1                                                        10.0.0.0/8   1
//!   10.1.0.0/16   1   has the value of the prefix that covers it: removed
//!   10.2.0.0/24   2   ┐ the halves of 10.2.0.0/23 have one value: it gets  10.2.0.0/23  2
//!   10.2.1.0/24   2   ┘ the value, and they are removed
//! ```
//!
//! 1. From the top down, a prefix that has the value of the next shorter one is removed.
//! 2. From the longest length to the shortest, two halves with one value become the prefix of both,
//!    whatever value that one had: none of its addresses got it.
//! 3. Step 1 once more, because a joined prefix can have the value of the next shorter one.
//!
//! After that no step applies: step 3 removes no prefix that was a half of a pair with equal values
//! without the other half. The result is not always the smallest possible (Draves, King, Venkatachary,
//! Zill, "Constructing Optimal IP Routing Tables", INFOCOM 1999): that would give prefixes to
//! addresses that had none, or values to addresses where another prefix repairs it.

use alloc::vec::Vec;
use core::mem;

use fib::{Addr, Prefix};

use super::LpmMap;
use crate::key::PrefixKey;

impl<P: PrefixKey, T: PartialEq> LpmMap<P, T> {
    /// Removes prefixes that do not matter for longest matches, and joins halves with one value.
    ///
    /// Every address has the same value as before, or none as before.
    ///
    /// # Complexity
    ///
    /// O(n log n) for n prefixes; the map is built again.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_lpm::LpmMap;
    /// use ipnet::Ipv4Net;
    /// let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
    /// let mut map = LpmMap::from([
    ///     (net("192.0.2.0/25"), "east"),
    ///     (net("192.0.2.128/25"), "east"),
    ///     (net("192.0.2.64/26"), "east"),
    ///     (net("192.0.2.7/32"), "west"),
    /// ]);
    /// map.aggregate();
    /// assert!(map.iter().eq([(net("192.0.2.0/24"), &"east"), (net("192.0.2.7/32"), &"west")]));
    /// ```
    pub fn aggregate(&mut self) {
        let entries = mem::take(self).into_iter();
        let mut entries: Vec<_> = entries.map(|(key, value)| (key.to_prefix(), value)).collect();
        entries = remove_repeated(entries);
        entries = join_halves(entries);
        entries.sort_unstable_by_key(|(prefix, _)| *prefix);
        entries = remove_repeated(entries);
        *self =
            entries.into_iter().map(|(prefix, value)| (P::from_prefix(prefix), value)).collect();
    }
}

/// Removes each prefix with the value of the longest one before it that covers it.
fn remove_repeated<A: Addr, T: PartialEq>(entries: Vec<(Prefix<A>, T)>) -> Vec<(Prefix<A>, T)> {
    let mut left: Vec<(Prefix<A>, T)> = Vec::with_capacity(entries.len());
    // The prefixes that cover the present one, by their number in the result.
    let mut covers: Vec<usize> = Vec::new();
    for (prefix, value) in entries {
        while covers.pop_if(|cover| !left[*cover].0.covers(prefix)).is_some() {}
        if covers.last().is_some_and(|&cover| left[cover].1 == value) {
            continue;
        }
        covers.push(left.len());
        left.push((prefix, value));
    }
    left
}

/// Joins halves with one value, from the longest length on; returns the prefixes by length.
fn join_halves<A: Addr, T: PartialEq>(entries: Vec<(Prefix<A>, T)>) -> Vec<(Prefix<A>, T)> {
    let mut lengths: Vec<Vec<(Prefix<A>, T)>> = Vec::new();
    lengths.resize_with(A::BITS as usize + 1, Vec::new);
    for (prefix, value) in entries {
        lengths[prefix.len() as usize].push((prefix, value));
    }
    let mut left = Vec::new();
    let mut joined: Vec<(Prefix<A>, T)> = Vec::new();
    for len in (0..=A::BITS).rev() {
        let mut level = merge(mem::take(&mut lengths[len as usize]), mem::take(&mut joined));
        while let Some((prefix, value)) = level.next() {
            let above = len.checked_sub(1).map(|above| Prefix::truncate(prefix.addr(), above));
            let half = above.filter(|above| {
                let follows =
                    |(next, other): &(Prefix<A>, T)| above.covers(*next) && *other == value;
                level.as_slice().first().is_some_and(follows)
            });
            match half {
                Some(above) => {
                    level.next();
                    joined.push((above, value));
                }
                None => left.push((prefix, value)),
            }
        }
    }
    left
}

/// Merges prefixes of one length; where both have a prefix, the joined one's value counts.
fn merge<A: Addr, T>(
    own: Vec<(Prefix<A>, T)>,
    joined: Vec<(Prefix<A>, T)>,
) -> alloc::vec::IntoIter<(Prefix<A>, T)> {
    if joined.is_empty() {
        return own.into_iter();
    }
    let mut merged = Vec::with_capacity(own.len() + joined.len());
    let mut own = own.into_iter().peekable();
    for (prefix, value) in joined {
        while let Some(before) = own.next_if(|(other, _)| *other < prefix) {
            merged.push(before);
        }
        own.next_if(|(other, _)| *other == prefix);
        merged.push((prefix, value));
    }
    merged.extend(own);
    merged.into_iter()
}
