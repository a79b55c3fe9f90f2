//! Records when routes last changed.
//!
//! A timestamp for each route would double the memory of a full table. Operators query recent
//! changes, so only the changes of the last two generations of [`GENERATION`] are recorded:
//!
//! ```text
//!   change ─► recent ── GENERATION of them ──► older ──► discarded
//!             exact                            exact     known to be older than `older`
//! ```
//!
//! A route in neither has not changed since the older generation began, or since the first table
//! was published if nothing was discarded. Memory: at most two generations of about 48 bytes a
//! change, 6 MiB.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use feed::netlink::AnyPrefix;

/// Changes of a generation.
const GENERATION: usize = 1 << 16;

/// A table, whether the prefix is of IPv6, and the prefix.
type Key = (u32, bool, u128, u8);

/// The age of a route: the time since its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// The age, or its lower bound.
    pub age: Duration,
    /// Whether `age` is a lower bound.
    pub or_more: bool,
}

/// The times of the last changes.
#[derive(Debug)]
pub(super) struct Ages {
    /// Seconds since `start`.
    recent: HashMap<Key, u32>,
    older: HashMap<Key, u32>,
    start: Instant,
    /// The start of the generations, in seconds since `start`.
    recent_began: u32,
    older_began: u32,
    /// Changes are not recorded: the routes are a first read or a replay, of unknown age.
    pub(super) is_paused: bool,
}

impl Ages {
    pub(super) fn new() -> Self {
        let (recent, older) = (HashMap::new(), HashMap::new());
        let start = Instant::now();
        Self { recent, older, start, recent_began: 0, older_began: 0, is_paused: true }
    }

    /// Records that a route has changed.
    pub(super) fn record(&mut self, table: u32, prefix: AnyPrefix) {
        if self.is_paused {
            return;
        }
        let now = self.now();
        if self.recent.len() >= GENERATION {
            self.older = std::mem::take(&mut self.recent);
            (self.older_began, self.recent_began) = (self.recent_began, now);
        }
        self.recent.insert(key(table, prefix), now);
    }

    /// Returns the age of an existing route.
    pub(super) fn age(&self, table: u32, prefix: AnyPrefix) -> Age {
        let key = key(table, prefix);
        let found = self.recent.get(&key).or_else(|| self.older.get(&key));
        let since = found.copied().unwrap_or(self.older_began);
        let age = Duration::from_secs(u64::from(self.now().saturating_sub(since)));
        Age { age, or_more: found.is_none() }
    }

    fn now(&self) -> u32 {
        u32::try_from(self.start.elapsed().as_secs()).unwrap_or(u32::MAX)
    }
}

fn key(table: u32, prefix: AnyPrefix) -> Key {
    match prefix {
        AnyPrefix::V4(v4) => (table, false, v4.addr().into(), v4.len() as u8),
        AnyPrefix::V6(v6) => (table, true, v6.addr(), v6.len() as u8),
    }
}

#[cfg(test)]
mod tests {
    use fib::Prefix;

    use super::*;

    fn prefix(number: u32) -> AnyPrefix {
        AnyPrefix::V4(Prefix::truncate(number << 8, 24))
    }

    #[test]
    fn recent_changes_have_exact_ages_and_memory_is_bounded() {
        let mut ages = Ages::new();
        ages.start -= Duration::from_secs(100);
        ages.record(254, prefix(1));
        assert!(ages.recent.is_empty(), "the age of an initial route is unknown");
        assert_eq!(ages.age(254, prefix(1)), Age { age: Duration::from_secs(100), or_more: true });
        ages.is_paused = false;
        ages.record(254, prefix(1));
        assert_eq!(ages.age(254, prefix(1)), Age { age: Duration::ZERO, or_more: false });
        // Another table, and another family with the same bits.
        assert!(ages.age(255, prefix(1)).or_more);
        let six = AnyPrefix::V6(Prefix::truncate(1 << 8, 24));
        assert!(ages.age(254, six).or_more);
        for number in 2..4 * GENERATION as u32 {
            ages.record(254, prefix(number));
        }
        assert!(ages.recent.len() + ages.older.len() <= 2 * GENERATION);
        // Discarded: the lower bound is not above the true age.
        let age = ages.age(254, prefix(1));
        assert!(age.or_more && age.age < Duration::from_secs(100), "{age:?}");
        assert!(!ages.age(254, prefix(4 * GENERATION as u32 - 1)).or_more);
    }
}
