//! A list: a file of prefixes or a folder of such files, what of it is applied, and why its present content is
//! not.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ::xdp::ListAction;
use anyhow::Context;
use feed::Options;
use fib::Prefix;

use super::hold::{self, Protected};

/// The prefixes of a list.
pub(super) type Content = (Vec<Prefix<u32>>, Vec<Prefix<u128>>);

/// A version of a list: its files, their times and lengths; `None` if one cannot be found.
type Version = Option<Vec<(PathBuf, SystemTime, u64)>>;

/// A list of one file or folder.
pub(super) struct List {
    path: PathBuf,
    action: ListAction,
    /// The version that was read last.
    version: Version,
    /// The prefixes of each family that are applied.
    applied: [usize; 2],
    held: Option<String>,
}

impl List {
    pub(super) fn new(path: &Path, action: ListAction) -> Self {
        Self { path: path.into(), action, version: None, applied: [0; 2], held: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn action(&self) -> ListAction {
        self.action
    }

    /// Returns whether it is an allow list.
    pub(super) fn allows(&self) -> bool {
        self.action == ListAction::Pass
    }

    /// Returns the number of IPv4 and IPv6 prefixes that are applied.
    pub(super) fn applied(&self) -> [usize; 2] {
        self.applied
    }

    /// Counts the prefixes that are applied.
    pub(super) fn len(&self) -> usize {
        self.applied.iter().sum()
    }

    /// Returns the reason why the file's present content is not applied.
    pub(super) fn held(&self) -> Option<&str> {
        self.held.as_deref()
    }

    /// Returns whether any file is another one than was read last.
    pub(super) fn has_changed(&self) -> bool {
        version(&self.path) != self.version
    }

    /// Reads the files; returns what to apply, or `None` if it is held. `accepts_all` applies it however
    /// short it has become. The addresses of an allow list are
    /// not protected from the lists that are read after it.
    pub(super) fn read(
        &mut self,
        protected: &mut Protected,
        accepts_all: bool,
    ) -> anyhow::Result<Option<Content>> {
        // Before the file is read: if it is written meanwhile, it is read again.
        self.version = version(&self.path);
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        let reading = || format!("reading the list {}", self.path.display());
        for file in files(&self.path).with_context(reading)? {
            let table = feed::load(&file, &Options::default())
                .with_context(|| format!("reading the list {}", file.display()))?;
            for warning in &table.report.warnings {
                log::warn!("{}: {warning}", file.display());
            }
            v4.extend(table.v4.iter().map(|&(prefix, _)| prefix));
            v6.extend(table.v6.iter().map(|&(prefix, _)| prefix));
        }
        // Several files may have a prefix.
        v4.sort_unstable();
        v4.dedup();
        v6.sort_unstable();
        v6.dedup();
        let after = v4.len() + v6.len();
        let contains = match self.action {
            ListAction::Drop => protected.reason(&v4, &v6),
            ListAction::Pass => None,
        };
        let shrinks = if accepts_all { None } else { hold::shrinks(self.len(), after) };
        self.held = contains.or(shrinks);
        if let Some(reason) = &self.held {
            log::error!("{}: the list is held: {reason}", self.path.display());
            return Ok(None);
        }
        if self.allows() {
            protected.allow(&v4, &v6);
        }
        self.applied = [v4.len(), v6.len()];
        Ok(Some((v4, v6)))
    }
}

/// Lists the files of a list, in their order: itself, or those of its folder but hidden ones and the copies of
/// editors.
fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
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

fn version(path: &Path) -> Version {
    let of = |file: PathBuf| {
        let metadata = file.metadata().ok()?;
        Some((file, metadata.modified().ok()?, metadata.len()))
    };
    files(path).ok()?.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::{files, version};
    use std::fs;

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
