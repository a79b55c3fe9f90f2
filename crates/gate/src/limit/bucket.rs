//! A token bucket without rounding.
//!
//! Credit is in bytes × 10^9, so that a nanosecond at `rate` bytes a second earns exactly `rate`,
//! and over any time the bytes let through are at most rate × time + depth. At 100 Gb/s a depth of
//! 20 ms is 2.5 · 10^17, well within 64 bits.

const SECOND: u64 = 1_000_000_000;

/// Maximum duration of a bucket's burst, in nanoseconds: 20 ms.
pub const MAX_BURST: u64 = 20_000_000;

/// A token bucket.
#[derive(Clone, Debug)]
pub struct Bucket {
    /// Bytes a second.
    rate: u64,
    /// Maximum credit, in bytes × 10^9.
    depth: u64,
    credit: u64,
    last: u64,
}

impl Bucket {
    /// Creates a full bucket of `rate` bytes a second, at most 10^11, with the depth of
    /// `nanoseconds` at that rate, at most [`MAX_BURST`], and at least one frame of 9216 bytes, which
    /// could not leave otherwise.
    pub fn new(rate: u64, nanoseconds: u64, now: u64) -> Self {
        Self::holding(rate, nanoseconds, 1, now)
    }

    /// Creates a bucket that is at least `frames` such frames deep.
    pub fn holding(rate: u64, nanoseconds: u64, frames: u64, now: u64) -> Self {
        let rate = rate.min(100_000_000_000);
        let depth = (rate * nanoseconds.min(MAX_BURST)).max(frames * 9240 * SECOND);
        Self { rate, depth, credit: depth, last: now }
    }

    /// Creates the bucket for `percent` of a link of `bits` a second, with the maximum depth.
    pub fn share(bits: u64, percent: u64, now: u64) -> Self {
        Self::new(bits / 8 * percent / 100, MAX_BURST, now)
    }

    #[inline]
    fn fill(&mut self, now: u64) {
        // Packets of one turn have the same time: only the first of them finds credit to add.
        if now <= self.last {
            return;
        }
        let elapsed = now - self.last;
        self.last = now;
        let earned = self.rate.saturating_mul(elapsed);
        self.credit = self.credit.saturating_add(earned).min(self.depth);
    }

    /// Returns whether this many bytes may pass at `now`.
    pub fn allows(&mut self, now: u64, bytes: u32) -> bool {
        self.fill(now);
        self.credit >= u64::from(bytes) * SECOND
    }

    /// Returns whether this many bytes may pass at `now` and leave the depth, halved `halves`
    /// times, in the bucket.
    pub fn allows_leaving(&mut self, now: u64, bytes: u32, halves: u32) -> bool {
        self.fill(now);
        self.credit >= u64::from(bytes) * SECOND + self.depth.checked_shr(halves).unwrap_or(0)
    }

    /// Returns the nanoseconds until the bucket is full, rounded up.
    pub fn debt(&mut self, now: u64) -> u64 {
        self.fill(now);
        (self.depth - self.credit).div_ceil(self.rate.max(1))
    }

    /// Removes the tokens of this many nanoseconds at the rate, as far as there are any.
    pub fn owe(&mut self, nanoseconds: u64) {
        self.credit = self.credit.saturating_sub(self.rate.saturating_mul(nanoseconds));
    }

    /// Takes the credit of this many bytes, as far as there is any.
    pub fn take(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_sub(u64::from(bytes) * SECOND);
    }

    /// Takes as many of these bytes as there is credit for, and returns their number.
    pub fn take_part(&mut self, now: u64, bytes: u64) -> u64 {
        self.fill(now);
        let taken = bytes.min(self.credit / SECOND);
        self.credit -= taken * SECOND;
        taken
    }

    /// Takes the credit of this many bytes if there is enough, and returns whether there was.
    pub fn try_take(&mut self, now: u64, bytes: u32) -> bool {
        let allows = self.allows(now, bytes);
        if allows {
            self.take(bytes);
        }
        allows
    }

    /// Returns when this many bytes are allowed, `now` if they are already.
    pub fn ready_at(&mut self, now: u64, bytes: u32) -> u64 {
        self.fill(now);
        let missing = (u64::from(bytes) * SECOND).saturating_sub(self.credit);
        now.saturating_add(missing.div_ceil(self.rate.max(1)))
    }

    /// Returns the rate in bytes a second.
    pub fn rate(&self) -> u64 {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::{Bucket, MAX_BURST, SECOND};

    #[test]
    fn bucket_passes_at_most_rate_and_depth_over_any_time() {
        for rate in [1_000_000u64, 6_250_000, 1_250_000_000] {
            let mut rng = fastrand::Rng::with_seed(rate);
            let mut bucket = Bucket::new(rate, MAX_BURST, 0);
            let depth = (rate / 50).max(9240);
            let (mut now, mut sent) = (0, 0u64);
            for _ in 0..100_000 {
                let bytes = rng.u32(60..1538);
                if bucket.try_take(now, bytes) {
                    sent += u64::from(bytes);
                } else {
                    now = bucket.ready_at(now, bytes);
                    assert!(!bucket.clone().allows(now - 1, bytes));
                    assert!(bucket.try_take(now, bytes));
                    sent += u64::from(bytes);
                }
                let most = u128::from(rate) * u128::from(now) / u128::from(SECOND);
                assert!(u128::from(sent) <= most + u128::from(depth));
            }
            // Always busy, it loses nothing either.
            assert!(u128::from(sent) >= u128::from(rate) * u128::from(now) / u128::from(SECOND));
        }
    }

    #[test]
    fn pause_earns_at_most_the_depth() {
        let mut bucket = Bucket::new(1_000_000, MAX_BURST, 0);
        let mut sent = 0;
        while bucket.try_take(3600 * SECOND, 100) {
            sent += 100;
        }
        assert_eq!(sent, 20_000);
        // Time that goes back earns nothing.
        assert!(!bucket.allows(0, 100));
    }
}
