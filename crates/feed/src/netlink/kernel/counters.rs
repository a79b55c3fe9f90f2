//! Counters of the kernel feed.

use std::time::{Duration, Instant};

use crate::netlink::error::Damage;

/// Counters since the feed was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelCounters {
    /// Messages read, of events and of dumps.
    pub messages: u64,
    /// Losses of messages because the buffer was full.
    pub overruns: u64,
    /// Completed resynchronizations, the start included.
    pub resynchronizations: u64,
    /// Dumps that were interrupted and requested again.
    pub interrupted: u64,
    /// Messages that were skipped because they were damaged.
    pub parse_errors: u64,
    /// The damage of the last of them.
    pub last_damage: Option<Damage>,
    /// The time at which the last resynchronization was complete.
    pub last_resynchronized: Option<Instant>,
    /// Its duration.
    pub last_took: Duration,
    /// The part of it spent in receive calls, which is the kernel's own time.
    pub last_receiving: Duration,
    /// The receive buffer in bytes, as the kernel counts it.
    pub buffer: usize,
}

/// Counts a message that was skipped because it is damaged.
pub(super) fn count_damage(counters: &mut KernelCounters, applied: Result<(), Damage>) {
    if let Err(damage) = applied {
        counters.parse_errors += 1;
        counters.last_damage = Some(damage);
    }
}
