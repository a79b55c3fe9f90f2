//! Refusals: the verdicts of a batch's frames that are decided after parse, by their index.
//!
//! The checks that not every port has (access lists, the reverse path filter) store the frames that they
//! refuse here; the completion reads them, if there are any. A frame that an access list refuses has the rule,
//! for captures.

use super::Verdict;
use super::batch::SIZE;
use crate::capture::RuleIndex;

/// The refused frames of a batch.
#[derive(Debug)]
pub(super) struct Refusals {
    verdicts: [Option<Verdict>; SIZE],
    /// The rules of the frames that an access list has refused.
    rules: [Option<RuleIndex>; SIZE],
    is_empty: bool,
}

impl Refusals {
    /// Makes refusals of no frame.
    pub(super) fn new() -> Self {
        Self { verdicts: [None; SIZE], rules: [None; SIZE], is_empty: true }
    }

    /// Begins a batch.
    #[inline]
    pub(super) fn clear(&mut self) {
        if !self.is_empty {
            self.verdicts = [None; SIZE];
            self.rules = [None; SIZE];
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

    /// Refuses a frame by a rule of an access list; the first verdict counts.
    #[inline]
    pub(super) fn refuse_by(&mut self, at: usize, verdict: Verdict, by: RuleIndex) {
        let is_first = self.get(at).is_none();
        self.refuse(at, verdict);
        if let Some(slot) = self.rules.get_mut(at)
            && is_first
        {
            *slot = Some(by);
        }
    }

    /// Returns the rule that a frame is refused by.
    #[inline(always)]
    pub(super) fn rule(&self, at: usize) -> Option<RuleIndex> {
        self.rules.get(at).copied().flatten()
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
