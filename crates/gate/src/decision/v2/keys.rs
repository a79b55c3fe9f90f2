//! Keys by number, and key rollover.
//!
//! A peer signs with one key and accepts all keys that it has, so that a key is replaced without
//! refused messages: the new key is added on both sides, then used to sign, then the old one is
//! removed. The code is HMAC-SHA-256 (RFC 2104, FIPS 180-4) truncated to its first 128 bits, as RFC
//! 4868 does, compared in constant time; both come from the RustCrypto crates. The keys of tunnels
//! (`tunnel/`) are derived from the same secrets: the derivation's input begins with a letter, and
//! that of messages with the protocol's version.

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::TAG;
use crate::decision::MessageError;
use crate::tunnel::{LABEL, TunnelKey};

/// The keys that two peers share.
#[derive(Clone, Default)]
pub struct Keys {
    keys: Vec<(u16, Hmac<Sha256>)>,
    signing: u16,
}

/// Two sets are equal if they have the same numbers and secrets and sign with the same key. Secrets
/// are compared by the codes that they give for an empty message, in constant time.
impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        let has_same_secret = |number: u16| match (self.find(number), other.find(number)) {
            (Some(own), Some(mac)) => {
                own.clone().verify(&mac.clone().finalize().into_bytes()).is_ok()
            }
            _ => false,
        };
        self.signing == other.signing
            && self.numbers() == other.numbers()
            && self.numbers().into_iter().all(has_same_secret)
    }
}

impl Keys {
    /// Creates a set of one key, which signs.
    pub fn new(number: u16, secret: &[u8; 32]) -> Self {
        let mut keys = Self::default();
        keys.add(number, secret);
        keys.sign_with(number);
        keys
    }

    /// Accepts a further key, or replaces the secret of this number.
    pub fn add(&mut self, number: u16, secret: &[u8; 32]) {
        self.remove(number);
        // HMAC takes a key of any length.
        if let Ok(mac) = Hmac::new_from_slice(secret) {
            self.keys.push((number, mac));
        }
    }

    /// Signs with the key of this number, and returns whether it exists.
    pub fn sign_with(&mut self, number: u16) -> bool {
        let known = self.find(number).is_some();
        if known {
            self.signing = number;
        }
        known
    }

    /// Removes a key, and returns whether it existed.
    pub fn remove(&mut self, number: u16) -> bool {
        let before = self.keys.len();
        self.keys.retain(|(have, _)| *have != number);
        self.keys.len() < before
    }

    /// Returns the number of the signing key.
    pub fn signing(&self) -> u16 {
        self.signing
    }

    /// Returns the numbers of the keys, in order.
    pub fn numbers(&self) -> Vec<u16> {
        let mut numbers: Vec<u16> = self.keys.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Derives the key of tunnels to this grantor in a session of a gate from the key of this
    /// number.
    pub fn tunnel(&self, number: u16, session: u64) -> Option<TunnelKey> {
        let mac = self.find(number)?.clone();
        let code = mac.chain_update(LABEL).chain_update(session.to_be_bytes()).finalize();
        let code = code.into_bytes();
        code.first_chunk::<16>().map(|secret| TunnelKey::new(number, session, *secret))
    }

    fn find(&self, number: u16) -> Option<&Hmac<Sha256>> {
        self.keys.iter().find(|(have, _)| *have == number).map(|(_, mac)| mac)
    }

    /// Appends the code of `message` under a key. Without the key the message stays unsigned, and
    /// every receiver refuses it.
    pub(super) fn seal(&self, number: u16, message: &mut Vec<u8>) {
        if let Some(mac) = self.find(number) {
            let code = mac.clone().chain_update(&*message).finalize().into_bytes();
            message.extend_from_slice(&code[..TAG]);
        }
    }

    /// Checks the code at the end of `message`.
    pub(super) fn check(&self, number: u16, message: &[u8]) -> Result<(), MessageError> {
        let mac = self.find(number).ok_or(MessageError::UnknownKey)?;
        let (content, tag) = message.split_last_chunk::<TAG>().ok_or(MessageError::Truncated)?;
        let code = mac.clone().chain_update(content);
        code.verify_truncated_left(tag).map_err(|_| MessageError::Forged)
    }
}

impl core::fmt::Debug for Keys {
    /// Omits the secrets.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let numbers: Vec<u16> = self.keys.iter().map(|(number, _)| *number).collect();
        write!(f, "Keys({numbers:?}, signing with {})", self.signing)
    }
}
