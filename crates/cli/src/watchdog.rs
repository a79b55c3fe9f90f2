//! The watchdog: systemd gets a sign of life as long as each thread of the service makes progress.
//!
//! ```text
//!   every quarter of the limit: turns of each thread ─ all have grown? ─ yes ─► WATCHDOG=1
//!                                                          └ no ─► nothing: systemd restarts
//! ```
//!
//! It has a thread of its own, because the one that serves signals also reloads, which takes
//! seconds with a full table. That one is watched too: it has [`LONGEST`] for what it does at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use router::control::progress::Progress;
use sd_notify::NotifyState;

/// The longest time of a reload.
const LONGEST: Duration = Duration::from_secs(300);

/// The turns of the thread that serves signals.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    turns: Arc<AtomicU64>,
    /// The start of the current turn.
    since: Arc<Mutex<Instant>>,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self { turns: Arc::default(), since: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Begins another turn.
    pub(crate) fn turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns whether it has been in one turn for too long.
    fn hangs(&self) -> bool {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).elapsed() > LONGEST
    }
}

/// Decides when to feed the watchdog.
#[derive(Debug, Default)]
struct Feeder {
    fed: Vec<u64>,
}

impl Feeder {
    /// Returns whether every thread has gone on since this last held.
    fn goes_on(&mut self, turns: Vec<u64>) -> bool {
        let other = turns.len() != self.fed.len();
        let on = other || turns.iter().zip(&self.fed).all(|(now, fed)| now != fed);
        if on {
            self.fed = turns;
        }
        on
    }
}

/// The thread that feeds the watchdog, until this is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts it where systemd wants a sign of life each `limit`.
    ///
    /// # Errors
    ///
    /// The system has no thread left.
    pub(crate) fn start(
        limit: Duration,
        progress: Progress,
        server: Server,
    ) -> std::io::Result<Self> {
        let (stop, stopped) = channel::<()>();
        let thread = Builder::new().name("watchdog".into()).spawn(move || {
            let mut feeder = Feeder::default();
            while stopped.recv_timeout(limit / 4) == Err(RecvTimeoutError::Timeout) {
                if !server.hangs() && feeder.goes_on(progress.turns()) {
                    let _ = sd_notify::notify(&[NotifyState::Watchdog]);
                }
            }
        })?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feeder_stalled_thread_starves_the_watchdog() {
        let mut feeder = Feeder::default();
        assert!(feeder.goes_on(vec![1, 1, 1]));
        for still in 0..3 {
            let mut turns = feeder.fed.clone();
            for round in 0..5 {
                turns
                    .iter_mut()
                    .enumerate()
                    .filter(|(at, _)| *at != still)
                    .for_each(|(_, n)| *n += 1);
                assert!(!feeder.goes_on(turns.clone()), "thread {still}, round {round}");
            }
            // It was fed last with what it then was, so that one turn of it is enough.
            turns[still] += 1;
            assert!(feeder.goes_on(turns));
        }
    }

    #[test]
    fn feeder_other_number_of_threads_is_progress() {
        let mut feeder = Feeder::default();
        assert!(feeder.goes_on(vec![7, 7]));
        assert!(!feeder.goes_on(vec![7, 7]));
        assert!(feeder.goes_on(vec![7]), "a reload has ended a worker");
        assert!(!feeder.goes_on(vec![7]));
    }
}
