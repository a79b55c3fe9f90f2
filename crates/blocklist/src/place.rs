//! The place of a list's lines: a file, a folder of files, or memory; and which version of them was read.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use feed::AnyPrefix;

/// The place of a list's lines.
#[derive(Debug)]
pub(crate) enum Place {
    /// A file, or a folder whose files are one list.
    File(PathBuf),
    /// Prefixes that the owner of the lists gives.
    Memory {
        /// The prefixes.
        prefixes: Arc<[AnyPrefix]>,
        /// The number of times that they were given.
        version: u64,
    },
}

/// A version of a list's lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// The files, their times and lengths; `None` if one cannot be found.
    Files(Option<Vec<(PathBuf, SystemTime, u64)>>),
    /// The number of times that the prefixes were given.
    Memory(u64),
}

impl Place {
    /// Returns the place of prefixes that are given.
    pub(crate) fn memory(prefixes: Arc<[AnyPrefix]>) -> Self {
        Self::Memory { prefixes, version: 1 }
    }

    /// Returns the file or the folder.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            Self::Memory { .. } => None,
        }
    }

    /// Returns the present version.
    pub(crate) fn version(&self) -> Version {
        match self {
            Self::File(path) => Version::Files(version(path)),
            Self::Memory { version, .. } => Version::Memory(*version),
        }
    }
}

/// Lists the files of a list, in their order: itself, or those of its folder but hidden ones and the copies of
/// editors.
///
/// # Errors
///
/// A folder that cannot be read.
pub(crate) fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.into()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with('.') && !name.ends_with('~') && path.is_file() {
            files.push(path.clone());
        }
    }
    files.sort_unstable();
    Ok(files)
}

fn version(path: &Path) -> Option<Vec<(PathBuf, SystemTime, u64)>> {
    let of = |file: PathBuf| {
        let metadata = file.metadata().ok()?;
        Some((file, metadata.modified().ok()?, metadata.len()))
    };
    files(path).ok()?.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_is_read_without_hidden_files_and_copies() {
        let folder = std::env::temp_dir().join(format!("fingerpost-list-{}", std::process::id()));
        fs::create_dir_all(folder.join("inner")).unwrap();
        for name in ["b", "a.txt", ".a.swp", "a.txt~"] {
            fs::write(folder.join(name), "192.0.2.1\n").unwrap();
        }
        assert_eq!(files(&folder).unwrap(), [folder.join("a.txt"), folder.join("b")]);
        let before = version(&folder);
        assert!(before.is_some() && before == version(&folder));
        fs::remove_file(folder.join("b")).unwrap();
        assert_ne!(before, version(&folder));
        assert_eq!(files(&folder.join("a.txt")).unwrap(), [folder.join("a.txt")]);
        assert_eq!(version(&folder.join("none")), None);
        fs::remove_dir_all(folder).unwrap();
    }
}
