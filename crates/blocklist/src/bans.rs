//! The list of bans, which orders change one by one.
//!
//! ```text
//!   ban, unban ─► entries ─┬─► Blocker, at once
//!   ends ──────────────────┘─► file, at most once a second ─► entries after a restart
//! ```
//!
//! The file has the form of any list, with `expires=` where a ban ends. It is written here and read at the start
//! only: a ban is never lost to an edit of the file, nor does an edit change a ban.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use feed::AnyPrefix;
use jiff::Timestamp;

use crate::ListError;
use crate::feed::replace;
use crate::lines::{EXPIRES, Lines};

/// The shortest time between two writings of the file.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);

/// The bans in force.
#[derive(Debug)]
pub(crate) struct Bans {
    path: PathBuf,
    entries: BTreeMap<AnyPrefix, Option<Timestamp>>,
    /// The ends of bans, also of those that have been lifted or prolonged since.
    ends: BinaryHeap<Reverse<(Timestamp, AnyPrefix)>>,
    is_dirty: bool,
    saved: Option<Instant>,
    error: Option<String>,
}

impl Bans {
    /// Reads the bans of the last time, if there is a file.
    ///
    /// # Errors
    ///
    /// A file that cannot be read.
    pub(crate) fn open(path: PathBuf) -> Result<Self, ListError> {
        let mut lines = Lines::default();
        if path.exists() {
            lines.read(&path)?;
        }
        let ((v4, v6), ending) = lines.in_force(Timestamp::now());
        let all = v4.into_iter().map(AnyPrefix::V4).chain(v6.into_iter().map(AnyPrefix::V6));
        let mut entries: BTreeMap<_, _> = all.map(|prefix| (prefix, None)).collect();
        entries.extend(ending.iter().map(|&(at, prefix)| (prefix, Some(at))));
        let ends = ending.into_iter().map(Reverse).collect();
        Ok(Self { path, entries, ends, is_dirty: false, saved: None, error: None })
    }

    /// Returns the prefixes.
    pub(crate) fn prefixes(&self) -> impl Iterator<Item = AnyPrefix> {
        self.entries.keys().copied()
    }

    /// Counts the prefixes of each family.
    pub(crate) fn counts(&self) -> [usize; 2] {
        let six = self.entries.range(AnyPrefix::V6(fib::Prefix::ALL)..).count();
        [self.entries.len() - six, six]
    }

    /// Counts the bans that end.
    pub(crate) fn ending(&self) -> usize {
        self.entries.values().filter(|end| end.is_some()).count()
    }

    /// Bans a prefix until `end`, if there is one, in place of a former ban.
    pub(crate) fn ban(&mut self, prefix: AnyPrefix, end: Option<Timestamp>) {
        self.entries.insert(prefix, end);
        self.ends.extend(end.map(|end| Reverse((end, prefix))));
        self.is_dirty = true;
    }

    /// Lifts the ban of a prefix; returns whether there was one.
    pub(crate) fn unban(&mut self, prefix: AnyPrefix) -> bool {
        let was_banned = self.entries.remove(&prefix).is_some();
        self.is_dirty |= was_banned;
        was_banned
    }

    /// Removes and returns the prefixes whose ban has ended.
    pub(crate) fn take_ended(&mut self, now: Timestamp) -> Vec<AnyPrefix> {
        let mut ended = Vec::new();
        while let Some(Reverse((at, prefix))) = self.ends.peek().copied().filter(|e| e.0.0 <= now) {
            self.ends.pop();
            if self.entries.get(&prefix) == Some(&Some(at)) && self.unban(prefix) {
                ended.push(prefix);
            }
        }
        ended
    }

    /// Writes the file if the bans have changed and it is time, or in any case at the end.
    pub(crate) fn save(&mut self, at_end: bool) {
        let is_time = self.saved.is_none_or(|at| at.elapsed() >= SAVE_INTERVAL);
        if !self.is_dirty || !(is_time || at_end) {
            return;
        }
        let mut text =
            String::from("# Bans of fingerpost: changed by `fingerpost ban` and `unban`.\n");
        for (prefix, end) in &self.entries {
            let _ = match end {
                Some(end) => writeln!(text, "{prefix} {EXPIRES}{end}"),
                None => writeln!(text, "{prefix}"),
            };
        }
        self.saved = Some(Instant::now());
        let error = replace(&self.path, text.as_bytes()).err();
        self.is_dirty = error.is_some();
        if let Some(error) = error.as_ref().filter(|error| self.error.as_ref() != Some(error)) {
            log::error!("the bans are in force, and lost at a restart: {error}");
        }
        self.error = error;
    }

    /// Returns why the file could not be written.
    pub(crate) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    fn prefix(text: &str) -> AnyPrefix {
        match text.contains(':') {
            true => AnyPrefix::V6(text.parse().unwrap()),
            false => AnyPrefix::V4(text.parse().unwrap()),
        }
    }

    #[test]
    fn ban_ends_at_its_last_time_and_survives_a_restart() {
        let path = std::env::temp_dir().join(format!("fingerpost-bans-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let now = Timestamp::now();
        let at = |seconds| now + SignedDuration::from_secs(seconds);
        let [a, b, c] = ["192.0.2.1/32", "198.51.100.0/24", "2001:db8::/32"].map(prefix);
        let mut bans = Bans::open(path.clone()).unwrap();
        bans.ban(a, Some(at(100)));
        bans.ban(b, Some(at(100)));
        bans.ban(c, None);
        // One is prolonged, and would be there without end if it were not lifted.
        bans.ban(a, Some(at(300)));
        assert_eq!((bans.counts(), bans.ending()), ([2, 1], 2));
        assert_eq!(bans.take_ended(at(99)), []);
        assert_eq!(bans.take_ended(at(100)), [b]);
        bans.ban(b, Some(at(200)));
        assert!(bans.unban(b) && !bans.unban(b));
        assert_eq!(bans.take_ended(at(250)), []);
        bans.save(false);
        bans.ban(b, None);
        bans.save(false);
        let mut early = Bans::open(path.clone()).unwrap();
        assert_eq!(early.counts(), [1, 1], "the file is written once a second");
        assert_eq!(early.take_ended(at(300)), [a]);
        bans.save(true);
        let late = Bans::open(path.clone()).unwrap();
        assert_eq!(late.entries, bans.entries);
        assert!(late.prefixes().eq([a, b, c]));
        std::fs::remove_file(&path).unwrap();
        // A folder in place of the file: reported once.
        std::fs::create_dir(&path).unwrap();
        bans.unban(b);
        bans.save(true);
        assert!(bans.error().unwrap().contains("fingerpost-bans"));
        std::fs::remove_dir(&path).unwrap();
        bans.save(true);
        assert_eq!(bans.error(), None);
        std::fs::remove_file(&path).unwrap();
    }
}
