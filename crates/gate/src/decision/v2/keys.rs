//! Secrets by number, and their change.
//!
//! A peer signs with one key and takes all that it has, so a key is changed without a
//! moment in which messages are refused: the new one is added on both sides, then
//! signed with, then the old one is removed. The code is HMAC-SHA-256 (RFC 2104, FIPS
//! 180-4) cut to its first 128 bits, as RFC 4868 does, compared in constant time; both
//! come from the RustCrypto crates. The keys of tunnels (`tunnel/`) are derived from the same
//! secrets: what is hashed for those begins with a letter, and every message of the protocol with
//! its version.

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

impl Keys {
    /// Has one key, under this number.
    pub fn new(number: u16, secret: &[u8; 32]) -> Self {
        let mut keys = Self::default();
        keys.add(number, secret);
        keys.sign_with(number);
        keys
    }

    /// Takes messages under a further key, or another secret under this number.
    pub fn add(&mut self, number: u16, secret: &[u8; 32]) {
        self.remove(number);
        // HMAC takes a key of any length.
        if let Ok(mac) = Hmac::new_from_slice(secret) {
            self.keys.push((number, mac));
        }
    }

    /// Signs with the key of this number, and says whether there is one.
    pub fn sign_with(&mut self, number: u16) -> bool {
        let known = self.find(number).is_some();
        if known {
            self.signing = number;
        }
        known
    }

    /// Takes no more messages under a key, and says whether there was one.
    pub fn remove(&mut self, number: u16) -> bool {
        let before = self.keys.len();
        self.keys.retain(|(have, _)| *have != number);
        self.keys.len() < before
    }

    /// Returns the number of the key that messages are signed with.
    pub fn signing(&self) -> u16 {
        self.signing
    }

    /// Returns the numbers of the keys, in order.
    pub fn numbers(&self) -> Vec<u16> {
        let mut numbers: Vec<u16> = self.keys.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Derives what tunnels are sealed with in a session of a gate from the key of this number.
    pub fn tunnel(&self, number: u16, session: u64) -> Option<TunnelKey> {
        let mac = self.find(number)?.clone();
        let code = mac.chain_update(LABEL).chain_update(session.to_be_bytes()).finalize();
        let code = code.into_bytes();
        code.first_chunk::<16>().map(|secret| TunnelKey::new(number, session, *secret))
    }

    fn find(&self, number: u16) -> Option<&Hmac<Sha256>> {
        self.keys.iter().find(|(have, _)| *have == number).map(|(_, mac)| mac)
    }

    /// Appends the code of `message` under a key; without it the message stays as it is,
    /// and nobody will take it.
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
    /// Keeps the secrets.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let numbers: Vec<u16> = self.keys.iter().map(|(number, _)| *number).collect();
        write!(f, "Keys({numbers:?}, signing with {})", self.signing)
    }
}
