//! The watchdog: notifies systemd as long as each thread of the service makes progress.
//!
//! ```text
//!   each quarter of the limit: counter of each thread ─ all changed? ─ yes ─► WATCHDOG=1
//!                                                          └ no ─► nothing: systemd restarts
//! ```
//!
//! The watchdog has its own thread, because the thread that handles signals also reloads, which takes
//! seconds with a full table. That thread is watched, too: each of its turns may take [`MAX_TURN`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use control::progress::Progress;
use sd_notify::NotifyState;
use threads::{Rights, Task};

/// Longest turn of the signal thread, which may include a reload.
const MAX_TURN: Duration = Duration::from_secs(300);

/// The heartbeat of the thread that handles signals.
#[derive(Clone, Debug)]
pub(crate) struct Heartbeat {
    turns: Arc<AtomicU64>,
    /// The start of the current turn.
    since: Arc<Mutex<Instant>>,
}

impl Heartbeat {
    pub(crate) fn new() -> Self {
        Self { turns: Arc::default(), since: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Begins the next turn.
    pub(crate) fn beat(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns whether the current turn exceeds [`MAX_TURN`].
    fn is_stalled(&self) -> bool {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).elapsed() > MAX_TURN
    }
}

/// The comparison of successive progress counters.
#[derive(Debug, Default)]
struct ProgressCheck {
    last: Vec<u64>,
}

impl ProgressCheck {
    /// Returns whether every counter has changed since the last call that returned true. Another
    /// number of threads counts as a change.
    fn has_progress(&mut self, turns: Vec<u64>) -> bool {
        let resized = turns.len() != self.last.len();
        let progress = resized || turns.iter().zip(&self.last).all(|(now, last)| now != last);
        if progress {
            self.last = turns;
        }
        progress
    }
}

/// Starts the thread that notifies systemd, for a watchdog time of `limit`.
///
/// # Errors
///
/// The I/O error of the thread's creation.
pub(crate) fn start(
    limit: Duration,
    progress: Progress,
    heartbeat: Heartbeat,
) -> std::io::Result<Task> {
    let mut check = ProgressCheck::default();
    Task::start("watchdog", Rights::None, move |stop| {
        while !stop.wait(limit / 4) {
            if !heartbeat.is_stalled() && check.has_progress(progress.turns()) {
                let _ = sd_notify::notify(&[NotifyState::Watchdog]);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalled_thread_is_no_progress() {
        let mut check = ProgressCheck::default();
        assert!(check.has_progress(vec![1, 1, 1]));
        for still in 0..3 {
            let mut turns = check.last.clone();
            for round in 0..5 {
                turns
                    .iter_mut()
                    .enumerate()
                    .filter(|(at, _)| *at != still)
                    .for_each(|(_, n)| *n += 1);
                assert!(!check.has_progress(turns.clone()), "thread {still}, round {round}");
            }
            // The check holds the counters of its last progress, so that one turn of the thread is enough.
            turns[still] += 1;
            assert!(check.has_progress(turns));
        }
    }

    #[test]
    fn changed_number_of_threads_is_progress() {
        let mut check = ProgressCheck::default();
        assert!(check.has_progress(vec![7, 7]));
        assert!(!check.has_progress(vec![7, 7]));
        assert!(check.has_progress(vec![7]), "a reload has ended a worker");
        assert!(!check.has_progress(vec![7]));
    }
}
