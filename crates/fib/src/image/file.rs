//! A file that is replaced whole, or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes `bytes` to the file `path`, in place of what it held. Whoever opens it, at any
/// moment and after any crash, finds all of the old or all of the new: a file beside it is
/// written, made to last, and given its name.
///
/// # Errors
///
/// What the system says, such as that the disk is full. Then the old file is as it was,
/// and nothing is left beside it.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidFilename)?);
    name.push(std::format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let replaced = write(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if replaced.is_err() {
        // Whether it was made at all decides whether this can succeed.
        let _ = fs::remove_file(&beside);
        return replaced;
    }
    // The name lasts when the folder does. A folder that cannot be opened has it anyway.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
        let _ = folder.sync_all();
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::replace;
    use std::fs;
    use std::vec::Vec;

    #[test]
    fn a_file_is_replaced_or_stays_and_nothing_is_left_beside_it() {
        let folder = std::env::temp_dir().join(std::format!("fp-image-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
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
        let mut left: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["table.image", "taken"]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
