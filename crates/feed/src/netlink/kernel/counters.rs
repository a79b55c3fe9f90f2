//! Counters of the kernel feed.

use std::time::{Duration, Instant};

use crate::netlink::error::Damage;

/// Counters since the feed was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Messages read, of events and of dumps.
    pub messages: u64,
    /// How often messages were lost because the buffer was full.
    pub overruns: u64,
    /// How many resynchronizations were completed, the start included.
    pub resynchronizations: u64,
    /// How many dumps were interrupted and asked for again.
    pub interrupted: u64,
    /// Messages that were left out because they were damaged.
    pub parse_errors: u64,
    /// What was wrong with the last of them.
    pub last_damage: Option<Damage>,
    /// When the last resynchronization was complete.
    pub last_resynchronized: Option<Instant>,
    /// How long it took.
    pub last_took: Duration,
    /// How much of that was spent receiving, which is the kernel's own time.
    pub last_receiving: Duration,
    /// The receive buffer, in bytes, as the system counts it.
    pub buffer: usize,
}

/// Counts a message that was skipped because it is damaged.
pub(super) fn count_damage(counters: &mut KernelCounters, applied: Result<(), Damage>) {
    if let Err(damage) = applied {
        counters.parse_errors += 1;
        counters.last_damage = Some(damage);
    }
}
