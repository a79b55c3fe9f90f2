//! Limits on the traffic to a prefix: all of it together, and to each destination within.
//!
//! ```text
//!   set of a rule ─► Limit │ number │ all of the prefix: bits/s │ each destination: bits/s │
//!                             │                                      │
//!   by number, 4096 pairs ◄───┘     by (number, destination), 16,384 pairs, sets of four
//!   a pair:  requests, 5 % │ granted, 95 %     token buckets of 20 ms, as the link's
//! ```
//!
//! Packets count as the link counts them: the frame with its outer header and [`FRAMING`]. Requests
//! and granted packets have their shares of a limit as they have of the link (`link.rs`), so that
//! neither takes the other's: a flood of requests for one host does not affect its granted flows,
//! and new clients can send requests while granted flows use their whole share.
//!
//! **Priority.** With a plain bucket a flood of first packets would shut out patient requests. So
//! requests leave some of the bucket to higher ones: first packets and lower ones half of it, DSCP
//! 42 a quarter, each class above half as much. A request of higher priority than the flood finds
//! the tokens that the flood has to leave.
//!
//! **Both or none.** A packet that one of the two limits refuses is not charged to the other.
//!
//! **Destinations** get slots on demand. A slot whose buckets are full again, after some
//! milliseconds without packets, holds no information: it is reused without a difference. Where all
//! four slots of a set are in use, the newcomer replaces the one whose buckets are fullest, and
//! **inherits the missing tokens**: Space-Saving (Metwally, Agrawal, El Abbadi, ICDT 2005) over
//! buckets in place of counters. So the missing tokens of a destination are never fewer than those
//! it has used:
//!
//! - a spray over many destinations lets none of them escape its limit, in any set;
//! - the one under attack has the emptiest buckets of its set, and is replaced last;
//! - a newcomer is charged at the most what the least of four has used: to shut it out, packets of
//!   four destinations of its set have to have passed at their whole limits, and an attacker
//!   without the hash's key has to do this for all sets, 16,384 times the limit.
//!
//! Each worker has its own buckets, for its share of the rates; a new rate for a number, after a
//! policy change, begins with full buckets. Nothing is allocated later.

use super::FRAMING;
use super::bucket::{Bucket, MAX_BURST};
use super::link::{GRANTED, REQUESTS};
use crate::flow::{Flow, Key};
use crate::priority::{FIRST, dscp};

/// Maximum number of limits in a policy.
pub const MAX_LIMITS: usize = 4096;
/// The number of destination slots.
const PLACES: usize = 1 << 14;
/// Slots of a set.
const WAYS: usize = 4;

/// A limit, or a worker's share of it; rates are bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its number, below [`MAX_LIMITS`].
    pub number: u16,
    /// For all of the prefix together.
    pub all: Option<u64>,
    /// For each destination.
    pub each: Option<u64>,
}

/// The class that a packet is charged as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A request with this DSCP.
    Request(u8),
    /// A granted packet, or one that a program forwards.
    Granted,
}

/// The limit that a packet exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExceededLimit {
    /// The limit of the prefix.
    Prefix,
    /// The limit of its destination.
    Destination,
}

/// The buckets of a limit.
#[derive(Clone, Debug)]
struct BucketPair {
    bits: u64,
    requests: Bucket,
    granted: Bucket,
}

impl BucketPair {
    fn new(bits: u64, now: u64) -> Self {
        let rate = |percent| bits / 8 * percent / 100;
        Self {
            bits,
            // A first packet leaves half of it: twice the largest frame.
            requests: Bucket::holding(rate(REQUESTS), MAX_BURST, 2, now),
            granted: Bucket::new(rate(GRANTED), MAX_BURST, now),
        }
    }

    /// Changes the rate, if it is another one.
    fn set(&mut self, bits: u64, now: u64) {
        if self.bits != bits {
            *self = Self::new(bits, now);
        }
    }

    fn allows(&mut self, class: Class, bytes: u32, now: u64) -> bool {
        match class {
            Class::Granted => self.granted.allows(now, bytes),
            Class::Request(asks) => {
                let halves = 1 + u32::from(asks.saturating_sub(dscp(FIRST)));
                self.requests.allows_leaving(now, bytes, halves)
            }
        }
    }

    fn take(&mut self, class: Class, bytes: u32) {
        match class {
            Class::Granted => self.granted.take(bytes),
            Class::Request(_) => self.requests.take(bytes),
        }
    }

    /// Returns the nanoseconds until each bucket is full again.
    fn debts(&mut self, now: u64) -> [u64; 2] {
        [self.requests.debt(now), self.granted.debt(now)]
    }

    /// Removes so many tokens from the buckets.
    fn owe(&mut self, [requests, granted]: [u64; 2]) {
        self.requests.owe(requests);
        self.granted.owe(granted);
    }
}

/// The buckets of a destination.
#[derive(Clone, Debug)]
struct DestinationSlot {
    dst: u128,
    number: u16,
    pair: BucketPair,
}

/// A worker's buckets.
#[derive(Debug)]
pub struct Aggregates {
    all: Box<[BucketPair]>,
    each: Box<[DestinationSlot]>,
    key: Key,
    /// The bytes between the outer IP header and the inner one.
    between: u32,
    displaced: u64,
}

impl Aggregates {
    /// Allocates the buckets of all limits.
    pub fn new(now: u64) -> Self {
        // Without a rate, which the first packet sets.
        let blank = BucketPair::new(0, now);
        let place = DestinationSlot { dst: 0, number: 0, pair: blank.clone() };
        Self {
            all: vec![blank; MAX_LIMITS].into(),
            each: vec![place; PLACES].into(),
            key: Key::random(),
            between: 0,
            displaced: 0,
        }
    }

    /// Sets the bytes between outer and inner header that count.
    pub fn set_between(&mut self, bytes: u32) {
        self.between = bytes;
    }

    /// Returns the bytes between outer and inner header that count.
    #[inline]
    pub fn between(&self) -> u32 {
        self.between
    }

    /// Charges a packet to a destination, whose frame is `bytes` long with all its headers, if its
    /// limit allows it.
    ///
    /// # Errors
    ///
    /// The limit that it exceeds; nothing is charged then.
    #[inline]
    pub fn charge(
        &mut self,
        limit: Limit,
        dst: u128,
        class: Class,
        bytes: u32,
        now: u64,
    ) -> Result<(), ExceededLimit> {
        let bytes = bytes.saturating_add(FRAMING);
        let mut counted = None;
        if let Some(bits) = limit.each {
            counted = self.place(limit.number, dst, bits, now);
            let place = counted.and_then(|at| self.each.get_mut(at));
            if !place.is_none_or(|place| place.pair.allows(class, bytes, now)) {
                return Err(ExceededLimit::Destination);
            }
        }
        if let (Some(bits), Some(pair)) = (limit.all, self.all.get_mut(usize::from(limit.number))) {
            pair.set(bits, now);
            if !pair.allows(class, bytes, now) {
                return Err(ExceededLimit::Prefix);
            }
            pair.take(class, bytes);
        }
        if let Some(place) = counted.and_then(|at| self.each.get_mut(at)) {
            place.pair.take(class, bytes);
        }
        Ok(())
    }

    /// Returns the slot of a destination, which may have replaced another.
    fn place(&mut self, number: u16, dst: u128, bits: u64, now: u64) -> Option<usize> {
        let hash = self.key.hash(&Flow::v6(number.into(), dst));
        let set = hash as usize % (PLACES / WAYS) * WAYS;
        let places = self.each.get_mut(set..set + WAYS)?;
        let its = |place: &DestinationSlot| place.number == number && place.dst == dst;
        if let Some(at) = places.iter().position(|place| its(place) && place.pair.bits > 0) {
            places[at].pair.set(bits, now);
            return Some(set + at);
        }
        let debts = places.iter_mut().map(|place| place.pair.debts(now));
        let (at, debts) = debts.enumerate().min_by_key(|(_, debts)| debts[0].max(debts[1]))?;
        self.displaced += u64::from(debts != [0, 0]);
        let mut pair = BucketPair::new(bits, now);
        pair.owe(debts);
        places[at] = DestinationSlot { dst, number, pair };
        Some(set + at)
    }

    /// Counts the times that a destination replaced another in use.
    pub fn displaced(&self) -> u64 {
        self.displaced
    }
}

#[cfg(test)]
mod tests {
    use super::{Aggregates, Class, ExceededLimit, FRAMING, Limit, PLACES};

    const SECOND: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    fn limit(all: Option<u64>, each: Option<u64>) -> Limit {
        Limit { number: 7, all, each }
    }

    /// Offers packets of 1000 bytes at ten times 8 Mbit/s for five seconds; returns bits a second.
    fn rate(limits: &mut Aggregates, limit: Limit, class: Class, dsts: u128) -> f64 {
        let mut bytes = 0;
        for step in 0..50_000u64 {
            let dst = u128::from(step) % dsts;
            if limits.charge(limit, dst, class, 1000 - FRAMING, step * MS / 10).is_ok() {
                bytes += 1000;
            }
        }
        bytes as f64 * 8.0 / 5.0
    }

    #[test]
    fn granted_packets_have_95_percent_of_a_limit_and_requests_the_rest() {
        let eight = 8_000_000.0;
        let is_near =
            |rate: f64, share: f64| (0.97 * share..1.03 * share).contains(&(rate / eight));
        let all = limit(Some(8_000_000), None);
        let granted = rate(&mut Aggregates::new(0), all, Class::Granted, 1000);
        assert!(is_near(granted, 0.95), "{granted}");
        let requests = rate(&mut Aggregates::new(0), all, Class::Request(50), 1000);
        assert!(is_near(requests, 0.05 + 0.004), "{requests}");
        let each = limit(None, Some(4_000_000));
        let two = rate(&mut Aggregates::new(0), each, Class::Granted, 2);
        assert!(is_near(two, 0.95), "{two}");
        // The lower limit decides.
        let both = limit(Some(8_000_000), Some(2_000_000));
        let one = rate(&mut Aggregates::new(0), both, Class::Granted, 1);
        assert!(is_near(one, 0.95 / 4.0), "{one}");
    }

    #[test]
    fn flood_of_requests_drops_neither_granted_nor_patient_packets() {
        let mut limits = Aggregates::new(0);
        let limit = limit(Some(10_000_000), Some(10_000_000));
        let (mut now, mut low) = (0, 0);
        for step in 0..200_000u64 {
            now += 50_000;
            low += u64::from(limits.charge(limit, 1, Class::Request(41), 80, now).is_ok());
            if step % 20 == 0 {
                assert_eq!(limits.charge(limit, 1, Class::Granted, 1000, now), Ok(()));
            }
            // Every tenth of a second a burst of eight patient requests.
            if step % 2_000 == 0 {
                for dscp in [42, 43, 50, 42] {
                    assert_eq!(limits.charge(limit, 1, Class::Request(dscp), 80, now), Ok(()));
                    assert_eq!(limits.charge(limit, 1, Class::Request(dscp), 80, now), Ok(()));
                }
            }
        }
        // 5 % of 10 Mbit/s in ten seconds, by packets of 104 bytes, and the burst.
        assert!((4_800..6_100).contains(&low), "{low}");
    }

    #[test]
    fn packet_refused_by_one_limit_is_not_charged_to_the_other() {
        let mut limits = Aggregates::new(0);
        let wide = limit(Some(1_000_000_000), Some(8_000));
        let mut over = 0;
        for _ in 0..1_000 {
            over += u64::from(
                limits.charge(wide, 1, Class::Granted, 1000, 0) == Err(ExceededLimit::Destination),
            );
        }
        assert!(over > 980, "{over}");
        // The prefix is charged with the passed packets only: 20 ms of 950 Mbit/s are left.
        let all = limit(Some(1_000_000_000), None);
        let left =
            (0..10_000).filter(|_| limits.charge(all, 2, Class::Granted, 976, 0).is_ok()).count();
        assert_eq!(left as u64, 2_375 - (1000 - over) * 1024 / 1000 - 1);
        let narrow = limit(Some(8_000), Some(1_000_000_000));
        let passed = (0..100).filter(|_| limits.charge(narrow, 3, Class::Granted, 976, 0).is_ok());
        assert_eq!(passed.count(), 9);
        assert_eq!(limits.charge(narrow, 3, Class::Granted, 976, 0), Err(ExceededLimit::Prefix));
    }

    #[test]
    fn destination_replaces_an_idle_one_without_a_difference() {
        let mut limits = Aggregates::new(0);
        let each = limit(None, Some(8_000));
        let spend = |limits: &mut Aggregates, dst, now| {
            (0..20).filter(|_| limits.charge(each, dst, Class::Granted, 976, now).is_ok()).count()
        };
        assert_eq!(spend(&mut limits, 1, 0), 9);
        // Four times as many destinations as slots: those without a slot share those of others.
        let passed: usize = (2..4 * PLACES as u128).map(|dst| spend(&mut limits, dst, 0)).sum();
        assert!(passed <= 9 * PLACES && limits.displaced() > 0, "{passed} {}", limits.displaced());
        assert_eq!(spend(&mut limits, 1, 0), 0);
        // Slots with full buckets are reused.
        let before = limits.displaced();
        let later = 3600 * SECOND;
        let passed = (0..200u128).map(|dst| spend(&mut limits, 1 << 64 | dst, later));
        assert!(passed.into_iter().all(|count| count == 9));
        assert_eq!(limits.displaced(), before);
        // Another rate begins with full buckets.
        let wider = limit(None, Some(80_000_000));
        assert_eq!(limits.charge(wider, 1 << 64, Class::Granted, 976, later), Ok(()));
    }

    /// A spray over a hundred thousand destinations that keeps half of all places in use, and many
    /// sets full, beside a destination that is offered far more than its limit and others that ask
    /// for a tenth.
    #[test]
    fn spray_over_destinations_evades_no_limit_and_starves_none() {
        let mut limits = Aggregates::new(0);
        let each = limit(None, Some(50_000));
        let attacked = 1 << 100;
        let (mut now, mut spray) = (0, 0u128);
        let (mut passed, mut modest, mut refused) = (0u64, 0, 0);
        while now < 4 * SECOND {
            now += MS;
            for _ in 0..500 {
                spray = (spray + 1) % 100_000;
                let _ = limits.charge(each, spray, Class::Granted, 76, now);
            }
            for _ in 0..2 {
                passed +=
                    u64::from(limits.charge(each, attacked, Class::Granted, 976, now).is_ok());
            }
            if now % (200 * MS) == 0 {
                for dst in 0..20 {
                    modest += 1;
                    let result = limits.charge(each, 1 << 90 | dst, Class::Granted, 76, now);
                    refused += u64::from(result.is_err());
                }
            }
        }
        assert!(limits.displaced() > 10_000, "{}", limits.displaced());
        // 95 % of 50 kbit/s over four seconds, and a burst.
        assert!(passed <= 4 * 5_937 / 1000 + 10, "{passed}");
        assert!(passed > 4 * 5_937 / 1000 / 2, "{passed}");
        assert!(refused * 100 <= modest, "{refused} of {modest}");
    }
}
