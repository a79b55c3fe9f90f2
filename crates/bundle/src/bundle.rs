//! The bundle format: one signed file with the policies and lists of gates and grantors.
//!
//! ```text
//!      0       8      10       12        20        28     30         32
//!      +-------+------+--------+---------+---------+------+----------+
//!      |FPBUNDLE| 1:16 |share:16| version:64| created:64|files:16|flags:16|
//!      +-------+------+--------+---------+---------+------+----------+
//!      | label length:8 | label | with bit 1 of the flags
//!      +-----------------------------------------------------+
//!      | name length:16 | size:32 | SHA-256 of the contents:256 | name | … per file, sorted by name
//!      +-----------------------------------------------------+
//!      | contents, in the same order, without padding        |
//!      +-----------------------------------------------------+
//!      | public key of the signer:256 | Ed25519 signature (RFC 8032) of all before it:512 |
//!      +-----------------------------------------------------+
//! ```
//!
//! Integers are unsigned, in network byte order. `share` is the canary share in hundredths of a
//! percent; `created` is in seconds since 1970. Bit 0 of `flags` means that no other member than those of
//! the share and the label may apply it; bit 1, that there is a label, which needs bit 0; the other bits are
//! 0. The encoding is canonical: each bundle that
//! [`Bundle::open`] accepts equals, byte for byte, the output of [`pack`] for the same header and
//! files. It has no bytes outside its files, and two bundles are equal exactly if their bytes are.
//!
//! [`Bundle::open`] checks the signature before it parses the rest, with the strict verification that
//! leaves no second signature for the same bytes. The signature proves the origin of a bundle, not
//! that it is valid for a member, which validates it (`agent.rs`). A bundle is not encrypted: do not
//! pack secret keys.
//!
//! Names are relative, in letters, digits, `.`, `_` and `-` with `/` between folders, and no part
//! begins with a dot. So no name escapes the bundle, and each file has exactly one name. A bundle is
//! never unpacked; members read the files in place (`FileSource`).

use core::fmt;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::key::{PublicKey, SIGNATURE_LEN, SecretKey};
use super::label::Label;
use super::share::CanaryShare;

/// Largest bundle, in bytes.
pub const MAX_BUNDLE_BYTES: usize = 64 << 20;
/// Most files in a bundle.
pub const MAX_FILES: usize = 1024;
/// Longest name of a file, in bytes.
pub const MAX_NAME_LEN: usize = 255;

const MAGIC: [u8; 8] = *b"FPBUNDLE";
const FORMAT: u16 = 1;
const HEADER_LEN: usize = 32;
const ENTRY_LEN: usize = 2 + 4 + 32;
const TRAILER_LEN: usize = 32 + SIGNATURE_LEN;

/// The header of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleHeader {
    /// The version, from 1: members apply only higher versions than before.
    pub version: u64,
    /// The time of packing, in seconds since 1970.
    pub created: u64,
    /// The share of members that apply it first.
    pub canary: CanaryShare,
    /// The other members do not apply it, however old it is: it will be signed again for them.
    pub staged: bool,
    /// The members of this label apply it too, if it is staged.
    pub label: Option<Label>,
}

impl BundleHeader {
    /// Returns the header of a version that all members apply in the end.
    pub fn new(version: u64, created: u64, canary: CanaryShare) -> Self {
        Self { version, created, canary, staged: false, label: None }
    }

    /// Returns whether a member with this name and these labels applies the version first.
    pub fn is_for(&self, name: &str, labels: &[Label]) -> bool {
        self.canary.contains(name, self.version)
            || self.label.is_some_and(|label| labels.contains(&label))
    }
}

/// The flag of [`BundleHeader::staged`].
const STAGED: u16 = 1;
/// The flag of [`BundleHeader::label`].
const LABEL: u16 = 2;
const STAGED_LABEL: u16 = STAGED | LABEL;

/// The error of a bundle that cannot be read or packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundleError {
    /// The length differs from that which the header states.
    Length {
        /// Bytes found.
        has: usize,
        /// Bytes expected.
        wants: usize,
    },
    /// It has more than [`MAX_BUNDLE_BYTES`]: the number of bytes.
    TooLarge(usize),
    /// It does not begin with `FPBUNDLE`.
    Magic,
    /// The format version is unknown.
    Format(u16),
    /// The key of the signer is not trusted.
    Signer(PublicKey),
    /// The public key is not an Ed25519 key.
    Key,
    /// The signature does not match the bytes.
    Signature,
    /// A field of the header is invalid.
    Field(&'static str),
    /// The name of a file is invalid.
    Name {
        /// The name.
        name: String,
        /// The rule that it breaks.
        why: &'static str,
    },
    /// The name of a file is a duplicate, or out of order.
    Order(String),
    /// The contents of a file do not match its digest.
    Digest(String),
    /// The number of files is 0 or above [`MAX_FILES`].
    Files(usize),
}

impl fmt::Display for BundleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { has, wants } => {
                write!(f, "{has} bytes instead of {wants}: truncated or extended, copy it again")
            }
            Self::TooLarge(bytes) => {
                write!(f, "{bytes} bytes exceed the limit of {MAX_BUNDLE_BYTES} for a bundle")
            }
            Self::Magic => f.write_str("not a bundle: create one with `fingerpost bundle pack`"),
            Self::Format(format) => write!(
                f,
                "unknown bundle format {format}, this program reads format {FORMAT}: upgrade it"
            ),
            Self::Signer(key) => write!(
                f,
                "signed with {key}, which is not a trusted key: sign it with a trusted key, or add this one to `public_keys`"
            ),
            Self::Key => f.write_str("bytes 96 to 65 before the end are not an Ed25519 key"),
            Self::Signature => f.write_str(
                "the signature does not match: damaged or forged, copy it from its source again",
            ),
            Self::Field(what) => write!(f, "invalid header: {what}"),
            Self::Name { name, why } => write!(f, "file {name:?}: {why}"),
            Self::Order(name) => write!(f, "file {name:?}: duplicate, or not in order"),
            Self::Digest(name) => write!(f, "file {name:?}: the contents do not match the digest"),
            Self::Files(count) => write!(f, "{count} files: a bundle must have 1 to {MAX_FILES}"),
        }
    }
}

impl std::error::Error for BundleError {}

/// Returns the rule that the name of a file in a bundle breaks, if it is invalid.
pub fn name_error(name: &str) -> Option<&'static str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME_LEN {
        Some("a name must have 1 to 255 bytes")
    } else if !name.bytes().all(plain) {
        Some("a name may have only letters, digits, . _ - and / between folders")
    } else if name.split('/').any(str::is_empty) {
        Some("a name must be relative, without empty parts")
    } else if name.split('/').any(|part| part.starts_with('.')) {
        Some("no part of a name may begin with a dot")
    } else {
        None
    }
}

/// Encodes and signs a bundle.
///
/// # Errors
///
/// [`BundleError`] for a header or files that [`Bundle::open`] would reject.
pub fn pack(
    header: &BundleHeader,
    files: &BTreeMap<String, Vec<u8>>,
    key: &SecretKey,
) -> Result<Vec<u8>, BundleError> {
    if !(1..=MAX_FILES).contains(&files.len()) {
        return Err(BundleError::Files(files.len()));
    }
    if header.version == 0 {
        return Err(BundleError::Field("versions begin with 1"));
    }
    let mut bytes = Vec::new();
    bytes.extend(MAGIC);
    bytes.extend(FORMAT.to_be_bytes());
    bytes.extend(header.canary.hundredths().to_be_bytes());
    bytes.extend(header.version.to_be_bytes());
    bytes.extend(header.created.to_be_bytes());
    bytes.extend((files.len() as u16).to_be_bytes());
    if header.label.is_some() && !header.staged {
        return Err(BundleError::Field("a label is for a stage"));
    }
    let flags = u16::from(header.staged) * STAGED + u16::from(header.label.is_some()) * LABEL;
    bytes.extend(flags.to_be_bytes());
    if let Some(label) = &header.label {
        bytes.push(label.as_str().len() as u8);
        bytes.extend(label.as_str().as_bytes());
    }
    let mut size = HEADER_LEN + TRAILER_LEN;
    for (name, content) in files {
        if let Some(why) = name_error(name) {
            return Err(BundleError::Name { name: name.clone(), why });
        }
        size += ENTRY_LEN + name.len() + content.len();
        if size > MAX_BUNDLE_BYTES {
            return Err(BundleError::TooLarge(size));
        }
        bytes.extend((name.len() as u16).to_be_bytes());
        bytes.extend((content.len() as u32).to_be_bytes());
        bytes.extend(Sha256::digest(content));
        bytes.extend(name.as_bytes());
    }
    for content in files.values() {
        bytes.extend(content);
    }
    bytes.extend(key.public().as_bytes());
    let signature = key.sign(&bytes);
    bytes.extend(signature);
    Ok(bytes)
}

/// A bundle with a valid signature and valid digests.
#[derive(Clone)]
pub struct Bundle {
    header: BundleHeader,
    signer: PublicKey,
    files: BTreeMap<String, Range<usize>>,
    contents: [u8; 32],
    bytes: Vec<u8>,
}

impl fmt::Debug for Bundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bundle").field("header", &self.header).finish_non_exhaustive()
    }
}

/// A reader of integers and names that checks the bounds.
struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], BundleError> {
        let wants = self.at.saturating_add(count);
        let cut =
            BundleError::Length { has: self.bytes.len() + TRAILER_LEN, wants: wants + TRAILER_LEN };
        let taken = self.bytes.get(self.at..wants).ok_or(cut)?;
        self.at = wants;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<u64, BundleError> {
        Ok(self.take(N)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }
}

impl Bundle {
    /// Reads a bundle that one of the `trusted` keys has signed; with `None`, any key.
    ///
    /// # Errors
    ///
    /// [`BundleError`].
    pub fn open(bytes: Vec<u8>, trusted: Option<&[PublicKey]>) -> Result<Self, BundleError> {
        if bytes.len() > MAX_BUNDLE_BYTES {
            return Err(BundleError::TooLarge(bytes.len()));
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(BundleError::Magic);
        }
        let Some(signed) =
            bytes.len().checked_sub(TRAILER_LEN).filter(|signed| *signed >= HEADER_LEN)
        else {
            return Err(BundleError::Length {
                has: bytes.len(),
                wants: HEADER_LEN + ENTRY_LEN + TRAILER_LEN,
            });
        };
        let (body, tail) = bytes.split_at(signed);
        let mut cursor = Cursor { bytes: body, at: MAGIC.len() };
        // First, because another format may have its signature elsewhere.
        let format = cursor.number::<2>()? as u16;
        if format != FORMAT {
            return Err(BundleError::Format(format));
        }
        let (key, signature) = tail.split_at(32);
        let signer = PublicKey::from_bytes(key).ok_or(BundleError::Key)?;
        if trusted.is_some_and(|trusted| !trusted.contains(&signer)) {
            return Err(BundleError::Signer(signer));
        }
        if !signer.verify(&bytes[..signed + 32], signature) {
            return Err(BundleError::Signature);
        }
        let share = cursor.number::<2>()? as u16;
        let canary = CanaryShare::from_hundredths(share)
            .ok_or(BundleError::Field("the canary share is above 100 %"))?;
        let version = cursor.number::<8>()?;
        let created = cursor.number::<8>()?;
        let count = cursor.number::<2>()? as usize;
        if version == 0 {
            return Err(BundleError::Field("versions begin with 1"));
        }
        if !(1..=MAX_FILES).contains(&count) {
            return Err(BundleError::Files(count));
        }
        let flags = cursor.number::<2>()? as u16;
        let label = match flags {
            0 | STAGED => None,
            STAGED_LABEL => {
                let length = cursor.number::<1>()? as usize;
                let text = std::str::from_utf8(cursor.take(length)?).unwrap_or_default();
                Some(text.parse().map_err(|_| BundleError::Field("invalid label"))?)
            }
            _ => {
                let what = "it has a flag that this program does not know: upgrade it";
                return Err(BundleError::Field(what));
            }
        };
        let table_at = cursor.at;
        let (mut table, mut last) = (Vec::with_capacity(count), "");
        for _ in 0..count {
            let (length, size) = (cursor.number::<2>()?, cursor.number::<4>()?);
            let digest = cursor.take(32)?;
            let raw = cursor.take(length as usize)?;
            let name = std::str::from_utf8(raw).unwrap_or("\u{fffd}");
            if let Some(why) = name_error(name) {
                return Err(BundleError::Name { name: name.to_owned(), why });
            }
            if name <= last {
                return Err(BundleError::Order(name.to_owned()));
            }
            last = name;
            table.push((name, size as usize, digest));
        }
        let contents = Sha256::digest(&body[table_at..cursor.at]).into();
        let mut files = BTreeMap::new();
        for (name, size, digest) in table {
            let begin = cursor.at;
            if Sha256::digest(cursor.take(size)?)[..] != *digest {
                return Err(BundleError::Digest(name.to_owned()));
            }
            files.insert(name.to_owned(), begin..cursor.at);
        }
        if cursor.at != body.len() {
            let wants = cursor.at + TRAILER_LEN;
            return Err(BundleError::Length { has: bytes.len(), wants });
        }
        let header = BundleHeader { version, created, canary, staged: flags != 0, label };
        Ok(Self { header, signer, files, contents, bytes })
    }

    /// Returns the header.
    pub fn header(&self) -> &BundleHeader {
        &self.header
    }

    /// Returns the public key of the signer.
    pub fn signer(&self) -> &PublicKey {
        &self.signer
    }

    /// Returns the digest of the file table, which is equal exactly if the files are.
    pub fn contents(&self) -> &[u8; 32] {
        &self.contents
    }

    /// Returns the encoded bundle.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the contents of a file.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        self.bytes.get(self.files.get(name)?.clone())
    }

    /// Iterates over the files, sorted by name.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(name, range)| (name.as_str(), &self.bytes[range.clone()]))
    }

    /// Signs the same files, version and time for another canary share; all members apply it in the end.
    ///
    /// # Errors
    ///
    /// None: a bundle that was opened can be packed.
    pub fn release(&self, canary: CanaryShare, key: &SecretKey) -> Result<Vec<u8>, BundleError> {
        self.sign_again(&BundleHeader { canary, staged: false, label: None, ..self.header }, key)
    }

    /// Signs the same files, version and time for a share of the members, those of a label, and no others.
    ///
    /// # Errors
    ///
    /// As [`Bundle::release`].
    pub fn sign_stage(
        &self,
        canary: CanaryShare,
        label: Option<Label>,
        key: &SecretKey,
    ) -> Result<Vec<u8>, BundleError> {
        self.sign_again(&BundleHeader { canary, staged: true, label, ..self.header }, key)
    }

    fn sign_again(&self, header: &BundleHeader, key: &SecretKey) -> Result<Vec<u8>, BundleError> {
        let files = self.files().map(|(name, content)| (name.to_owned(), content.to_vec()));
        pack(header, &files.collect(), key)
    }
}

/// The place of the files that a configuration names: its folder, or its bundle.
#[derive(Clone, Copy, Debug)]
pub enum FileSource<'a> {
    /// A folder on disk.
    Disk(&'a Path),
    /// A bundle.
    Bundle(&'a Bundle),
}

impl FileSource<'_> {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The I/O error; `NotFound` if the bundle has no file of that name.
    pub fn read(&self, name: &Path) -> io::Result<Vec<u8>> {
        match self {
            Self::Disk(folder) => std::fs::read(folder.join(name)),
            Self::Bundle(bundle) => {
                let found = name.to_str().and_then(|name| bundle.file(name));
                let none = || {
                    let what =
                        "not in the bundle: pack it, with the path that the configuration states";
                    io::Error::new(io::ErrorKind::NotFound, what)
                };
                found.map(<[u8]>::to_vec).ok_or_else(none)
            }
        }
    }

    /// Reads a text file.
    ///
    /// # Errors
    ///
    /// The errors of [`read`](Self::read); `InvalidData` if the file is not UTF-8.
    pub fn read_text(&self, name: &Path) -> io::Result<String> {
        let not_text = |bad: std::string::FromUtf8Error| {
            io::Error::new(io::ErrorKind::InvalidData, bad.utf8_error())
        };
        String::from_utf8(self.read(name)?).map_err(not_text)
    }

    /// Returns the path of a file for error messages.
    pub fn display_path(&self, name: &Path) -> String {
        match self {
            Self::Disk(folder) => folder.join(name).display().to_string(),
            Self::Bundle(_) => name.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
