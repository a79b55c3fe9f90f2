//! Counters: packets and bytes by rule, which one worker writes and others read.

use std::sync::atomic::{AtomicU64, Ordering};

/// The packets and bytes that a rule has matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCount {
    /// Packets.
    pub packets: u64,
    /// Bytes of IP packets.
    pub bytes: u64,
    /// Of the packets, those that a policer has dropped.
    pub exceeded: u64,
}

impl RuleCount {
    /// Adds another count.
    pub fn add(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.exceeded += other.exceeded;
    }
}

#[derive(Debug, Default)]
struct Cell {
    packets: AtomicU64,
    bytes: AtomicU64,
    exceeded: AtomicU64,
}

/// The counters of a list's rules, and of the packets that none of them has ended.
#[derive(Debug)]
pub struct RuleCounters(Box<[Cell]>);

impl RuleCounters {
    /// Makes the counters of `rules` rules; the number of the default is `rules`.
    pub fn new(rules: usize) -> Self {
        Self((0..=rules).map(|_| Cell::default()).collect())
    }

    /// Counts a packet, and returns the number of packets so far. Only one thread may count.
    #[inline]
    pub fn count(&self, rule: usize, bytes: u16) -> u64 {
        self.count_batch(rule, 1, bytes.into())
    }

    /// Counts packets like [`count`](Self::count).
    #[inline]
    pub fn count_batch(&self, rule: usize, packets: u64, bytes: u64) -> u64 {
        let Some(cell) = self.0.get(rule) else { return 0 };
        let packets = cell.packets.load(Ordering::Relaxed) + packets;
        cell.packets.store(packets, Ordering::Relaxed);
        cell.bytes.store(cell.bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
        packets
    }

    /// Counts a packet that a policer drops; it has been counted as a match.
    #[inline]
    pub fn count_exceeded(&self, rule: usize) {
        if let Some(cell) = self.0.get(rule) {
            cell.exceeded.store(cell.exceeded.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Returns the count of a rule.
    pub fn get(&self, rule: usize) -> RuleCount {
        self.0.get(rule).map_or(RuleCount::default(), |cell| RuleCount {
            packets: cell.packets.load(Ordering::Relaxed),
            bytes: cell.bytes.load(Ordering::Relaxed),
            exceeded: cell.exceeded.load(Ordering::Relaxed),
        })
    }
}
