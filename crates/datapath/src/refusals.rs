//! Refusals: the verdicts of a batch's frames that are decided after parse, by their index.
//!
//! The checks that not every port has (access lists, the reverse path filter) store the frames that they
//! refuse here; the completion reads them, if there are any.

use super::Verdict;
use super::batch::SIZE;

/// The refused frames of a batch.
#[derive(Debug)]
pub(super) struct Refusals {
    verdicts: [Option<Verdict>; SIZE],
    is_empty: bool,
}

impl Refusals {
    /// Makes refusals of no frame.
    pub(super) fn new() -> Self {
        Self { verdicts: [None; SIZE], is_empty: true }
    }

    /// Begins a batch.
    #[inline]
    pub(super) fn clear(&mut self) {
        if !self.is_empty {
            self.verdicts = [None; SIZE];
            self.is_empty = true;
        }
    }

    /// Refuses a frame; the first verdict counts.
    #[inline]
    pub(super) fn refuse(&mut self, at: usize, verdict: Verdict) {
        if let Some(slot) = self.verdicts.get_mut(at) {
            slot.get_or_insert(verdict);
            self.is_empty = false;
        }
    }

    /// Returns whether no frame is refused.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Returns the verdict of a refused frame.
    #[inline(always)]
    pub(super) fn get(&self, at: usize) -> Option<Verdict> {
        self.verdicts.get(at).copied().flatten()
    }
}
