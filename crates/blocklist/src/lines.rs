//! The lines of a list, and the times at which they end.
//!
//! ```text
//!   198.51.100.7 expires=2026-12-01T00:00:00Z      a line of a block list that ends by itself
//! ```

use std::cmp::Reverse;
use std::path::Path;

use feed::{AnyPrefix, Label, Labels, Options};
use fib::{Family, Prefix};
use jiff::Timestamp;

use crate::ListError;

/// The word behind a prefix that has the time at which its line ends, in RFC 3339.
pub(crate) const EXPIRES: &str = "expires=";

/// The prefixes of a list.
pub(crate) type Content = (Vec<Prefix<u32>>, Vec<Prefix<u128>>);

/// Prefixes, each with the time at which it ends.
type Timed<A> = Vec<(Prefix<A>, Option<Timestamp>)>;

/// The lines of the files of a list.
#[derive(Default)]
pub(crate) struct Lines {
    v4: Timed<u32>,
    v6: Timed<u128>,
}

impl Lines {
    /// Adds the lines of a file.
    ///
    /// # Errors
    ///
    /// Those of reading it; a time that is none.
    pub(crate) fn read(&mut self, file: &Path) -> Result<(), ListError> {
        let table = feed::load(file, &Options::default())
            .map_err(|error| ListError::new(error.to_string()))?;
        for warning in &table.report.warnings {
            log::warn!("{}: {warning}", file.display());
        }
        let ends = ends(&table.labels).map_err(|error| ListError::of(file, error))?;
        let end = |label: Label| ends[label.0 as usize];
        self.v4.extend(table.v4.iter().map(|&(prefix, label)| (prefix, end(label))));
        self.v6.extend(table.v6.iter().map(|&(prefix, label)| (prefix, end(label))));
        Ok(())
    }

    /// Adds prefixes that do not end.
    pub(crate) fn add(&mut self, prefixes: &[AnyPrefix]) {
        for &prefix in prefixes {
            match prefix {
                AnyPrefix::V4(prefix) => self.v4.push((prefix, None)),
                AnyPrefix::V6(prefix) => self.v6.push((prefix, None)),
            }
        }
    }

    /// Returns whether any line ends by itself.
    pub(crate) fn any_expires(&self) -> bool {
        let has_end = |end: &Option<Timestamp>| end.is_some();
        self.v4.iter().any(|(_, end)| has_end(end)) || self.v6.iter().any(|(_, end)| has_end(end))
    }

    /// Returns the prefixes that are in force at `now`, once each, and those of them that end, the first of them last.
    /// A prefix on several lines ends with the last of them.
    pub(crate) fn in_force(self, now: Timestamp) -> (Content, Vec<(Timestamp, AnyPrefix)>) {
        let mut ending = Vec::new();
        let v4 = in_force(self.v4, now, AnyPrefix::V4, &mut ending);
        let v6 = in_force(self.v6, now, AnyPrefix::V6, &mut ending);
        ending.sort_unstable_by_key(|&(at, _)| Reverse(at));
        ((v4, v6), ending)
    }
}

/// Reads the time from each label that has one.
fn ends(labels: &Labels) -> Result<Vec<Option<Timestamp>>, String> {
    let read = |text: &str| {
        let time = text.strip_prefix(EXPIRES).map(str::parse::<Timestamp>).transpose();
        time.map_err(|_| format!("`{text}`: a time is needed as in {EXPIRES}2026-12-01T00:00:00Z"))
    };
    labels.iter().map(|(_, text)| read(text)).collect()
}

fn in_force<A: Family>(
    mut lines: Timed<A>,
    now: Timestamp,
    any: impl Fn(Prefix<A>) -> AnyPrefix,
    ending: &mut Vec<(Timestamp, AnyPrefix)>,
) -> Vec<Prefix<A>> {
    lines.retain(|(_, end)| end.is_none_or(|at| at > now));
    // The latest first, and before that none at all.
    lines.sort_unstable_by_key(|&(prefix, end)| (prefix, end.is_some(), Reverse(end)));
    lines.dedup_by_key(|(prefix, _)| *prefix);
    ending.extend(lines.iter().filter_map(|&(prefix, end)| Some((end?, any(prefix)))));
    lines.into_iter().map(|(prefix, _)| prefix).collect()
}
