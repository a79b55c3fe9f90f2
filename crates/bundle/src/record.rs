//! The persistent state of a rollout: a small record on the member's disk.
//!
//! ```text
//!   floor          the highest version that was ever applied: no lower version is eligible
//!   applied        versions that were applied, the last of which is in force; rollback targets
//!   trial_crashes  while the last version is on trial: unclean ends of the process so far
//!   clean_exit     whether the last process ended cleanly
//!   refused        versions that were not valid here or were rolled back, with the reason
//! ```
//!
//! The module does no I/O. [`super::store::BundleStore`] writes the record atomically before the
//! member applies a change. After a crash at any moment the record names the version in force.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Versions in the history, including the one in force.
const MAX_APPLIED: usize = 3;
/// Refused versions in the record: the highest ones stay.
const MAX_REFUSED: usize = 64;
/// Unclean ends of the process during a trial that cause a rollback.
const MAX_TRIAL_CRASHES: u32 = 2;

/// The record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RolloutRecord {
    pub(super) floor: u64,
    #[serde(rename = "held")]
    pub(super) applied: Vec<u64>,
    #[serde(rename = "trial")]
    pub(super) trial_crashes: Option<u32>,
    #[serde(rename = "well")]
    pub(super) clean_exit: bool,
    pub(super) refused: BTreeMap<u64, String>,
}

/// Whether a member may apply an offered version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Eligibility {
    /// It may be applied.
    New,
    /// It is in force.
    InForce,
    /// It was refused before, for this reason.
    Refused(String),
    /// It is lower than a version that was applied.
    BelowFloor,
}

impl RolloutRecord {
    /// Returns the version in force; none if it is the local configuration.
    pub(super) fn in_force(&self) -> Option<u64> {
        self.applied.last().copied()
    }

    /// Returns whether an offered version may be applied.
    pub(super) fn eligibility(&self, version: u64) -> Eligibility {
        if self.in_force() == Some(version) {
            Eligibility::InForce
        } else if let Some(reason) = self.refused.get(&version) {
            Eligibility::Refused(reason.clone())
        } else if version < self.floor {
            Eligibility::BelowFloor
        } else {
            // This includes the floor itself, whose bundle was lost from the disk.
            Eligibility::New
        }
    }

    /// Puts a version in force, on trial.
    pub(super) fn start_trial(&mut self, version: u64) {
        self.floor = self.floor.max(version);
        self.applied.retain(|applied| *applied != version);
        self.applied.push(version);
        let excess = self.applied.len().saturating_sub(MAX_APPLIED);
        self.applied.drain(..excess);
        self.trial_crashes = Some(0);
        self.clean_exit = false;
    }

    /// Ends the trial of the version in force with success.
    pub(super) fn confirm(&mut self) {
        self.trial_crashes = None;
    }

    /// Puts the previous version, or the local configuration, in force; refuses and returns the
    /// current version.
    pub(super) fn roll_back(&mut self, reason: &str) -> Option<u64> {
        let current = self.applied.pop();
        self.trial_crashes = None;
        if let Some(current) = current {
            self.refuse(current, reason);
        }
        current
    }

    /// Refuses a version from now on.
    pub(super) fn refuse(&mut self, version: u64, reason: &str) {
        self.refused.insert(version, reason.to_owned());
        while self.refused.len() > MAX_REFUSED {
            // The lowest versions fall below the floor first.
            self.refused.pop_first();
        }
    }

    /// Removes the current version, whose bundle cannot be read or applied, without refusing it.
    pub(super) fn drop_current(&mut self) {
        self.applied.pop();
        self.trial_crashes = None;
    }

    /// Records the start of the process. Rolls back and returns the version on trial if the process
    /// has crashed [`MAX_TRIAL_CRASHES`] times with it.
    pub(super) fn mark_start(&mut self) -> Option<u64> {
        let clean = std::mem::take(&mut self.clean_exit);
        let crashes = self.trial_crashes.as_mut().filter(|_| !clean)?;
        *crashes += 1;
        if *crashes < MAX_TRIAL_CRASHES {
            return None;
        }
        self.roll_back(&format!("the process died {MAX_TRIAL_CRASHES} times while it was on trial"))
    }

    /// Records a clean end of the process.
    pub(super) fn mark_shutdown(&mut self) {
        self.clean_exit = true;
    }

    /// Makes refused versions eligible again; returns their number.
    pub(super) fn clear_refused(&mut self) -> usize {
        std::mem::take(&mut self.refused).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_eligible_if_it_is_above_the_floor_and_not_refused() {
        let mut record = RolloutRecord::default();
        assert_eq!(record.eligibility(5), Eligibility::New);
        record.start_trial(5);
        assert_eq!(
            (record.eligibility(5), record.eligibility(4)),
            (Eligibility::InForce, Eligibility::BelowFloor)
        );
        record.confirm();
        record.start_trial(7);
        assert_eq!(record.roll_back("bad"), Some(7));
        assert_eq!(record.in_force(), Some(5));
        assert_eq!(record.eligibility(7), Eligibility::Refused("bad".into()));
        // Version 6 is above the one in force, but below the floor.
        assert_eq!(
            (record.eligibility(6), record.eligibility(5)),
            (Eligibility::BelowFloor, Eligibility::InForce)
        );
        assert_eq!(record.eligibility(8), Eligibility::New);
        assert_eq!(record.clear_refused(), 1);
        assert_eq!(record.eligibility(7), Eligibility::New);
        record.drop_current();
        assert_eq!((record.in_force(), record.eligibility(5)), (None, Eligibility::BelowFloor));
    }

    #[test]
    fn history_and_refused_versions_are_bounded() {
        let mut record = RolloutRecord::default();
        for version in 1..=100 {
            record.start_trial(version);
        }
        assert_eq!(record.applied, [98, 99, 100]);
        for version in 1..=100 {
            record.refuse(version, "x");
        }
        assert_eq!(record.refused.len(), MAX_REFUSED);
        assert!(record.refused.contains_key(&100) && !record.refused.contains_key(&1));
    }

    #[test]
    fn version_is_rolled_back_after_two_crashes_on_trial() {
        let mut record = RolloutRecord::default();
        record.start_trial(1);
        record.confirm();
        assert_eq!(record.mark_start(), None);
        record.start_trial(2);
        // Clean restarts do not count.
        for _ in 0..5 {
            record.mark_shutdown();
            assert_eq!(record.mark_start(), None);
        }
        assert_eq!(record.mark_start(), None);
        assert_eq!(record.mark_start(), Some(2));
        assert_eq!((record.in_force(), record.trial_crashes), (Some(1), None));
        assert!(matches!(record.eligibility(2), Eligibility::Refused(_)));
        assert_eq!(record.mark_start(), None);
    }

    #[test]
    fn record_survives_serialization() {
        let mut record = RolloutRecord::default();
        record.start_trial(1);
        record.start_trial(1 << 60);
        record.refuse(9, "why");
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<RolloutRecord>(&text).unwrap(), record);
        assert!(serde_json::from_str::<RolloutRecord>("{\"floor\":1}").is_err());
    }
}
