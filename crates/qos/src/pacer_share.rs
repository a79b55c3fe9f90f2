//! A worker's part in a link that several workers share: whose packet is next.
//!
//! The [`Pacer`] alone gives a free link to the worker that looks first. A worker that looks every microsecond
//! would leave nothing to one that takes fifty for a turn, control packets included. So the workers have
//! turns: each publishes whether packets wait, whether one of them is urgent, and the bytes that it has had.
//!
//! - A worker yields to one with an urgent packet, unless its own is urgent.
//! - Among equals, a worker yields if it is ahead of another by more than half a millisecond of the link. The slower
//!   worker makes up for the time in which the link was free ([`Pacer::BURST`]), so that nothing is lost.
//! - A worker that did not look for [`LATE`] is not waited for.
//! - A worker without packets that gets some begins with as many bytes as the one that has had the fewest of those
//!   that wait (start-time fair queueing, as between devices in `link_queues.rs`).
//!
//! The state of a worker is two atomic numbers on a cache line of its own. They are hints: a worker that reads
//! an old one sends a packet too early or too late, and the next turn makes up for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Pacer;

/// The age, in nanoseconds, of a worker's last look at the link from which it is no longer waited for: 2 ms.
const LATE: u64 = 2_000_000;

/// The state that a worker publishes.
#[derive(Debug, Default)]
#[repr(align(64))]
struct PublishedShare {
    /// The bytes that it has had, with those that it had no use for.
    served: AtomicU64,
    /// Twice the time of its last look at the link, and 1 if an urgent packet waits; 0 if no packet waits.
    waits: AtomicU64,
}

/// A pacer, and the workers that share it.
#[derive(Debug)]
pub struct SharedPacer {
    pacer: Pacer,
    shares: Box<[PublishedShare]>,
}

impl SharedPacer {
    /// Makes the pacer of a link of `rate` bits a second, at least 1, on which each packet takes `overhead`
    /// further bytes, for so many workers.
    pub fn new(rate: u64, overhead: u32, workers: usize) -> Self {
        let shares = (0..workers).map(|_| PublishedShare::default()).collect();
        Self { pacer: Pacer::new(rate, overhead), shares }
    }

    /// Returns the bytes by which a worker may be ahead of another that waits: those of half a millisecond, and
    /// at least two full frames.
    fn lead(&self) -> u64 {
        (self.pacer.rate() / 16_000).max(2 * 1518)
    }
}

/// A worker's part in a pacer.
#[derive(Debug)]
pub struct PacerShare {
    of: Arc<SharedPacer>,
    at: usize,
    /// The published state.
    waits: u64,
}

impl PacerShare {
    /// Makes the part of worker `at` of those that the pacer was made for.
    ///
    /// # Panics
    ///
    /// The pacer has no such worker.
    pub fn new(of: Arc<SharedPacer>, at: usize) -> Self {
        assert!(at < of.shares.len(), "no worker {at}");
        Self { of, at, waits: 0 }
    }

    /// Returns whether the link is free at `now`.
    #[inline]
    pub fn is_free(&self, now: u64) -> bool {
        self.of.pacer.is_free(now)
    }

    /// Publishes at `now` that packets wait.
    pub fn wait(&mut self, now: u64, is_urgent: bool) {
        let waits = (now << 1).max(2) | u64::from(is_urgent);
        if waits == self.waits {
            return;
        }
        if self.waits == 0 {
            let fewest = self.waiting_others(now).map(|(served, _)| served).min();
            let own = self.own().map_or(0, |own| own.served.load(Ordering::Relaxed));
            self.set_served(own.max(fewest.unwrap_or(0)));
        }
        self.publish(waits);
    }

    /// Publishes that no packet waits, or none that may leave.
    pub fn rest(&mut self) {
        if self.waits != 0 {
            self.publish(0);
        }
    }

    /// Returns whether this worker's packet is next at `now`, before those of the other workers.
    pub fn is_next(&self, now: u64, is_urgent: bool) -> bool {
        let served = self.own().map_or(0, |own| own.served.load(Ordering::Relaxed));
        let most = |other: u64| other.saturating_add(self.of.lead());
        self.waiting_others(now).all(|(other, other_is_urgent)| {
            match (is_urgent, other_is_urgent) {
                (true, false) => true,
                (false, true) => false,
                _ => served <= most(other),
            }
        })
    }

    /// Takes the link at `now` for a packet of `bytes` bytes.
    pub fn take(&mut self, now: u64, bytes: u32) {
        self.of.pacer.take(now, bytes);
        if let Some(own) = self.own() {
            self.set_served(own.served.load(Ordering::Relaxed) + u64::from(bytes));
        }
    }

    /// Takes the link for packets that others have sent ([`Pacer::take_others`]).
    pub fn take_others(&self, now: u64, packets: u64, bytes: u64) {
        self.of.pacer.take_others(now, packets, bytes);
    }

    /// Returns the bytes and the urgency of the other workers that wait.
    fn waiting_others(&self, now: u64) -> impl Iterator<Item = (u64, bool)> {
        let others = self.of.shares.iter().enumerate().filter(|(at, _)| *at != self.at);
        others.filter_map(move |(_, other)| {
            let waits = other.waits.load(Ordering::Relaxed);
            let is_present = waits != 0 && now.saturating_sub(waits >> 1) <= LATE;
            is_present.then(|| (other.served.load(Ordering::Relaxed), waits & 1 == 1))
        })
    }

    fn own(&self) -> Option<&PublishedShare> {
        self.of.shares.get(self.at)
    }

    fn publish(&mut self, waits: u64) {
        self.waits = waits;
        if let Some(own) = self.own() {
            own.waits.store(waits, Ordering::Relaxed);
        }
    }

    fn set_served(&self, served: u64) {
        if let Some(own) = self.own() {
            own.served.store(served, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const BYTES: u32 = 1500;

    /// Whether packets wait at a time, and whether they are urgent.
    type Waits = fn(u64) -> Option<bool>;

    /// A worker that looks at the link each `turn` nanoseconds.
    struct Worker {
        share: PacerShare,
        turn: u64,
        waits: Waits,
        sent: u64,
    }

    /// The shares of workers in a link of `rate` bits a second within two seconds.
    fn shares(rate: u64, workers: &[(u64, Waits)]) -> Vec<f64> {
        let pacer = Arc::new(SharedPacer::new(rate, 0, workers.len()));
        let worker = |(at, &(turn, waits)): (usize, &(u64, Waits))| Worker {
            share: PacerShare::new(Arc::clone(&pacer), at),
            turn,
            waits,
            sent: 0,
        };
        let mut workers: Vec<_> = workers.iter().enumerate().map(worker).collect();
        for now in (SECOND..3 * SECOND).step_by(1_000) {
            for worker in workers.iter_mut().filter(|worker| now % worker.turn == 0) {
                let Some(is_urgent) = (worker.waits)(now) else {
                    worker.share.rest();
                    continue;
                };
                worker.share.wait(now, is_urgent);
                while worker.share.is_free(now) && worker.share.is_next(now, is_urgent) {
                    worker.share.take(now, BYTES);
                    worker.sent += u64::from(BYTES);
                }
            }
        }
        workers.iter().map(|worker| worker.sent as f64 * 8.0 / 2.0 / rate as f64).collect()
    }

    fn assert_near(shares: &[f64], expected: &[f64]) {
        for (share, expected) in shares.iter().zip(expected) {
            assert!((share - expected).abs() < 0.03, "{shares:?}, not {expected:?}");
        }
    }

    #[test]
    fn workers_with_turns_of_any_length_share_a_full_link() {
        let always = |_| Some(false);
        for rate in [2_000_000, 20_000_000, 1_000_000_000] {
            for slow in [1_000, 50_000, 1_000_000] {
                assert_near(&shares(rate, &[(1_000, always), (slow, always)]), &[0.5, 0.5]);
            }
            let four = [1_000, 7_000, 50_000, 300_000].map(|turn| (turn, always as Waits));
            assert_near(&shares(rate, &four), &[0.25; 4]);
        }
    }

    #[test]
    fn urgent_packets_of_a_slow_worker_go_first() {
        let some = |now: u64| (now % 100_000_000 < 20_000_000).then_some(true);
        let rate = 20_000_000;
        assert_near(&shares(rate, &[(1_000, |_| Some(false)), (50_000, some)]), &[0.8, 0.2]);
    }

    #[test]
    fn stalled_worker_and_one_without_packets_are_not_waited_for() {
        let rate = 20_000_000;
        // Its last look says that packets wait, urgent ones even.
        let stalls = |_| Some(true);
        assert_near(&shares(rate, &[(1_000, |_| Some(false)), (SECOND, stalls)]), &[1.0, 0.0]);
        assert_near(&shares(rate, &[(1_000, |_| Some(false)), (2_000, |_| None)]), &[1.0, 0.0]);
        assert_near(&shares(rate, &[(1_000, |_| None), (2_000, |_| Some(false))]), &[0.0, 1.0]);
    }

    #[test]
    fn worker_that_was_idle_does_not_make_up_for_it() {
        // Idle in the first of two seconds: it has half of the other.
        let later = |now| (now >= 2 * SECOND).then_some(false);
        assert_near(
            &shares(20_000_000, &[(1_000, |_| Some(false)), (5_000, later)]),
            &[0.75, 0.25],
        );
    }
}
