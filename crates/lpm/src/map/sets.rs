//! Two maps at once: union, intersection and difference.
//!
//! Both maps are walked in order and merged, so that each operation is one pass: O(n + m) for maps
//! of n and m prefixes, without allocation. The results are iterators, of which a caller collects
//! another map, or a count, or nothing.
//!
//! Prefixes are compared in two ways. [`union`](LpmMap::union), [`intersection`](LpmMap::intersection)
//! and [`difference`](LpmMap::difference) are about equal prefixes, as sets of keys are. The
//! operations with *covering* in their names are about addresses: a prefix has what the longest
//! prefix that covers it has. An array with the prefixes that cover the present one is the state of
//! these: at most one for each length.

use core::cmp::Ordering;
use core::iter::{FusedIterator, Peekable};

use alloc::vec::Vec;

use fib::Prefix;

use super::{Iter, LpmMap};
use crate::key::PrefixKey;

/// A prefix's values in two maps, of which at least one has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair<L, R> {
    /// Only the first map has the prefix.
    Left(L),
    /// Only the second one has it.
    Right(R),
    /// Both have it.
    Both(L, R),
}

impl<L, R> Pair<L, R> {
    /// Returns the value in the first map.
    pub fn left(self) -> Option<L> {
        match self {
            Self::Left(left) | Self::Both(left, _) => Some(left),
            Self::Right(_) => None,
        }
    }

    /// Returns the value in the second map.
    pub fn right(self) -> Option<R> {
        match self {
            Self::Right(right) | Self::Both(_, right) => Some(right),
            Self::Left(_) => None,
        }
    }
}

impl<P: PrefixKey, T> LpmMap<P, T> {
    /// Iterates over the prefixes of either map in order, with the value or the two values.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_lpm::{LpmMap, Pair};
    /// use ipnet::Ipv4Net;
    /// let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
    /// let (ours, theirs) = (net("192.0.2.0/24"), net("198.51.100.0/24"));
    /// let old = LpmMap::from([(ours, 1)]);
    /// let new = LpmMap::from([(ours, 2), (theirs, 3)]);
    /// let changes: Vec<_> = old.union(&new).collect();
    /// assert_eq!(changes, [(ours, Pair::Both(&1, &2)), (theirs, Pair::Right(&3))]);
    /// ```
    pub fn union<'a, U>(&'a self, other: &'a LpmMap<P, U>) -> Union<'a, P, T, U> {
        Union { merge: Merge::new(self, other) }
    }

    /// Iterates over the prefixes that both maps have, in order, with both values.
    pub fn intersection<'a, U>(&'a self, other: &'a LpmMap<P, U>) -> Intersection<'a, P, T, U> {
        Intersection { merge: Merge::new(self, other) }
    }

    /// Iterates over the prefixes that the other map does not have, in order, with their values.
    pub fn difference<'a, U>(&'a self, other: &'a LpmMap<P, U>) -> Difference<'a, P, T, U> {
        Difference { merge: Merge::new(self, other), is_covering: false, cover: None }
    }

    /// Iterates over the prefixes that no prefix of the other map covers, in order, with their
    /// values: what is left of a list after an exception list.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_lpm::LpmMap;
    /// use ipnet::Ipv4Net;
    /// let list = |nets: &[&str]| -> LpmMap<Ipv4Net, ()> {
    ///     nets.iter().map(|net| (net.parse().unwrap(), ())).collect()
    /// };
    /// let blocked = list(&["10.1.0.0/16", "192.0.2.0/24", "198.51.100.7/32"]);
    /// let exempt = list(&["10.0.0.0/8", "198.51.100.0/24"]);
    /// let left: LpmMap<Ipv4Net, ()> =
    ///     blocked.covering_difference(&exempt).map(|(net, _)| (net, ())).collect();
    /// assert_eq!(left, list(&["192.0.2.0/24"]));
    /// ```
    pub fn covering_difference<'a, U>(
        &'a self,
        other: &'a LpmMap<P, U>,
    ) -> Difference<'a, P, T, U> {
        Difference { merge: Merge::new(self, other), is_covering: true, cover: None }
    }

    /// Iterates over the prefixes of either map in order, with the value of the longest prefix
    /// that covers each, in either map: the map of pairs whose longest match for any address is the
    /// pair of both maps' longest matches.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_lpm::LpmMap;
    /// use ipnet::Ipv4Net;
    /// let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
    /// let countries = LpmMap::from([(net("192.0.2.0/24"), "HR")]);
    /// let networks = LpmMap::from([(net("192.0.2.128/25"), 64500)]);
    /// let both: Vec<_> = countries.covering_union(&networks).collect();
    /// assert_eq!(both[0], (net("192.0.2.0/24"), Some(&"HR"), None));
    /// assert_eq!(both[1], (net("192.0.2.128/25"), Some(&"HR"), Some(&64500)));
    /// ```
    pub fn covering_union<'a, U>(&'a self, other: &'a LpmMap<P, U>) -> CoveringUnion<'a, P, T, U> {
        CoveringUnion { merge: Merge::new(self, other), left: Vec::new(), right: Vec::new() }
    }
}

/// A map's entries in order, of which the next one is known.
type Entries<'a, A, T> = Peekable<Iter<'a, Prefix<A>, T>>;

/// A prefix and its values in two maps.
type Step<'a, A, T, U> = (Prefix<A>, Pair<&'a T, &'a U>);

/// Two maps in order: at each step the lower prefix, or both if they are equal.
struct Merge<'a, P: PrefixKey, T, U> {
    left: Entries<'a, P::Bits, T>,
    right: Entries<'a, P::Bits, U>,
}

impl<'a, P: PrefixKey, T, U> Merge<'a, P, T, U> {
    fn new(left: &'a LpmMap<P, T>, right: &'a LpmMap<P, U>) -> Self {
        Self { left: left.prefixes().peekable(), right: right.prefixes().peekable() }
    }

    #[inline]
    fn step(&mut self) -> Option<Step<'a, P::Bits, T, U>> {
        let order = match (self.left.peek(), self.right.peek()) {
            (Some((left, _)), Some((right, _))) => left.cmp(right),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        match order {
            Ordering::Less => self.left.next().map(|(prefix, left)| (prefix, Pair::Left(left))),
            Ordering::Greater => {
                self.right.next().map(|(prefix, right)| (prefix, Pair::Right(right)))
            }
            Ordering::Equal => {
                let ((prefix, left), (_, right)) = (self.left.next()?, self.right.next()?);
                Some((prefix, Pair::Both(left, right)))
            }
        }
    }
}

/// The prefixes of either of two maps ([`LpmMap::union`]).
pub struct Union<'a, P: PrefixKey, T, U> {
    merge: Merge<'a, P, T, U>,
}

impl<'a, P: PrefixKey, T, U> Iterator for Union<'a, P, T, U> {
    type Item = (P, Pair<&'a T, &'a U>);

    fn next(&mut self) -> Option<Self::Item> {
        self.merge.step().map(|(prefix, pair)| (P::from_prefix(prefix), pair))
    }
}

impl<P: PrefixKey, T, U> FusedIterator for Union<'_, P, T, U> {}

/// The prefixes of both of two maps ([`LpmMap::intersection`]).
pub struct Intersection<'a, P: PrefixKey, T, U> {
    merge: Merge<'a, P, T, U>,
}

impl<'a, P: PrefixKey, T, U> Iterator for Intersection<'a, P, T, U> {
    type Item = (P, &'a T, &'a U);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let (prefix, Pair::Both(left, right)) = self.merge.step()? {
                return Some((P::from_prefix(prefix), left, right));
            }
        }
    }
}

impl<P: PrefixKey, T, U> FusedIterator for Intersection<'_, P, T, U> {}

/// The prefixes of one map that another does not have, or does not cover
/// ([`LpmMap::difference`], [`LpmMap::covering_difference`]).
pub struct Difference<'a, P: PrefixKey, T, U> {
    merge: Merge<'a, P, T, U>,
    is_covering: bool,
    /// The last prefix of the other map that no prefix of it covers.
    cover: Option<Prefix<P::Bits>>,
}

impl<'a, P: PrefixKey, T, U> Iterator for Difference<'a, P, T, U> {
    type Item = (P, &'a T);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (prefix, pair) = self.merge.step()?;
            let is_covered = self.cover.is_some_and(|cover| cover.covers(prefix));
            match pair {
                Pair::Left(left) if !is_covered => return Some((P::from_prefix(prefix), left)),
                Pair::Right(_) | Pair::Both(..) if self.is_covering && !is_covered => {
                    self.cover = Some(prefix);
                }
                _ => {}
            }
        }
    }
}

impl<P: PrefixKey, T, U> FusedIterator for Difference<'_, P, T, U> {}

/// The prefixes of either of two maps, with the values that cover them in each
/// ([`LpmMap::covering_union`]).
pub struct CoveringUnion<'a, P: PrefixKey, T, U> {
    merge: Merge<'a, P, T, U>,
    /// The prefixes that cover the last one, shortest first.
    left: Vec<(Prefix<P::Bits>, &'a T)>,
    right: Vec<(Prefix<P::Bits>, &'a U)>,
}

impl<'a, P: PrefixKey, T, U> Iterator for CoveringUnion<'a, P, T, U> {
    type Item = (P, Option<&'a T>, Option<&'a U>);

    fn next(&mut self) -> Option<Self::Item> {
        let (prefix, pair) = self.merge.step()?;
        let left = innermost(&mut self.left, prefix, pair.left());
        let right = innermost(&mut self.right, prefix, pair.right());
        Some((P::from_prefix(prefix), left, right))
    }
}

impl<P: PrefixKey, T, U> FusedIterator for CoveringUnion<'_, P, T, U> {}

/// Removes the prefixes that do not cover `prefix`, adds it with its value if it has one, and
/// returns the value of the longest that is left.
fn innermost<'a, A: fib::Addr, T>(
    covers: &mut Vec<(Prefix<A>, &'a T)>,
    prefix: Prefix<A>,
    value: Option<&'a T>,
) -> Option<&'a T> {
    while covers.pop_if(|(cover, _)| !cover.covers(prefix)).is_some() {}
    covers.extend(value.map(|value| (prefix, value)));
    covers.last().map(|&(_, value)| value)
}
