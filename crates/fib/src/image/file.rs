//! Atomic replacement of a file: whole, or not at all.
//!
//! ```text
//!   create .NAME.PID.new ─► write ─► fsync ─► rename to NAME ─► fsync of the folder
//!         └───────────────┴─────────┴──────────┴─ fails: removed, NAME is as it was
//! ```
//!
//! A reader that opens the file, at any moment and after any crash, finds all of the old or all of
//! the new contents. Each step is a call of [`Disk`], and the tests let each of them fail. The
//! rename cannot be undone: if the folder cannot be synced after it, the new file is in place and
//! complete, and the error reports it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Replaces a file that every user may read, less the umask: mode 0666.
///
/// # Errors
///
/// As [`replace_with_mode`].
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with_mode(path, bytes, 0o666)
}

/// Replaces the contents of the file `path` by `bytes`, with the permissions `mode` less the umask:
/// writes a temporary file beside it, syncs that and renames it. For a symbolic link, the target is
/// replaced. A device or a pipe, such as `/dev/stdout`, is written to directly.
///
/// # Errors
///
/// The system's error, such as a full disk, with the step that failed. Then the old file is
/// unchanged, and no temporary file remains. Only if the folder cannot be synced the new file is in
/// place, and may be the old one again after a loss of power.
pub fn replace_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(known) if !known.is_file() && !known.is_dir() => {
            let mut device = OpenOptions::new().write(true).open(path)?;
            device.write_all(bytes)
        }
        Ok(_) => replace_on(&mut System, &fs::canonicalize(path)?, bytes, mode),
        // A new file, or a path that the first step reports the error of.
        Err(_) => replace_on(&mut System, path, bytes, mode),
    }
}

/// The operations of a replacement on a disk.
trait Disk {
    /// The open temporary file.
    type File: Write;

    /// Creates a file, in place of a leftover of an earlier process.
    fn create(&mut self, path: &Path, mode: u32) -> io::Result<Self::File>;
    /// Syncs a file to the disk.
    fn sync(&mut self, file: &mut Self::File) -> io::Result<()>;
    /// Renames a file over another one.
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    /// Syncs the names in a folder to the disk.
    fn sync_folder(&mut self, folder: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&mut self, path: &Path) -> io::Result<()>;
}

fn replace_on<D: Disk>(disk: &mut D, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let beside = beside(path)?;
    let step = |what: &str, path: &Path, error: io::Error| {
        io::Error::new(error.kind(), std::format!("{what} {}: {error}", path.display()))
    };
    // Only a file that this function created is removed: the path may be a folder.
    let mut file =
        disk.create(&beside, mode).map_err(|error| step("cannot create", &beside, error))?;
    let mut write = || {
        file.write_all(bytes).map_err(|error| step("cannot write", &beside, error))?;
        disk.sync(&mut file).map_err(|error| step("cannot sync", &beside, error))?;
        disk.rename(&beside, path).map_err(|error| step("cannot replace", path, error))
    };
    if let Err(error) = write() {
        let _ = disk.remove(&beside);
        return Err(error);
    }
    // The new name is durable when the folder is synced.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    match disk.sync_folder(folder) {
        // A folder that is writable but not readable cannot be synced, but has the new name.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        done => done.map_err(|error| step("replaced, but cannot sync the folder", folder, error)),
    }
}

/// Returns the path of the temporary file beside `path`.
fn beside(path: &Path) -> io::Result<PathBuf> {
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidFilename)?);
    name.push(std::format!(".{}.new", std::process::id()));
    Ok(path.with_file_name(name))
}

/// The system's disk.
struct System;

impl Disk for System {
    type File = File;

    fn create(&mut self, path: &Path, mode: u32) -> io::Result<File> {
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(mode);
        match options.open(path) {
            // The leftover of a killed process with the same number may have another mode.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(path)?;
                options.open(path)
            }
            opened => opened,
        }
    }

    fn sync(&mut self, file: &mut File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_folder(&mut self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn remove(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::string::{String, ToString};
    use std::vec::Vec;

    use super::*;

    /// Creates a folder for one test.
    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(std::format!("fp-replace-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The system's disk with one failing step.
    struct Faulty {
        /// Steps before the failure.
        left: usize,
        kind: io::ErrorKind,
    }

    /// A file whose writes are short, and one of which fails.
    struct FaultyFile {
        file: File,
        /// Writes before the failure.
        left: usize,
        kind: io::ErrorKind,
    }

    impl Write for FaultyFile {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.left = self.left.checked_sub(1).ok_or(self.kind)?;
            self.file.write(&bytes[..bytes.len().min(3)])
        }

        fn flush(&mut self) -> io::Result<()> {
            self.file.flush()
        }
    }

    /// The number of writes of the test's contents.
    const WRITES: usize = 4;

    impl Faulty {
        fn step(&mut self) -> io::Result<()> {
            self.left = self.left.checked_sub(1).ok_or(self.kind)?;
            Ok(())
        }
    }

    impl Disk for Faulty {
        type File = FaultyFile;

        fn create(&mut self, path: &Path, mode: u32) -> io::Result<FaultyFile> {
            self.step()?;
            let (file, left) = (System.create(path, mode)?, self.left);
            self.left = self.left.saturating_sub(WRITES);
            Ok(FaultyFile { file, left, kind: self.kind })
        }

        fn sync(&mut self, file: &mut FaultyFile) -> io::Result<()> {
            self.step()?;
            System.sync(&mut file.file)
        }

        fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
            self.step()?;
            System.rename(from, to)
        }

        fn sync_folder(&mut self, folder: &Path) -> io::Result<()> {
            self.step()?;
            System.sync_folder(folder)
        }

        fn remove(&mut self, path: &Path) -> io::Result<()> {
            System.remove(path)
        }
    }

    #[test]
    fn fault_at_any_step_leaves_the_old_file_and_no_leftovers() {
        use io::ErrorKind::{Other, OutOfMemory, QuotaExceeded, StorageFull};
        let folder = folder("faults");
        let path = folder.join("state");
        let last = 1 + WRITES + 2;
        for kind in [StorageFull, QuotaExceeded, OutOfMemory, Other] {
            for left in 0..=last + 1 {
                replace(&path, b"the old").unwrap();
                let mut disk = Faulty { left, kind };
                let done = replace_on(&mut disk, &path, b"another one", 0o600);
                assert_eq!(names(&folder), ["state"], "after {left} steps");
                let held = fs::read(&path).unwrap();
                let Err(error) = done else {
                    assert_eq!((left, &held[..]), (last + 1, &b"another one"[..]));
                    continue;
                };
                assert_eq!(error.kind(), kind);
                let (words, new) = match left {
                    0 => ("cannot create ", false),
                    _ if left <= WRITES => ("cannot write ", false),
                    5 => ("cannot sync ", false),
                    6 => ("cannot replace ", false),
                    _ => ("replaced, but cannot sync the folder ", true),
                };
                assert!(error.to_string().starts_with(words), "after {left} steps: {error}");
                let expected: &[u8] = if new { b"another one" } else { b"the old" };
                assert_eq!(held, expected, "after {left} steps");
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn short_writes_are_continued() {
        let folder = folder("interrupted");
        let path = folder.join("state");
        let beside = beside(&path).unwrap();
        let mut file = FaultyFile {
            file: System.create(&beside, 0o600).unwrap(),
            left: 100,
            kind: io::ErrorKind::Other,
        };
        file.write_all(b"short writes are gone on with").unwrap();
        assert_eq!(fs::read(&beside).unwrap(), b"short writes are gone on with");
        // The leftover of a killed process with the same number does not matter, nor does its mode.
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o644)).unwrap();
        replace_with_mode(&path, b"whole", 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(names(&folder), ["state"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn file_is_replaced_or_unchanged_without_leftovers() {
        let folder = folder("whole");
        let path = folder.join("table.image");
        replace(&path, b"one").unwrap();
        replace(&path, b"another").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"another");
        // A folder in its place cannot be replaced by a file.
        let taken = folder.join("taken");
        fs::create_dir_all(taken.join("within")).unwrap();
        assert!(replace(&taken, b"three").is_err());
        assert!(replace(&folder.join("nowhere/table.image"), b"four").is_err());
        assert!(replace("/".as_ref(), b"five").is_err());
        assert_eq!(names(&folder), ["table.image", "taken"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn target_of_link_is_replaced_and_device_is_written_directly() {
        let folder = folder("links");
        let (file, link) = (folder.join("table.image"), folder.join("link"));
        fs::write(&file, b"one").unwrap();
        std::os::unix::fs::symlink("table.image", &link).unwrap();
        replace(&link, b"another").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"another");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let null = folder.join("null");
        std::os::unix::fs::symlink("/dev/null", &null).unwrap();
        replace(&null, b"nothing").unwrap();
        assert_eq!(fs::read(&null).unwrap(), b"");
        assert_eq!(names(&folder), ["link", "null", "table.image"]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
