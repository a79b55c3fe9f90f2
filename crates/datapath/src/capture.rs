//! Capture: copies of packets that a worker handles, for an operator to read.
//!
//! ```text
//!   worker ─► PacketRecorder ─┬─ dropped ─► a ring for each verdict      always, within a budget
//!                             └─ a session's conditions ─► the live ring  while a session is open
//!                                                             │ overwritten when it is full
//!   control thread ◄─ records_since(position) ◄───────────────┘
//! ```
//!
//! Each worker has a recorder, beside its counters. It records a packet where it ends, with its
//! verdict, and on arrival if a session asks for that.
//!
//! **Last drops.** For each verdict that drops packets, the last [`DROP_RING`] bytes of records are
//! kept, each with at most [`DROP_SNAP`] bytes of its packet; a flood of one kind removes no record
//! of another. A worker without load records every drop. Under load it records one drop a turn, and
//! each verdict once in eight turns, so that the cost of a turn is bounded.
//!
//! **Sessions** (`session.rs`). At most [`SESSIONS`] at once. A worker compares each packet with the
//! verdicts, the port, the sampling rate and the filter of each session, and copies what matches
//! to the live ring. Without sessions a packet costs one load in its batch.
//!
//! A packet is "sent" when it is handed to its port: if the port refuses it, a second record
//! states `tx_full`. Packets that end in the steering program reach no worker, and are in no ring here:
//! that program copies them (`port/src/af_xdp/steer/packet_copies.rs`).
//!
//! The worker never waits: a reader that is too slow misses records, and the sequence numbers show
//! how many. Everything shared is atomic words: those of rings are written by the worker, those of
//! sessions by the control thread.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use port::{Arena, Frame};

use crate::{Class, Verdict, VerdictMap};

mod filter;
mod ring;
mod session;

pub use filter::{Filter, InvalidFilter, MAX_INSTRUCTIONS};
pub use ring::{Position, Record, Records};
pub use session::{Conditions, SESSIONS};

use ring::PacketRing;
use session::Session;

/// The bytes of records that are kept for each verdict that drops packets.
pub const DROP_RING: usize = 4096;
/// The most bytes of a packet in such a record.
pub const DROP_SNAP: usize = 128;
/// The bytes of the ring of sessions.
pub const LIVE_RING: usize = 4 << 20;
/// The turns after which a worker under load records a drop of the same verdict again.
const BUSY_TURNS: u64 = 8;
/// The drops that a worker records in a turn after one in which nothing arrived.
const IDLE_CREDIT: u64 = 64;

/// A port that a packet was received from, or is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// Received on the port with this number.
    Ingress(u16),
    /// To be sent on the port with this number.
    Egress(u16),
    /// Received on the port with this number, and refused by a rule of an access list.
    Refused(u16, RuleIndex),
}

impl Point {
    /// Returns the number of the port.
    pub fn port(self) -> u16 {
        let (Self::Ingress(port) | Self::Egress(port) | Self::Refused(port, _)) = self;
        port
    }
}

/// A rule of an access list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleIndex {
    /// The index of the list among the published ones.
    pub list: u16,
    /// The index of the rule; the number of rules for the list's default.
    pub rule: u32,
}

/// The reason that a packet is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// It has arrived, and is as it was received.
    Arrival,
    /// It has ended.
    End(Verdict),
}

impl Occasion {
    /// The number of [`Self::Arrival`] beside those of verdicts.
    const ARRIVAL: u8 = 127;

    /// Returns the number of the occasion: less than 128, and that of no other one.
    fn number(self) -> u8 {
        match self {
            Self::Arrival => Self::ARRIVAL,
            Self::End(verdict) => verdict as u8,
        }
    }

    /// Returns the occasion with a number.
    fn with_number(number: u8) -> Option<Self> {
        if number == Self::ARRIVAL {
            return Some(Self::Arrival);
        }
        Verdict::ALL.get(usize::from(number)).copied().map(Self::End)
    }
}

const _: () = assert!(Verdict::COUNT < Occasion::ARRIVAL as usize);

/// Records packets of one worker, which alone calls the functions for packets.
#[derive(Debug)]
pub struct PacketRecorder {
    /// The sessions that are open, a bit each.
    open: AtomicU64,
    /// The drops that this turn may still record.
    credit: AtomicU64,
    /// The turns since an idle one, and the verdicts recorded in the last [`BUSY_TURNS`].
    busy: AtomicU64,
    recorded: [AtomicU64; 2],
    drops: VerdictMap<Option<PacketRing>>,
    sessions: [Session; SESSIONS],
    /// Made with the first session.
    live: OnceLock<PacketRing>,
}

impl Default for PacketRecorder {
    fn default() -> Self {
        let mut drops = VerdictMap::<Option<PacketRing>>::default();
        for (verdict, ring) in drops.iter_mut() {
            let has_ring = verdict.class() == Class::Dropped && !verdict.is_ports();
            *ring = has_ring.then(|| PacketRing::new(DROP_RING));
        }
        Self {
            open: AtomicU64::new(0),
            credit: AtomicU64::new(IDLE_CREDIT),
            busy: AtomicU64::new(0),
            recorded: Default::default(),
            drops,
            sessions: Default::default(),
            live: OnceLock::new(),
        }
    }
}

/// Returns the time in nanoseconds since 1970.
fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64)
}

impl PacketRecorder {
    /// Begins a turn; `is_idle` states that nothing arrived in the last one.
    #[inline(always)]
    pub(crate) fn begin_turn(&self, is_idle: bool) {
        let (credit, busy) = if is_idle {
            (IDLE_CREDIT, BUSY_TURNS)
        } else {
            let busy = self.busy.load(Ordering::Relaxed) + 1;
            (self.credit.load(Ordering::Relaxed).max(1), busy)
        };
        self.credit.store(credit, Ordering::Relaxed);
        if busy < BUSY_TURNS {
            self.busy.store(busy, Ordering::Relaxed);
            return;
        }
        self.busy.store(0, Ordering::Relaxed);
        self.recorded.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }

    /// Returns whether a session is open.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) != 0
    }

    /// Records the end of a packet.
    #[inline(always)]
    pub(crate) fn end(&self, verdict: Verdict, point: Point, packet: &[u8]) {
        if self.is_open() {
            self.offer(Occasion::End(verdict), point, packet);
        }
        if self.credit.load(Ordering::Relaxed) > 0 {
            self.record_drop(verdict, point, packet);
        }
    }

    /// Adds a record to the ring of a verdict, if the budget has one for it.
    fn record_drop(&self, verdict: Verdict, point: Point, packet: &[u8]) {
        let Some(ring) = &self.drops[verdict] else { return };
        let (at, bit) = (usize::from(verdict as u8 >> 6), 1u64 << (verdict as u8 & 63));
        let Some(word) = self.recorded.get(at) else { return };
        let (recorded, credit) =
            (word.load(Ordering::Relaxed), self.credit.load(Ordering::Relaxed));
        // The last record of a turn is for a verdict that has had none.
        if recorded & bit != 0 && credit == 1 {
            return;
        }
        word.store(recorded | bit, Ordering::Relaxed);
        self.credit.store(credit - 1, Ordering::Relaxed);
        ring.push(now(), 0, Occasion::End(verdict), point, packet, DROP_SNAP);
    }

    /// Records the packets in `frames`, which arrive.
    #[inline(always)]
    pub(crate) fn arrived(&self, arena: &Arena, frames: &[Frame], port: u16) {
        if self.is_open() {
            self.offer_all(Occasion::Arrival, Point::Ingress(port), arena, frames);
        }
    }

    /// Records the packets in `frames`, which are handed to a port.
    #[inline(always)]
    pub(crate) fn sent(&self, arena: &Arena, frames: &[Frame], port: u16) {
        if self.is_open() {
            self.offer_all(Occasion::End(Verdict::Sent), Point::Egress(port), arena, frames);
        }
    }

    /// Offers a packet to the open sessions.
    #[cold]
    fn offer(&self, occasion: Occasion, point: Point, packet: &[u8]) {
        for (session, number) in self.open_sessions() {
            if session.accepts(occasion, point) && session.skip(1).is_some() {
                self.copy(session, number, occasion, point, packet);
            }
        }
    }

    /// Offers packets to the open sessions.
    #[cold]
    fn offer_all(&self, occasion: Occasion, point: Point, arena: &Arena, frames: &[Frame]) {
        for (session, number) in self.open_sessions() {
            let mut rest = if session.accepts(occasion, point) { frames } else { &[] };
            while let Some(at) = session.skip(rest.len() as u64) {
                let Some((frame, after)) = rest.get(at as usize..).and_then(<[_]>::split_first)
                else {
                    break;
                };
                self.copy(session, number, occasion, point, arena.bytes(frame));
                rest = after;
            }
        }
    }

    /// Iterates over the open sessions, with their numbers.
    fn open_sessions(&self) -> impl Iterator<Item = (&Session, u32)> {
        self.sessions.iter().filter_map(|session| Some((session, session.number()?)))
    }

    /// Copies a packet to the live ring if a session's filter accepts it.
    fn copy(
        &self,
        session: &Session,
        number: u32,
        occasion: Occasion,
        point: Point,
        packet: &[u8],
    ) {
        if let (Some(ring), Some(snap)) = (self.live.get(), session.filter(number, packet)) {
            ring.push(now(), number, occasion, point, packet, snap);
        }
    }

    /// Opens a session with a number that no session has had. Returns its slot and the position from
    /// which [`Self::live`] has its records; `None` if [`SESSIONS`] are open. One thread at a time
    /// opens and closes sessions.
    pub fn open(&self, number: u32, conditions: &Conditions) -> Option<(usize, Position)> {
        let open = self.open.load(Ordering::Relaxed);
        let slot = (!open).trailing_zeros() as usize;
        let session = self.sessions.get(slot)?;
        let ring = self.live.get_or_init(|| PacketRing::new(LIVE_RING));
        let position = ring.position();
        session.open(number, conditions);
        self.open.store(open | 1 << slot, Ordering::Release);
        Some((slot, position))
    }

    /// Closes the session in a slot.
    pub fn close(&self, slot: usize) {
        let open = self.open.load(Ordering::Relaxed);
        self.open.store(open & !(1 << slot), Ordering::Relaxed);
        if let Some(session) = self.sessions.get(slot) {
            session.close();
        }
    }

    /// Returns the records of sessions since a position.
    pub fn live(&self, since: Position) -> Option<Records> {
        Some(self.live.get()?.records_since(since))
    }

    /// Returns the last dropped packets of each verdict.
    pub fn last_drops(&self) -> Vec<Record> {
        let rings = self.drops.iter().filter_map(|(_, ring)| ring.as_ref());
        rings.flat_map(|ring| ring.records_since(Position::default()).records).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Sessions that follow one another in a slot, while a worker ends packets.
    #[test]
    fn session_has_no_packet_of_the_one_before_it() {
        const SESSIONS: u32 = if cfg!(miri) { 20 } else { 3000 };
        const VERDICTS: [Verdict; 2] = [Verdict::NoRoute, Verdict::Arp];
        let recorder = PacketRecorder::default();
        let done = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for verdict in VERDICTS {
                        recorder.end(verdict, Point::Ingress(0), &[7; 60]);
                    }
                }
            });
            let (mut recorded, mut wrong) = (0, 0);
            for number in 1..=SESSIONS {
                let verdicts = vec![VERDICTS[number as usize % 2]];
                let conditions = Conditions { verdicts, ..Conditions::every_end(60) };
                let (slot, position) = recorder.open(number, &conditions).unwrap();
                for _ in 0..10 {
                    std::thread::yield_now();
                }
                recorder.close(slot);
                for record in recorder.live(position).unwrap().records {
                    let expect = Occasion::End(VERDICTS[record.session as usize % 2]);
                    wrong += u32::from(record.occasion != expect);
                    recorded += 1;
                }
            }
            done.store(true, Ordering::Relaxed);
            (recorded, wrong)
        });
        let (recorded, wrong) = result;
        assert!(recorded > 20 && wrong == 0, "{wrong} of {recorded} packets");
    }
}
