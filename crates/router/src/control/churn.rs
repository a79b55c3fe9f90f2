//! Calm: whether routes come at a rate at which the kernel and the router can be compared.
//!
//! ```text
//!   turn ─ changes, read empty? ─► ChurnMonitor ─► is_calm: for QUIET no second with more than FEW
//! ```
//!
//! While a full table converges, what the kernel does and what it has reported are seconds
//! apart: a comparison then finds differences that are none. A full table that gets some
//! updates a second is calm, as each is taken over within milliseconds.

use std::time::{Duration, Instant};

/// Changes in a second that are no storm.
const FEW: u64 = 100;
/// The quiet time after a storm until it is calm.
const QUIET: Duration = Duration::from_secs(2);
/// The time over which changes are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Follows the rate of changes.
#[derive(Debug)]
pub(super) struct ChurnMonitor {
    /// The start of the present second, and the count of changes at that time.
    window: (Instant, u64),
    /// The last time of too many changes.
    busy: Option<Instant>,
    /// Everything that was there has been read and published.
    drained: bool,
}

impl ChurnMonitor {
    /// Begins, with so many changes so far.
    pub(super) fn new(now: Instant, changes: u64) -> Self {
        Self { window: (now, changes), busy: None, drained: false }
    }

    /// Records a turn: of all changes so far, and whether all that was there has been
    /// read and published.
    pub(super) fn turn(&mut self, now: Instant, changes: u64, drained: bool) {
        self.drained = drained;
        let (began, before) = self.window;
        if changes.saturating_sub(before) > FEW {
            self.busy = Some(now);
            self.window = (now, changes);
        } else if now.duration_since(began) >= WINDOW {
            self.window = (now, changes);
        }
    }

    /// Returns whether the kernel and the router can be compared.
    pub(super) fn is_calm(&self, now: Instant) -> bool {
        self.drained && self.busy.is_none_or(|at| now.duration_since(at) >= QUIET)
    }
}

#[cfg(test)]
mod tests {
    use super::{ChurnMonitor, Duration, FEW, Instant, QUIET};

    #[test]
    fn storm_is_over_when_it_has_been_quiet_for_a_while() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut calm = ChurnMonitor::new(begun, 1000);
        assert!(!calm.is_calm(at(0)), "nothing has been read yet");
        calm.turn(at(5), 1000, true);
        assert!(calm.is_calm(at(5)));
        calm.turn(at(10), 1001 + FEW, true);
        let end = at(10) + QUIET;
        assert!(!calm.is_calm(at(10)) && !calm.is_calm(end - Duration::from_millis(1)));
        assert!(calm.is_calm(end));
        calm.turn(end, 1001 + FEW, false);
        assert!(!calm.is_calm(end), "more is there");
    }

    #[test]
    fn trickle_of_updates_is_calm_and_a_storm_in_small_turns_is_not() {
        let begun = Instant::now();
        let mut calm = ChurnMonitor::new(begun, 0);
        for second in 1..10u64 {
            let now = begun + Duration::from_secs(second);
            calm.turn(now, second * FEW, true);
            assert!(calm.is_calm(now), "{second}");
        }
        let begun = begun + Duration::from_secs(10);
        for turn in 1..=50u64 {
            calm.turn(begun + Duration::from_millis(5 * turn), 9 * FEW + 3 * turn, true);
        }
        assert!(!calm.is_calm(begun + Duration::from_millis(250)));
    }
}
