//! What a member remembers of bundles, whatever happens to it: a small record on its disk.
//!
//! ```text
//!   floor    the highest version that was ever taken over: nothing lower is taken
//!   held     versions that were taken over, the last in force: where to go back to
//!   trial    the last of them is on trial; how often the process has died with it so far
//!   well     the process ended as it should
//!   refused  versions that were not sound here, or were taken back, and why
//! ```
//!
//! Pure: what is done to it here is written by [`super::kept::Kept`], whole or not at all, before
//! it is done to the member. So after any end, at any moment, the record names what is to be in force.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Versions that can be gone back to.
const KEPT: usize = 3;
/// Refused versions that are remembered: the highest.
const REFUSED: usize = 64;
/// A version that the process has died with so often on trial is taken back.
const MOST_ENDS: u32 = 2;

/// The record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    pub(super) floor: u64,
    pub(super) held: Vec<u64>,
    pub(super) trial: Option<u32>,
    pub(super) well: bool,
    pub(super) refused: BTreeMap<u64, String>,
}

/// What is to be done with a version that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Offer {
    /// It could be taken over.
    New,
    /// It is in force.
    Held,
    /// It was refused before.
    Refused(String),
    /// It is lower than one that was taken over.
    Older,
}

impl Record {
    /// Returns the version in force, if it is a bundle's.
    pub(super) fn in_force(&self) -> Option<u64> {
        self.held.last().copied()
    }

    /// Judges a version that is offered.
    pub(super) fn judge(&self, version: u64) -> Offer {
        if self.in_force() == Some(version) {
            Offer::Held
        } else if let Some(why) = self.refused.get(&version) {
            Offer::Refused(why.clone())
        } else if version < self.floor {
            Offer::Older
        } else {
            // The floor itself too: it was lost from the disk.
            Offer::New
        }
    }

    /// A version is in force from now on, on trial.
    pub(super) fn take(&mut self, version: u64) {
        self.floor = self.floor.max(version);
        self.held.retain(|held| *held != version);
        self.held.push(version);
        let over = self.held.len().saturating_sub(KEPT);
        self.held.drain(..over);
        self.trial = Some(0);
        self.well = false;
    }

    /// The version in force has stood its trial.
    pub(super) fn settle(&mut self) {
        self.trial = None;
    }

    /// The version before is in force from now on, or none; this one is not taken again.
    pub(super) fn go_back(&mut self, why: &str) -> Option<u64> {
        let gone = self.held.pop();
        self.trial = None;
        if let Some(gone) = gone {
            self.refuse(gone, why);
        }
        gone
    }

    /// A version is not taken.
    pub(super) fn refuse(&mut self, version: u64, why: &str) {
        self.refused.insert(version, why.to_owned());
        while self.refused.len() > REFUSED {
            // What is lower is below the floor sooner than the others.
            self.refused.pop_first();
        }
    }

    /// The last version cannot be read any more: the one before is in force.
    pub(super) fn lose(&mut self) {
        self.held.pop();
        self.trial = None;
    }

    /// The process begins. Where it has died too often with a version on trial, that one is
    /// taken back, which is returned.
    pub(super) fn begin(&mut self) -> Option<u64> {
        let well = std::mem::take(&mut self.well);
        let ends = self.trial.as_mut().filter(|_| !well)?;
        *ends += 1;
        if *ends < MOST_ENDS {
            return None;
        }
        self.go_back(&format!("the process died {MOST_ENDS} times while it was on trial"))
    }

    /// The process ends as it should.
    pub(super) fn end(&mut self) {
        self.well = true;
    }

    /// Refused versions may be taken again.
    pub(super) fn forgive(&mut self) -> usize {
        std::mem::take(&mut self.refused).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_higher_versions_are_taken_and_what_was_refused_is_not() {
        let mut record = Record::default();
        assert_eq!(record.judge(5), Offer::New);
        record.take(5);
        assert_eq!((record.judge(5), record.judge(4)), (Offer::Held, Offer::Older));
        record.settle();
        record.take(7);
        assert_eq!(record.go_back("bad"), Some(7));
        assert_eq!(record.in_force(), Some(5));
        assert_eq!(record.judge(7), Offer::Refused("bad".into()));
        // Below the floor still, though it is above what is in force.
        assert_eq!((record.judge(6), record.judge(5)), (Offer::Older, Offer::Held));
        assert_eq!(record.judge(8), Offer::New);
        assert_eq!(record.forgive(), 1);
        assert_eq!(record.judge(7), Offer::New);
        record.lose();
        assert_eq!((record.in_force(), record.judge(5)), (None, Offer::Older));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut record = Record::default();
        for version in 1..=100 {
            record.take(version);
        }
        assert_eq!(record.held, [98, 99, 100]);
        for version in 1..=100 {
            record.refuse(version, "x");
        }
        assert_eq!(record.refused.len(), REFUSED);
        assert!(record.refused.contains_key(&100) && !record.refused.contains_key(&1));
    }

    #[test]
    fn a_version_that_kills_the_process_is_taken_back() {
        let mut record = Record::default();
        record.take(1);
        record.settle();
        assert_eq!(record.begin(), None);
        record.take(2);
        // Ended as it should, and started again, any number of times.
        for _ in 0..5 {
            record.end();
            assert_eq!(record.begin(), None);
        }
        assert_eq!(record.begin(), None);
        assert_eq!(record.begin(), Some(2));
        assert_eq!((record.in_force(), record.trial), (Some(1), None));
        assert!(matches!(record.judge(2), Offer::Refused(_)));
        assert_eq!(record.begin(), None);
    }

    #[test]
    fn it_is_the_same_after_a_restart() {
        let mut record = Record::default();
        record.take(1);
        record.take(1 << 60);
        record.refuse(9, "why");
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<Record>(&text).unwrap(), record);
        assert!(serde_json::from_str::<Record>("{\"floor\":1}").is_err());
    }
}
