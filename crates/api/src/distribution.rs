//! The status of a member's bundles, as the control socket returns it.
//!
//! The compatibility rule is that of `lib.rs`: releases may add fields, and never change the
//! meaning of one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The prefixes that a fleet has blocked, as a gate has applied them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetBlocksStatus {
    /// The sequence of the list.
    pub sequence: u64,
    /// The number of its prefixes that the gate drops.
    pub applied: u64,
    /// Its prefixes that the gate does not drop, with the reasons.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub refused: BTreeMap<String, String>,
}

/// The status of the bundles of a gate or grantor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DistributionStatus {
    /// The member's name, which decides whether it is a canary.
    pub name: String,
    /// The member's labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The source: a path or an HTTP URL.
    pub source: String,
    /// The state: `local` (no bundle is in force), `waiting`, `canary` or `trial` (a version is on
    /// trial), `confirmed`, `rolled_back`.
    pub state: String,
    /// The reason of the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Seconds until the state changes by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_seconds: Option<u64>,
    /// The version in force; none if it is the local configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The version that is offered and not applied yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered: Option<u64>,
    /// Earlier versions that a rollback can return to.
    #[serde(default)]
    pub previous: Vec<u64>,
    /// The highest version that was ever applied: the member applies no lower one.
    pub floor: u64,
    /// Refused versions, with the reasons.
    #[serde(default)]
    pub refused: BTreeMap<u64, String>,
    /// The last error, while it persists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The prefixes that its fleet has blocked, at a gate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<FleetBlocksStatus>,
    /// The counters, by name.
    pub counts: BTreeMap<String, u64>,
}
