//! Keys of signers of bundles and of members' states: Ed25519 (RFC 8032), with `ed25519-dalek`.
//!
//! A secret key is 64 hexadecimal digits in a file that only its owner may read, like the keys of
//! decisions. A public key has the same format and needs no protection. Verification is strict: it
//! rejects keys of small order and non-canonical signatures.

use core::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use api::hexadecimal;
use config::read_secret;

/// Length of a signature in bytes.
pub const SIGNATURE_LEN: usize = 64;

/// A key that signs bundles, or the states of a member.
#[derive(Clone)]
pub struct SecretKey(SigningKey);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey")
    }
}

impl PartialEq for SecretKey {
    fn eq(&self, other: &Self) -> bool {
        self.public() == other.public()
    }
}

impl SecretKey {
    /// Generates a key from `/dev/urandom`.
    ///
    /// # Errors
    ///
    /// The I/O error of `/dev/urandom`.
    pub fn generate() -> io::Result<Self> {
        let mut seed = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut seed)?;
        Ok(Self::from_seed(seed))
    }

    /// Returns the key of a seed.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&seed))
    }

    /// Reads a key file.
    ///
    /// # Errors
    ///
    /// The path, and the I/O error or that the file is not a key or is readable by others.
    pub fn load(path: &Path) -> Result<Self, String> {
        read_secret(path).map(Self::from_seed)
    }

    /// Returns the 64 hexadecimal digits of a key file.
    pub fn to_hex(&self) -> String {
        hexadecimal(self.0.as_bytes())
    }

    /// Returns the public key.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs bytes.
    pub fn sign(&self, bytes: &[u8]) -> [u8; SIGNATURE_LEN] {
        self.0.sign(bytes).to_bytes()
    }
}

/// A key that verifies signatures.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey([u8; 32]);

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hexadecimal(&self.0))
    }
}

impl PublicKey {
    /// Returns the key of 32 bytes, unless they are not a key or a key of small order.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let key = VerifyingKey::from_bytes(bytes.try_into().ok()?).ok()?;
        (!key.is_weak()).then_some(Self(key.to_bytes()))
    }

    /// Parses 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.trim().as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let digit = |digit: u8| char::from(digit).to_digit(16);
        let pairs = digits.chunks_exact(2);
        let bytes = pairs.map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8));
        Self::from_bytes(&bytes.collect::<Option<Vec<u8>>>()?)
    }

    /// Returns the bytes of the key.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns whether a signature of the bytes is valid for this key.
    pub fn verify(&self, bytes: &[u8], signature: &[u8]) -> bool {
        let key = VerifyingKey::from_bytes(&self.0);
        match (key, Signature::from_slice(signature)) {
            (Ok(key), Ok(signature)) => key.verify_strict(bytes, &signature).is_ok(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8032, 7.1, tests 1 and 2.
    #[test]
    fn signatures_match_the_vectors_of_rfc_8032() {
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
            let key = SecretKey::from_seed(bytes(seed).try_into().unwrap());
            assert_eq!(key.to_hex(), seed);
            assert_eq!(key.public().to_string(), public);
            assert_eq!(PublicKey::parse(public), Some(key.public()));
            assert_eq!(hexadecimal(&key.sign(&bytes(message))), signature);
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
