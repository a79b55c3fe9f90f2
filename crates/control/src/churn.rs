//! Measures the rate of route changes, to compare the router with the kernel only in quiet times.
//!
//! ```text
//!   turn ─ changes, queue empty? ─► ChurnMonitor ─► is_quiet: no more than MAX_RATE for QUIET
//! ```
//!
//! While a full table converges, the kernel's state and its messages are seconds apart, so a
//! comparison would find differences that are none. A full table with some updates a second
//! is quiet, because each update is applied within milliseconds.

use std::time::{Duration, Instant};

/// The most changes in a [`WINDOW`] that count as quiet.
const MAX_RATE: u64 = 100;
/// The time without a higher rate after which comparisons are meaningful.
const QUIET: Duration = Duration::from_secs(2);
/// The time over which changes are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// Tracks the rate of route changes.
#[derive(Debug)]
pub(super) struct ChurnMonitor {
    /// The start of the current window, and the count of changes at that time.
    window: (Instant, u64),
    /// The last time at which the rate was too high.
    busy: Option<Instant>,
    /// All received messages have been read and published.
    is_drained: bool,
}

impl ChurnMonitor {
    /// Starts at a count of changes.
    pub(super) fn new(now: Instant, changes: u64) -> Self {
        Self { window: (now, changes), busy: None, is_drained: false }
    }

    /// Records a turn: the total count of changes, and whether all received messages have been
    /// read and published.
    pub(super) fn record_turn(&mut self, now: Instant, changes: u64, is_drained: bool) {
        self.is_drained = is_drained;
        let (start, before) = self.window;
        if changes.saturating_sub(before) > MAX_RATE {
            self.busy = Some(now);
            self.window = (now, changes);
        } else if now.duration_since(start) >= WINDOW {
            self.window = (now, changes);
        }
    }

    /// Returns whether the kernel and the router can be compared.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        self.is_drained && self.busy.is_none_or(|at| now.duration_since(at) >= QUIET)
    }
}

#[cfg(test)]
mod tests {
    use super::{ChurnMonitor, Duration, Instant, MAX_RATE, QUIET};

    #[test]
    fn storm_is_over_after_the_quiet_time() {
        let begun = Instant::now();
        let at = |ms| begun + Duration::from_millis(ms);
        let mut churn = ChurnMonitor::new(begun, 1000);
        assert!(!churn.is_quiet(at(0)), "no message has been read yet");
        churn.record_turn(at(5), 1000, true);
        assert!(churn.is_quiet(at(5)));
        churn.record_turn(at(10), 1001 + MAX_RATE, true);
        let end = at(10) + QUIET;
        assert!(!churn.is_quiet(at(10)) && !churn.is_quiet(end - Duration::from_millis(1)));
        assert!(churn.is_quiet(end));
        churn.record_turn(end, 1001 + MAX_RATE, false);
        assert!(!churn.is_quiet(end), "messages remain");
    }

    #[test]
    fn few_updates_a_second_are_quiet_and_a_storm_in_small_turns_is_not() {
        let begun = Instant::now();
        let mut churn = ChurnMonitor::new(begun, 0);
        for second in 1..10u64 {
            let now = begun + Duration::from_secs(second);
            churn.record_turn(now, second * MAX_RATE, true);
            assert!(churn.is_quiet(now), "{second}");
        }
        let begun = begun + Duration::from_secs(10);
        for turn in 1..=50u64 {
            churn.record_turn(
                begun + Duration::from_millis(5 * turn),
                9 * MAX_RATE + 3 * turn,
                true,
            );
        }
        assert!(!churn.is_quiet(begun + Duration::from_millis(250)));
    }
}
