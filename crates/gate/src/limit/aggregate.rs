//! Limits on what goes to a prefix: all of it together, and each destination within.
//!
//! ```text
//!   set of a rule ─► Limit │ number │ all of the prefix: bits/s │ each destination: bits/s │
//!                             │                                      │
//!   by number, 4096 pairs ◄───┘     by (number, destination), 16,384 pairs, sets of four
//!   a pair:  requests, 5 % │ granted, 95 %     token buckets of 20 ms, as the link's
//! ```
//!
//! What leaves towards the prefix counts as the link counts it: the frame with its outer header and
//! [`FRAMING`]. Requests and what was granted have their shares of a limit as they have of the link
//! (`link.rs`), so that neither takes the other's: a flood of requests for one host costs its granted
//! flows nothing, and who is new can ask while those use all they may.
//!
//! **Priority.** A bucket that whoever comes first empties would let a flood of first packets shut out
//! the patient. So requests leave some of the bucket to those above them: first packets and
//! what is below them half of it, DSCP 42 a quarter, each class above half as much. Whoever has
//! been more patient than the flood finds what the flood has to leave.
//!
//! **Both or none.** A packet that one of the two limits refuses is not charged to the other.
//!
//! **Destinations** have places as they come. One whose buckets are full again, after some
//! milliseconds without packets, knows nothing that a new one would not: it may be taken over
//! without anybody noticing. Where four of a set are all in use the newcomer is not counted by itself
//! ([`Aggregates::uncounted`]) but with its prefix only: nobody who is in use loses his place, so
//! that sprayed destinations cannot wash out the one that is under attack.
//!
//! Each worker has its own, by its share of the rates; a new rate for a number, as another policy
//! brings, begins with full buckets. Nothing is allocated later.

use super::FRAMING;
use super::bucket::{Bucket, DEEPEST};
use super::link::{GRANTED, REQUESTS};
use crate::flow::{Flow, Key};
use crate::priority::{FIRST, dscp};

/// The most limits of a policy.
pub const MOST_LIMITS: usize = 4096;
/// Destinations that are counted at a time.
const PLACES: usize = 1 << 14;
/// Places that a destination may have.
const WAYS: usize = 4;

/// A limit, or a worker's share of it; rates are bits a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Its number, below [`MOST_LIMITS`].
    pub number: u16,
    /// For all of the prefix together.
    pub all: Option<u64>,
    /// For each destination.
    pub each: Option<u64>,
}

/// What a packet is charged as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A request with this DSCP.
    Request(u8),
    /// A granted packet, or one that a program lets go.
    Granted,
}

/// Which limit a packet is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// That of all of the prefix.
    All,
    /// That of its destination.
    Each,
}

/// The buckets of a limit.
#[derive(Clone, Debug)]
struct Pair {
    bits: u64,
    requests: Bucket,
    granted: Bucket,
}

impl Pair {
    fn new(bits: u64, now: u64) -> Self {
        let rate = |percent| bits / 8 * percent / 100;
        Self {
            bits,
            // A first packet leaves half of it: twice the largest frame.
            requests: Bucket::holding(rate(REQUESTS), DEEPEST, 2, now),
            granted: Bucket::new(rate(GRANTED), DEEPEST, now),
        }
    }

    /// Goes over to another rate, if it is one.
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

    /// Says whether this is as good as new.
    fn is_full(&mut self, now: u64) -> bool {
        self.requests.is_full(now) && self.granted.is_full(now)
    }
}

/// A destination's pair.
#[derive(Clone, Debug)]
struct Place {
    dst: u128,
    number: u16,
    pair: Pair,
}

/// A worker's buckets.
#[derive(Debug)]
pub struct Aggregates {
    all: Box<[Pair]>,
    each: Box<[Place]>,
    key: Key,
    /// What stands between the outer IP header and the inner one, in bytes.
    between: u32,
    uncounted: u64,
}

impl Aggregates {
    /// Makes room for all limits there may be.
    pub fn new(now: u64) -> Self {
        // Of no rate: whatever comes first says which.
        let blank = Pair::new(0, now);
        let place = Place { dst: 0, number: 0, pair: blank.clone() };
        Self {
            all: vec![blank; MOST_LIMITS].into(),
            each: vec![place; PLACES].into(),
            key: Key::random(),
            between: 0,
            uncounted: 0,
        }
    }

    /// Has so many bytes between outer and inner header count from now on.
    pub fn set_between(&mut self, bytes: u32) {
        self.between = bytes;
    }

    /// Returns how many these are.
    #[inline]
    pub fn between(&self) -> u32 {
        self.between
    }

    /// Charges a packet to a destination whose frame is so many bytes long with all its headers, if
    /// its limit allows it.
    ///
    /// # Errors
    ///
    /// Which limit it is over; nothing is charged then.
    #[inline]
    pub fn charge(
        &mut self,
        limit: Limit,
        dst: u128,
        class: Class,
        bytes: u32,
        now: u64,
    ) -> Result<(), Over> {
        let bytes = bytes.saturating_add(FRAMING);
        let mut counted = None;
        if let Some(bits) = limit.each {
            counted = self.place(limit.number, dst, bits, now);
            let allows = match counted.and_then(|at| self.each.get_mut(at)) {
                Some(place) => place.pair.allows(class, bytes, now),
                None => true,
            };
            if !allows {
                return Err(Over::Each);
            }
            self.uncounted += u64::from(counted.is_none());
        }
        if let (Some(bits), Some(pair)) = (limit.all, self.all.get_mut(usize::from(limit.number))) {
            pair.set(bits, now);
            if !pair.allows(class, bytes, now) {
                return Err(Over::All);
            }
            pair.take(class, bytes);
        }
        if let Some(place) = counted.and_then(|at| self.each.get_mut(at)) {
            place.pair.take(class, bytes);
        }
        Ok(())
    }

    /// Returns the place of a destination, which may be one that has just become its; none where
    /// all are in use.
    fn place(&mut self, number: u16, dst: u128, bits: u64, now: u64) -> Option<usize> {
        let hash = self.key.hash(&Flow::v6(number.into(), dst));
        let set = hash as usize % (PLACES / WAYS) * WAYS;
        let places = self.each.get_mut(set..set + WAYS)?;
        let its = |place: &Place| place.number == number && place.dst == dst;
        if let Some(at) = places.iter().position(|place| its(place) && place.pair.bits > 0) {
            places[at].pair.set(bits, now);
            return Some(set + at);
        }
        let at = places.iter_mut().position(|place| place.pair.is_full(now))?;
        places[at] = Place { dst, number, pair: Pair::new(bits, now) };
        Some(set + at)
    }

    /// Counts packets that were charged to no destination for want of a place.
    pub fn uncounted(&self) -> u64 {
        self.uncounted
    }
}

#[cfg(test)]
mod tests {
    use super::{Aggregates, Class, FRAMING, Limit, Over, PLACES};

    const SECOND: u64 = 1_000_000_000;
    const MS: u64 = 1_000_000;

    fn limit(all: Option<u64>, each: Option<u64>) -> Limit {
        Limit { number: 7, all, each }
    }

    /// Offers packets of 1000 bytes at ten times 8 Mbit/s for five seconds; returns bits a second.
    fn rate(it: &mut Aggregates, limit: Limit, class: Class, dsts: u128) -> f64 {
        let mut bytes = 0;
        for step in 0..50_000u64 {
            let dst = u128::from(step) % dsts;
            if it.charge(limit, dst, class, 1000 - FRAMING, step * MS / 10).is_ok() {
                bytes += 1000;
            }
        }
        bytes as f64 * 8.0 / 5.0
    }

    #[test]
    fn granted_have_nearly_all_of_a_limit_and_requests_the_rest() {
        let eight = 8_000_000.0;
        let near = |rate: f64, share: f64| (0.97 * share..1.03 * share).contains(&(rate / eight));
        let all = limit(Some(8_000_000), None);
        let granted = rate(&mut Aggregates::new(0), all, Class::Granted, 1000);
        assert!(near(granted, 0.95), "{granted}");
        let asked = rate(&mut Aggregates::new(0), all, Class::Request(50), 1000);
        assert!(near(asked, 0.05 + 0.004), "{asked}");
        let each = limit(None, Some(4_000_000));
        let two = rate(&mut Aggregates::new(0), each, Class::Granted, 2);
        assert!(near(two, 0.95), "{two}");
        // The narrower one counts.
        let both = limit(Some(8_000_000), Some(2_000_000));
        let one = rate(&mut Aggregates::new(0), both, Class::Granted, 1);
        assert!(near(one, 0.95 / 4.0), "{one}");
    }

    #[test]
    fn a_flood_of_requests_costs_neither_the_granted_nor_the_patient() {
        let mut it = Aggregates::new(0);
        let limit = limit(Some(10_000_000), Some(10_000_000));
        let (mut now, mut low) = (0, 0);
        for step in 0..200_000u64 {
            now += 50_000;
            low += u64::from(it.charge(limit, 1, Class::Request(41), 80, now).is_ok());
            if step % 20 == 0 {
                assert_eq!(it.charge(limit, 1, Class::Granted, 1000, now), Ok(()));
            }
            // One of them in a tenth of a second, and in each a burst of eight.
            if step % 2_000 == 0 {
                for dscp in [42, 43, 50, 42] {
                    assert_eq!(it.charge(limit, 1, Class::Request(dscp), 80, now), Ok(()));
                    assert_eq!(it.charge(limit, 1, Class::Request(dscp), 80, now), Ok(()));
                }
            }
        }
        // 5 % of 10 Mbit/s in ten seconds, by packets of 104 bytes, and the burst.
        assert!((4_800..6_100).contains(&low), "{low}");
    }

    #[test]
    fn what_one_limit_refuses_is_not_charged_to_the_other() {
        let mut it = Aggregates::new(0);
        let wide = limit(Some(1_000_000_000), Some(8_000));
        let mut over = 0;
        for _ in 0..1_000 {
            over += u64::from(it.charge(wide, 1, Class::Granted, 1000, 0) == Err(Over::Each));
        }
        assert!(over > 980, "{over}");
        // All of the prefix has lost what passed, and no more: 20 ms of 950 Mbit/s are left.
        let all = limit(Some(1_000_000_000), None);
        let left =
            (0..10_000).filter(|_| it.charge(all, 2, Class::Granted, 976, 0).is_ok()).count();
        assert_eq!(left as u64, 2_375 - (1000 - over) * 1024 / 1000 - 1);
        let narrow = limit(Some(8_000), Some(1_000_000_000));
        let passed = (0..100).filter(|_| it.charge(narrow, 3, Class::Granted, 976, 0).is_ok());
        assert_eq!(passed.count(), 9);
        assert_eq!(it.charge(narrow, 3, Class::Granted, 976, 0), Err(Over::All));
    }

    #[test]
    fn destinations_in_use_keep_their_places_and_idle_ones_give_them_up() {
        let mut it = Aggregates::new(0);
        let each = limit(None, Some(8_000));
        let spend = |it: &mut Aggregates, dst, now| {
            (0..20).filter(|_| it.charge(each, dst, Class::Granted, 976, now).is_ok()).count()
        };
        assert_eq!(spend(&mut it, 1, 0), 9);
        // Four times as many as there are places: some are not counted, and pass.
        let passed: usize = (2..4 * PLACES as u128).map(|dst| spend(&mut it, dst, 0)).sum();
        assert!(passed > 9 * PLACES && it.uncounted() > 0, "{passed} {}", it.uncounted());
        assert_eq!(spend(&mut it, 1, 0), 0);
        // When their buckets are full again, others have room.
        let before = it.uncounted();
        let later = 3600 * SECOND;
        let again = (0..200u128).map(|dst| spend(&mut it, 1 << 64 | dst, later));
        assert!(again.into_iter().all(|count| count == 9));
        assert_eq!(it.uncounted(), before);
        // Another rate begins anew.
        let wider = limit(None, Some(80_000_000));
        assert_eq!(it.charge(wider, 1 << 64, Class::Granted, 976, later), Ok(()));
    }
}
