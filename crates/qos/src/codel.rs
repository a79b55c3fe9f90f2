//! CoDel: signals congestion when packets have waited too long for too long (RFC 8289).
//!
//! ```text
//!            waited ≥ target during a whole interval
//!   Passing ─────────────────────────────────────────► Signaling: a signal now, and the next one
//!      ▲                                                   │       interval / √count later
//!      └───────────────────────────────────────────────────┘
//!            waited < target, or one packet's bytes wait
//! ```
//!
//! A burst that drains within an interval gets no signal. A standing queue gets signals at a rate that
//! grows until its senders slow down. A signal drops the packet, or marks it as Congestion Experienced
//! if it is ECN-capable (RFC 3168); the caller does that.
//!
//! After a pause of less than 16 intervals, signaling resumes at about the rate that it had (RFC 8289,
//! section 5.4).

/// The parameters of CoDel, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodelParameters {
    /// The acceptable standing delay.
    pub target: u64,
    /// The time that senders need to react: the longest usual round trip.
    pub interval: u64,
}

impl Default for CodelParameters {
    /// 5 ms and 100 ms (RFC 8289, sections 4.3 and 4.4).
    fn default() -> Self {
        Self { target: 5_000_000, interval: 100_000_000 }
    }
}

/// The state of CoDel for one queue.
#[derive(Clone, Debug)]
pub struct Codel {
    parameters: CodelParameters,
    /// When packets will have waited too long for an interval, if they do now.
    above_until: Option<u64>,
    /// When the next signal is due.
    next: u64,
    /// The number of signals since signaling began.
    count: u32,
    /// `count` when signaling last began.
    last_count: u32,
    is_signaling: bool,
}

impl Codel {
    /// Makes the state of an empty queue.
    pub fn new(parameters: CodelParameters) -> Self {
        Self {
            parameters,
            above_until: None,
            next: 0,
            count: 0,
            last_count: 0,
            is_signaling: false,
        }
    }

    /// Returns whether the packet that leaves the queue at `now` gets a signal. It has `waited`, and
    /// `is_last` states that what remains in the queue is no more than one packet's bytes. A caller
    /// that drops the packet asks about the next one at the same time.
    pub fn signals(&mut self, now: u64, waited: u64, is_last: bool) -> bool {
        if waited < self.parameters.target || is_last {
            self.above_until = None;
            self.is_signaling = false;
            return false;
        }
        let until = *self.above_until.get_or_insert(now + self.parameters.interval);
        if now < until {
            self.is_signaling = false;
            return false;
        }
        if self.is_signaling {
            if now < self.next {
                return false;
            }
            self.count = self.count.saturating_add(1);
            self.next += self.gap();
            return true;
        }
        self.is_signaling = true;
        let signals = self.count.wrapping_sub(self.last_count);
        let is_recent = now.saturating_sub(self.next) < 16 * self.parameters.interval;
        self.count = if signals > 1 && is_recent { signals } else { 1 };
        self.last_count = self.count;
        self.next = now + self.gap();
        true
    }

    /// Returns the time between this signal and the next one.
    fn gap(&self) -> u64 {
        (self.parameters.interval as f64 / f64::from(self.count).sqrt()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const MS: u64 = 1_000_000;

    fn codel() -> Codel {
        Codel::new(CodelParameters::default())
    }

    #[test]
    fn short_burst_gets_no_signal() {
        let mut codel = codel();
        // 90 ms of packets that have waited for 50 ms, then the queue is short.
        assert!((0..90).all(|ms| !codel.signals(ms * MS, 50 * MS, false)));
        assert!(!codel.signals(90 * MS, MS, false));
        // The interval begins again.
        assert!((100..190).all(|ms| !codel.signals(ms * MS, 50 * MS, false)));
    }

    #[test]
    fn last_packet_gets_no_signal() {
        let mut codel = codel();
        assert!((0..1000).all(|ms| !codel.signals(ms * MS, 50 * MS, true)));
    }

    /// The times of RFC 8289, section 3.3: interval / √count after one another.
    #[test]
    fn standing_queue_gets_signals_at_a_growing_rate() {
        let mut codel = codel();
        let step = MS / 10;
        let signals =
            (0..20_000).map(|n| n * step).filter(|&now| codel.signals(now, 10 * MS, false));
        let mut due = 100.0 * MS as f64;
        for (n, at) in signals.take(40).enumerate() {
            assert!((at as f64 - due).abs() < 2.0 * step as f64, "signal {n} at {at}, not {due}");
            due += 100.0 * MS as f64 / ((n + 1) as f64).sqrt();
        }
    }

    /// The pseudocode of RFC 8289, section 5, as it stands there, which drops packets itself.
    struct Twin {
        queue: VecDeque<u64>,
        first_above: u64,
        next: u64,
        count: u32,
        last_count: u32,
        dropping: bool,
    }

    impl Twin {
        fn take(&mut self, now: u64) -> (Option<u64>, bool) {
            let Some(at) = self.queue.pop_front() else {
                self.first_above = 0;
                return (None, false);
            };
            let mut may_drop = false;
            if now - at < 5 * MS || self.queue.len() <= 1 {
                self.first_above = 0;
            } else if self.first_above == 0 {
                self.first_above = now + 100 * MS;
            } else {
                may_drop = now >= self.first_above;
            }
            (Some(at), may_drop)
        }

        fn law(&self, from: u64) -> u64 {
            from + (100.0 * MS as f64 / f64::from(self.count).sqrt()) as u64
        }

        /// Dequeues a packet, and returns the number of packets that it drops.
        fn dequeue(&mut self, now: u64) -> u32 {
            let mut dropped = 0;
            let (mut packet, mut may_drop) = self.take(now);
            if self.dropping {
                if !may_drop {
                    self.dropping = false;
                }
                while now >= self.next && self.dropping {
                    dropped += u32::from(packet.is_some());
                    self.count += 1;
                    (packet, may_drop) = self.take(now);
                    if may_drop {
                        self.next = self.law(self.next);
                    } else {
                        self.dropping = false;
                    }
                }
            } else if may_drop {
                dropped += 1;
                self.take(now);
                self.dropping = true;
                let delta = self.count - self.last_count;
                self.count = 1;
                if delta > 1 && now.saturating_sub(self.next) < 16 * 100 * MS {
                    self.count = delta;
                }
                self.next = self.law(now);
                self.last_count = self.count;
            }
            dropped
        }
    }

    #[test]
    fn drops_are_those_of_the_pseudocode() {
        let mut rng = fastrand::Rng::with_seed(1);
        let (mut all, mut difference) = (0, 0);
        for _ in 0..20 {
            let mut twin = Twin {
                queue: VecDeque::new(),
                first_above: 0,
                next: 0,
                count: 0,
                last_count: 0,
                dropping: false,
            };
            let (mut codel, mut queue) = (codel(), VecDeque::new());
            let (mut load, mut dropped, mut expected) = (1.0, 0, 0);
            // A packet leaves each 0.1 ms, and `load` of them arrive.
            for step in 0..200_000u64 {
                let now = step * MS / 10;
                if step % 5000 == 0 {
                    load = 0.5 + rng.f64();
                }
                for _ in 0..u8::from(rng.f64() < load / 2.0) * 2 {
                    queue.push_back(now);
                    twin.queue.push_back(now);
                }
                expected += twin.dequeue(now);
                while let Some(at) = queue.pop_front() {
                    if !codel.signals(now, now - at, queue.len() <= 1) {
                        break;
                    }
                    dropped += 1;
                }
            }
            assert!(expected > 100, "{expected}");
            all += expected;
            difference += expected.abs_diff(dropped);
        }
        // The end of signaling is noticed one packet earlier.
        assert!(difference * 50 <= all, "{difference} of {all}");
    }
}
