//! The lists as they are configured.

use std::collections::HashSet;
use std::fmt;

use feed::AnyPrefix;
use fib::{Addr, BadPrefix, Prefix};
use xdp::ListAction;
use xdp::block::MAX_LISTS;

use crate::{ListError, Source};

/// A list as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListConfig {
    /// The end of its packets.
    pub action: ListAction,
    /// Where its prefixes come from.
    pub source: Source,
    /// The destinations of the packets about which it decides; none: all.
    pub to: Vec<AnyPrefix>,
}

impl ListConfig {
    /// Creates a list for all destinations.
    pub fn new(action: ListAction, source: Source) -> Self {
        Self { action, source, to: Vec::new() }
    }

    /// Returns the place of the list among the others: those with a smaller one come first.
    pub(crate) fn priority(&self) -> u8 {
        match (self.action, &self.source) {
            (ListAction::Pass, _) => 0,
            (ListAction::Drop, Source::Bans(_)) => 1,
            (ListAction::Drop, _) => 2,
        }
    }
}

impl fmt::Display for ListConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, to, .. } = self;
        match source {
            Source::Bans(_) => f.write_str("bans")?,
            source => source.fmt(f)?,
        }
        for (nth, prefix) in to.iter().enumerate() {
            write!(f, "{}{prefix}", if nth == 0 { " to " } else { "," })?;
        }
        Ok(())
    }
}

/// Checks that lists can be together.
///
/// # Errors
///
/// Two lists with one source and the same destinations, several lists of bans or an allow list of bans, bans for some
/// destinations, too many lists.
pub fn check(lists: &[ListConfig]) -> Result<(), ListError> {
    if lists.len() > MAX_LISTS {
        let reason = format!("{} lists: at most {MAX_LISTS} are possible", lists.len());
        return Err(ListError::new(reason));
    }
    let (mut seen, mut has_bans) = (HashSet::new(), false);
    for list in lists {
        if let Source::Bans(file) = &list.source {
            if list.action == ListAction::Pass || !list.to.is_empty() {
                let reason = "bans are a list of sources to drop, for all destinations";
                return Err(ListError::of(file, reason));
            }
            if std::mem::replace(&mut has_bans, true) {
                return Err(ListError::new("there are several lists of bans: one is possible"));
            }
            continue;
        }
        if !seen.insert(list.to_string()) {
            return Err(ListError::new(format!("{list}: the list is given twice")));
        }
    }
    Ok(())
}

/// Reads a prefix, or an address as the prefix that only it is in.
///
/// # Errors
///
/// A text that is neither.
pub fn parse_prefix(text: &str) -> Result<AnyPrefix, String> {
    fn read<A: Addr>(text: &str) -> Result<Prefix<A>, String> {
        text.parse().map_err(|error: BadPrefix| error.describe::<A>(text))
    }
    match text.contains(':') {
        true => read(text).map(AnyPrefix::V6),
        false => read(text).map(AnyPrefix::V4),
    }
}
