//! Estimates the destinations with most packets in the last seconds, from samples.
//!
//! ```text
//!   samples (the gate's) ─► current slice: address ─► sums ┐
//!                            and the previous SLICES        ├─► added up, sorted
//! ```
//!
//! The sums include every sample, so there is no sketch whose error would depend on the traffic:
//! the samples are few (some thousand a second of each worker, at any load), and so are the
//! addresses among them. The only error is that of sampling. If `k` of `n` samples have a
//! destination, its estimate has a relative standard error of √((1 - k/n) / k): 3 % for a
//! destination with a thousand samples, a third for one with nine. If every packet was sampled the
//! estimate is exact.
//!
//! Bias: packets that the steering program drops for the gate never reach the sampler, nor do
//! packets that are not IP. Requests are counted before the link's queues drop those with the
//! lowest priority.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::ops::AddAssign;

use serde::Serialize;

use gate::gate::RuleOutcome;
use gate::sample::PacketSample;

/// Complete slices of time that are added up.
const SLICES: usize = 10;
/// The most destinations listed.
const MAX_LISTED: usize = 20;
/// The most addresses of a slice, which bounds the memory.
const MAX_ADDRESSES: usize = 1 << 16;

/// The packets that samples represent.
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
pub(super) struct DestinationStats {
    slices: VecDeque<Slice>,
    current: Slice,
}

/// The destinations with most packets. Rates are a second.
#[derive(Debug, Default, Serialize)]
pub(crate) struct DestinationList {
    /// The seconds that the estimates cover.
    pub(crate) seconds: f64,
    /// The number of samples.
    pub(crate) samples: u64,
    /// At least one in this many packets was sampled.
    pub(crate) every: u32,
    /// The destinations, that with most packets first.
    pub(crate) destinations: Vec<Destination>,
}

/// The estimates of a destination.
#[derive(Debug, Serialize)]
pub(crate) struct Destination {
    /// The address.
    pub(crate) destination: IpAddr,
    /// Its share of all packets.
    pub(crate) share: f64,
    pub(crate) packets: f64,
    pub(crate) bits: f64,
    pub(crate) requests: f64,
    pub(crate) granted: f64,
    pub(crate) passed: f64,
    pub(crate) dropped: f64,
    /// The relative standard error of these estimates.
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

impl DestinationStats {
    /// Adds a sample.
    pub(super) fn add(&mut self, sampled: PacketSample) {
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
        self.current.every = self.current.every.max(every);
        if self.current.by.len() < MAX_ADDRESSES || self.current.by.contains_key(&destination) {
            *self.current.by.entry(destination).or_default() += sums;
        }
    }

    /// Ends the current slice, which lasted this many seconds.
    pub(super) fn end_slice(&mut self, seconds: f64) {
        let slice = Slice { seconds, ..std::mem::take(&mut self.current) };
        self.slices.push_back(slice);
        if self.slices.len() > SLICES {
            self.slices.pop_front();
        }
    }

    /// Lists the destinations with most packets.
    pub(super) fn list(&self) -> DestinationList {
        let mut by = HashMap::<IpAddr, Sums>::new();
        let mut all = Sums::default();
        for (address, sums) in self.slices.iter().flat_map(|slice| &slice.by) {
            *by.entry(*address).or_default() += *sums;
            all += *sums;
        }
        let seconds: f64 = self.slices.iter().map(|slice| slice.seconds).sum();
        let every = self.slices.iter().map(|slice| slice.every).max().unwrap_or(0);
        let mut sorted: Vec<_> = by.into_iter().collect();
        // Equal ones by address, so that their order is stable.
        sorted.sort_by_key(|(address, sums)| (u64::MAX - sums.packets, *address));
        sorted.truncate(MAX_LISTED);
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
        let destinations = sorted.into_iter().map(destination).collect();
        DestinationList { seconds, samples: all.samples, every, destinations }
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
    fn destinations_are_sorted_by_the_packets_that_their_samples_represent() {
        let mut stats = DestinationStats::default();
        assert!(stats.list().destinations.is_empty());
        for _ in 0..30 {
            stats.add(sampled(1, RuleOutcome::Request, 1));
        }
        for _ in 0..10 {
            stats.add(sampled(2, RuleOutcome::Granted, 4));
        }
        stats.add(sampled(3, RuleOutcome::Dropped, 1));
        assert!(stats.list().destinations.is_empty(), "only complete slices count");
        stats.end_slice(2.0);
        let list = stats.list();
        assert_eq!((list.samples, list.every, list.seconds), (41, 4, 2.0));
        let [first, second, third] = &list.destinations[..] else { panic!("{list:?}") };
        assert_eq!(first.destination, IpAddr::from([192, 0, 2, 2]));
        assert_eq!((first.packets, first.granted, first.requests), (20.0, 20.0, 0.0));
        assert_eq!((second.packets, second.requests, second.bits), (15.0, 15.0, 12_000.0));
        assert_eq!((third.packets, third.dropped), (0.5, 0.5));
        assert!((first.share - 40.0 / 71.0).abs() < 1e-9);
        assert!((first.error - (31.0_f64 / 41.0 / 10.0).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn old_slices_are_dropped_and_the_list_is_bounded() {
        let mut stats = DestinationStats::default();
        for last in 0..100 {
            stats.add(sampled(last, RuleOutcome::Passed, 1));
        }
        stats.end_slice(1.0);
        let list = stats.list();
        assert_eq!((list.destinations.len(), list.samples), (MAX_LISTED, 100));
        assert_eq!(list.destinations[0].error, 0.0, "every packet was sampled");
        (0..SLICES).for_each(|_| stats.end_slice(1.0));
        assert_eq!(stats.list().samples, 0);
    }
}
