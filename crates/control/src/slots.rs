//! A counting semaphore: a limited number of slots, each returned when its holder is dropped.
//!
//! A counter that is decremented by hand is wrong after a panic, and after as many panics as there
//! are slots no client is served any more. A [`Slot`] is returned when it is dropped: by the end
//! of a thread, by a panic's unwinding, or with a thread that could not be started.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of slots.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    taken: Arc<AtomicUsize>,
    limit: usize,
}

/// A slot that is in use.
#[derive(Debug)]
pub(crate) struct Slot(Arc<AtomicUsize>);

impl Slots {
    /// Makes `limit` slots.
    pub(crate) fn new(limit: usize) -> Self {
        Self { taken: Arc::default(), limit }
    }

    /// Returns whether any slot is in use.
    pub(crate) fn any_taken(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > 0
    }

    /// Takes a slot, unless all are in use.
    pub(crate) fn take(&self) -> Option<Slot> {
        let next = |taken| (taken < self.limit).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        Some(Slot(Arc::clone(&self.taken)))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_returned_when_its_thread_panics() {
        let slots = Slots::new(2);
        for _ in 0..5 {
            let slot = slots.take().unwrap();
            let thread = std::thread::spawn(move || {
                let _slot = slot;
                panic!("the client's thread ends, as this test wants");
            });
            assert!(thread.join().is_err());
        }
        let held = (slots.take().unwrap(), slots.take().unwrap());
        assert!(slots.take().is_none());
        drop(held);
        assert!(slots.take().is_some());
    }
}
