//! The prefixes that all gates of a fleet drop: a list that the operator signs.
//!
//! ```text
//!   operator: list of last time, changed, sequence + 1 ─► signed ─► servers ─► gate: trusted? higher?
//!                                                                               └─► bans that differ
//! ```
//!
//! A gate applies only a list with a higher sequence than before, so that the servers cannot take a block
//! back. It keeps the last list beside its bundles (`AppliedBlocks`), and knows after a restart which of its bans are
//! the fleet's. A block may have an end, at which each gate lifts it by itself.

use std::collections::BTreeMap;
use std::time::SystemTime;

use api::FleetBlocksStatus;
use serde::{Deserialize, Serialize};

use super::key::{PublicKey, SecretKey};
use super::signed::{self, SignedError};

const CONTEXT: &str = "fingerpost blocks 1";
/// Most prefixes of a list.
pub const MAX_BLOCKS: usize = 4096;

/// The list of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetBlocks {
    /// The fleet.
    pub fleet: String,
    /// Higher than that of each list before.
    pub sequence: u64,
    /// The prefixes, each with the time at which its block ends, in seconds since 1970; none: never.
    pub prefixes: BTreeMap<String, Option<u64>>,
}

/// Returns the seconds since 1970.
pub fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}

impl FleetBlocks {
    /// Encodes and signs it.
    pub fn sign(&self, key: &SecretKey) -> Vec<u8> {
        // Strings and numbers are always valid JSON.
        signed::sign(CONTEXT, serde_json::to_string(self).unwrap_or_default(), key)
    }

    /// Reads a list of a fleet that one of the keys has signed.
    ///
    /// # Errors
    ///
    /// [`SignedError`]; a list of another fleet, or a longer one, is not in the format.
    pub fn open(bytes: &[u8], fleet: &str, trusted: &[PublicKey]) -> Result<Self, SignedError> {
        let text = signed::open(CONTEXT, bytes, trusted)?;
        let list: Self =
            serde_json::from_str(&text).map_err(|error| SignedError::Format(error.to_string()))?;
        if list.fleet != fleet {
            return Err(SignedError::Format(format!("a list of fleet {}", list.fleet)));
        }
        if list.prefixes.len() > MAX_BLOCKS {
            return Err(SignedError::Format(format!("more than {MAX_BLOCKS} prefixes")));
        }
        Ok(list)
    }

    /// Removes the blocks that have ended.
    pub fn prune(&mut self, now: u64) {
        self.prefixes.retain(|_, end| end.is_none_or(|end| end > now));
    }
}

/// A change of a gate's bans.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockChange {
    /// Drop a prefix, for so many seconds or without end.
    Block(String, Option<u64>),
    /// Drop it no longer.
    Unblock(String),
}

/// The blocks of a fleet as a gate has applied them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AppliedBlocks {
    pub(crate) list: FleetBlocks,
    /// Prefixes that the gate does not drop, with the reasons.
    pub(crate) refused: BTreeMap<String, String>,
}

impl AppliedBlocks {
    /// Returns the status.
    pub(crate) fn status(&self) -> FleetBlocksStatus {
        FleetBlocksStatus {
            sequence: self.list.sequence,
            applied: (self.list.prefixes.len() - self.refused.len()) as u64,
            refused: self.refused.clone(),
        }
    }

    /// Applies another list by `change`; an older one changes nothing. Returns whether it was applied.
    pub(crate) fn apply(
        &mut self,
        mut list: FleetBlocks,
        now: u64,
        mut change: impl FnMut(BlockChange) -> Result<String, String>,
    ) -> bool {
        if list.sequence <= self.list.sequence {
            return false;
        }
        list.prune(now);
        for prefix in self.list.prefixes.keys() {
            // A block that has ended, or was refused, is none.
            if !list.prefixes.contains_key(prefix) && !self.refused.contains_key(prefix) {
                let _ = change(BlockChange::Unblock(prefix.clone()));
            }
        }
        let mut refused = BTreeMap::new();
        for (prefix, end) in &list.prefixes {
            let is_applied =
                self.list.prefixes.get(prefix) == Some(end) && !self.refused.contains_key(prefix);
            if is_applied {
                continue;
            }
            let seconds = end.map(|end| end - now);
            if let Err(reason) = change(BlockChange::Block(prefix.clone(), seconds)) {
                refused.insert(prefix.clone(), reason);
            }
        }
        *self = Self { list, refused };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(sequence: u64, prefixes: &[(&str, Option<u64>)]) -> FleetBlocks {
        let prefixes = prefixes.iter().map(|(prefix, end)| ((*prefix).to_owned(), *end)).collect();
        FleetBlocks { fleet: "site".to_owned(), sequence, prefixes }
    }

    #[test]
    fn list_is_accepted_from_a_trusted_key_for_its_fleet() {
        let (key, other) = (SecretKey::from_seed([1; 32]), SecretKey::from_seed([2; 32]));
        let blocks = list(3, &[("192.0.2.0/24", None), ("2001:db8::/32", Some(9))]);
        let bytes = blocks.sign(&key);
        let trusted = [other.public(), key.public()];
        assert_eq!(FleetBlocks::open(&bytes, "site", &trusted), Ok(blocks));
        let refused = |bytes: &[u8], fleet: &str, trusted: &[PublicKey]| {
            FleetBlocks::open(bytes, fleet, trusted).unwrap_err()
        };
        assert!(matches!(refused(&bytes, "site", &trusted[..1]), SignedError::Key(_)));
        assert!(matches!(refused(&bytes, "other", &trusted), SignedError::Format(_)));
        let changed = String::from_utf8(bytes).unwrap().replace("192.0.2.0", "192.0.3.0");
        assert_eq!(refused(changed.as_bytes(), "site", &trusted), SignedError::Signature);
        assert!(matches!(refused(b"{}", "site", &trusted), SignedError::Format(_)));
    }

    #[test]
    fn gate_applies_the_difference_of_a_higher_list() {
        use BlockChange::{Block, Unblock};
        let mut applied = AppliedBlocks::default();
        let mut apply = |list: FleetBlocks, now: u64| {
            let mut changes = Vec::new();
            let is_applied = applied.apply(list, now, |change| {
                changes.push(change.clone());
                match change {
                    Block(prefix, _) if prefix == "own" => Err("its own address".to_owned()),
                    _ => Ok(String::new()),
                }
            });
            (is_applied, changes, applied.refused.len())
        };
        let block = |prefix: &str, seconds| Block(prefix.to_owned(), seconds);
        let unblock = |prefix: &str| Unblock(prefix.to_owned());
        let first = list(1, &[("a", None), ("b", Some(100)), ("ended", Some(9)), ("own", None)]);
        let changes = vec![block("a", None), block("b", Some(90)), block("own", None)];
        assert_eq!(apply(first.clone(), 10), (true, changes, 1));
        assert_eq!(apply(first, 10), (false, vec![], 1), "the same again");
        // Another end, a new one, one that is gone, and another attempt for the refused one.
        let second = list(2, &[("b", Some(200)), ("c", None), ("own", None)]);
        let changes =
            vec![unblock("a"), block("b", Some(190)), block("c", None), block("own", None)];
        assert_eq!(apply(second, 10), (true, changes, 1));
        assert_eq!(apply(list(1, &[]), 10), (false, vec![], 1), "an older list");
        assert_eq!(apply(list(3, &[("c", None)]), 10), (true, vec![unblock("b")], 0));
    }
}
