//! The flow: a pair of source and destination address, and its hash.
//!
//! ```text
//!   IPv4   source:32 destination:32 | 0     | 0     | 0        version 4
//!   IPv6   source high              | low   | destination high | low      version 6
//! ```
//!
//! Decisions are about pairs of addresses (thesis, 4.3.2): all ports and all fragments of a pair
//! are one flow. The version is part of the flow, so that no packet with a mapped address
//! (`::ffff:0:0/96`) can pass for the IPv4 flow of those addresses.
//!
//! A flow is found by its 32-bit **hash**, computed once and carried from steering to the table:
//! the upper bits choose the worker ([`worker`]), the lower ones the position in its index. A
//! network card that spreads packets by addresses computes a hash; where none does, [`Key::hash`]
//! does, by the multilinear family over 32-bit characters (Lemire and Kaser, "Strongly universal
//! string hashing is fast", Comput. J. 57(11), 2014):
//!
//! ```text
//!   upper 32 bits of (k0 + k1·c1 + k2·c2 + …) mod 2^64
//! ```
//!
//! It is strongly universal: for an attacker without the key, two flows collide with probability
//! 2^-32, whatever they are. Nothing reveals a hash, so the key cannot be learned by trying. Being
//! linear, the family keeps arithmetic progressions, on which linear probing clusters; a fixed
//! permutation of the 32 bits follows, which removes the pattern and leaves the probabilities as
//! they are.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};

/// A pair of source and destination address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Flow {
    words: [u64; 4],
    version: u8,
}

impl Flow {
    /// Makes the flow from `src` to `dst`, IPv4.
    #[inline(always)]
    pub fn v4(src: u32, dst: u32) -> Self {
        Self { words: [u64::from(src) << 32 | u64::from(dst), 0, 0, 0], version: 4 }
    }

    /// Makes the flow from `src` to `dst`, IPv6.
    #[inline(always)]
    pub fn v6(src: u128, dst: u128) -> Self {
        let words = [(src >> 64) as u64, src as u64, (dst >> 64) as u64, dst as u64];
        Self { words, version: 6 }
    }

    /// Returns the two addresses.
    #[inline]
    pub fn pair(&self) -> Pair {
        let [a, b, c, d] = self.words;
        match self.version {
            6 => Pair::V6 {
                src: u128::from(a) << 64 | u128::from(b),
                dst: u128::from(c) << 64 | u128::from(d),
            },
            _ => Pair::V4 { src: (a >> 32) as u32, dst: a as u32 },
        }
    }

    /// Returns whether this is a pair of IPv6 addresses.
    #[inline(always)]
    pub fn is_v6(&self) -> bool {
        self.version == 6
    }

    #[inline(always)]
    pub(crate) fn to_words(self) -> [u64; 4] {
        self.words
    }

    #[inline(always)]
    pub(crate) fn from_words(words: [u64; 4], version: u8) -> Self {
        Self { words, version }
    }
}

impl fmt::Debug for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pair() {
            Pair::V4 { src, dst } => write!(f, "{} > {}", Ipv4Addr::from(src), Ipv4Addr::from(dst)),
            Pair::V6 { src, dst } => write!(f, "{} > {}", Ipv6Addr::from(src), Ipv6Addr::from(dst)),
        }
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The addresses of a flow, by family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    /// IPv4.
    V4 {
        /// The source address.
        src: u32,
        /// The destination address.
        dst: u32,
    },
    /// IPv6.
    V6 {
        /// The source address.
        src: u128,
        /// The destination address.
        dst: u128,
    },
}

/// Returns which of `workers` (at least 1) handles the flow with this hash.
#[inline]
pub fn worker(hash: u32, workers: usize) -> usize {
    ((u64::from(hash) * workers as u64) >> 32) as usize
}

/// The secret key of flow hashes.
#[derive(Clone)]
pub struct Key {
    /// One factor a character and the constant: 2 and 1 for IPv4, 8 and 1 for IPv6.
    v4: [u64; 3],
    v6: [u64; 9],
}

impl Key {
    /// Makes a key of the output of a random generator, which must not be guessable
    /// from outside.
    pub fn new(mut random: impl FnMut() -> u64) -> Self {
        Self { v4: core::array::from_fn(|_| random()), v6: core::array::from_fn(|_| random()) }
    }

    /// Creates a key from the operating system's random generator.
    pub fn random() -> Self {
        Self::new(crate::random::word)
    }

    /// Returns the hash of a flow.
    #[inline(always)]
    pub fn hash(&self, flow: &Flow) -> u32 {
        let sum = if flow.version == 6 {
            let mut sum = self.v6[8];
            for (i, word) in flow.words.into_iter().enumerate() {
                sum = sum
                    .wrapping_add((word >> 32).wrapping_mul(self.v6[2 * i]))
                    .wrapping_add((word & 0xffff_ffff).wrapping_mul(self.v6[2 * i + 1]));
            }
            sum
        } else {
            let word = flow.words[0];
            self.v4[2]
                .wrapping_add((word >> 32).wrapping_mul(self.v4[0]))
                .wrapping_add((word & 0xffff_ffff).wrapping_mul(self.v4[1]))
        };
        permute((sum >> 32) as u32)
    }
}

impl fmt::Debug for Key {
    /// Omits the secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// A permutation of 32 bits: the finalizer of MurmurHash3 (Appleby, public domain).
#[inline(always)]
pub(crate) fn permute(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x85eb_ca6b);
    x ^= x >> 13;
    x = x.wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

#[cfg(test)]
mod tests {
    use super::{Flow, Key, Pair, worker};

    #[test]
    fn flow_returns_its_addresses_and_families_differ() {
        let four = Flow::v4(0xc000_0201, 0xc633_6401);
        assert_eq!(four.pair(), Pair::V4 { src: 0xc000_0201, dst: 0xc633_6401 });
        let six = Flow::v6(1 << 127 | 7, 3);
        assert_eq!(six.pair(), Pair::V6 { src: 1 << 127 | 7, dst: 3 });
        assert_ne!(Flow::v4(0, 5), Flow::v6(5 << 64, 0));
        assert_eq!(four.to_string(), "192.0.2.1 > 198.51.100.1");
    }

    /// Consecutive sources, as of a scan or a counting spoofer: chi-squared over its degrees of
    /// freedom is 1, give or take 0.022, in the bits that choose workers as in those that choose a
    /// position.
    #[test]
    fn similar_flows_are_spread_uniformly() {
        const FLOWS: u32 = 100_000;
        const BUCKETS: usize = 4096;
        for seed in 0..4 {
            let mut random = fastrand::Rng::with_seed(seed);
            let key = Key::new(|| random.u64(..));
            let (mut high, mut low) = ([0u32; BUCKETS], [0u32; BUCKETS]);
            let (mut high6, mut low6) = (high, low);
            for n in 0..FLOWS {
                let hash = key.hash(&Flow::v4(0x0a00_0000 + n, 0xc633_6401));
                high[worker(hash, BUCKETS)] += 1;
                low[hash as usize % BUCKETS] += 1;
                let hash = key.hash(&Flow::v6((0x2001_0db8 << 96) + u128::from(n), 1));
                high6[worker(hash, BUCKETS)] += 1;
                low6[hash as usize % BUCKETS] += 1;
            }
            let even = f64::from(FLOWS) / BUCKETS as f64;
            for counts in [high, low, high6, low6] {
                let off = counts.iter().map(|&had| (f64::from(had) - even).powi(2) / even);
                let chi = off.sum::<f64>() / (BUCKETS - 1) as f64;
                assert!(chi < 1.1, "seed {seed}: {chi}");
            }
        }
    }

    #[test]
    fn every_address_bit_changes_the_hash() {
        let key = Key::random();
        let base = key.hash(&Flow::v6(0, 0));
        for bit in 0..128 {
            assert_ne!(key.hash(&Flow::v6(1 << bit, 0)), base);
            assert_ne!(key.hash(&Flow::v6(0, 1 << bit)), base);
        }
        let base = key.hash(&Flow::v4(0, 0));
        for bit in 0..32 {
            assert_ne!(key.hash(&Flow::v4(1 << bit, 0)), base);
            assert_ne!(key.hash(&Flow::v4(0, 1 << bit)), base);
        }
    }
}
