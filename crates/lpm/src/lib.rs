//! A map from IP prefixes to values of any type, and tables of it for fast lookups.
//!
//! ```text
//!   insert, remove, entry ─► LpmMap ─► longest, covering, covered, iter, union, …
//!                              │ freeze
//!                              ▼
//!                          FrozenLpm ─► lookup, lookup_many, images in files
//! ```
//!
//! | type | purpose |
//! |---|---|
//! | [`LpmMap`] | a map of one address family, to be changed |
//! | [`IpLpmMap`] | a map of both |
//! | [`FrozenLpm`] | the longest matches of a map at one time: batches, images in files |
//! | [`PrefixKey`], [`IpPrefixKey`] | the types of prefixes that a map takes and returns |
//! | [`Prefix`], [`Choice`], [`Fib`], [`Hop`], [`Full`], [`image`] | of `fingerpost-fib` |
//!
//! # Examples
//!
//! ```
//! # #[cfg(feature = "ipnet")] {
//! use std::net::Ipv4Addr;
//! use fingerpost_lpm::{Choice, LpmMap};
//! use ipnet::Ipv4Net;
//!
//! let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
//! let mut map = LpmMap::from([(net("0.0.0.0/0"), "upstream"), (net("192.0.2.0/24"), "customer")]);
//! let longest = map.longest(Ipv4Addr::new(192, 0, 2, 7));
//! assert_eq!(longest, Some((net("192.0.2.0/24"), &"customer")));
//! map.remove(&net("192.0.2.0/24"));
//! let table = map.freeze(Choice::Auto)?;
//! assert_eq!(table.lookup(Ipv4Addr::new(192, 0, 2, 7)), Some(&"upstream"));
//! # }
//! # Ok::<(), fingerpost_lpm::Full>(())
//! ```
//!
//! Without the feature `std` (on by default) the crate needs `alloc` only.

#![forbid(unsafe_code)]
#![no_std]
extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

mod cursor;
mod dual;
mod frozen;
mod key;
mod map;
#[cfg(feature = "serde")]
mod serde;
mod span;
mod stride;
mod trie;

pub use dual::IpLpmMap;
pub use fib::{BadPrefix, Choice, Fib, Full, Hop, Prefix, image};
pub use frozen::{FrozenLpm, ImageError};
pub use key::{IpPrefix, IpPrefixKey, PrefixKey};
pub use map::{
    Children, Covering, CoveringUnion, Difference, Entry, Intersection, IntoIter, Iter, IterMut,
    Keys, LpmMap, OccupiedEntry, Pair, Range, Union, VacantEntry, Values,
};

/// The examples of the README, compiled and run as documentation tests.
#[cfg(all(doctest, feature = "ipnet"))]
#[doc = include_str!("../README.md")]
mod examples {}
