//! A wakeup: wakes one sleeper, and costs who rings it nothing while nobody sleeps.
//!
//! ```text
//!   sleeper   asleep := true ─► fence ─► is there anything? ─ yes ─► rings it himself
//!                                              │ no
//!                                              └► poll(2) on the descriptor
//!   ringer    what he brings ─► fence ─► asleep? ─ yes, and no longer ─► writes
//! ```
//!
//! Each writes before the fence what the other reads behind it, so that one of the two at least
//! sees the other (Dekker): what is brought is found, or the wakeup rings. A ring too many, of one
//! who was slow, is a turn for nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering, fence};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// One sleeper's wakeup.
#[derive(Debug)]
pub(super) struct Wakeup {
    event: EventFd,
    /// It has to be rung.
    asleep: AtomicBool,
    /// It may have been rung since it was last silenced.
    may_be_set: AtomicBool,
}

impl Wakeup {
    /// Makes one, silent.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn new() -> io::Result<Self> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let event = EventFd::from_value_and_flags(0, flags)?;
        Ok(Self { event, asleep: AtomicBool::new(false), may_be_set: AtomicBool::new(false) })
    }

    /// Wakes the sleeper, if he sleeps, after something was brought.
    #[inline]
    pub(super) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::Relaxed) {
            self.write();
        }
    }

    /// Returns whether the sleeper is about to sleep, unless there is `any`thing.
    pub(super) fn prepare_sleep(&self, any: impl FnOnce() -> bool) {
        self.may_be_set.store(true, Ordering::Relaxed);
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if any() {
            self.write();
        }
    }

    /// Returns whether the sleeper is awake, and silences the wakeup.
    #[inline]
    pub(super) fn clear(&self) {
        if self.may_be_set.load(Ordering::Relaxed) {
            self.may_be_set.store(false, Ordering::Relaxed);
            self.asleep.store(false, Ordering::Relaxed);
            // Nothing to read is as good.
            let _ = self.event.read();
        }
    }

    fn write(&self) {
        // It fails where it has been rung 2^64 - 2 times, which wakes as well.
        let _ = self.event.write(1);
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
