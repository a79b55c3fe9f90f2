//! Admission: who has to show himself before he gets an entry of the flow table.
//!
//! A spoofed source comes once. While the table is fuller than a load that is chosen, the
//! first packet of an unknown flow leaves no entry, only a mark of 12 bytes that it was here,
//! and goes on as the request that it is; the second one makes the entry, as if it had been
//! there from the first on. So spoofed sources fill a table to that load, and what is beyond
//! it is for flows that came twice and for those that grantors decide of.
//!
//! ```text
//!   flow's hash ── permuted with a seed ──► line, 64 bytes
//!     │ until:64 × 5                                       │ hash:32 × 5             │
//!     └ when its first packet came, and 4.4 s more         └ whose: all 32 bits of it
//! ```
//!
//! **What a packet gets is the same** with admission and without, priority, allowance and
//! lifetime, as long as there is room for marks: a mark has the time of the first packet to
//! the nanosecond, and it is over when an entry would be ([`lifetime`] of a first priority).
//! That is why there are times in it and no generations of bits, which would take a fifth of
//! the memory and know patience to some seconds only; patience is all that tells a client
//! from a flood.
//!
//! **With less room than first packets come**, a mark stays for at least [`HOLD`]: a TCP client
//! sends its SYN again after one second (RFC 6298, 2.1), and a quarter of one is for the way. Half
//! a second more is by chance: were it the same for all, a flood would have all places come free at
//! once, time after time, and who doubles his gaps come at the wrong moment again and again. A newcomer takes a place that is over, else the oldest of its line if that is older, else
//! none: he is not remembered, and his next packet is a first one again. So a
//! share of all newcomers is known again, places / (rate × 1.52 s), where giving up the oldest
//! whatever its age would, beyond a certain rate, know none. That share is the same for
//! everybody, since the hash is secret.
//!
//! **Errors.** Two flows of one hash are one mark: of `n` flows that are remembered a
//! newcomer is taken for one with probability n / 2^32, and gets the entry and the priority
//! of that one's patience.
//!
//! A source that sends twice has shown no more than that: it can be forged twice. But a flood
//! of those has half the sources for its packets, and in a full table gives up its own
//! (`table/room.rs`). TCP can be held to more: an answer to a cookie (`cookie.rs`).

use fib::{Table, fetch_ahead};

use crate::flow::permute;
use crate::priority::{FIRST, lifetime};

/// The marks of a line.
const WAYS: usize = 5;
/// How long a mark is sure to stay, in nanoseconds.
pub const HOLD: u64 = 1_250_000_000;
/// How much longer, at the most: bits of the hash are as good as chance.
const JITTER: u64 = (1 << 29) - 1;

/// On what terms flows get entries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdmissionConfig {
    /// The share of the table's entries, 0 to 1, from which on a flow has to come twice.
    pub threshold: f64,
    /// How many flows are remembered without an entry.
    pub tracked_flows: usize,
    /// What cannot be guessed.
    pub seed: u32,
}

/// A line of marks; those whose `until` has come are free.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct Line {
    until: [u64; WAYS],
    hash: [u32; WAYS],
}

const _: () = assert!(size_of::<Line>() == 64);

/// Returns how long the mark of a flow with this hash stays.
fn hold(hash: u32) -> u64 {
    HOLD + (u64::from(hash) & JITTER)
}

/// What becomes of a flow that has no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It gets one as a new flow.
    New,
    /// It gets one as a flow whose first packet came at this time.
    Returning(u64),
    /// It gets none, and is remembered.
    FirstSeen,
    /// It gets none, and there was no place to remember it.
    Untracked,
}

/// Who is remembered without an entry.
#[derive(Debug)]
pub struct Admission {
    lines: Table<Line>,
    seed: u32,
    /// How many entries any flow may have.
    open: usize,
    /// From here on no mark is left.
    until: u64,
}

impl Admission {
    /// Makes room for marks, for a table of so many entries.
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

    /// Says whether a flow may have to do with marks, in a table with so many flows.
    #[inline]
    pub fn is_relevant(&self, flows: usize, now: u64) -> bool {
        flows >= self.open || now < self.until
    }

    /// Says whether not everybody gets an entry in a table with so many flows.
    #[inline]
    pub fn is_pressed(&self, flows: usize) -> bool {
        flows >= self.open
    }

    /// Asks the CPU for what is remembered of a flow of this hash.
    #[inline(always)]
    pub fn fetch(&self, hash: u32) {
        fetch_ahead(&self.lines[self.line(hash)]);
    }

    /// Says when the first packet of a flow without an entry came, if that is remembered.
    #[inline]
    pub fn first_seen_at(&self, hash: u32, now: u64) -> Option<u64> {
        let line = &self.lines[self.line(hash)];
        let mut marks = line.hash.iter().zip(line.until);
        let (_, until) = marks.find(|(of, until)| **of == hash && now < *until)?;
        Some(until - lifetime(FIRST))
    }

    /// Says whether a flow without an entry would get one with a packet of now, in a table with
    /// so many flows.
    #[inline]
    pub fn admits(&self, hash: u32, flows: usize, now: u64) -> bool {
        flows < self.open || self.first_seen_at(hash, now).is_some()
    }

    /// Decides of a flow without an entry, in a table with so many flows, one packet of which
    /// is here.
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

    /// Remembers a flow by a packet of now, and says whether there was a place.
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
        // What is over has been held for longer than that.
        if over - soonest < hold(line.hash[place]) {
            return false;
        }
        (line.hash[place], line.until[place]) = (hash, over);
        self.until = self.until.max(over);
        true
    }

    /// Forgets a flow that is remembered.
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
    fn below_the_load_anyone_enters_and_above_it_who_comes_again_in_time() {
        let mut it = admission(0.5, 1000);
        assert!(!it.is_relevant(49, 7));
        assert_eq!(it.arrive(1, 49, 7), Arrival::New);
        assert_eq!(it.arrive(1, 50, 7), Arrival::FirstSeen);
        assert_eq!((it.first_seen_at(1, 8), it.first_seen_at(2, 8)), (Some(7), None));
        // Also when there is room again: the first packet counts.
        assert_eq!(it.arrive(1, 20, 8), Arrival::Returning(7));
        assert_eq!(it.arrive(1, 20, 9), Arrival::New);
        assert_eq!(it.arrive(2, 50, 9), Arrival::FirstSeen);
        it.forget(2, 10);
        assert_eq!(it.arrive(2, 50, 11), Arrival::FirstSeen);
        assert_eq!(it.arrive(3, 50, 0), Arrival::FirstSeen);
        assert_eq!(it.arrive(3, 100, lifetime(FIRST) - 1), Arrival::Returning(0));
        assert_eq!(it.arrive(4, 50, 0), Arrival::FirstSeen);
        assert_eq!(it.arrive(4, 50, lifetime(FIRST)), Arrival::FirstSeen);
        assert_eq!(admission(0.0, 1).arrive(1, 0, 0), Arrival::FirstSeen);
        assert_eq!(admission(1.0, 1).arrive(1, 99, 0), Arrival::New);
    }

    #[test]
    fn who_is_remembered_stays_for_the_hold_whatever_comes() {
        const LONG: u64 = HOLD + JITTER;
        let mut it = admission(0.0, WAYS);
        let full = |it: &mut Admission, from: u32, now| {
            (from..from + WAYS as u32).all(|hash| it.arrive(hash, 0, now) == Arrival::FirstSeen)
        };
        assert!(full(&mut it, 0, 0));
        assert_eq!(it.arrive(77, 0, HOLD - 1), Arrival::Untracked);
        assert_eq!(it.arrive(3, 0, HOLD - 1), Arrival::Returning(0));
        assert_eq!(it.arrive(77, 0, HOLD - 1), Arrival::FirstSeen);
        // The others are old enough to go for newcomers; that one is not.
        for hash in 100..100 + WAYS as u32 - 1 {
            assert_eq!(it.arrive(hash, 0, LONG), Arrival::FirstSeen);
        }
        assert_eq!(it.arrive(200, 0, LONG), Arrival::Untracked);
        assert_eq!(it.arrive(77, 0, LONG), Arrival::Returning(HOLD - 1));
    }

    /// A flood at several times what there is room for: of those who come again after a
    /// second, the share that the essay promises is known.
    #[test]
    fn a_flood_leaves_everybody_the_same_chance() {
        const ROOM: usize = 50_000;
        for excess in [1u64, 4, 16] {
            let mut rng = fastrand::Rng::with_seed(excess);
            let mut it = admission(0.0, ROOM);
            let gap = (HOLD + JITTER / 2) / (excess * ROOM as u64);
            let (mut now, mut known, mut tried) = (0, 0u32, 0u32);
            // The honest ones, each to come again a second later.
            let mut waiting = std::collections::VecDeque::new();
            for step in 0..excess * ROOM as u64 * 6 {
                now += gap;
                it.arrive(rng.u32(..), 0, now);
                if step % (16 * excess) == 0 && now > 3 * SECOND {
                    let hash = rng.u32(..);
                    if !matches!(it.arrive(hash, 0, now), Arrival::Returning(_)) {
                        waiting.push_back((hash, now + SECOND));
                    }
                }
                while let Some(&(hash, when)) = waiting.front().filter(|it| it.1 <= now) {
                    waiting.pop_front();
                    tried += 1;
                    let known_since = it.first_seen_at(hash, now);
                    assert!(known_since.is_none_or(|first| first == when - SECOND));
                    known += u32::from(known_since.is_some());
                }
            }
            let (share, promised) = (f64::from(known) / f64::from(tried), 1.0 / excess as f64);
            assert!(tried > 5_000, "{tried}");
            // Lines fill unevenly: by Erlang's formula, for five places and as many who come in a
            // hold, 0.28 of them find none.
            assert!((0.66 * promised..1.15 * promised).contains(&share), "{excess}: {share}");
        }
    }
}
