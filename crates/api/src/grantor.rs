//! The status of a grantor: the types of the control socket's replies.
//!
//! As in the router's replies (`lib.rs`), fields may be added and no field changes its meaning.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The status of a grantor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrantorStatus {
    /// The counters of the policy.
    pub policy: BTreeMap<String, u64>,
    /// The last error of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The counters of the decision sender.
    pub decisions: BTreeMap<String, u64>,
    /// The number of prefixes by list.
    pub lists: BTreeMap<String, usize>,
    /// The SHA-256 of the policy's text.
    #[serde(default)]
    pub digest: String,
    /// The gates, and the time since each one's last answer.
    #[serde(default)]
    pub gates: Vec<GateContact>,
    /// The number of reloads.
    #[serde(default)]
    pub reloads: u64,
    /// The number of refused reloads.
    #[serde(default)]
    pub reloads_refused: u64,
    /// The error that ended the recording of requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_failed: Option<String>,
    /// The comparison with the candidate, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<PolicyComparison>,
}

/// A gate that a grantor sends decisions to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateContact {
    /// The address of the gate.
    pub gate: IpAddr,
    /// Seconds since its last acknowledgment; absent before the first one. Gates of version 1 of the
    /// protocol send none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_ago: Option<f64>,
}

/// The comparison of the policy with a candidate since the candidate was loaded. The candidate has no
/// effect.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PolicyComparison {
    /// The number of compared requests.
    pub requests: u64,
    /// The number of errors of the candidate.
    pub failed: u64,
    /// The requests with another decision, by both decisions: `granted_declined` was granted by the
    /// policy and would be declined by the candidate.
    pub changes: BTreeMap<String, u64>,
    /// The first flows among them, at most 256.
    pub flows: Vec<ChangedDecision>,
}

/// A flow with another decision by the candidate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChangedDecision {
    /// The source address.
    pub source: IpAddr,
    /// The destination address.
    pub destination: IpAddr,
    /// The policy's decision about its last request.
    pub policy: String,
    /// The candidate's decision.
    pub candidate: String,
    /// The number of its requests with another decision.
    pub requests: u64,
}
