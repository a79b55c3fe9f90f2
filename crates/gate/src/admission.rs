//! Admission: a flow needs a second packet for an entry of the flow table while the table is
//! filling up.
//!
//! A spoofed source sends once. While the table is fuller than a configured load, the first packet
//! of an unknown flow makes no entry, only a mark of 12 bytes, and is forwarded as a request; the
//! second one makes the entry, as if it had existed from the first on. So spoofed sources fill a
//! table only up to that load, and the rest is for flows that sent a second packet and for those
//! that grantors decide about.
//!
//! ```text
//!   flow's hash ── permuted with a seed ──► line, 64 bytes
//!     │ until:64 × 5                                       │ hash:32 × 5             │
//!     └ the time of its first packet, plus 4.4 s           └ all 32 bits of its hash
//! ```
//!
//! **The outcome for a packet is the same** with admission and without, in priority, allowance and
//! lifetime, as long as there is room for marks: a mark has the time of the first packet to the
//! nanosecond, and it expires when an entry would ([`lifetime`] of a first priority). That is why a
//! mark stores a time. A generation of bits would take a fifth of the memory, but resolve waiting
//! times only to seconds; and the waiting time is the only difference between a client and a flood.
//!
//! **With fewer marks than first packets arrive**, a mark stays for at least [`HOLD`]: a TCP client
//! retransmits its SYN after one second (RFC 6298, 2.1), and a quarter of one is for the path. Up
//! to half a second more is added by chance: with the same time for all, a flood would have all
//! marks expire at once, again and again, and a client that doubles its gaps would arrive at the
//! wrong moment each time. A newcomer replaces an expired mark, else the oldest of its line if that
//! is old enough, else none: then its next packet is a first one again. So a share of all newcomers
//! is recognized, marks / (rate × 1.52 s), where replacing the oldest mark whatever its age would,
//! beyond a certain rate, recognize none. That share is the same for all flows, since the hash is
//! secret.
//!
//! **Errors.** Two flows with the same hash share a mark: with `n` remembered flows a newcomer is
//! taken for one of them with probability n / 2^32, and gets the entry and the priority of that
//! one's patience.
//!
//! A second packet proves nothing about the source: it can be forged twice. But such a flood has
//! half the sources for its packets, and in a full table its own entries are evicted
//! (`table/eviction.rs`). TCP clients can be required to return a cookie (`cookie.rs`).

use fib::{Table, fetch_ahead};

use crate::flow::permute;
use crate::priority::{FIRST, lifetime};

/// The marks of a cache line.
const WAYS: usize = 5;
/// Minimum lifetime of a mark while marks are scarce, in nanoseconds.
pub const HOLD: u64 = 1_250_000_000;
/// Maximum addition to it, taken from bits of the hash.
const JITTER: u64 = (1 << 29) - 1;

/// The parameters of admission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmissionConfig {
    /// The share of used entries, 0 to 1, from which on a flow needs a second packet.
    pub threshold: f64,
    /// The number of flows that are remembered without an entry.
    pub tracked_flows: usize,
    /// A seed that cannot be guessed.
    pub seed: u32,
}

/// A cache line of marks; those whose `until` has passed are free.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Line {
    until: [u64; WAYS],
    hash: [u32; WAYS],
}

const _: () = assert!(size_of::<Line>() == 64);

/// Returns the minimum lifetime of the mark of a flow with this hash.
fn hold(hash: u32) -> u64 {
    HOLD + (u64::from(hash) & JITTER)
}

/// The result of a packet of a flow without an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The flow gets an entry as a new flow.
    New,
    /// The flow gets an entry as a flow whose first packet arrived at this time.
    Returning(u64),
    /// The flow gets no entry, and is remembered.
    FirstSeen,
    /// The flow gets no entry, and there was no room to remember it.
    Untracked,
}

/// The flows that are remembered without an entry.
#[derive(Debug)]
pub struct Admission {
    lines: Table<Line>,
    seed: u32,
    /// Below this number of flows every flow gets an entry.
    open: usize,
    /// The time at which the last mark expires.
    until: u64,
}

impl Admission {
    /// Allocates marks, for a table of `entries` entries.
    pub fn new(config: &AdmissionConfig, entries: usize) -> Self {
        let lines = config.tracked_flows.div_ceil(WAYS).max(1);
        Self {
            lines: Table::filled(Line::default(), lines),
            seed: config.seed,
            open: (config.threshold.clamp(0.0, 1.0) * entries as f64) as usize,
            until: 0,
        }
    }

    fn line(&self, hash: u32) -> usize {
        let even = u64::from(permute(hash ^ self.seed));
        ((even * self.lines.len() as u64) >> 32) as usize
    }

    /// Returns whether marks matter, in a table with `flows` flows.
    #[inline]
    pub fn is_relevant(&self, flows: usize, now: u64) -> bool {
        flows >= self.open || now < self.until
    }

    /// Returns whether flows need a second packet, in a table with `flows` flows.
    #[inline]
    pub fn is_pressed(&self, flows: usize) -> bool {
        flows >= self.open
    }

    /// Prefetches the marks of a flow with this hash.
    #[inline(always)]
    pub fn fetch(&self, hash: u32) {
        fetch_ahead(&self.lines[self.line(hash)]);
    }

    /// Returns the time of the first packet of a flow without an entry, if it is remembered.
    #[inline]
    pub fn first_seen_at(&self, hash: u32, now: u64) -> Option<u64> {
        let line = &self.lines[self.line(hash)];
        let mut marks = line.hash.iter().zip(line.until);
        let (_, until) = marks.find(|(of, until)| **of == hash && now < *until)?;
        Some(until - lifetime(FIRST))
    }

    /// Returns whether a flow without an entry would get one with a packet at `now`, in a table
    /// with `flows` flows.
    #[inline]
    pub fn admits(&self, hash: u32, flows: usize, now: u64) -> bool {
        flows < self.open || self.first_seen_at(hash, now).is_some()
    }

    /// Decides about a packet at `now` of a flow without an entry, in a table with `flows` flows.
    #[inline]
    pub fn arrive(&mut self, hash: u32, flows: usize, now: u64) -> Arrival {
        if !self.is_relevant(flows, now) {
            return Arrival::New;
        }
        if let Some(first) = self.first_seen_at(hash, now) {
            self.forget(hash, now);
            return Arrival::Returning(first);
        }
        if flows < self.open {
            return Arrival::New;
        }
        if self.remember(hash, now) { Arrival::FirstSeen } else { Arrival::Untracked }
    }

    /// Remembers a flow by a packet at `now`, and returns whether there was room.
    #[inline]
    pub fn remember(&mut self, hash: u32, now: u64) -> bool {
        let over = now.saturating_add(lifetime(FIRST));
        let at = self.line(hash);
        let line = &mut self.lines[at];
        let (mut place, mut soonest) = (0, u64::MAX);
        for (at, &until) in line.until.iter().enumerate() {
            if until < soonest {
                (place, soonest) = (at, until);
            }
        }
        // Expired marks are older than that.
        if over - soonest < hold(line.hash[place]) {
            return false;
        }
        (line.hash[place], line.until[place]) = (hash, over);
        self.until = self.until.max(over);
        true
    }

    /// Forgets a remembered flow.
    #[inline]
    pub fn forget(&mut self, hash: u32, now: u64) {
        if now >= self.until {
            return;
        }
        let at = self.line(hash);
        let line = &mut self.lines[at];
        for (of, until) in line.hash.iter().zip(&mut line.until) {
            if *of == hash {
                *until = 0;
            }
        }
    }

    /// Counts the flows that can be remembered.
    pub fn capacity(&self) -> usize {
        self.lines.len() * WAYS
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, AdmissionConfig, Arrival, HOLD, JITTER, WAYS};
    use crate::priority::{FIRST, lifetime};

    const SECOND: u64 = 1_000_000_000;

    fn admission(above: f64, remember: usize) -> Admission {
        Admission::new(
            &AdmissionConfig { threshold: above, tracked_flows: remember, seed: 99 },
            100,
        )
    }

    #[test]
    fn flow_above_the_threshold_needs_a_second_packet_in_time() {
        let mut marks = admission(0.5, 1000);
        assert!(!marks.is_relevant(49, 7));
        assert_eq!(marks.arrive(1, 49, 7), Arrival::New);
        assert_eq!(marks.arrive(1, 50, 7), Arrival::FirstSeen);
        assert_eq!((marks.first_seen_at(1, 8), marks.first_seen_at(2, 8)), (Some(7), None));
        // The first packet counts, also when there is room again.
        assert_eq!(marks.arrive(1, 20, 8), Arrival::Returning(7));
        assert_eq!(marks.arrive(1, 20, 9), Arrival::New);
        assert_eq!(marks.arrive(2, 50, 9), Arrival::FirstSeen);
        marks.forget(2, 10);
        assert_eq!(marks.arrive(2, 50, 11), Arrival::FirstSeen);
        assert_eq!(marks.arrive(3, 50, 0), Arrival::FirstSeen);
        assert_eq!(marks.arrive(3, 100, lifetime(FIRST) - 1), Arrival::Returning(0));
        assert_eq!(marks.arrive(4, 50, 0), Arrival::FirstSeen);
        assert_eq!(marks.arrive(4, 50, lifetime(FIRST)), Arrival::FirstSeen);
        assert_eq!(admission(0.0, 1).arrive(1, 0, 0), Arrival::FirstSeen);
        assert_eq!(admission(1.0, 1).arrive(1, 99, 0), Arrival::New);
    }

    #[test]
    fn mark_stays_for_the_hold_under_a_flood() {
        const LONG: u64 = HOLD + JITTER;
        let mut marks = admission(0.0, WAYS);
        let fill = |marks: &mut Admission, from: u32, now| {
            (from..from + WAYS as u32).all(|hash| marks.arrive(hash, 0, now) == Arrival::FirstSeen)
        };
        assert!(fill(&mut marks, 0, 0));
        assert_eq!(marks.arrive(77, 0, HOLD - 1), Arrival::Untracked);
        assert_eq!(marks.arrive(3, 0, HOLD - 1), Arrival::Returning(0));
        assert_eq!(marks.arrive(77, 0, HOLD - 1), Arrival::FirstSeen);
        // The others are old enough to be replaced; that one is not.
        for hash in 100..100 + WAYS as u32 - 1 {
            assert_eq!(marks.arrive(hash, 0, LONG), Arrival::FirstSeen);
        }
        assert_eq!(marks.arrive(200, 0, LONG), Arrival::Untracked);
        assert_eq!(marks.arrive(77, 0, LONG), Arrival::Returning(HOLD - 1));
    }

    /// A flood at several times the number of marks: of clients that send again after a second, the
    /// share that the essay states is recognized.
    #[test]
    fn flood_leaves_every_client_the_same_chance() {
        const ROOM: usize = 50_000;
        for excess in [1u64, 4, 16] {
            let mut rng = fastrand::Rng::with_seed(excess);
            let mut marks = admission(0.0, ROOM);
            let gap = (HOLD + JITTER / 2) / (excess * ROOM as u64);
            let (mut now, mut known, mut tried) = (0, 0u32, 0u32);
            // The clients, each of which sends again a second later.
            let mut waiting = std::collections::VecDeque::new();
            for step in 0..excess * ROOM as u64 * 6 {
                now += gap;
                marks.arrive(rng.u32(..), 0, now);
                if step % (16 * excess) == 0 && now > 3 * SECOND {
                    let hash = rng.u32(..);
                    if !matches!(marks.arrive(hash, 0, now), Arrival::Returning(_)) {
                        waiting.push_back((hash, now + SECOND));
                    }
                }
                while let Some(&(hash, when)) = waiting.front().filter(|client| client.1 <= now) {
                    waiting.pop_front();
                    tried += 1;
                    let known_since = marks.first_seen_at(hash, now);
                    assert!(known_since.is_none_or(|first| first == when - SECOND));
                    known += u32::from(known_since.is_some());
                }
            }
            let (share, promised) = (f64::from(known) / f64::from(tried), 1.0 / excess as f64);
            assert!(tried > 5_000, "{tried}");
            // Lines fill unevenly: by Erlang's formula, for five marks and as many newcomers in a
            // hold, 0.28 of them find none.
            assert!((0.66 * promised..1.15 * promised).contains(&share), "{excess}: {share}");
        }
    }
}
