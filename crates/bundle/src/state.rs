//! The state that a member of a fleet publishes, signed with the member's key.
//!
//! ```text
//!   MemberState ─► JSON ─► signed text (`signed.rs`) ─► servers ─► verify
//! ```
//!
//! The operator knows the public key of each member by its name ([`MemberKeys`]). A state whose key is
//! another one, whose signature does not match, or that is of another member or fleet, is forged. An old
//! state can be served again: its time shows that, as it shows a member that is silent.

use core::fmt;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::key::{PublicKey, SecretKey};
use super::signed::{self, SignedError};
use api::{AttackReport, DistributionStatus};

const CONTEXT: &str = "fingerpost member state 1";
/// The longest interval between two states of a member.
pub const STATE_INTERVAL: Duration = Duration::from_secs(10);
/// The interval between two states of a member under attack.
pub const ATTACK_INTERVAL: Duration = Duration::from_secs(2);
/// A member whose last state is older is silent.
pub const SILENCE: Duration = Duration::from_secs(30);

/// The state of a member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemberState {
    /// The fleet.
    pub fleet: String,
    /// The time of the state, in seconds since 1970.
    pub time: u64,
    /// The program's version.
    pub program: String,
    /// The state of its bundles, with the member's name.
    pub distribution: DistributionStatus,
    /// The last attack that it has seen since its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attack: Option<AttackReport>,
}

/// The reason why a state is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateError {
    /// It is not signed by the member, or not in the format of a state.
    Signed(SignedError),
    /// The list of members' keys has no such member.
    UnknownMember,
    /// It is the state of another member or fleet.
    Other {
        /// The fleet that it names.
        fleet: String,
        /// The member that it names.
        member: String,
    },
}

impl fmt::Display for StateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signed(error) => error.fmt(f),
            Self::UnknownMember => {
                f.write_str("not in the list of members: add its name and public key, or remove it")
            }
            Self::Other { fleet, member } => {
                write!(f, "forged: the state of member {member} of fleet {fleet}")
            }
        }
    }
}

impl std::error::Error for StateError {}

impl From<SignedError> for StateError {
    fn from(error: SignedError) -> Self {
        Self::Signed(error)
    }
}

impl MemberState {
    /// Returns the state of now.
    pub fn now(
        fleet: &str,
        distribution: DistributionStatus,
        attack: Option<AttackReport>,
    ) -> Self {
        let time = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let program = env!("CARGO_PKG_VERSION").to_owned();
        Self { fleet: fleet.to_owned(), time, program, distribution, attack }
    }

    /// Encodes and signs it.
    pub fn sign(&self, key: &SecretKey) -> Vec<u8> {
        // Strings and numbers are always valid JSON.
        signed::sign(CONTEXT, serde_json::to_string(self).unwrap_or_default(), key)
    }

    /// Returns the time since the state, by this machine's clock; zero if it is later.
    pub fn age(&self) -> Duration {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        now.saturating_sub(Duration::from_secs(self.time))
    }
}

/// The public keys of a fleet's members, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberKeys(BTreeMap<String, PublicKey>);

impl MemberKeys {
    /// Parses lines of a name and a public key; `#` begins a comment.
    ///
    /// # Errors
    ///
    /// The line, from 1, and its problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut keys = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let parsed = line.split_once(char::is_whitespace);
            let parsed = parsed.and_then(|(name, key)| Some((name, PublicKey::parse(key)?)));
            let Some((name, key)) = parsed else {
                return Err(format!(
                    "line {number}: not a member's name and its public key of 64 hexadecimal digits, as \
                     `fingerpost bundle keygen` prints it"
                ));
            };
            if keys.insert(name.to_owned(), key).is_some() {
                return Err(format!("line {number}: duplicate member {name}"));
            }
        }
        Ok(Self(keys))
    }

    /// Returns the names of the members, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Verifies a stored state of a member of a fleet.
    ///
    /// # Errors
    ///
    /// [`StateError`].
    pub fn verify(
        &self,
        fleet: &str,
        member: &str,
        bytes: &[u8],
    ) -> Result<MemberState, StateError> {
        let key = self.0.get(member).ok_or(StateError::UnknownMember)?;
        let text = signed::open(CONTEXT, bytes, std::slice::from_ref(key))?;
        let state: MemberState =
            serde_json::from_str(&text).map_err(|error| SignedError::Format(error.to_string()))?;
        if state.fleet != fleet || state.distribution.name != member {
            let (fleet, member) = (state.fleet, state.distribution.name);
            return Err(StateError::Other { fleet, member });
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(name: &str) -> MemberState {
        let distribution = DistributionStatus {
            name: name.to_owned(),
            version: Some(7),
            state: "confirmed".to_owned(),
            ..DistributionStatus::default()
        };
        MemberState::now("site", distribution, None)
    }

    #[test]
    fn state_is_accepted_from_its_member_alone() {
        let (own, other) = (SecretKey::from_seed([1; 32]), SecretKey::from_seed([2; 32]));
        let list = format!("# two\ngate-1 {}\n\ngate-2\t{} # x\n", own.public(), other.public());
        let keys = MemberKeys::parse(&list).unwrap();
        assert_eq!(keys.names().collect::<Vec<_>>(), ["gate-1", "gate-2"]);
        let (one, two) = (state("gate-1"), state("gate-2"));
        let bytes = one.sign(&own);
        assert_eq!(keys.verify("site", "gate-1", &bytes), Ok(one.clone()));
        let refused = |fleet: &str, member: &str, bytes: &[u8]| {
            keys.verify(fleet, member, bytes).unwrap_err().to_string()
        };
        assert!(refused("site", "gate-3", &bytes).starts_with("not in the list"));
        assert!(refused("site", "gate-1", &one.sign(&other)).starts_with("forged: signed with"));
        assert!(refused("site", "gate-2", &bytes).starts_with("forged: signed with"));
        // A member signs the state of another one, or of another fleet.
        assert!(refused("site", "gate-1", &two.sign(&own)).contains("of member gate-2"));
        assert!(refused("other", "gate-1", &bytes).contains("of fleet site"));
        let changed = String::from_utf8(bytes.clone()).unwrap().replace(":7,", ":8,");
        assert_ne!(changed.as_bytes(), bytes);
        assert!(refused("site", "gate-1", changed.as_bytes()).contains("does not match"));
        let cut =
            String::from_utf8(bytes).unwrap().replace("\"signature\":\"", "\"signature\":\"é");
        assert!(refused("site", "gate-1", cut.as_bytes()).contains("does not match"));
        assert!(refused("site", "gate-1", b"{}").starts_with("not a signed text"));
    }

    #[test]
    fn list_of_members_names_its_bad_line() {
        let key = SecretKey::from_seed([1; 32]).public();
        for (text, line) in [("a", 1), ("a 00\n", 1), (&format!("\na {key}\na {key}\n"), 3)] {
            let error = MemberKeys::parse(text).unwrap_err();
            assert!(error.starts_with(&format!("line {line}: ")), "{error}");
        }
        assert_eq!(MemberKeys::parse("").unwrap(), MemberKeys::default());
    }
}
