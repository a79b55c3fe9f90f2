//! A wakeup: wakes a sleeping worker, and costs the sender nothing while that is awake.
//!
//! ```text
//!   receiver  asleep := true ─► fence ─► any packet? ─ yes ─► signals itself
//!                                              │ no
//!                                              └► poll(2) on the descriptor
//!   sender    packet ─► fence ─► asleep? ─ yes ─► asleep := false, signals
//! ```
//!
//! Each writes before the fence what the other reads behind it, so that at least one of the two
//! sees the other's write (Dekker): the receiver finds the packet, or the sender signals. An
//! unnecessary signal costs the receiver one idle turn.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// The wakeup of one worker.
#[derive(Debug)]
pub(super) struct Wakeup {
    event: EventFd,
    /// The worker sleeps and has to be signalled.
    asleep: AtomicBool,
    /// The event may have been signalled since it was last cleared.
    may_be_set: AtomicBool,
}

impl Wakeup {
    /// Creates a wakeup that is not signalled.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub(super) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let event = EventFd::from_value_and_flags(0, flags)?;
        Ok(Self { event, asleep: AtomicBool::new(false), may_be_set: AtomicBool::new(false) })
    }

    /// Wakes the worker, if it sleeps, after a packet was sent.
    #[inline]
    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.write();
        }
    }

    /// Prepares to sleep; signals itself if there is `any` packet.
    pub(super) fn prepare_sleep(&self, any: impl FnOnce() -> bool) {
        self.may_be_set.store(true, Ordering::Relaxed);
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if any() {
            self.write();
        }
    }

    /// Records that the worker is awake, and clears the event.
    #[inline]
    pub(super) fn clear(&self) {
        if self.may_be_set.load(Ordering::Relaxed) {
            self.may_be_set.store(false, Ordering::Relaxed);
            self.asleep.store(false, Ordering::Relaxed);
            // An error means that there was nothing to clear.
            let _ = self.event.read();
        }
    }

    fn write(&self) {
        // It fails only if 2^64 - 2 signals are pending, which wake the worker as well.
        let _ = self.event.write(1);
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
