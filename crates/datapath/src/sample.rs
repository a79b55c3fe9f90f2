//! A sample: a destination that a worker has just looked up, for the auditor.
//!
//! ```text
//!   auditor: wanted ──► worker: a batch later, one of its destinations ──► filled ──► auditor
//! ```
//!
//! Each worker has one slot, which belongs to one side at a time: the reader requests a sample; the
//! worker fills the slot once and does not touch it until the next request. So the cost depends on
//! the number of requests and not of packets; every batch costs one load from a cache line that is
//! not written in the meantime. Neither side waits, locks or allocates.
//!
//! The field `turn` states which side owns the slot. It is written last (release) and read first
//! (acquire), so that the other words are complete when they are read, and have been read when they
//! are written again.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The slot belongs to the reader, and is empty.
const IDLE: u64 = 0;
/// The slot belongs to the worker.
const WANTED: u64 = 1;
/// The slot belongs to the reader, and contains an IPv4 or an IPv6 address.
const V4: u64 = 4;
const V6: u64 = 6;

/// A slot for one destination.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Sample {
    turn: AtomicU64,
    table: AtomicU64,
    high: AtomicU64,
    low: AtomicU64,
}

impl Sample {
    /// Makes an empty slot without a request.
    pub const fn new() -> Self {
        Self {
            turn: AtomicU64::new(IDLE),
            table: AtomicU64::new(0),
            high: AtomicU64::new(0),
            low: AtomicU64::new(0),
        }
    }

    /// Returns whether a sample is requested.
    #[inline(always)]
    pub(super) fn is_wanted(&self) -> bool {
        self.turn.load(Ordering::Acquire) == WANTED
    }

    /// Fills the slot, which [is wanted](Self::is_wanted), with a destination and the number
    /// of the table it was looked up in.
    #[cold]
    pub(super) fn fill(&self, table: usize, address: IpAddr) {
        let (family, bits) = match address {
            IpAddr::V4(v4) => (V4, u128::from(u32::from(v4))),
            IpAddr::V6(v6) => (V6, u128::from(v6)),
        };
        self.table.store(table as u64, Ordering::Relaxed);
        self.high.store((bits >> 64) as u64, Ordering::Relaxed);
        self.low.store(bits as u64, Ordering::Relaxed);
        // Release: a reader that sees the family sees the other words.
        self.turn.store(family, Ordering::Release);
    }

    /// Takes the sample, if there is one, and requests another.
    pub fn take(&self) -> Option<(usize, IpAddr)> {
        // Acquire: the other words were written before.
        let turn = self.turn.load(Ordering::Acquire);
        if turn == WANTED {
            return None;
        }
        let (high, low) = (self.high.load(Ordering::Relaxed), self.low.load(Ordering::Relaxed));
        let table = self.table.load(Ordering::Relaxed) as usize;
        // Release: the other words were read before they are written again.
        self.turn.store(WANTED, Ordering::Release);
        match turn {
            V4 => Some((table, IpAddr::V4((low as u32).into()))),
            V6 => Some((table, IpAddr::V6((u128::from(high) << 64 | u128::from(low)).into()))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_given_once_and_only_when_asked_for() {
        let sample = Sample::new();
        assert!(!sample.is_wanted());
        assert_eq!(sample.take(), None);
        assert!(sample.is_wanted());
        assert_eq!(sample.take(), None);
        for address in ["192.0.2.1", "2001:db8::7"] {
            let address = address.parse().unwrap();
            sample.fill(70_000, address);
            assert!(!sample.is_wanted());
            assert_eq!(sample.take(), Some((70_000, address)));
            assert_eq!(sample.take(), None);
        }
    }

    /// Two threads: every sample is complete.
    #[test]
    fn samples_are_whole() {
        const MANY: u64 = 20_000;
        let sample = Sample::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut number = 0u64;
                while number < MANY {
                    if sample.is_wanted() {
                        number += 1;
                        let bits = u128::from(number) << 64 | u128::from(number);
                        sample.fill(number as usize, IpAddr::V6(bits.into()));
                    }
                    std::thread::yield_now();
                }
            });
            let mut last = 0;
            while last < MANY {
                if let Some((table, address)) = sample.take() {
                    let number = table as u64;
                    let bits = u128::from(number) << 64 | u128::from(number);
                    assert_eq!(address, IpAddr::V6(bits.into()));
                    assert_eq!(number, last + 1);
                    last = number;
                }
                std::thread::yield_now();
            }
        });
    }
}
