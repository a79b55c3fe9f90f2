//! Top destinations: where packets went in the last seconds, estimated from samples.
//!
//! ```text
//!   samples (vantage/sampler.rs) ─► this slice of time: address ─► sums ┐
//!                                   and the SLICES - 1 before it        ├─► added up, sorted
//! ```
//!
//! Nothing is left out of the sums, so there is no sketch whose errors would depend on what
//! comes: the samples themselves are few (some thousand a second of each worker, whatever comes),
//! and so are the addresses among them. What is left is the samples' own error. Of `n`
//! samples `k` to a destination stand for its packets with a relative standard error of
//! √((1 - k/n) / k): 3 % of a destination with a thousand samples, a third of one with nine.
//! Where every packet was a sample there is none.
//!
//! Bias: packets that the kernel drops for the gate never reach the sampler, nor do those
//! that are no IP of the gate's. Requests are those that the gate took for some, before the
//! link's queues drop the lowest.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::ops::AddAssign;

use serde::Serialize;

use crate::vantage::{PacketSample, RuleOutcome};

/// Slices of time that are added up.
const SLICES: usize = 10;
/// Destinations that are told.
const MOST: usize = 20;
/// Addresses of a slice, so that memory is bounded whatever happens.
const ADDRESSES: usize = 1 << 16;

/// What samples stand for, in packets.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    samples: u64,
    packets: u64,
    bytes: u64,
    requests: u64,
    granted: u64,
    passed: u64,
    dropped: u64,
}

impl AddAssign for Sums {
    fn add_assign(&mut self, other: Self) {
        self.samples += other.samples;
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.requests += other.requests;
        self.granted += other.granted;
        self.passed += other.passed;
        self.dropped += other.dropped;
    }
}

#[derive(Debug, Default)]
struct Slice {
    seconds: f64,
    every: u32,
    by: HashMap<IpAddr, Sums>,
}

/// The samples of the last seconds.
#[derive(Debug, Default)]
pub(super) struct Top {
    slices: VecDeque<Slice>,
    now: Slice,
}

/// What is told. Rates are a second.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Told {
    /// Over how many seconds.
    pub(crate) seconds: f64,
    /// By how many samples.
    pub(crate) samples: u64,
    /// One of so many packets was one, at the least.
    pub(crate) every: u32,
    /// Those with most packets, the most first.
    pub(crate) destinations: Vec<Destination>,
}

/// A destination.
#[derive(Debug, Serialize)]
pub(crate) struct Destination {
    /// It.
    pub(crate) destination: IpAddr,
    /// Its part of all packets.
    pub(crate) share: f64,
    pub(crate) packets: f64,
    pub(crate) bits: f64,
    pub(crate) requests: f64,
    pub(crate) granted: f64,
    pub(crate) passed: f64,
    pub(crate) dropped: f64,
    /// The relative standard error of all that.
    pub(crate) error: f64,
}

impl Destination {
    /// Returns its packets by outcome; the sum is all of them.
    pub(crate) fn outcomes(&self) -> [(&'static str, f64); 4] {
        let of = |outcome| match outcome {
            RuleOutcome::Request => self.requests,
            RuleOutcome::Granted => self.granted,
            RuleOutcome::Passed => self.passed,
            RuleOutcome::Dropped => self.dropped,
        };
        RuleOutcome::ALL.map(|outcome| (outcome.name(), of(outcome)))
    }
}

impl Top {
    /// Takes a sample.
    pub(super) fn take(&mut self, sampled: PacketSample) {
        let PacketSample { destination, outcome, bytes, every, .. } = sampled;
        let packets = u64::from(every);
        let of = |this| if outcome == this { packets } else { 0 };
        let sums = Sums {
            samples: 1,
            packets,
            bytes: packets * u64::from(bytes),
            requests: of(RuleOutcome::Request),
            granted: of(RuleOutcome::Granted),
            passed: of(RuleOutcome::Passed),
            dropped: of(RuleOutcome::Dropped),
        };
        self.now.every = self.now.every.max(every);
        if self.now.by.len() < ADDRESSES || self.now.by.contains_key(&destination) {
            *self.now.by.entry(destination).or_default() += sums;
        }
    }

    /// Ends a slice that was so long.
    pub(super) fn turn(&mut self, seconds: f64) {
        let slice = Slice { seconds, ..std::mem::take(&mut self.now) };
        self.slices.push_back(slice);
        if self.slices.len() > SLICES {
            self.slices.pop_front();
        }
    }

    /// Tells of the destinations that had most packets.
    pub(super) fn told(&self) -> Told {
        let mut by = HashMap::<IpAddr, Sums>::new();
        let mut all = Sums::default();
        for (address, sums) in self.slices.iter().flat_map(|slice| &slice.by) {
            *by.entry(*address).or_default() += *sums;
            all += *sums;
        }
        let seconds: f64 = self.slices.iter().map(|slice| slice.seconds).sum();
        let every = self.slices.iter().map(|slice| slice.every).max().unwrap_or(0);
        let mut most: Vec<_> = by.into_iter().collect();
        // By address where they have the same, so that lines do not change places.
        most.sort_by_key(|(address, sums)| (u64::MAX - sums.packets, *address));
        most.truncate(MOST);
        let rate = |count: u64| count as f64 / seconds.max(0.1);
        let destination = |(destination, sums): (IpAddr, Sums)| {
            let part = sums.samples as f64 / all.samples as f64;
            let error = ((1.0 - part) / sums.samples as f64).sqrt();
            Destination {
                destination,
                share: sums.packets as f64 / all.packets as f64,
                packets: rate(sums.packets),
                bits: rate(sums.bytes * 8),
                requests: rate(sums.requests),
                granted: rate(sums.granted),
                passed: rate(sums.passed),
                dropped: rate(sums.dropped),
                error: if every > 1 { error } else { 0.0 },
            }
        };
        let destinations = most.into_iter().map(destination).collect();
        Told { seconds, samples: all.samples, every, destinations }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(last: u8, outcome: RuleOutcome, every: u32) -> PacketSample {
        let (source, destination) = ([10, 0, 0, 1].into(), IpAddr::from([192, 0, 2, last]));
        PacketSample { source, destination, outcome, bytes: 100, every }
    }

    #[test]
    fn destinations_are_sorted_by_what_their_samples_stand_for() {
        let mut top = Top::default();
        assert!(top.told().destinations.is_empty());
        for _ in 0..30 {
            top.take(sampled(1, RuleOutcome::Request, 1));
        }
        for _ in 0..10 {
            top.take(sampled(2, RuleOutcome::Granted, 4));
        }
        top.take(sampled(3, RuleOutcome::Dropped, 1));
        assert!(top.told().destinations.is_empty(), "of whole slices only");
        top.turn(2.0);
        let told = top.told();
        assert_eq!((told.samples, told.every, told.seconds), (41, 4, 2.0));
        let [first, second, third] = &told.destinations[..] else { panic!("{told:?}") };
        assert_eq!(first.destination, IpAddr::from([192, 0, 2, 2]));
        assert_eq!((first.packets, first.granted, first.requests), (20.0, 20.0, 0.0));
        assert_eq!((second.packets, second.requests, second.bits), (15.0, 15.0, 12_000.0));
        assert_eq!((third.packets, third.dropped), (0.5, 0.5));
        assert!((first.share - 40.0 / 71.0).abs() < 1e-9);
        assert!((first.error - (31.0_f64 / 41.0 / 10.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn what_is_old_is_forgotten_and_there_is_a_most() {
        let mut top = Top::default();
        for last in 0..100 {
            top.take(sampled(last, RuleOutcome::Passed, 1));
        }
        top.turn(1.0);
        let told = top.told();
        assert_eq!((told.destinations.len(), told.samples), (MOST, 100));
        assert_eq!(told.destinations[0].error, 0.0, "every packet is there");
        (0..SLICES).for_each(|_| top.turn(1.0));
        assert_eq!(top.told().samples, 0);
    }
}
