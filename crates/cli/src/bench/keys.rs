//! The key streams: which addresses are looked up, and in what dependence.
//!
//! RND, SEQ and REP are the thesis's (Zec 2019, section 3.6). PFX is ours: traffic
//! goes where routes are, not uniformly into the space.
//!
//! | stream | keys | between lookups |
//! |---|---|---|
//! | RND | uniform over unicast space, each once | nothing: a batch |
//! | SEQ | the same | the next key waits for the last answer |
//! | REP | each 8 times, interleaved with 7 others of a sliding window | nothing |
//! | PFX | a random route, then a random address in it | nothing |
//!
//! An array of keys is larger than the last level of cache of the machines at hand
//! and read once a pass, so that a key's lines are cold as they are in a router.

use std::fmt;

use fib::{Addr, Family, Hop, Prefix};

/// How many times a key is looked up in REP, and how wide its window is.
const REPEAT: usize = 8;

/// One way of drawing keys and looking them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Stream {
    Rnd,
    Seq,
    Rep,
    Pfx,
}

impl Stream {
    pub(super) const ALL: [Self; 4] = [Self::Rnd, Self::Seq, Self::Rep, Self::Pfx];

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
            Self::Pfx => (0..count)
                .map(|_| {
                    let (prefix, _) = routes[rng.usize(..routes.len())];
                    let host = prefix.addr().to_u128() ^ prefix.last().to_u128();
                    A::from_u128(prefix.addr().to_u128() | rng.u128(..) & host)
                })
                .collect(),
        }
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rnd => "RND",
            Self::Seq => "SEQ",
            Self::Rep => "REP",
            Self::Pfx => "PFX",
        })
    }
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
    use super::{REPEAT, Stream, unicast};
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
    fn keys_are_unicast() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..10_000 {
            assert!(!matches!(unicast::<u32>(&mut rng) >> 24, 0 | 127 | 224..));
            assert_eq!(unicast::<u128>(&mut rng) >> 125, 1);
        }
    }
}
