//! The bundle store: a folder with a member's record and the bundles that it can roll back to.
//!
//! ```text
//!   store_dir/record.json     the versions in force and refused: record.rs
//!             7.bundle …      bundles as received; every read checks the signature and the digests
//!             lock            locked while a process uses the store
//! ```
//!
//! Each write is atomic: it creates a temporary file beside the target, syncs it, renames it and
//! syncs the folder ([`replace_with_mode`]). The agent writes a bundle before the record that names
//! it. After a kill or a power loss at any moment the store holds the state before the write or the
//! state after it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fib::image::replace_with_mode;

use super::bundle::{Bundle, MAX_BUNDLE_BYTES};
use super::key::PublicKey;
use super::record::RolloutRecord;

/// The file of the blocks, and its largest size.
const BLOCKS: &str = "blocks.json";
const MAX_BLOCKS_BYTES: u64 = 1 << 20;
/// The largest record, in bytes.
const MAX_RECORD_BYTES: u64 = 1 << 20;

/// The bundle store of this process.
#[derive(Debug)]
pub(crate) struct BundleStore {
    folder: PathBuf,
    /// The locked file; its lock ends with the process.
    _lock: File,
}

fn record_path(folder: &Path) -> PathBuf {
    folder.join("record.json")
}

fn bundle_path(folder: &Path, version: u64) -> PathBuf {
    folder.join(format!("{version}.bundle"))
}

/// Reads the record of a store; returns an empty one if the file does not exist.
///
/// # Errors
///
/// The path, and the I/O error or how to replace a damaged record.
pub(crate) fn read_record(folder: &Path) -> Result<RolloutRecord, String> {
    let path = record_path(folder);
    let shown = path.display();
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(RolloutRecord::default());
        }
        opened => opened.map_err(|error| format!("{shown}: {error}"))?,
    };
    let mut text = String::new();
    file.take(MAX_RECORD_BYTES).read_to_string(&mut text).map_err(|e| format!("{shown}: {e}"))?;
    serde_json::from_str(&text).map_err(|error| {
        format!(
            "{shown}: damaged ({error}): remove it to restart from the local configuration; the \
             member then accepts any version"
        )
    })
}

/// Reads a bundle of a store, and checks its signature against `keys`.
///
/// # Errors
///
/// The path, and the I/O error or the reason why the bundle is not valid.
pub(crate) fn read_bundle(
    folder: &Path,
    version: u64,
    keys: &[PublicKey],
) -> Result<Bundle, String> {
    let path = bundle_path(folder, version);
    let at_path = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(|error| at_path(&error))?;
    file.take(MAX_BUNDLE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| at_path(&error))?;
    let bundle = Bundle::open(bytes, Some(keys)).map_err(|bad| at_path(&bad))?;
    if bundle.header().version != version {
        let what = format!("its header has version {}", bundle.header().version);
        return Err(at_path(&what));
    }
    Ok(bundle)
}

impl BundleStore {
    /// Locks the store for this process; creates the folder if it does not exist.
    ///
    /// # Errors
    ///
    /// The path, and the I/O error or that another process has locked the store.
    pub(crate) fn open(folder: &Path) -> Result<Self, String> {
        let at_path = |error: io::Error| format!("{}: {error}", folder.display());
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(at_path)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(folder.join("lock"))
            .map_err(at_path)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { folder: folder.to_owned(), _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(format!(
                "{}: locked by another gate or grantor: each needs a `store_dir` of its own",
                folder.display()
            )),
            Err(fs::TryLockError::Error(error)) => Err(at_path(error)),
        }
    }

    /// Returns the path of the store.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the record.
    ///
    /// # Errors
    ///
    /// The path and the I/O error.
    pub(crate) fn write_record(&self, record: &RolloutRecord) -> Result<(), String> {
        let path = record_path(&self.folder);
        let at_path = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = serde_json::to_vec(record).map_err(|error| at_path(&error))?;
        replace_with_mode(&path, &text, 0o600).map_err(|error| at_path(&error))
    }

    /// Writes the signed list of blocks that was applied last.
    ///
    /// # Errors
    ///
    /// The path and the I/O error.
    pub(crate) fn write_blocks(&self, signed: &[u8]) -> Result<(), String> {
        let path = self.folder.join(BLOCKS);
        let done = replace_with_mode(&path, signed, 0o600);
        done.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Reads it; `None` if there is none, or it is unreadable.
    pub(crate) fn read_blocks(&self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.folder.join(BLOCKS)).ok()?;
        file.take(MAX_BLOCKS_BYTES).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Writes a bundle.
    ///
    /// # Errors
    ///
    /// The path and the I/O error.
    pub(crate) fn write_bundle(&self, bundle: &Bundle) -> Result<(), String> {
        let path = bundle_path(&self.folder, bundle.header().version);
        let done = replace_with_mode(&path, bundle.bytes(), 0o600);
        done.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Removes the bundles that the record does not name, and the temporary files of killed
    /// processes.
    pub(crate) fn prune(&self, record: &RolloutRecord) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let version =
                name.strip_suffix(".bundle").and_then(|version| version.parse::<u64>().ok());
            let stale = name.ends_with(".new");
            if stale || version.is_some_and(|version| !record.applied.contains(&version)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::bundle::{BundleHeader, pack};
    use super::super::key::SecretKey;
    use super::super::share::CanaryShare;
    use super::*;

    #[test]
    fn store_returns_whole_bundles_or_errors() {
        let folder = std::env::temp_dir().join(format!("fingerpost-store-{}", std::process::id()));
        let store = BundleStore::open(&folder).unwrap();
        assert!(BundleStore::open(&folder).unwrap_err().contains("a `store_dir` of its own"));
        assert_eq!(read_record(&folder).unwrap(), RolloutRecord::default());
        let key = SecretKey::from_seed([3; 32]);
        let files = BTreeMap::from([("gate.toml".to_owned(), vec![b'#'; 100])]);
        let mut written = RolloutRecord::default();
        for version in 1..=5 {
            let header = BundleHeader::new(version, 1, CanaryShare::ALL);
            let packed = pack(&header, &files, &key).unwrap();
            store.write_bundle(&Bundle::open(packed, None).unwrap()).unwrap();
            written.start_trial(version);
            store.write_record(&written).unwrap();
        }
        fs::write(folder.join("6.bundle.123.new"), b"half").unwrap();
        store.prune(&written);
        assert_eq!(read_record(&folder).unwrap(), written);
        let mut names: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["3.bundle", "4.bundle", "5.bundle", "lock", "record.json"]);
        let trusted = [key.public()];
        assert_eq!(read_bundle(&folder, 5, &trusted).unwrap().header().version, 5);
        assert!(read_bundle(&folder, 5, &[]).is_err(), "the key is not trusted");
        assert!(read_bundle(&folder, 2, &trusted).unwrap_err().contains("2.bundle: "));
        fs::copy(folder.join("5.bundle"), folder.join("4.bundle")).unwrap();
        assert!(
            read_bundle(&folder, 4, &trusted).unwrap_err().ends_with("its header has version 5")
        );
        let mut bytes = fs::read(folder.join("5.bundle")).unwrap();
        bytes[100] ^= 1;
        fs::write(folder.join("5.bundle"), bytes).unwrap();
        assert!(read_bundle(&folder, 5, &trusted).is_err());
        fs::write(record_path(&folder), b"{").unwrap();
        assert!(read_record(&folder).unwrap_err().contains("remove it to restart"));
        drop(store);
        BundleStore::open(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
