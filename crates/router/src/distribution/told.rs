//! What a member tells of its bundles: the shape of the control socket's answer.
//!
//! As those of the router (`control/api.rs`): fields may be added, none changes its meaning.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The bundles of a gate or grantor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DistributionTold {
    /// What the member is called, by which it is a canary or not.
    pub name: String,
    /// Where bundles come from.
    pub source: String,
    /// `local` (no bundle is in force), `waiting`, `canary` or `trial` (a version is on trial),
    /// `confirmed`, `rolled_back`.
    pub state: String,
    /// Why it is in that state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Seconds until that changes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_seconds: Option<u64>,
    /// The version in force; none where it is the local configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The version that is offered and not taken yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<u64>,
    /// Versions that can be gone back to.
    #[serde(default)]
    pub previous: Vec<u64>,
    /// The highest version that was ever taken: nothing lower is.
    pub floor: u64,
    /// Versions that are not taken, and why.
    #[serde(default)]
    pub refused: BTreeMap<u64, String>,
    /// What went wrong last, and is wrong still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// What was counted.
    pub counts: BTreeMap<String, u64>,
}
