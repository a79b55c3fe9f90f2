//! The key streams: which addresses are looked up, and in what dependence.
//!
//! RND, SEQ and REP are the thesis's (Zec 2019, section 3.6). PFX is ours: traffic
//! goes where routes are, not uniformly into the space. ZIPF is nearer to traffic: a few
//! destinations have most of it.
//!
//! | stream | keys | between lookups |
//! |---|---|---|
//! | RND | uniform over unicast space, each once | nothing: a batch |
//! | SEQ | the same | the next key waits for the last answer |
//! | REP | each 8 times, interleaved with 7 others of a sliding window | nothing |
//! | PFX | a random route, then a random address in it | nothing |
//! | ZIPF | of 2^20 addresses drawn as by PFX, the one of rank r with weight 2^40 / r | nothing |
//!
//! The weights of ZIPF are whole numbers (rounded down), so that every machine draws the
//! same keys. The first 1 % of its addresses have two thirds of the keys; [`Locality`] measures
//! how soon the keys repeat.
//!
//! An array of keys is larger than the last level of cache of the machines at hand
//! and read once a pass, so that a key's lines are cold as they are in a router.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use fib::{Addr, Family, Hop, Prefix};

/// How many addresses ZIPF has.
const POPULATION: usize = 1 << 20;
/// The weight of its first.
const WEIGHT: u64 = 1 << 40;

/// How many times a key is looked up in REP, and how wide its window is.
const REPEAT: usize = 8;

/// One way of drawing keys and looking them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Stream {
    Rnd,
    Seq,
    Rep,
    Pfx,
    Zipf,
}

impl Stream {
    pub(super) const ALL: [Self; 5] = [Self::Rnd, Self::Seq, Self::Rep, Self::Pfx, Self::Zipf];

    /// Draws `count` keys.
    pub(super) fn keys<A: Family>(self, count: usize, routes: &[(Prefix<A>, Hop)]) -> Vec<A> {
        let mut rng = fastrand::Rng::with_seed(20_190_601);
        match self {
            Self::Rnd | Self::Seq => (0..count).map(|_| unicast(&mut rng)).collect(),
            Self::Rep => {
                let distinct: Vec<A> =
                    (0..count / REPEAT + REPEAT).map(|_| unicast(&mut rng)).collect();
                (0..count).map(|i| distinct[i / REPEAT + i % REPEAT]).collect()
            }
            Self::Pfx => (0..count).map(|_| routed(&mut rng, routes)).collect(),
            Self::Zipf => {
                let known: Vec<A> = (0..POPULATION).map(|_| routed(&mut rng, routes)).collect();
                let weights = (1..=POPULATION as u64).map(|rank| WEIGHT / rank);
                let sums: Vec<u64> = weights
                    .scan(0, |sum, weight| {
                        *sum += weight;
                        Some(*sum)
                    })
                    .collect();
                let all = sums[POPULATION - 1];
                (0..count)
                    .map(|_| {
                        let at = rng.u64(..all);
                        known[sums.partition_point(|&sum| sum <= at)]
                    })
                    .collect()
            }
        }
    }
}

/// How often and how soon keys come again.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(super) struct Locality {
    /// How many different keys there are.
    pub(super) distinct: usize,
    /// The share of keys that the most frequent 1 % of them make.
    pub(super) hottest: f64,
    /// The share of keys that came within the last 4096 already.
    pub(super) recent: f64,
}

impl Locality {
    /// How far back a key is recent.
    const NEAR: usize = 4096;

    /// Counts over at least one key.
    pub(super) fn of<A: Copy + Eq + Hash>(keys: &[A]) -> Self {
        let mut seen: HashMap<A, (usize, usize)> = HashMap::new();
        let mut near = 0;
        for (now, &key) in keys.iter().enumerate() {
            let (count, last) = seen.entry(key).or_insert((0, now));
            near += usize::from(*count > 0 && now - *last <= Self::NEAR);
            *count += 1;
            *last = now;
        }
        let mut counts: Vec<usize> = seen.values().map(|(count, _)| *count).collect();
        counts.sort_unstable_by(|one, two| two.cmp(one));
        let hot: usize = counts[..counts.len().div_ceil(100)].iter().sum();
        let share = |count: usize| count as f64 / keys.len() as f64;
        Self { distinct: counts.len(), hottest: share(hot), recent: share(near) }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rnd => "RND",
            Self::Seq => "SEQ",
            Self::Rep => "REP",
            Self::Pfx => "PFX",
            Self::Zipf => "ZIPF",
        })
    }
}

/// Draws a route, and an address in it.
fn routed<A: Addr>(rng: &mut fastrand::Rng, routes: &[(Prefix<A>, Hop)]) -> A {
    let (prefix, _) = routes[rng.usize(..routes.len())];
    let host = prefix.addr().to_u128() ^ prefix.last().to_u128();
    A::from_u128(prefix.addr().to_u128() | rng.u128(..) & host)
}

/// Draws an address that might be routed: IPv4 without 0/8, 127/8 and what is not
/// unicast; of IPv6 what has been given out so far, 2000::/3.
fn unicast<A: Addr>(rng: &mut fastrand::Rng) -> A {
    if A::BITS > 32 {
        return A::from_u128(1 << (A::BITS - 3) | rng.u128(..) >> (131 - A::BITS));
    }
    loop {
        let addr = rng.u32(..);
        if !matches!(addr >> 24, 0 | 127 | 224..) {
            return A::from_u128(u128::from(addr));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Locality, REPEAT, Stream, unicast};
    use fib::{Hop, Prefix};
    use std::collections::HashMap;

    #[test]
    fn rep_looks_each_key_up_eight_times_within_its_window() {
        let keys = Stream::Rep.keys::<u32>(1 << 12, &[]);
        let mut seen: HashMap<u32, Vec<usize>> = HashMap::new();
        for (i, key) in keys.iter().enumerate() {
            seen.entry(*key).or_default().push(i);
        }
        let inner = seen.values().filter(|places| places.len() == REPEAT).count();
        assert!(inner >= (1 << 12) / REPEAT - 2 * REPEAT);
        for places in seen.values() {
            assert!(places[places.len() - 1] - places[0] <= REPEAT * REPEAT);
            assert!(places.windows(2).all(|pair| pair[1] - pair[0] == REPEAT - 1));
        }
    }

    #[test]
    fn a_shorter_stream_is_the_beginning_of_a_longer_one() {
        let routes: Vec<_> = (0..100u32).map(|i| (Prefix::truncate(i << 20, 16), Hop(1))).collect();
        for stream in Stream::ALL {
            let (short, long) = (stream.keys(1000, &routes), stream.keys(3000, &routes));
            assert_eq!(short, long[..1000], "{stream}");
        }
    }

    #[test]
    fn a_few_addresses_have_most_of_zipf() {
        let routes: Vec<_> =
            (0..50_000u32).map(|i| (Prefix::truncate(i << 15, 17), Hop(1))).collect();
        let zipf = Locality::of(&Stream::Zipf.keys(1 << 20, &routes));
        let pfx = Locality::of(&Stream::Pfx.keys(1 << 20, &routes));
        // The first 4096 ranks have (ln 4096 + γ) / (ln 2^20 + γ) = 0.62 of all keys.
        assert!((0.55..0.75).contains(&zipf.hottest), "{zipf:?}");
        assert!((0.35..0.60).contains(&zipf.recent), "{zipf:?}");
        assert!(pfx.hottest < 0.02 && pfx.recent < 0.01, "{pfx:?}");
        let rep = Locality::of(&Stream::Rep.keys(1 << 16, &routes));
        assert!((0.86..0.89).contains(&rep.recent), "{rep:?}");
    }

    #[test]
    fn keys_are_unicast() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            assert!(!matches!(unicast::<u32>(&mut rng) >> 24, 0 | 127 | 224..));
            assert_eq!(unicast::<u128>(&mut rng) >> 125, 1);
        }
    }
}
