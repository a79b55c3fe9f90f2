//! Ages: when routes became what they are.
//!
//! A time a route would cost a full table as much again as its trie. What people ask for is
//! what has changed lately, so only changes are kept, of the last two lots of [`LOT`]:
//!
//! ```text
//!   change ─► recent ── LOT of them ──► older ──► forgotten
//!             exact                     exact     known to be older than `older` is
//! ```
//!
//! A route that is in neither has been what it is since before the older lot began, or
//! before the first table was published if nothing was forgotten. At most two lots of about
//! 48 bytes a change: 6 MiB.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use feed::netlink::AnyPrefix;

/// Changes of a lot.
const LOT: usize = 1 << 16;

/// A table and a prefix; IPv4 ones are told from IPv6 ones by the flag.
type Key = (u32, bool, u128, u8);

/// How old a route is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// So long.
    pub age: Duration,
    /// Or longer.
    pub or_more: bool,
}

/// When routes became what they are.
#[derive(Debug)]
pub(super) struct Ages {
    /// Seconds since `start`.
    recent: HashMap<Key, u32>,
    older: HashMap<Key, u32>,
    start: Instant,
    /// When the lots began, in seconds since `start`.
    recent_began: u32,
    older_began: u32,
    /// Routes are told for the first time, and their age is not known.
    pub(super) asleep: bool,
}

impl Ages {
    pub(super) fn new() -> Self {
        let (recent, older) = (HashMap::new(), HashMap::new());
        let start = Instant::now();
        Self { recent, older, start, recent_began: 0, older_began: 0, asleep: true }
    }

    /// Notes that a route has changed.
    pub(super) fn changed(&mut self, table: u32, prefix: AnyPrefix) {
        if self.asleep {
            return;
        }
        let now = self.now();
        if self.recent.len() >= LOT {
            self.older = std::mem::take(&mut self.recent);
            (self.older_began, self.recent_began) = (self.recent_began, now);
        }
        self.recent.insert(key(table, prefix), now);
    }

    /// Says how old a route is that is there.
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
        AnyPrefix::V4(it) => (table, false, it.addr().into(), it.len() as u8),
        AnyPrefix::V6(it) => (table, true, it.addr(), it.len() as u8),
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
    fn what_changed_lately_is_known_and_memory_is_bounded() {
        let mut ages = Ages::new();
        ages.start -= Duration::from_secs(100);
        ages.changed(254, prefix(1));
        assert!(ages.recent.is_empty(), "nobody knows the age of what was there");
        assert_eq!(ages.age(254, prefix(1)), Age { age: Duration::from_secs(100), or_more: true });
        ages.asleep = false;
        ages.changed(254, prefix(1));
        assert_eq!(ages.age(254, prefix(1)), Age { age: Duration::ZERO, or_more: false });
        // Another table, and another family with the same bits.
        assert!(ages.age(255, prefix(1)).or_more);
        let six = AnyPrefix::V6(Prefix::truncate(1 << 8, 24));
        assert!(ages.age(254, six).or_more);
        for number in 2..4 * LOT as u32 {
            ages.changed(254, prefix(number));
        }
        assert!(ages.recent.len() + ages.older.len() <= 2 * LOT);
        // Forgotten, and not said to be older than is known.
        let age = ages.age(254, prefix(1));
        assert!(age.or_more && age.age < Duration::from_secs(100), "{age:?}");
        assert!(!ages.age(254, prefix(4 * LOT as u32 - 1)).or_more);
    }
}
