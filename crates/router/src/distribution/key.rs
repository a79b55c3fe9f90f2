//! Keys: who may say what gates and grantors do. Ed25519 (RFC 8032), by `ed25519-dalek`.
//!
//! A secret key is 64 hexadecimal digits in a file that only its owner may read, as the keys of
//! decisions are; a public key the same without the need to hide it. Signatures are checked
//! strictly: neither keys of small order nor a second form of the same signature are taken.

use core::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use crate::vantage::config::check::secret;

/// The bytes of a signature.
pub const SIGNATURE: usize = 64;

/// What bundles are signed with.
#[derive(Clone)]
pub struct SecretKey(SigningKey);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

impl SecretKey {
    /// Makes one by the system's random numbers.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn random() -> io::Result<Self> {
        let mut seed = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut seed)?;
        Ok(Self::of(seed))
    }

    /// Returns the key of this seed.
    pub fn of(seed: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&seed))
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub fn load(path: &Path) -> Result<Self, String> {
        secret(path).map(Self::of)
    }

    /// Returns what a file of it holds.
    pub fn text(&self) -> String {
        hex(self.0.as_bytes())
    }

    /// Returns what its signatures are checked by.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs.
    pub fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE] {
        self.0.sign(bytes).to_bytes()
    }
}

/// What signatures are checked by.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl PublicKey {
    /// Returns the key of these bytes, if it is one.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let key = VerifyingKey::from_bytes(bytes.try_into().ok()?).ok()?;
        (!key.is_weak()).then_some(Self(key.to_bytes()))
    }

    /// Reads 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.trim().as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let pairs = digits.chunks_exact(2);
        let bytes = pairs.map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8));
        Self::of(&bytes.collect::<Option<Vec<u8>>>()?)
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Says whether the signature is this key's, of these bytes.
    pub fn verify(&self, bytes: &[u8], signature: &[u8]) -> bool {
        let key = VerifyingKey::from_bytes(&self.0);
        match (key, Signature::from_slice(signature)) {
            (Ok(key), Ok(signature)) => key.verify_strict(bytes, &signature).is_ok(),
            _ => false,
        }
    }
}

/// Writes bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, 7.1, tests 1 and 2.
    #[test]
    fn signatures_are_those_of_the_rfc() {
        let bytes = |text: &str| -> Vec<u8> {
            let pair = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
            (0..text.len() / 2).map(pair).collect()
        };
        for (seed, public, message, signature) in [
            (
                "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
                "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
                "",
                "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bac\
                 c61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
            ),
            (
                "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
                "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
                "72",
                "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e\
                 458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
            ),
        ] {
            let key = SecretKey::of(bytes(seed).try_into().unwrap());
            assert_eq!(key.text(), seed);
            assert_eq!(key.public().to_string(), public);
            assert_eq!(PublicKey::parse(public), Some(key.public()));
            assert_eq!(hex(&key.sign(&bytes(message))), signature);
            assert!(key.public().verify(&bytes(message), &bytes(signature)));
            assert!(!key.public().verify(b"other", &bytes(signature)));
            assert!(!key.public().verify(&bytes(message), &bytes(signature)[1..]));
        }
        let identity = format!("01{}", "00".repeat(31));
        for bad in ["", "d75a", &"0".repeat(64), &"g".repeat(64), &identity] {
            assert_eq!(PublicKey::parse(bad), None, "{bad}");
        }
    }
}
