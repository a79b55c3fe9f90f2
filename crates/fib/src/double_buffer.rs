//! Two copies of what is published take turns.
//!
//! ```text
//!   builder ──refresh──► idle ──publish──► current ──retire──► retired
//!                          ▲                                       │ every reader
//!                          └───────────────reclaim─────────────────┘ has passed
//! ```
//!
//! While one copy is read, the other waits for what will have changed, and is patched
//! before it is published. Only where a reader has not left the idle one yet is a third
//! made, by copying; with two still out, what has changed waits for the next turn, so
//! that a reader that sleeps costs memory for one copy and not for one a publication.
//!
//! What a copy consists of is its engine's matter: of `rank` and `flat`, copies share all
//! but the first stage (`shared_pool.rs`), since a reader's cache has to take in the other copy
//! after each publication.

use alloc::boxed::Box;

use crate::{Publisher, Reader};

/// What is published, and the copies that are out.
pub(crate) struct DoubleBuffer<T> {
    publisher: Publisher<T>,
    /// How many of the retired copies are from a former builder.
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

    /// Says that the builder was made anew: no copy that is out is one of its own.
    pub(crate) fn renew(&mut self) {
        self.foreign = self.publisher.pending() + 1;
    }

    /// Publishes a copy that no builder of ours has made.
    pub(crate) fn adopt(&mut self, copy: T) {
        self.publisher.publish(Box::new(copy));
        self.renew();
    }

    /// Publishes what the builder holds: by `refresh` of a copy that has come back, or
    /// by a `fresh` one; `finish` has the last word on either. Says whether there was
    /// a copy to be had.
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
