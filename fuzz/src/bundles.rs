//! Bundles: a packed bundle opens, and only bundles as signed open.
//!
//! ```text
//!   input ─► files, version, share ─► pack ─► open ─► the same
//!                                       └─► one bit flipped, truncated, extended ─► rejected
//!   input, signed by the harness ─► open ─► packed again: the same bytes
//! ```

use std::collections::BTreeMap;

use bundle::bundle::{MAX_FILES, name_error, pack};
use bundle::key::SecretKey;
use bundle::{Bundle, BundleHeader, CanaryShare};

/// Counts of the results of inputs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Bundles that were packed and opened.
    pub packed: u32,
    /// Inputs that were bundles themselves, once they were signed.
    pub opened: u32,
    /// Damaged ones that were rejected.
    pub refused: u32,
}

fn key() -> SecretKey {
    SecretKey::from_seed([16; 32])
}

fn contents(bundle: &Bundle) -> BTreeMap<String, Vec<u8>> {
    bundle.files().map(|(name, bytes)| (name.to_owned(), bytes.to_vec())).collect()
}

/// Plays one input.
///
/// # Panics
///
/// If an unsigned bundle opens, or the contents differ from those packed.
pub fn bundles(input: &[u8], tally: &mut Tally) {
    let Some((mode, rest)) = input.split_first() else { return };
    let trusted = [key().public()];
    if mode & 1 == 0 {
        let mut bytes = rest.to_vec();
        bytes.extend_from_slice(trusted[0].as_bytes());
        let signature = key().sign(&bytes);
        bytes.extend_from_slice(&signature);
        let Ok(bundle) = Bundle::open(bytes.clone(), Some(&trusted)) else {
            tally.refused += 1;
            return;
        };
        tally.opened += 1;
        let repacked = pack(bundle.header(), &contents(&bundle), &key());
        assert_eq!(repacked.as_deref(), Ok(&bytes[..]), "the encoding of a bundle is unique");
        return;
    }
    let [version, share, place, rest @ ..] = rest else { return };
    let files = files(rest);
    let canary = CanaryShare::from_hundredths(u16::from(*share) * 39).unwrap_or(CanaryShare::ALL);
    let header = BundleHeader {
        staged: version % 2 == 1,
        label: (version % 4 == 3).then_some("edge".parse()).transpose().unwrap_or_default(),
        ..BundleHeader::new(1 + u64::from(*version), 7, canary)
    };
    let Ok(bytes) = pack(&header, &files, &key()) else {
        let sound = !files.is_empty()
            && files.len() <= MAX_FILES
            && files.keys().all(|name| name_error(name).is_none());
        assert!(!sound, "rejected without a reason: {files:?}");
        return;
    };
    let bundle = Bundle::open(bytes.clone(), Some(&trusted)).expect("a packed bundle opens");
    assert_eq!((bundle.header(), contents(&bundle)), (&header, files));
    tally.packed += 1;
    let at = usize::from(*place) * bytes.len() / 256;
    let mut other = bytes.clone();
    other[at] ^= 1 << (mode >> 5);
    let (cut, longer) = (bytes[..at].to_vec(), [&bytes[..], &[0]].concat());
    for damaged in [other, cut, longer] {
        assert!(Bundle::open(damaged, Some(&trusted)).is_err(), "byte {at}");
        tally.refused += 1;
    }
    assert!(Bundle::open(bytes, Some(&[])).is_err(), "without a trusted signer");
}

/// Splits an input into files: a byte for the length of a name, one for that of the contents.
fn files(mut input: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    while let [name, contents, rest @ ..] = input {
        let (name, rest) = rest.split_at(rest.len().min(usize::from(name % 32)));
        let (contents, rest) = rest.split_at(rest.len().min(usize::from(*contents)));
        files.insert(String::from_utf8_lossy(name).into_owned(), contents.to_vec());
        input = rest;
    }
    files
}
