//! A map as a table for fast lookups, which does not change.
//!
//! ```text
//!   LpmMap ──freeze──► values, each once: Vec<T>     Rib of hops ──build──► Fib
//!                            ▲                                               │
//!                            └─────── hop - 1 ◄──── lookup, lookup_many ─────┘
//! ```
//!
//! The table is one of the library `fingerpost-fib`, with the engine of the caller's [`Choice`]: a
//! few bytes a prefix, so that an Internet table fits the CPU's second-level cache. It answers with
//! a hop, the number of the value from 1. Values that occur with more prefixes get lower numbers,
//! of which the engines need fewer bits.
//!
//! Equal values share one number ([`LpmMap::freeze`]). A caller that needs the matching prefix
//! too freezes prefixes and values ([`LpmMap::freeze_entries`]); each prefix then has a number of
//! its own, and the table is larger.
//!
//! A frozen table is `Sync`. Its batches write to slices of the caller, so that they are divided
//! among threads by dividing the slices, as `par_chunks` of `rayon` does.

use core::fmt;
use core::hash::Hash;

use alloc::vec::Vec;

use fib::{Choice, Fib, Full, Hop, HopTable, Rib};

use crate::key::PrefixKey;
use crate::map::LpmMap;

mod image;

pub use image::ImageError;

/// The number of addresses that are converted at a time.
const BATCH: usize = 64;

/// A table of the longest matches of a map, which does not change.
///
/// # Examples
///
/// ```
/// use std::net::Ipv4Addr;
/// use fingerpost_lpm::{Choice, LpmMap};
/// use ipnet::Ipv4Net;
///
/// let net = |text: &str| text.parse::<Ipv4Net>().unwrap();
/// let map = LpmMap::from([(net("10.0.0.0/8"), "east"), (net("10.1.0.0/16"), "west")]);
/// let table = map.freeze(Choice::Auto)?;
/// assert_eq!(table.lookup(Ipv4Addr::new(10, 1, 2, 3)), Some(&"west"));
///
/// // Many at once are several times as fast.
/// let addresses = [[10, 2, 0, 0], [10, 1, 0, 0], [11, 0, 0, 0]].map(Ipv4Addr::from);
/// let mut values = [None; 3];
/// table.lookup_many(&addresses, &mut values);
/// assert_eq!(values, [Some(&"east"), Some(&"west"), None]);
/// # Ok::<(), fingerpost_lpm::Full>(())
/// ```
///
/// On several threads, with `rayon`:
///
/// ```
/// use fingerpost_lpm::{Choice, LpmMap};
/// use rayon::prelude::*;
/// use std::net::Ipv4Addr;
/// let map = LpmMap::from([((Ipv4Addr::new(10, 0, 0, 0), 8), 1)]);
/// let table = map.freeze(Choice::Auto)?;
/// let addresses: Vec<Ipv4Addr> = (0..10_000).map(|i| Ipv4Addr::from(0x0a00_0000 + i)).collect();
/// let mut values = vec![None; addresses.len()];
/// let chunks = addresses.par_chunks(4096).zip(values.par_chunks_mut(4096));
/// chunks.for_each(|(addresses, values)| table.lookup_many(addresses, values));
/// assert!(values.iter().all(|value| *value == Some(&1)));
/// # Ok::<(), fingerpost_lpm::Full>(())
/// ```
pub struct FrozenLpm<P: PrefixKey, T> {
    fib: Fib<P::Bits>,
    /// The value of hop h is `values[h - 1]`.
    values: Vec<T>,
}

impl<P: PrefixKey, T: Clone + Eq + Hash> LpmMap<P, T> {
    /// Makes a table of the map as it is now, in which equal values are stored once.
    ///
    /// # Errors
    ///
    /// [`Full`] if the prefixes exceed every width of the chosen engine.
    ///
    /// # Complexity
    ///
    /// O(n) for n prefixes, and the build of the engine: for a full Internet table a fraction of a
    /// second.
    pub fn freeze(&self, choice: Choice) -> Result<FrozenLpm<P, T>, Full> {
        let ranked = HopTable::ranked(self.values().map(|value| (value, 1)))?;
        let hops = self.prefixes().map(|(prefix, value)| {
            // Every value of the map was counted.
            (prefix, ranked.find(&value).unwrap_or_default())
        });
        let fib = Fib::build(&Rib::from_sorted(hops), choice, 1)?;
        Ok(FrozenLpm { fib, values: ranked.iter().map(|(_, value, _)| (*value).clone()).collect() })
    }
}

impl<P: PrefixKey, T: Clone> LpmMap<P, T> {
    /// Makes a table of the map as it is now, which finds the longest prefix and its value.
    ///
    /// No two prefixes share a number, so that the table is larger than that of
    /// [`freeze`](Self::freeze) for a map with repeated values.
    ///
    /// # Errors
    ///
    /// [`Full`] if the prefixes exceed every width of the chosen engine.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use fingerpost_lpm::{Choice, LpmMap};
    /// let map = LpmMap::from([((Ipv4Addr::new(192, 0, 2, 0), 24), 1.5)]);
    /// let table = map.freeze_entries(Choice::Auto)?;
    /// let (prefix, value) = table.lookup(Ipv4Addr::new(192, 0, 2, 7)).unwrap();
    /// assert_eq!((prefix.1, *value), (24, 1.5));
    /// # Ok::<(), fingerpost_lpm::Full>(())
    /// ```
    pub fn freeze_entries(&self, choice: Choice) -> Result<FrozenLpm<P, (P, T)>, Full> {
        let hops = self.prefixes().zip(1..).map(|((prefix, _), hop)| (prefix, Hop(hop)));
        let fib = Fib::build(&Rib::from_sorted(hops), choice, 1)?;
        let values = self.iter().map(|(prefix, value)| (prefix, value.clone())).collect();
        Ok(FrozenLpm { fib, values })
    }
}

impl<P: PrefixKey, T> FrozenLpm<P, T> {
    /// Returns the value of the longest prefix that holds an address.
    #[inline]
    pub fn lookup(&self, address: P::Address) -> Option<&T> {
        self.value(self.fib.lookup(P::to_bits(address)))
    }

    /// Looks up `addresses[i]` into `values[i]` for every i; several times faster a lookup than one
    /// by one.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn lookup_many<'a>(&'a self, addresses: &[P::Address], values: &mut [Option<&'a T>]) {
        assert_eq!(addresses.len(), values.len(), "every address has a place for its value");
        let mut bits = [fib::Addr::MIN; BATCH];
        let mut hops = [Hop::NONE; BATCH];
        for (addresses, values) in addresses.chunks(BATCH).zip(values.chunks_mut(BATCH)) {
            let (bits, hops) = (&mut bits[..addresses.len()], &mut hops[..addresses.len()]);
            for (bits, address) in bits.iter_mut().zip(addresses) {
                *bits = P::to_bits(*address);
            }
            self.fib.lookup_batch(bits, hops);
            for (value, hop) in values.iter_mut().zip(hops) {
                *value = self.value(*hop);
            }
        }
    }

    /// Returns the value of a hop, the number that [`fib`](Self::fib) answers with.
    #[inline]
    pub fn value(&self, hop: Hop) -> Option<&T> {
        self.values.get((hop.0 as usize).wrapping_sub(1))
    }

    /// Returns the values: the one of hop h is at index h - 1.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Returns the table below, whose batches take integers and give hops: the fastest lookups.
    ///
    /// # Examples
    ///
    /// ```
    /// use fingerpost_lpm::{Choice, Hop, LpmMap, Prefix};
    /// let prefix: Prefix<u32> = "192.0.2.0/24".parse()?;
    /// let table = LpmMap::from([(prefix, "east")]).freeze(Choice::Auto)?;
    /// let mut hops = [Hop::NONE; 2];
    /// table.fib().lookup_batch(&[0xc000_0207, 0], &mut hops);
    /// assert_eq!(hops.map(|hop| table.value(hop)), [Some(&"east"), None]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fib(&self) -> &Fib<P::Bits> {
        &self.fib
    }

    /// Returns the bytes that lookups may touch, without those that values own.
    pub fn footprint(&self) -> usize {
        self.fib.footprint() + size_of_val(&self.values[..])
    }
}

impl<P: PrefixKey, T> fmt::Debug for FrozenLpm<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FrozenLpm({:?}, {} values)", self.fib, self.values.len())
    }
}
