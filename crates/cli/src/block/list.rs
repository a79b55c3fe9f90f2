//! A list: a file of prefixes or a folder of such files, what of it is applied, and why its present content is
//! not.
//!
//! ```text
//!   198.51.100.7 expires=2026-12-01T00:00:00Z      a line of a block list that ends by itself
//! ```

use std::cmp::Reverse;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ::xdp::ListAction;
use anyhow::{Context, bail};
use feed::{AnyPrefix, Label, Labels, Options};
use fib::{Family, Prefix};
use jiff::Timestamp;

use super::hold::{self, Protected};

/// The word behind a prefix that has the time at which its line ends, in RFC 3339.
const EXPIRES: &str = "expires=";

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
    /// The prefixes that expire, the first of them last.
    expiring: Vec<(Timestamp, AnyPrefix)>,
    held: Option<String>,
}

impl List {
    pub(super) fn new(path: &Path, action: ListAction) -> Self {
        Self {
            path: path.into(),
            action,
            version: None,
            applied: [0; 2],
            expiring: Vec::new(),
            held: None,
        }
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

    /// Counts the prefixes that expire.
    pub(super) fn expiring(&self) -> usize {
        self.expiring.len()
    }

    /// Removes and returns the prefixes that have expired.
    pub(super) fn take_expired(&mut self, now: Timestamp) -> Content {
        let mut expired = Content::default();
        while let Some((_, prefix)) = self.expiring.pop_if(|(at, _)| *at <= now) {
            match prefix {
                AnyPrefix::V4(prefix) => expired.0.push(prefix),
                AnyPrefix::V6(prefix) => expired.1.push(prefix),
            }
        }
        self.applied[0] -= expired.0.len();
        self.applied[1] -= expired.1.len();
        expired
    }

    /// Returns the reason why the file's present content is not applied.
    pub(super) fn held(&self) -> Option<&str> {
        self.held.as_deref()
    }

    /// Returns whether its present content is not applied: it has changed, or is held.
    pub(super) fn is_pending(&self) -> bool {
        self.held.is_some() || self.has_changed()
    }

    /// Holds the content that was read last; `before` prefixes stay applied.
    pub(super) fn hold(&mut self, reason: String, before: [usize; 2]) {
        log::error!("{}: the list is held: {reason}", self.path.display());
        self.held = Some(reason);
        self.applied = before;
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
        let now = Timestamp::now();
        let (mut v4, mut v6) = (Lines::new(), Lines::new());
        let reading = || format!("reading the list {}", self.path.display());
        for file in files(&self.path).with_context(reading)? {
            let reading = || format!("reading the list {}", file.display());
            let table = feed::load(&file, &Options::default()).with_context(reading)?;
            for warning in &table.report.warnings {
                log::warn!("{}: {warning}", file.display());
            }
            let expiry = expiries(&table.labels).with_context(reading)?;
            if self.allows() && expiry.iter().any(Option::is_some) {
                bail!("reading the list {}: a line of an allow list cannot expire", file.display());
            }
            let line = |label: Label| expiry[label.0 as usize];
            v4.extend(table.v4.iter().map(|&(prefix, label)| (prefix, line(label))));
            v6.extend(table.v6.iter().map(|&(prefix, label)| (prefix, line(label))));
        }
        let mut expiring = Vec::new();
        let v4 = present(v4, now, AnyPrefix::V4, &mut expiring);
        let v6 = present(v6, now, AnyPrefix::V6, &mut expiring);
        expiring.sort_unstable_by_key(|&(at, _)| Reverse(at));
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
        self.expiring = expiring;
        Ok(Some((v4, v6)))
    }
}

/// Prefixes, each with the time at which it expires.
type Lines<A> = Vec<(Prefix<A>, Option<Timestamp>)>;

/// Reads the time from each label that has one.
fn expiries(labels: &Labels) -> anyhow::Result<Vec<Option<Timestamp>>> {
    let read = |text: &str| {
        let time = text.strip_prefix(EXPIRES).map(str::parse::<Timestamp>).transpose();
        time.with_context(|| {
            format!("`{text}`: a time is needed as in {EXPIRES}2026-12-01T00:00:00Z")
        })
    };
    labels.iter().map(|(_, text)| read(text)).collect()
}

/// Returns the prefixes that are in force, once each, and appends those that expire to `expiring`. A prefix on several
/// lines expires with the last of them.
fn present<A: Family>(
    mut lines: Lines<A>,
    now: Timestamp,
    any: impl Fn(Prefix<A>) -> AnyPrefix,
    expiring: &mut Vec<(Timestamp, AnyPrefix)>,
) -> Vec<Prefix<A>> {
    lines.retain(|(_, expiry)| expiry.is_none_or(|at| at > now));
    // The latest first, and before that none at all.
    lines.sort_unstable_by_key(|&(prefix, expiry)| (prefix, expiry.is_some(), Reverse(expiry)));
    lines.dedup_by_key(|(prefix, _)| *prefix);
    expiring.extend(lines.iter().filter_map(|&(prefix, expiry)| Some((expiry?, any(prefix)))));
    lines.into_iter().map(|(prefix, _)| prefix).collect()
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
    use super::*;

    #[test]
    fn line_expires_at_its_time_and_with_the_last_of_its_prefix() {
        let path = std::env::temp_dir().join(format!("fingerpost-expiry-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let soon = Timestamp::now() + jiff::SignedDuration::from_secs(3600);
        let late = soon + jiff::SignedDuration::from_secs(3600);
        let write = |name: &str, lines: &[String]| fs::write(path.join(name), lines.join("\n"));
        let one = [
            format!("198.51.100.1 {EXPIRES}{soon}"),
            format!("198.51.100.2 {EXPIRES}{soon} # a comment"),
            format!("198.51.100.3 {EXPIRES}{soon}"),
            format!("198.51.100.4 {EXPIRES}2026-01-01T00:00:00+01:00"),
            format!("2001:db8::/32 {EXPIRES}{late}"),
            "203.0.113.0/24 a word".to_owned(),
        ];
        let two = ["198.51.100.2".to_owned(), format!("198.51.100.3 {EXPIRES}{late}")];
        write("one", &one).unwrap();
        write("two", &two).unwrap();
        let mut list = List::new(&path, ListAction::Drop);
        let none = Protected::default;
        let (v4, v6) = list.read(&mut none(), false).unwrap().unwrap();
        assert_eq!((v4.len(), v6.len(), list.expiring()), (4, 1, 3));
        let before = soon - jiff::SignedDuration::from_secs(1);
        assert_eq!(list.take_expired(before), Content::default());
        let (expired, six) = list.take_expired(soon);
        assert_eq!((expired, six), (vec!["198.51.100.1/32".parse().unwrap()], vec![]));
        let (expired, six) = list.take_expired(late);
        assert_eq!((expired.len(), six.len(), list.applied()), (1, 1, [2, 0]));
        let mut list = List::new(&path, ListAction::Pass);
        let refused = format!("{:#}", list.read(&mut none(), false).unwrap_err());
        assert!(refused.ends_with("one: a line of an allow list cannot expire"), "{refused}");
        write("one", &[format!("198.51.100.1 {EXPIRES}tomorrow")]).unwrap();
        let mut list = List::new(&path, ListAction::Drop);
        let refused = format!("{:#}", list.read(&mut none(), false).unwrap_err());
        assert!(refused.contains("one: `expires=tomorrow`: a time is needed as in"), "{refused}");
        fs::remove_dir_all(path).unwrap();
    }

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
