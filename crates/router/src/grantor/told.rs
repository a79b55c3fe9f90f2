//! What a grantor tells of itself: the shape of the control socket's answer.
//!
//! As those of the router (`control/api.rs`): fields may be added, none changes its meaning.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;

use gate::flow::Pair;
use gate::grantor::{Difference, Shadow};
use serde::{Deserialize, Serialize};

/// The most flows that are told of whose outcome the candidate would change.
const MOST: usize = 256;

/// A grantor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GrantorTold {
    /// What the policy said, and how often it failed.
    pub policy: BTreeMap<String, u64>,
    /// Its last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Decisions on their way to the gates.
    pub decisions: BTreeMap<String, u64>,
    /// Prefixes by list.
    pub lists: BTreeMap<String, usize>,
    /// The SHA-256 of the policy's text.
    #[serde(default)]
    pub digest: String,
    /// The gates, and when each was heard.
    #[serde(default)]
    pub gates: Vec<GateHeard>,
    /// Policies read anew.
    #[serde(default)]
    pub reloads: u64,
    /// Those that were not taken over.
    #[serde(default)]
    pub reloads_refused: u64,
    /// Why requests are not recorded any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_failed: Option<String>,
    /// What the candidate would say, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<ShadowTold>,
}

/// A gate that a grantor speaks to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateHeard {
    /// Its address.
    pub gate: IpAddr,
    /// Seconds since it has acknowledged something; none where it never has. Gates of version 1 of
    /// the protocol do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heard_ago: Option<f64>,
}

/// A candidate beside the policy, since it was loaded: what it says is compared and has no
/// effect.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ShadowTold {
    /// Requests that both were asked about.
    pub requests: u64,
    /// Times that the candidate failed.
    pub failed: u64,
    /// Requests that it says something else of, by what: `granted_declined` was granted by the
    /// policy, and the candidate would decline.
    pub changes: BTreeMap<String, u64>,
    /// Flows among them: the first that were met, up to 256.
    pub flows: Vec<Changed>,
}

impl ShadowTold {
    /// Tells of a candidate.
    pub fn of(shadow: &Shadow) -> Self {
        let changes = shadow.changes().iter();
        let mut flows: Vec<_> = shadow.flows().map(Changed::of).collect();
        flows.sort_unstable_by_key(|it| (Reverse(it.requests), it.source, it.destination));
        Self {
            requests: shadow.requests(),
            failed: shadow.failed(),
            changes: changes.map(|((was, will), it)| (format!("{was}_{will}"), *it)).collect(),
            flows,
        }
    }

    /// Adds what was compared for another worker.
    pub(super) fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.failed += other.failed;
        for (change, count) in other.changes {
            *self.changes.entry(change).or_default() += count;
        }
        self.flows.extend(other.flows);
        self.flows.truncate(MOST);
    }
}

/// A flow whose outcome the candidate would change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Changed {
    /// Where its packets come from.
    pub source: IpAddr,
    /// Where they go.
    pub destination: IpAddr,
    /// What the policy said of its last request, in words.
    pub policy: String,
    /// What the candidate would have said.
    pub candidate: String,
    /// Its requests on which they differ.
    pub requests: u64,
}

impl Changed {
    /// Tells of a difference.
    pub fn of(difference: &Difference) -> Self {
        let (source, destination) = match difference.flow.pair() {
            Pair::V4 { src, dst } => (IpAddr::V4(src.into()), IpAddr::V4(dst.into())),
            Pair::V6 { src, dst } => (IpAddr::V6(src.into()), IpAddr::V6(dst.into())),
        };
        Self {
            source,
            destination,
            policy: difference.policy.to_string(),
            candidate: difference.candidate.to_string(),
            requests: difference.requests,
        }
    }
}
