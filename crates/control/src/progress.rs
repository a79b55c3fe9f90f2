//! Detects threads on the packet path that no longer make progress.
//!
//! Each of them counts its turns: a worker in its counters (several a second, also without
//! packets), the control thread in a counter of its own, and so do the threads of a gate or a
//! grantor that receive, make and send decisions. A thread that is alive but makes no progress,
//! because it blocks or loops within one turn, has a constant count.
//!
//! Workers that a reload has ended are not included.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::view::View;

/// The turns of a router's threads, for observers that read them from time to time.
#[derive(Clone, Debug)]
pub struct Progress {
    view: Arc<View>,
    control: Turns,
    others: Vec<Turns>,
}

/// The turns of one thread.
pub type Turns = Arc<AtomicU64>;

impl Progress {
    /// Watches the workers that `view` shows, and a control thread that counts in `control`.
    pub fn new(view: Arc<View>, control: Turns) -> Self {
        Self { view, control, others: Vec::new() }
    }

    /// Adds threads.
    pub fn with(mut self, others: impl IntoIterator<Item = Turns>) -> Self {
        self.others.extend(others);
        self
    }

    /// Returns the turns of each thread so far; the number of threads may change with a reload.
    pub fn turns(&self) -> Vec<u64> {
        let workers = self.view.ports().iter().map(|port| port.worker + 1).max().unwrap_or(0);
        let polls = self.view.worker_stats().into_iter().take(workers).map(|stats| stats.polls);
        let others = [&self.control].into_iter().chain(&self.others);
        polls.chain(others.map(|turns| turns.load(Ordering::Relaxed))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_the_turns_of_each_thread() {
        let [control, decisions] = [3, 5].map(|turns| Arc::new(AtomicU64::new(turns)));
        let progress = Progress::new(Arc::default(), Arc::clone(&control));
        let progress = progress.with([Arc::clone(&decisions)]);
        assert_eq!(progress.turns(), [3, 5]);
        decisions.fetch_add(1, Ordering::Relaxed);
        assert_eq!(progress.turns(), [3, 6]);
    }
}
