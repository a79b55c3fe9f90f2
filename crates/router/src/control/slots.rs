//! Slots: so many of something at once, each given back when its holder is dropped.
//!
//! A counter that is incremented by hand is not decremented when a thread panics, and after that
//! many panics no client is served any more. A [`Slot`] is returned when it is dropped: by the end
//! of a thread, by a panic's unwinding, or with a thread that was never made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of slots.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    taken: Arc<AtomicUsize>,
    most: usize,
}

/// One that is taken.
#[derive(Debug)]
pub(crate) struct Slot(Arc<AtomicUsize>);

impl Slots {
    /// Makes this many slots.
    pub(crate) fn new(most: usize) -> Self {
        Self { taken: Arc::default(), most }
    }

    /// Takes a slot, unless all are taken.
    pub(crate) fn take(&self) -> Option<Slot> {
        let next = |taken| (taken < self.most).then_some(taken + 1);
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
    fn slot_is_free_again_after_a_thread_that_panics() {
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
