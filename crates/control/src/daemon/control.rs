//! The control thread: where the routes are followed, for as long as it is not stopped.
//!
//! Stopped, it gives back what it had: the one that comes after it answers the same
//! questions, and goes on with its feed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{Builder, JoinHandle};

use crate::handle::ControlRequests;
use crate::kernel_sync::{self, KernelSync};

/// The thread that follows the kernel, until it is stopped.
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
    /// The system's.
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

    /// Says whether the thread is at work.
    pub(super) fn alive(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Stops the thread and returns what it had; nothing if it has died, which is a bug.
    pub(super) fn stop(self) -> Option<(KernelSync, ControlRequests<KernelSync>)> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().ok()
    }
}
