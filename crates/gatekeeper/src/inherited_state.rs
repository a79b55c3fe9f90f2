//! The state of a gate's role that travels to a successor, as JSON: by names, so that another version can read it.

use std::collections::BTreeMap;

use gate::gate::{Count, OutcomeCounts, RuleOutcome};
use serde::{Deserialize, Serialize};

/// The state of the role that travels as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InheritedState {
    /// The secrets of SYN cookies, as words.
    pub(super) cookie_secrets: Option<[u64; 5]>,
    /// The sums of the workers' counters, by group and name.
    #[serde(default)]
    pub(super) counters: BTreeMap<String, u64>,
    /// Packets and bytes by rule and outcome.
    #[serde(default)]
    pub(super) rules: BTreeMap<String, BTreeMap<String, [u64; 2]>>,
}

/// Returns the counts of a rule by the names of outcomes.
pub(super) fn named_outcomes(counts: &OutcomeCounts) -> BTreeMap<String, [u64; 2]> {
    let named = |(outcome, count): (RuleOutcome, Count)| {
        (outcome.name().to_owned(), [count.packets, count.bytes])
    };
    counts.iter().map(named).collect()
}

/// The reverse of [`named_outcomes`]; an outcome that is missing counts as zero.
pub(super) fn outcomes_of(named: &BTreeMap<String, [u64; 2]>) -> OutcomeCounts {
    OutcomeCounts::from_fn(|outcome| {
        let [packets, bytes] = named.get(outcome.name()).copied().unwrap_or_default();
        Count { packets, bytes }
    })
}
