//! Policers: the packets of a rule beyond its rate.
//!
//! The generic cell rate algorithm (ITU-T I.371): each packet takes the time that it would take at the
//! rate, and packets may be ahead of that by the burst, a twentieth of a second but at least
//! [`LEAST_BURST`] bytes, or [`LEAST_PACKETS`] packets. All workers share the policer: its state is one
//! atomic number.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Rate;

const SECOND: u64 = 1_000_000_000;
/// The least burst in bytes: a few packets of any length.
const LEAST_BURST: u64 = 32 << 10;
/// The least burst in packets.
const LEAST_PACKETS: u64 = 8;

/// The state of a rule's rate.
#[derive(Debug)]
pub struct Policer {
    rate: Rate,
    /// The time in nanoseconds that packets may be ahead.
    burst: u64,
    /// The time at which the packets so far have passed at the rate.
    passed: AtomicU64,
}

impl Policer {
    /// Makes the policer of a rate above 0, whose whole burst may pass.
    pub fn new(rate: Rate) -> Self {
        let least = match rate {
            Rate::Bits(rate) => duration(LEAST_BURST * 8, rate),
            Rate::Packets(rate) => duration(LEAST_PACKETS, rate),
        };
        Self { rate, burst: least.max(SECOND / 20), passed: AtomicU64::new(0) }
    }

    /// Returns whether a packet of `bytes` bytes is within the rate at `now`, in nanoseconds from a time
    /// of the caller's choice.
    #[inline]
    pub fn admit(&self, now: u64, bytes: u16) -> bool {
        let cost = match self.rate {
            Rate::Bits(rate) => duration(8 * u64::from(bytes), rate),
            Rate::Packets(rate) => duration(1, rate),
        };
        let next = |passed: u64| {
            let next = passed.max(now).saturating_add(cost);
            (next <= now.saturating_add(self.burst)).then_some(next)
        };
        self.passed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

/// Returns the time that `amount` takes at `rate` a second, in nanoseconds.
fn duration(amount: u64, rate: u64) -> u64 {
    let time = u128::from(amount) * u128::from(SECOND) / u128::from(rate.max(1));
    u64::try_from(time).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{Policer, SECOND};
    use crate::Rate;

    #[test]
    fn policer_under_overload_admits_its_rate_and_burst() {
        for (rate, bytes, unit) in [
            (Rate::Bits(10_000_000), 1000, 8000),
            (Rate::Bits(1_000_000_000), 1500, 12_000),
            (Rate::Packets(1000), 60, 1),
        ] {
            let policer = Policer::new(rate);
            // Four times the rate for ten seconds.
            let per_second = match rate {
                Rate::Bits(bits) => bits / unit,
                Rate::Packets(packets) => packets,
            };
            let packets = 40 * per_second;
            let admitted =
                (0..packets).filter(|n| policer.admit(n * (10 * SECOND / packets), bytes));
            let (admitted, expected) = (admitted.count() as u64, 10 * per_second);
            let burst = (per_second / 20).max(40);
            assert!((expected - 1..=expected + burst).contains(&admitted), "{rate}: {admitted}");
        }
    }
}
