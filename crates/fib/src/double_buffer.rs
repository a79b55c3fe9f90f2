//! Double buffering: one copy is published while the other waits to be refreshed.
//!
//! ```text
//!   builder ──refresh──► idle ──publish──► current ──retire──► retired
//!                          ▲                                       │ every reader
//!                          └───────────────reclaim─────────────────┘ has passed
//! ```
//!
//! While readers use one copy, the other is idle until the next commit patches and publishes it. If
//! a reader has not left the idle copy yet, a third one is made by copying. If two copies are still
//! in use, the changes wait for the next commit, so that a sleeping reader costs the memory of one
//! copy and not of one for each publication.
//!
//! The engine decides what a copy consists of: the copies of `rank` and `flat` share all but the
//! first stage (`shared_pool.rs`), because a reader's cache has to load the other copy after each
//! publication.

use alloc::boxed::Box;

use crate::{Publisher, Reader};

/// A published value and its retired copies.
pub(crate) struct DoubleBuffer<T> {
    publisher: Publisher<T>,
    /// The number of retired copies that an earlier builder made.
    foreign: usize,
}

impl<T> DoubleBuffer<T> {
    /// Publishes a first copy.
    pub(crate) fn new(first: T) -> Self {
        Self { publisher: Publisher::new(first), foreign: 0 }
    }

    pub(crate) fn current(&self) -> &T {
        self.publisher.current()
    }

    pub(crate) fn passed(&self) -> bool {
        self.publisher.passed()
    }

    pub(crate) fn reader(&self) -> Reader<T> {
        self.publisher.reader()
    }

    /// Notes that the builder was replaced: no existing copy is from the new one.
    pub(crate) fn renew(&mut self) {
        self.foreign = self.publisher.pending() + 1;
    }

    /// Publishes a copy that the builder has not made.
    pub(crate) fn adopt(&mut self, copy: T) {
        self.publisher.publish(Box::new(copy));
        self.renew();
    }

    /// Publishes the builder's present state: in a reclaimed copy by `refresh`, or in a `fresh` one;
    /// calls `finish` on either before it is published. Returns whether a copy was available.
    pub(crate) fn publish(
        &mut self,
        fresh: impl FnOnce() -> T,
        refresh: impl FnOnce(&mut T),
        finish: impl FnOnce(&mut T),
    ) -> bool {
        let mut copy = loop {
            match self.publisher.reclaim() {
                Some(former) if self.foreign > 0 => {
                    self.foreign -= 1;
                    drop(former);
                }
                Some(mut idle) => {
                    refresh(&mut idle);
                    break idle;
                }
                None if self.publisher.pending() < 2 => break Box::new(fresh()),
                None => return false,
            }
        };
        finish(&mut copy);
        self.publisher.publish(copy);
        true
    }
}
