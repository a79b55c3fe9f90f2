//! A bundle: one signed file with everything that gates and grantors are to be told.
//!
//! ```text
//!      0       8      10       12        20        28     30         32
//!      +-------+------+--------+---------+---------+------+----------+
//!      |FPBUNDLE| 1:16 |share:16| version:64| created:64|files:16| 0:16 |
//!      +-------+------+--------+---------+---------+------+----------+
//!      | name's bytes:16 | size:32 | SHA-256 of it:256 | name |  …  a file, by name ascending
//!      +-----------------------------------------------------+
//!      | contents, in the same order, nothing between them   |
//!      +-----------------------------------------------------+
//!      | the signer's public key:256 | Ed25519 (RFC 8032) of all before it:512 |
//!      +-----------------------------------------------------+
//! ```
//!
//! Integers are unsigned, in network byte order. `share` is the canary share in hundredths of a
//! per cent; `created` is in seconds since 1970. There is one way to write a bundle: whatever
//! [`Bundle::open`] takes is, byte for byte, what [`pack`] makes of the same files, so that
//! nothing can hide between them, and two bundles are the same exactly if their bytes are.
//!
//! The signature is checked before anything else is looked at, by the strict rules that leave no
//! second signature for the same bytes. It says who has packed this; not that it is sound for a
//! member, which that member judges (`agent.rs`). Nothing is encrypted: keys do not belong
//! here.
//!
//! Names are relative, in letters, digits, `.`, `_` and `-` with `/` between folders, and no part
//! begins with a dot: none leads out of the bundle, and there are no two ways to write one.
//! Nothing is ever unpacked; members read the files where they are (`Folder`).

use core::fmt;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use sha2::{Digest, Sha256};

use super::key::{PublicKey, SIGNATURE, SecretKey};
use super::share::Share;

/// The most bytes of a bundle.
pub const MOST_BYTES: usize = 64 << 20;
/// The most files in one.
pub const MOST_FILES: usize = 1024;
/// The longest name, in bytes.
pub const LONGEST_NAME: usize = 255;

const MAGIC: [u8; 8] = *b"FPBUNDLE";
const FORMAT: u16 = 1;
const HEAD: usize = 32;
const ENTRY: usize = 2 + 4 + 32;
const TAIL: usize = 32 + SIGNATURE;

/// What a bundle says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its version: members take only higher ones than they have.
    pub version: u64,
    /// When it was packed, in seconds since 1970.
    pub created: u64,
    /// The share of members that try it first.
    pub canary: Share,
}

/// Why something is no bundle, or cannot be made one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadBundle {
    /// It ends too early, or goes on beyond its end.
    Length {
        /// The bytes that there are.
        has: usize,
        /// The bytes that there should be.
        wants: usize,
    },
    /// It is larger than any bundle.
    TooLarge(usize),
    /// It does not begin as bundles do.
    NotOne,
    /// It is of a format that is not known here.
    Format(u16),
    /// Nobody who is trusted has signed it.
    Signer(PublicKey),
    /// What stands in the place of a key is none.
    Key,
    /// It is not what was signed.
    Signature,
    /// A field of its head has no sense.
    Field(&'static str),
    /// A name cannot be in a bundle.
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A name is a duplicate, or out of order.
    Order(String),
    /// A file's bytes are not those of its digest.
    Digest(String),
    /// There are too many files, or none.
    Files(usize),
}

impl fmt::Display for BadBundle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { has, wants } => write!(
                f,
                "{has} bytes, where there should be {wants}: it was cut or added to, copy it again"
            ),
            Self::TooLarge(bytes) => {
                write!(f, "{bytes} bytes: a bundle has at most {MOST_BYTES}")
            }
            Self::NotOne => f.write_str("no bundle: `fingerpost bundle pack` makes them"),
            Self::Format(format) => write!(
                f,
                "a bundle of format {format}, and this program knows {FORMAT}: take a newer program"
            ),
            Self::Signer(key) => write!(
                f,
                "signed with {key}, which is no trusted key: sign it with one that is, or trust this one"
            ),
            Self::Key => f.write_str("bytes 96 to 65 before its end are no Ed25519 key"),
            Self::Signature => f.write_str(
                "the signature is not that of these bytes: damaged or forged, take it from its source again",
            ),
            Self::Field(what) => write!(f, "its head makes no sense: {what}"),
            Self::Name { name, why } => write!(f, "file {name:?}: {why}"),
            Self::Order(name) => write!(f, "file {name:?}: there twice, or not in order"),
            Self::Digest(name) => write!(f, "file {name:?}: its bytes are not those of its digest"),
            Self::Files(count) => write!(f, "{count} files: a bundle has 1 to {MOST_FILES}"),
        }
    }
}

impl std::error::Error for BadBundle {}

/// Says what is wrong with a file's name in a bundle, if anything is.
pub fn wrong_name(name: &str) -> Option<&'static str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    if name.is_empty() || name.len() > LONGEST_NAME {
        Some("a name has 1 to 255 bytes")
    } else if !name.bytes().all(plain) {
        Some("a name has letters, digits, . _ - and, between folders, / only")
    } else if name.split('/').any(str::is_empty) {
        Some("a name is relative, with something on both sides of each /")
    } else if name.split('/').any(|part| part.starts_with('.')) {
        Some("no part of a name begins with a dot")
    } else {
        None
    }
}

/// Makes a bundle.
///
/// # Errors
///
/// [`BadBundle`], for what could not be read again.
pub fn pack(
    header: &Header,
    files: &BTreeMap<String, Vec<u8>>,
    key: &SecretKey,
) -> Result<Vec<u8>, BadBundle> {
    if !(1..=MOST_FILES).contains(&files.len()) {
        return Err(BadBundle::Files(files.len()));
    }
    if header.version == 0 {
        return Err(BadBundle::Field("versions begin with 1"));
    }
    let mut bytes = Vec::new();
    bytes.extend(MAGIC);
    bytes.extend(FORMAT.to_be_bytes());
    bytes.extend(header.canary.hundredths().to_be_bytes());
    bytes.extend(header.version.to_be_bytes());
    bytes.extend(header.created.to_be_bytes());
    bytes.extend((files.len() as u16).to_be_bytes());
    bytes.extend([0; 2]);
    let mut size = HEAD + TAIL;
    for (name, content) in files {
        if let Some(why) = wrong_name(name) {
            return Err(BadBundle::Name { name: name.clone(), why });
        }
        size += ENTRY + name.len() + content.len();
        if size > MOST_BYTES {
            return Err(BadBundle::TooLarge(size));
        }
        bytes.extend((name.len() as u16).to_be_bytes());
        bytes.extend((content.len() as u32).to_be_bytes());
        bytes.extend(Sha256::digest(content));
        bytes.extend(name.as_bytes());
    }
    for content in files.values() {
        bytes.extend(content);
    }
    bytes.extend(key.public().bytes());
    let signature = key.sign(&bytes);
    bytes.extend(signature);
    Ok(bytes)
}

/// A bundle whose signature and digests are right.
#[derive(Clone)]
pub struct Bundle {
    header: Header,
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

/// Reads integers and names, never beyond the end.
struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    fn take(&mut self, count: usize) -> Result<&'b [u8], BadBundle> {
        let wants = self.at.saturating_add(count);
        let cut = BadBundle::Length { has: self.bytes.len() + TAIL, wants: wants + TAIL };
        let taken = self.bytes.get(self.at..wants).ok_or(cut)?;
        self.at = wants;
        Ok(taken)
    }

    fn number<const N: usize>(&mut self) -> Result<u64, BadBundle> {
        Ok(self.take(N)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    }
}

impl Bundle {
    /// Reads a bundle that one of `trusted` has signed; whoever has, if there is nobody.
    ///
    /// # Errors
    ///
    /// [`BadBundle`].
    pub fn open(bytes: Vec<u8>, trusted: Option<&[PublicKey]>) -> Result<Self, BadBundle> {
        if bytes.len() > MOST_BYTES {
            return Err(BadBundle::TooLarge(bytes.len()));
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(BadBundle::NotOne);
        }
        let Some(signed) = bytes.len().checked_sub(TAIL).filter(|signed| *signed >= HEAD) else {
            return Err(BadBundle::Length { has: bytes.len(), wants: HEAD + ENTRY + TAIL });
        };
        let (body, tail) = bytes.split_at(signed);
        let mut cursor = Cursor { bytes: body, at: MAGIC.len() };
        // Which may also say where the signature is.
        let format = cursor.number::<2>()? as u16;
        if format != FORMAT {
            return Err(BadBundle::Format(format));
        }
        let (key, signature) = tail.split_at(32);
        let signer = PublicKey::of(key).ok_or(BadBundle::Key)?;
        if trusted.is_some_and(|trusted| !trusted.contains(&signer)) {
            return Err(BadBundle::Signer(signer));
        }
        if !signer.verify(&bytes[..signed + 32], signature) {
            return Err(BadBundle::Signature);
        }
        let share = cursor.number::<2>()? as u16;
        let canary = Share::of(share).ok_or(BadBundle::Field("a share over 100 %"))?;
        let version = cursor.number::<8>()?;
        let created = cursor.number::<8>()?;
        let count = cursor.number::<2>()? as usize;
        if version == 0 {
            return Err(BadBundle::Field("versions begin with 1"));
        }
        if !(1..=MOST_FILES).contains(&count) {
            return Err(BadBundle::Files(count));
        }
        if cursor.number::<2>()? != 0 {
            return Err(BadBundle::Field("its last two bytes are not 0"));
        }
        let (mut table, mut last) = (Vec::with_capacity(count), "");
        for _ in 0..count {
            let (length, size) = (cursor.number::<2>()?, cursor.number::<4>()?);
            let digest = cursor.take(32)?;
            let raw = cursor.take(length as usize)?;
            let name = std::str::from_utf8(raw).unwrap_or("\u{fffd}");
            if let Some(why) = wrong_name(name) {
                return Err(BadBundle::Name { name: name.to_owned(), why });
            }
            if name <= last {
                return Err(BadBundle::Order(name.to_owned()));
            }
            last = name;
            table.push((name, size as usize, digest));
        }
        let contents = Sha256::digest(&body[HEAD..cursor.at]).into();
        let mut files = BTreeMap::new();
        for (name, size, digest) in table {
            let begin = cursor.at;
            if Sha256::digest(cursor.take(size)?)[..] != *digest {
                return Err(BadBundle::Digest(name.to_owned()));
            }
            files.insert(name.to_owned(), begin..cursor.at);
        }
        if cursor.at != body.len() {
            let wants = cursor.at + TAIL;
            return Err(BadBundle::Length { has: bytes.len(), wants });
        }
        let header = Header { version, created, canary };
        Ok(Self { header, signer, files, contents, bytes })
    }

    /// Returns what it says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Returns who has signed it.
    pub fn signer(&self) -> &PublicKey {
        &self.signer
    }

    /// Returns the digest of its table of files: the same exactly if the files are.
    pub fn contents(&self) -> &[u8; 32] {
        &self.contents
    }

    /// Returns all of it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns a file.
    pub fn file(&self, name: &str) -> Option<&[u8]> {
        self.bytes.get(self.files.get(name)?.clone())
    }

    /// Walks the files by name.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(name, range)| (name.as_str(), &self.bytes[range.clone()]))
    }

    /// Signs the same files anew, under the same version and time, for another share.
    ///
    /// # Errors
    ///
    /// None for a bundle that was opened.
    pub fn release(&self, canary: Share, key: &SecretKey) -> Result<Vec<u8>, BadBundle> {
        let files = self.files().map(|(name, content)| (name.to_owned(), content.to_vec()));
        pack(&Header { canary, ..self.header }, &files.collect(), key)
    }
}

/// Where a configuration's further files are: beside it, or in the bundle that it is of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Folder<'a> {
    /// On the disk.
    Disk(&'a Path),
    /// In a bundle.
    Bundle(&'a Bundle),
}

impl Folder<'_> {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// The system's; `NotFound` where the bundle has none of that name.
    pub(crate) fn read(&self, name: &Path) -> io::Result<Vec<u8>> {
        match self {
            Self::Disk(folder) => std::fs::read(folder.join(name)),
            Self::Bundle(bundle) => {
                let found = name.to_str().and_then(|name| bundle.file(name));
                let none = || {
                    let what =
                        "it is not in the bundle: pack it too, and name it as it is named there";
                    io::Error::new(io::ErrorKind::NotFound, what)
                };
                found.map(<[u8]>::to_vec).ok_or_else(none)
            }
        }
    }

    /// Reads a file of text.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and that it is no UTF-8.
    pub(crate) fn text(&self, name: &Path) -> io::Result<String> {
        let not_text = |bad: std::string::FromUtf8Error| {
            io::Error::new(io::ErrorKind::InvalidData, bad.utf8_error())
        };
        String::from_utf8(self.read(name)?).map_err(not_text)
    }

    /// Puts the place of a file into words.
    pub(crate) fn shown(&self, name: &Path) -> String {
        match self {
            Self::Disk(folder) => folder.join(name).display().to_string(),
            Self::Bundle(_) => name.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests;
