//! The folder where a member keeps its record and the bundles that it can go back to.
//!
//! ```text
//!   store_dir/record.json     what is in force: record.rs
//!            7.bundle …      as they came; signature and digests are checked whenever one is read
//!            lock            held while a process works with the folder
//! ```
//!
//! Every file is written beside its place, brought to the disk, and renamed; then the folder is
//! brought to the disk too ([`replace_with_mode`]). A bundle is there before the record names it. A
//! process that is killed or loses power at any moment finds the state before or the one after.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use fib::image::replace_with_mode;

use super::bundle::{Bundle, MOST_BYTES};
use super::key::PublicKey;
use super::record::Record;

/// The most bytes of a record.
const LONGEST_RECORD: u64 = 1 << 20;

/// The folder.
#[derive(Debug)]
pub(crate) struct Kept {
    folder: PathBuf,
    /// Held while this process works with it.
    _lock: File,
}

fn record_of(folder: &Path) -> PathBuf {
    folder.join("record.json")
}

fn bundle_of(folder: &Path, version: u64) -> PathBuf {
    folder.join(format!("{version}.bundle"))
}

/// Reads the record of a folder; there need be none.
///
/// # Errors
///
/// Says what is wrong with it, and what to do.
pub(crate) fn record(folder: &Path) -> Result<Record, String> {
    let path = record_of(folder);
    let shown = path.display();
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Record::default()),
        opened => opened.map_err(|error| format!("{shown}: {error}"))?,
    };
    let mut text = String::new();
    file.take(LONGEST_RECORD).read_to_string(&mut text).map_err(|e| format!("{shown}: {e}"))?;
    serde_json::from_str(&text).map_err(|error| {
        format!(
            "{shown}: damaged ({error}): take it away to begin anew, by the local configuration and \
             with versions as low as any"
        )
    })
}

/// Reads a bundle of a folder.
///
/// # Errors
///
/// Says what is wrong with it.
pub(crate) fn bundle(folder: &Path, version: u64, keys: &[PublicKey]) -> Result<Bundle, String> {
    let path = bundle_of(folder, version);
    let told = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(&path).map_err(|error| told(&error))?;
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|error| told(&error))?;
    let bundle = Bundle::open(bytes, Some(keys)).map_err(|bad| told(&bad))?;
    if bundle.header().version != version {
        let what = format!("it is version {} inside", bundle.header().version);
        return Err(told(&what));
    }
    Ok(bundle)
}

impl Kept {
    /// Takes the folder for this process; it is made if it is not there.
    ///
    /// # Errors
    ///
    /// The system's, and that another process has it.
    pub(crate) fn open(folder: &Path) -> Result<Self, String> {
        let told = |error: io::Error| format!("{}: {error}", folder.display());
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(told)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(folder.join("lock"))
            .map_err(told)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { folder: folder.to_owned(), _lock: lock }),
            Err(fs::TryLockError::WouldBlock) => Err(format!(
                "{}: another gate or grantor keeps its bundles here: each needs a `store_dir` of its own",
                folder.display()
            )),
            Err(fs::TryLockError::Error(error)) => Err(told(error)),
        }
    }

    /// Returns where it is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Keeps the record.
    ///
    /// # Errors
    ///
    /// Says what the system says.
    pub(crate) fn save(&self, record: &Record) -> Result<(), String> {
        let path = record_of(&self.folder);
        let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = serde_json::to_vec(record).map_err(|error| told(&error))?;
        replace_with_mode(&path, &text, 0o600).map_err(|error| told(&error))
    }

    /// Keeps a bundle.
    ///
    /// # Errors
    ///
    /// Says what the system says.
    pub(crate) fn keep(&self, bundle: &Bundle) -> Result<(), String> {
        let path = bundle_of(&self.folder, bundle.header().version);
        let done = replace_with_mode(&path, bundle.bytes(), 0o600);
        done.map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Takes away the bundles that the record does not name, and what a process that was killed
    /// has left half written.
    pub(crate) fn prune(&self, record: &Record) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let version = name.strip_suffix(".bundle").and_then(|it| it.parse::<u64>().ok());
            let stale = name.ends_with(".new");
            if stale || version.is_some_and(|version| !record.held.contains(&version)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::bundle::{Header, pack};
    use super::super::key::SecretKey;
    use super::super::share::Share;
    use super::*;

    #[test]
    fn what_is_kept_is_whole_or_an_error() {
        let folder = std::env::temp_dir().join(format!("fingerpost-kept-{}", std::process::id()));
        let kept = Kept::open(&folder).unwrap();
        assert!(Kept::open(&folder).unwrap_err().contains("a `store_dir` of its own"));
        assert_eq!(record(&folder).unwrap(), Record::default());
        let key = SecretKey::of([3; 32]);
        let files = BTreeMap::from([("gate.toml".to_owned(), vec![b'#'; 100])]);
        let mut now = Record::default();
        for version in 1..=5 {
            let header = Header { version, created: 1, canary: Share::ALL };
            let packed = pack(&header, &files, &key).unwrap();
            kept.keep(&Bundle::open(packed, None).unwrap()).unwrap();
            now.take(version);
            kept.save(&now).unwrap();
        }
        fs::write(folder.join("6.bundle.123.new"), b"half").unwrap();
        kept.prune(&now);
        assert_eq!(record(&folder).unwrap(), now);
        let mut names: Vec<_> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["3.bundle", "4.bundle", "5.bundle", "lock", "record.json"]);
        let trusted = [key.public()];
        assert_eq!(bundle(&folder, 5, &trusted).unwrap().header().version, 5);
        assert!(bundle(&folder, 5, &[]).is_err(), "the key is not trusted any more");
        assert!(bundle(&folder, 2, &trusted).unwrap_err().contains("2.bundle: "));
        fs::copy(folder.join("5.bundle"), folder.join("4.bundle")).unwrap();
        assert!(bundle(&folder, 4, &trusted).unwrap_err().ends_with("it is version 5 inside"));
        let mut bytes = fs::read(folder.join("5.bundle")).unwrap();
        bytes[100] ^= 1;
        fs::write(folder.join("5.bundle"), bytes).unwrap();
        assert!(bundle(&folder, 5, &trusted).is_err());
        fs::write(record_of(&folder), b"{").unwrap();
        assert!(record(&folder).unwrap_err().contains("take it away to begin anew"));
        drop(kept);
        Kept::open(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
