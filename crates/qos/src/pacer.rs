//! The pacer: the rate of a link that all workers share.
//!
//! Virtual scheduling (ITU-T I.371): the pacer has the time at which the link will have sent what left so
//! far. The link is free from that time on. A packet moves it by the packet's own duration. A worker that
//! comes late makes up for at most [`Pacer::BURST`], so that the link is neither idle nor flooded after a pause.
//!
//! Packets that do not pass by the workers (those of the host itself) move the time, too
//! ([`Pacer::take_others`]).
//!
//! The state is one atomic number, in 64ths of a nanosecond, which lasts for nine years. Two workers
//! that see a free link at the same time both send; the second packet's duration is waited for later, so
//! that the rate over time is exact.

use std::sync::atomic::{AtomicU64, Ordering};

/// The units of time of a nanosecond.
const UNITS: u64 = 64;

/// The rate of a link.
#[derive(Debug)]
pub struct Pacer {
    /// Bits a second.
    rate: u64,
    /// Bytes on the link for each packet, in addition to its own.
    overhead: u32,
    /// When the link is free, in units.
    free_at: AtomicU64,
}

impl Pacer {
    /// The time, in nanoseconds, that a late worker may make up for: 4 ms.
    ///
    /// That is a tick of a kernel with `HZ=250`, for which another thread has the worker's processor at a time, and the
    /// least burst of `tc-tbf(8)` there.
    pub const BURST: u64 = 4_000_000;

    /// The time, in nanoseconds, for which several packets of others may take the link beforehand: 20 ms.
    pub const MOST_OTHERS: u64 = 20_000_000;

    /// Makes the pacer of a link of `rate` bits a second, at least 1, on which each packet takes
    /// `overhead` further bytes.
    pub fn new(rate: u64, overhead: u32) -> Self {
        Self { rate: rate.max(1), overhead, free_at: AtomicU64::new(0) }
    }

    /// Returns the rate in bits a second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Returns whether the link is free at `now`.
    #[inline]
    pub fn is_free(&self, now: u64) -> bool {
        self.free_at.load(Ordering::Relaxed) <= now * UNITS
    }

    /// Takes the link at `now` for a packet of `bytes` bytes.
    #[inline]
    pub fn take(&self, now: u64, bytes: u32) {
        let earliest = now.saturating_sub(Self::BURST) * UNITS;
        let duration = self.duration(u64::from(bytes) + u64::from(self.overhead));
        let next = |free_at: u64| Some(free_at.max(earliest) + duration);
        let _ = self.free_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Takes the link at `now` for packets that others have sent, of `bytes` bytes together, and for at most
    /// [`Pacer::MOST_OTHERS`] or one packet of 64 KiB, which a device cuts into segments: those who send more than
    /// the link carries would otherwise close it for as long as they have done so.
    pub fn take_others(&self, now: u64, packets: u64, bytes: u64) {
        let earliest = now.saturating_sub(Self::BURST) * UNITS;
        let latest = now * UNITS + (Self::MOST_OTHERS * UNITS).max(self.duration(1 << 16));
        let duration = self.duration(bytes.saturating_add(packets * u64::from(self.overhead)));
        let next = |free_at: u64| {
            let free_at = free_at.max(earliest);
            Some(free_at.saturating_add(duration).min(latest.max(free_at)))
        };
        let _ = self.free_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Returns the duration of this many bytes, in units.
    fn duration(&self, bytes: u64) -> u64 {
        // 2^36 units a second.
        let bits = 8 * u128::from(bytes);
        let units = bits * u128::from(1_000_000_000 * UNITS) / u128::from(self.rate);
        u64::try_from(units).unwrap_or(u64::MAX).min(u64::MAX / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const BURST: u64 = Pacer::BURST;

    #[test]
    fn packets_of_others_take_their_time() {
        let pacer = Pacer::new(80_000_000, 4);
        pacer.take_others(SECOND, 10, 29_960);
        // 30,000 bytes at 10 MB/s, of which the burst was free.
        assert!(pacer.is_free(SECOND));
        pacer.take_others(SECOND, 10, 19_960);
        assert!(!pacer.is_free(SECOND + 999_000) && pacer.is_free(SECOND + 1_000_000));
        // A second's worth and more takes no more than the limit.
        pacer.take_others(SECOND, 1, 5_000_000);
        assert!(!pacer.is_free(SECOND + Pacer::MOST_OTHERS - 1000));
        assert!(pacer.is_free(SECOND + Pacer::MOST_OTHERS));
        pacer.take_others(SECOND, u64::MAX >> 8, u64::MAX);
        assert!(pacer.is_free(SECOND + Pacer::MOST_OTHERS));
        // On a slow link a packet that is cut into segments takes all of its time: 512 ms here.
        let slow = Pacer::new(1_000_000, 0);
        slow.take_others(SECOND, 44, 64_000);
        assert!(!slow.is_free(SECOND + 507_000_000) && slow.is_free(SECOND + 512_000_000));
        slow.take_others(SECOND, 44, 64_000);
        assert!(slow.is_free(SECOND + 525_000_000), "no more than 64 KiB");
    }

    /// The bytes that leave in ten seconds, of packets of `bytes` bytes, by a worker that looks each
    /// `turn` nanoseconds.
    fn sent(pacer: &Pacer, bytes: u32, turn: u64) -> u64 {
        let mut sent = 0;
        for now in (SECOND..11 * SECOND).step_by(turn as usize) {
            while pacer.is_free(now) {
                pacer.take(now, bytes);
                sent += u64::from(bytes);
            }
        }
        sent
    }

    #[test]
    fn pacer_keeps_its_rate_with_any_turns() {
        for (rate, bytes) in [(64_000, 1500), (100_000_000, 64), (1_000_000_000, 1514)] {
            for turn in [10_000, 137_000, 1_900_000, 3_900_000] {
                let sent = sent(&Pacer::new(rate, 0), bytes, turn);
                let expected = rate / 8 * 10;
                let burst = rate * 2 * BURST / SECOND / 8 + 2 * u64::from(bytes);
                assert!(sent.abs_diff(expected) <= burst, "{rate} {bytes} {turn}: {sent}");
            }
        }
    }

    #[test]
    fn pacer_counts_the_overhead() {
        let (plain, wire) = (Pacer::new(100_000_000, 0), Pacer::new(100_000_000, 24));
        let (plain, wire) = (sent(&plain, 60, 10_000), sent(&wire, 60, 10_000));
        let ratio = plain as f64 / wire as f64;
        assert!((ratio - 84.0 / 60.0).abs() < 0.01, "{ratio}");
    }

    #[test]
    fn late_worker_makes_up_for_the_burst_only() {
        let pacer = Pacer::new(8_000_000_000, 0);
        let mut sent = 0;
        while pacer.is_free(10 * SECOND) {
            pacer.take(10 * SECOND, 1000);
            sent += 1000;
        }
        // A byte a nanosecond.
        assert!((BURST..=BURST + 1000).contains(&sent), "{sent}");
    }

    #[test]
    fn workers_share_the_rate() {
        let pacer = Pacer::new(100_000_000, 0);
        let mut rng = fastrand::Rng::with_seed(1);
        let mut sent = [0u64; 2];
        for now in (SECOND..2 * SECOND).step_by(5_000) {
            let worker = rng.usize(..2);
            while pacer.is_free(now) {
                pacer.take(now, 1500);
                sent[worker] += 1500;
            }
        }
        let all = sent[0] + sent[1];
        assert!(all.abs_diff(12_500_000) <= 60_000, "{sent:?}");
        assert!(sent.iter().all(|sent| sent * 4 > all), "{sent:?}");
    }
}
