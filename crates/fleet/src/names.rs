//! The names of a fleet's buckets and subjects, and the records in them.
//!
//! | bucket | key | value |
//! |---|---|---|
//! | object store `FLEET-bundles` | the version in decimal digits | a bundle |
//! | key-value `FLEET-control` | `current` | [`CurrentVersion`] in JSON |
//! | | `rollout` | [`RolloutRecord`] in JSON |
//! | | `blocked` | the signed list of blocked prefixes |
//! | | `complete` | the last versions that all members had, in JSON |
//! | key-value `FLEET-members` | the member's name | its signed state |
//!
//! A key-value bucket B is the stream `KV_B` with subjects `$KV.B.KEY`; an object store is the stream
//! `OBJ_B` with `$O.B.M.NAME` for the description of an object and `$O.B.C.ID` for its chunks, where
//! NAME is in base64 (RFC 4648, section 5).

use serde::{Deserialize, Serialize};

/// The key of the version that members are to have.
pub(crate) const CURRENT: &str = "current";
/// The key of the last rollout.
pub(crate) const ROLLOUT: &str = "rollout";
/// The key of the list of blocked prefixes.
pub(crate) const BLOCKED: &str = "blocked";
/// The key of the versions whose rollouts are complete.
pub(crate) const COMPLETE: &str = "complete";
/// Longest name of a member, in bytes.
const MAX_MEMBER: usize = 128;

/// The version that members are to have; the bundle itself says which of them may apply it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurrentVersion {
    /// The version of the bundle.
    pub version: u64,
    /// SHA-256 of the bundle in hexadecimal digits: each stage signs the same version again.
    pub digest: String,
}

/// The state of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RolloutState {
    /// A stage is in progress.
    Running,
    /// No further stage begins until it is resumed.
    Paused,
    /// It ended before its last stage.
    Stopped,
    /// All stages are complete.
    Complete,
}

/// The last rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutRecord {
    /// The version of the bundle.
    pub version: u64,
    /// The stage: a share of the members, such as `5 %`, or a label.
    pub stage: String,
    /// The state.
    pub state: RolloutState,
    /// The reason of the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Returns whether a name is valid for a member: a key of a NATS bucket.
pub fn is_member_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.len() <= MAX_MEMBER
        && name.bytes().all(is_plain)
        && name.split('.').all(|part| !part.is_empty())
}

/// The names of a fleet.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) bundles: String,
    pub(crate) control: String,
    pub(crate) members: String,
}

impl Names {
    pub(crate) fn of(fleet: &str) -> Self {
        let bucket = |part: &str| format!("{fleet}-{part}");
        Self { bundles: bucket("bundles"), control: bucket("control"), members: bucket("members") }
    }

    /// Returns the subject of a key of the control bucket.
    pub(crate) fn control(&self, key: &str) -> String {
        format!("$KV.{}.{key}", self.control)
    }

    /// Returns the subject of a member's state.
    pub(crate) fn member(&self, name: &str) -> String {
        format!("$KV.{}.{name}", self.members)
    }

    /// Returns the stream of a key-value bucket.
    pub(crate) fn stream_of(bucket: &str) -> String {
        format!("KV_{bucket}")
    }

    /// Returns the stream of the bundles.
    pub(crate) fn bundle_stream(&self) -> String {
        format!("OBJ_{}", self.bundles)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_name_is_a_key_of_a_bucket() {
        for name in ["gate-1", "gate_1.example.com", "A"] {
            assert!(is_member_name(name), "{name}");
        }
        for name in ["", "a b", "a..b", ".a", "a.", "a*", "a>", "ä"] {
            assert!(!is_member_name(name), "{name}");
        }
        assert!(!is_member_name(&"x".repeat(MAX_MEMBER + 1)));
    }
}
