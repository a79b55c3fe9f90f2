//! The token buckets of ICMP errors, of all together and of each destination.
//!
//! Linux limits the errors to each destination by a structure of that destination (`icmp_ratelimit`). Here
//! the destinations have 4096 slots, in sets of four:
//!
//! ```text
//!   network ─► keyed hash ─┬ upper bits: the set of 4 slots, one cache line
//!                          └ all bits: the key of a slot
//! ```
//!
//! The hash is a bijection, so that two destinations never share a bucket: a flood's sources take nothing
//! from the rate of a host beside them. A destination without a slot takes that slot of its set which was
//! used longest before, or the fullest of this tick, and starts with a full bucket. So with five
//! destinations in a set, one can get more than its rate; the limit of all together holds then. The key of
//! the hash is random: a sender cannot choose sources that share a set.

/// The number of sets.
const SETS: usize = 1024;
/// The slots of a set.
const WAYS: usize = 4;
/// The errors that a destination may get at once (as in Linux).
const DESTINATION_BURST: u32 = 6;
/// Milliseconds in a tick.
const TICK_MS: u32 = 100;
/// The cost of an error in the buckets of totals, in tenths.
const COST: u32 = 10;

/// A token bucket that is filled by the tick.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Bucket {
    credit: u32,
    /// The tick at which the credit was right.
    at: u32,
}

/// The parameters of buckets: credit by the tick, the maximum, and the cost of an error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    fill: u32,
    depth: u32,
    cost: u32,
}

impl Rate {
    /// Makes the rate of a total: a bucket holds two ticks' worth, and at least `burst` errors.
    pub(super) fn total(rate: u32, burst: u32) -> Self {
        let depth = COST.saturating_mul(burst).max(rate.saturating_mul(2));
        Self {
            fill: rate,
            depth: if rate == 0 { 0 } else { depth.max(COST - 1 + rate) },
            cost: COST,
        }
    }

    /// Makes the rate of a destination with these milliseconds between errors; the burst is one more
    /// tick, so that no fraction is lost.
    pub(super) fn destination(interval: u32) -> Self {
        let depth = interval.saturating_mul(DESTINATION_BURST);
        Self { fill: TICK_MS, depth, cost: interval }
    }
}

impl Bucket {
    /// Makes a bucket that is full at this tick, at any rate.
    pub(super) fn full(now: u32) -> Self {
        Self { credit: u32::MAX, at: now }
    }

    /// Fills the bucket for the ticks since the last call, and returns whether an error is allowed.
    pub(super) fn allows(&mut self, rate: Rate, now: u32) -> bool {
        let ticks = now.wrapping_sub(self.at);
        self.at = now;
        self.credit = self.credit.saturating_add(rate.fill.saturating_mul(ticks)).min(rate.depth);
        self.credit >= rate.cost
    }

    /// Takes the cost of an error that [`allows`](Self::allows) has allowed.
    pub(super) fn pay(&mut self, rate: Rate) {
        self.credit -= rate.cost;
    }

    /// Takes the cost of an error, if it is allowed; returns whether it is.
    pub(super) fn take(&mut self, rate: Rate, now: u32) -> bool {
        let allowed = self.allows(rate, now);
        if allowed {
            self.pay(rate);
        }
        allowed
    }
}

/// The bucket of a destination.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The hash of the destination.
    key: u64,
    bucket: Bucket,
}

/// The slots of the destinations that have the upper bits of their hashes in common.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Set([Slot; WAYS]);

/// The buckets of destinations.
pub(super) struct Destinations {
    sets: Box<[Set]>,
    /// The key of the hash.
    seed: u64,
}

impl Destinations {
    /// Makes no buckets.
    pub(super) fn none() -> Self {
        Self { sets: Box::default(), seed: 0 }
    }

    /// Makes the buckets, all full.
    pub(super) fn new(seed: u64) -> Self {
        let slot = Slot { key: 0, bucket: Bucket::full(0) };
        Self { sets: vec![Set([slot; WAYS]); SETS].into(), seed }
    }

    /// Returns the bucket of a destination at this tick; `None` if there are no buckets.
    pub(super) fn bucket(&mut self, network: u64, now: u32) -> Option<&mut Bucket> {
        let key = (network ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
        let key = (key ^ self.seed).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let Set(slots) = self.sets.get_mut((key >> 54) as usize % SETS)?;
        let found = slots.iter().position(|slot| slot.key == key);
        let slot = if let Some(way) = found {
            slots.get_mut(way)?
        } else {
            let age = |bucket: &Bucket| (now.wrapping_sub(bucket.at), bucket.credit);
            let oldest = slots.iter_mut().max_by_key(|slot| age(&slot.bucket))?;
            *oldest = Slot { key, bucket: Bucket::full(now) };
            oldest
        };
        Some(&mut slot.bucket)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::{Destinations, Rate, SETS, WAYS};

    const NETWORK: u64 = 0x0a00_0002;

    /// Asks for `count` errors to each of these destinations in turn, and returns those to the first.
    fn allowed(destinations: &mut Destinations, networks: &[u64], now: u32, count: u32) -> u32 {
        let (rate, mut first) = (Rate::destination(1000), 0);
        for _ in 0..count {
            for (i, &network) in networks.iter().enumerate().rev() {
                let bucket = destinations.bucket(network, now).expect("buckets");
                first += u32::from(bucket.take(rate, now) && i == 0);
            }
        }
        first
    }

    #[test]
    fn destination_keeps_its_rate_beside_a_flood_from_64_sources() {
        let networks: Vec<u64> = [NETWORK].into_iter().chain(0x0a42_0001..=0x0a42_0040).collect();
        for seed in 0..1000_u64 {
            let mut destinations = Destinations::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            assert_eq!(allowed(&mut destinations, &networks, 0, 100), 6, "seed {seed}");
            for now in 1..=30 {
                let due = u32::from(now % 10 == 0);
                assert_eq!(allowed(&mut destinations, &networks, now, 10), due, "seed {seed}");
            }
        }
    }

    #[test]
    fn slot_that_was_used_longest_before_is_replaced() {
        let mut destinations = Destinations::new(7);
        // All destinations of one set: their hashes agree in the upper bits.
        let set = |network: u64, destinations: &mut Destinations| {
            let bucket: *const _ = destinations.bucket(network, 0).expect("buckets");
            (bucket as usize - destinations.sets.as_ptr() as usize) / size_of::<super::Set>()
        };
        let home = set(NETWORK, &mut destinations);
        let others = (0..).filter(|&n| set(n, &mut destinations) == home).take(WAYS + 1);
        let others: Vec<u64> = others.collect();
        let mut destinations = Destinations::new(7);
        for (now, &network) in others.iter().take(WAYS).enumerate() {
            assert_eq!(allowed(&mut destinations, &[network], now as u32, 10), 6);
        }
        // The fifth replaces the first, which then replaces the second; the third and fourth stay.
        assert_eq!(allowed(&mut destinations, &others[WAYS..], 4, 10), 6);
        assert_eq!(allowed(&mut destinations, &others[..1], 5, 10), 6);
        assert_eq!(allowed(&mut destinations, &others[2..3], 6, 10), 0);
        assert_eq!(allowed(&mut destinations, &others[3..4], 6, 10), 0);
    }

    #[test]
    fn sets_are_used_evenly() {
        let mut destinations = Destinations::new(0x1234_5678_9abc_def0);
        let start = destinations.sets.as_ptr() as usize;
        let sets: HashSet<usize> = (0..4 * SETS as u64)
            .map(|n| {
                let bucket: *const _ = destinations.bucket(0x0a00_0000 + n, 0).expect("buckets");
                (bucket as usize - start) / size_of::<super::Set>()
            })
            .collect();
        // A random choice leaves 1 of 54 sets out (e^-4).
        assert!(sets.len() > SETS * 95 / 100, "{} sets", sets.len());
    }
}
