//! The control thread, which follows the routes until it is stopped.
//!
//! When it stops, it returns its state and its request queue: its successor answers the same
//! queries, and continues its feed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use crate::handle::ControlRequests;
use crate::kernel_sync::{self, KernelSync};

/// The running control thread.
#[derive(Debug)]
pub(super) struct Control {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(KernelSync, ControlRequests<KernelSync>)>,
}

/// The turns of the current control thread.
pub(super) type Turns = Arc<AtomicU64>;

impl Control {
    /// Starts the thread, which counts its turns in `turns`.
    ///
    /// # Errors
    ///
    /// The system's error for the thread.
    pub(super) fn start(
        following: KernelSync,
        requests: ControlRequests<KernelSync>,
        turns: &Turns,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (ending, turns) = (Arc::clone(&stop), Arc::clone(turns));
        let thread = Builder::new()
            .name("control".into())
            .spawn(move || kernel_sync::run(following, requests, &ending, &turns))?;
        Ok(Self { stop, thread })
    }

    /// Returns whether the thread runs.
    pub(super) fn alive(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Stops the thread and returns its state; `None` if it has panicked, which is a bug.
    pub(super) fn stop(self) -> Option<(KernelSync, ControlRequests<KernelSync>)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok()
    }
}
