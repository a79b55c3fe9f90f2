//! A session: the packets that one reader wants, in words that the control thread writes and the
//! worker reads.
//!
//! The control thread closes a session (number 0), writes its words, and opens it by storing a
//! number that no session has had. The worker reads the number before all other words
//! ([`Session::number`]), and once more after them ([`Session::filter`]); if it has changed, the packet
//! matches nothing (a sequence lock).

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::filter::{Filter, MAX_INSTRUCTIONS, run};
use super::{Occasion, Point};
use crate::Verdict;

/// The most sessions at once.
pub const SESSIONS: usize = 4;
/// In place of a port: any.
const ANY: u64 = u64::MAX;

/// The packets that a session wants.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// Packets that arrive, as they arrive.
    pub arrivals: bool,
    /// Packets that end in one of these verdicts.
    pub verdicts: Vec<Verdict>,
    /// Only those that this port received, or that are sent on it.
    pub port: Option<u16>,
    /// One packet in so many, of those with the conditions above: at random. 1 is every packet.
    pub one_in: u32,
    /// The seed of these random numbers. A sender that knows it could avoid the samples.
    pub seed: u64,
    /// The most bytes of a packet.
    pub snap: u16,
    /// Only those that the filter accepts.
    pub filter: Filter,
}

impl Conditions {
    /// Returns the conditions of every packet where it ends, with at most `snap` bytes of it.
    pub fn every_end(snap: u16) -> Self {
        Self {
            arrivals: false,
            verdicts: Verdict::ALL.to_vec(),
            port: None,
            one_in: 1,
            seed: 0,
            snap,
            filter: Filter::default(),
        }
    }
}

/// Returns the packets to pass until the next one, by a random number: 0 to 2 n - 2.
fn distance(random: u64, one_in: u64) -> u64 {
    ((random >> 32) * (2 * one_in - 1)) >> 32
}

/// The words of a session. Those of the worker are written by it alone.
#[derive(Debug)]
pub(super) struct Session {
    number: AtomicU64,
    occasions: [AtomicU64; 2],
    port: AtomicU64,
    one_in: AtomicU64,
    snap: AtomicU64,
    instructions: AtomicU64,
    program: [AtomicU64; MAX_INSTRUCTIONS],
    /// Of the worker: the packets until the next one is taken, and the state of its random numbers.
    wait: AtomicU64,
    random: AtomicU64,
}

impl Default for Session {
    fn default() -> Self {
        let word = || AtomicU64::new(0);
        Self {
            number: word(),
            occasions: Default::default(),
            port: word(),
            one_in: word(),
            snap: word(),
            instructions: word(),
            program: std::array::from_fn(|_| word()),
            wait: word(),
            random: word(),
        }
    }
}

impl Session {
    /// Opens the session, which is closed.
    pub(super) fn open(&self, number: u32, conditions: &Conditions) {
        let Conditions { arrivals, verdicts, port, one_in, seed, snap, filter } = conditions;
        let ends = verdicts.iter().map(|verdict| Occasion::End(*verdict));
        let occasions = ends.chain(arrivals.then_some(Occasion::Arrival));
        let mut bits = [0u64; 2];
        for number in occasions.map(Occasion::number) {
            if let Some(word) = bits.get_mut(usize::from(number >> 6)) {
                *word |= 1 << (number & 63);
            }
        }
        // After the number 0 of `close`, and before the new one.
        fence(Ordering::Release);
        let store = |word: &AtomicU64, value| word.store(value, Ordering::Relaxed);
        self.occasions.iter().zip(bits).for_each(|(word, bits)| store(word, bits));
        store(&self.port, port.map_or(ANY, u64::from));
        store(&self.one_in, (*one_in).max(1).into());
        store(&self.random, *seed);
        store(&self.wait, distance(*seed, (*one_in).max(1).into()));
        store(&self.snap, (*snap).into());
        let instructions = filter.instructions();
        store(&self.instructions, instructions.len() as u64);
        self.program.iter().zip(instructions).for_each(|(word, one)| store(word, *one));
        self.number.store(number.into(), Ordering::Release);
    }

    /// Closes the session.
    pub(super) fn close(&self) {
        self.number.store(0, Ordering::Relaxed);
    }

    /// Returns the session's number, or `None` if it is closed: the first step with a packet.
    pub(super) fn number(&self) -> Option<u32> {
        Some(self.number.load(Ordering::Acquire) as u32).filter(|number| *number != 0)
    }

    /// Returns whether the session wants packets of this occasion and port.
    pub(super) fn accepts(&self, occasion: Occasion, point: Point) -> bool {
        let number = occasion.number();
        let word = self.occasions.get(usize::from(number >> 6));
        let port = self.port.load(Ordering::Relaxed);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (number & 63) & 1 == 1)
            && (port == ANY || port == u64::from(point.port()))
    }

    /// Passes packets until the next that is taken: its index among the next `count`, or `None` if it is
    /// beyond them.
    ///
    /// The distance from one to the next is uniform in 1 to 2 n - 1, so that traffic with a period
    /// does not bias the sample (RFC 3176, section 3.1 asks for a random skip).
    pub(super) fn skip(&self, count: u64) -> Option<u64> {
        let one_in = self.one_in.load(Ordering::Relaxed);
        if one_in <= 1 {
            return (count > 0).then_some(0);
        }
        // The worker may store a distance of the former session after the control thread.
        let wait = self.wait.load(Ordering::Relaxed) % (2 * one_in);
        if wait >= count {
            self.wait.store(wait - count, Ordering::Relaxed);
            return None;
        }
        // The generator of Knuth's MMIX: the upper bits are random enough.
        let random = self.random.load(Ordering::Relaxed);
        let random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(0x9e37_79b9);
        self.random.store(random, Ordering::Relaxed);
        self.wait.store(distance(random, one_in), Ordering::Relaxed);
        Some(wait)
    }

    /// Returns the most bytes to copy, if the filter accepts the packet and the session still has this
    /// number: the last step with a packet.
    pub(super) fn filter(&self, number: u32, packet: &[u8]) -> Option<usize> {
        let snap = self.snap.load(Ordering::Relaxed) as usize;
        let count = self.instructions.load(Ordering::Relaxed) as usize;
        let program = self.program.get(..count)?;
        let accepted = program.is_empty() || run(program, packet) > 0;
        fence(Ordering::Acquire);
        let is_same = self.number.load(Ordering::Relaxed) == u64::from(number);
        (accepted && is_same).then_some(snap)
    }
}
