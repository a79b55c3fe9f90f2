//! A text with its signature, in JSON: states of members, and blocks of a fleet.
//!
//! ```text
//!   { "text": "…", "key": "…", "signature": "…" }      signed: context ‖ 0 ‖ text
//! ```
//!
//! The context, such as `fingerpost member state 1`, keeps a signature of one kind from being one of another.

use core::fmt;

use api::hexadecimal;
use serde::{Deserialize, Serialize};

use super::key::{PublicKey, SecretKey};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope {
    text: String,
    key: String,
    signature: String,
}

/// The reason why a signed text is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignedError {
    /// It is not in the format.
    Format(String),
    /// It is signed with a key that is not trusted for it: its hexadecimal digits.
    Key(String),
    /// The signature does not match.
    Signature,
}

impl fmt::Display for SignedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Format(why) => write!(f, "not a signed text: {why}"),
            Self::Key(key) => write!(f, "forged: signed with {key}, which is not a trusted key"),
            Self::Signature => f.write_str("forged or damaged: the signature does not match"),
        }
    }
}

impl std::error::Error for SignedError {}

fn signed_bytes(context: &str, text: &str) -> Vec<u8> {
    [context.as_bytes(), &[0], text.as_bytes()].concat()
}

/// Encodes and signs a text.
pub(crate) fn sign(context: &str, text: String, key: &SecretKey) -> Vec<u8> {
    let signature = hexadecimal(&key.sign(&signed_bytes(context, &text)));
    // Strings are always valid JSON.
    serde_json::to_vec(&Envelope { text, key: key.public().to_string(), signature })
        .unwrap_or_default()
}

/// Returns the text that one of the trusted keys has signed.
pub(crate) fn open(
    context: &str,
    bytes: &[u8],
    trusted: &[PublicKey],
) -> Result<String, SignedError> {
    let envelope: Envelope =
        serde_json::from_slice(bytes).map_err(|error| SignedError::Format(error.to_string()))?;
    let Some(key) = trusted.iter().find(|key| key.to_string() == envelope.key) else {
        return Err(SignedError::Key(envelope.key));
    };
    let digits = |i: usize| u8::from_str_radix(envelope.signature.get(i..i + 2)?, 16).ok();
    let signature: Vec<u8> = (0..envelope.signature.len()).step_by(2).map_while(digits).collect();
    if !key.verify(&signed_bytes(context, &envelope.text), &signature) {
        return Err(SignedError::Signature);
    }
    Ok(envelope.text)
}
