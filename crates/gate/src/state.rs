//! The state of a flow: request, granted, declined, program (thesis, figure 4.3).
//!
//! ```text
//!             a decision                 a decision
//!   ┌──────────────────── Request ────────────────────┐
//!   ▼    grant (a)       ▲   ▲   ▲      decline (b)   ▼
//!   Granted ─ expires (e)┘   │   └─ expires (f) ─ Declined
//!   └─ renews (d)            │
//!                Program ────┴─ expires (g), or its program is missing
//!                └─ started (c) by a decision, as (a) and (b); may ask for renewal (h)
//!
//!   record    expire_at:64 | sender:32 state:8 priority:8 allowance:8 program:8
//!                                              └ of a program: its tag:16 ┘
//!             body, eight words                                       | number:64
//!               request   last seen
//!               granted   spent  | window's end | next renewal | rate:32 step:32
//!               program   the cookie, all eight
//!               provisional   last seen | until | which packets
//! ```
//!
//! In any state a decision moves the flow to the state that it names, so a grantor can replace its
//! decision. The exception is a **provisional** decline (`state/provisional.rs`): it rests on a
//! packet whose source may be forged, so it never overrides a grant, a program, a decline by
//! address or a proof, lasts seconds, and leaves the flow a request beneath it. A flow that has
//! expired becomes a new request, of the first priority, with the packet that finds it expired. So
//! does a request whose lifetime is over, whether or not its entry has been evicted yet: the
//! outcome of a packet never depends on how far the table has been swept.
//!
//! **Request** is `priority.rs`. **Declined** drops packets. **Granted** forwards while the bytes
//! of the current second last: windows of one second, each of `rate` × 1024 bytes, the next
//! beginning with the first packet after the end of the last; the frame's Ethernet header counts,
//! and a packet that exceeds the window does not draw from it. From `next_renewal_at` on one packet
//! every `step` carries DSCP 2, so that the grantor may renew in time; a dropped packet requests no
//! renewal. **Program** runs a program (`program/`) outside this module: [`Record::packet`] returns
//! its number, and [`Record::answer`] applies its verdict. A flow whose program is missing, in the
//! version that the flow began with, is a new request.
//!
//! Two differences from Gatekeeper's implementation make a decision mean what it states: a grant
//! for a granted flow leaves the window running, where a renewal would hand out a second one; and a
//! decision that its sender numbered before the one in force is ignored as late, where a
//! retransmission could undo a later one. A decision that names a program again restarts the
//! program.
//!
//! Time is monotonic, in nanoseconds from any start. Everything here is a function of time, packet
//! and record; tests/model.rs compares it with an independent model.

mod bytes;
mod provisional;
mod traffic;

pub use bytes::BYTES;
pub use provisional::MAX_PROVISIONAL_S;
pub use traffic::{Traffic, TransportView};

use crate::priority::{ALLOWANCE, FIRST, SHORTEST, dscp, lifetime, priority};
use crate::program::ProgramVerdict;

/// A second, in nanoseconds.
const SECOND: u64 = 1_000_000_000;
/// A millisecond, in nanoseconds.
const MILLISECOND: u64 = 1_000_000;
/// A KiB, the unit of rates.
const KIB: u64 = 1024;

/// The state of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum State {
    /// It requests a decision.
    #[default]
    Request,
    /// It is forwarded, up to a rate.
    Granted,
    /// It is dropped.
    Declined,
    /// A program decides about each packet.
    Program,
    /// It requests a decision, while some or all of its packets are declined without proof.
    Provisional,
}

/// A grantor's decision about a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Forward it.
    Grant(Grant),
    /// Drop its packets for this time, overriding earlier decisions: because of its addresses, or
    /// with proof that the source of its packets is genuine.
    Decline {
        /// Seconds until it may send requests again.
        expire_s: u32,
    },
    /// Drop some of its packets for a few seconds, without proof that its source is genuine.
    Provisional(Provisional),
}

/// A decline that rests on a packet's content, without proof of its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provisional {
    /// Seconds until these packets may be requests again; [`MAX_PROVISIONAL_S`] at the most.
    pub expire_s: u32,
    /// The declined packets of the flow.
    pub traffic: Traffic,
}

/// The terms of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Grant {
    /// KiB (1024 bytes) a second.
    pub rate_kib: u32,
    /// Seconds until the flow has to send requests again.
    pub expire_s: u32,
    /// Milliseconds until packets request renewal.
    pub next_renewal_ms: u32,
    /// Milliseconds between packets that request it.
    pub renewal_step_ms: u32,
}

/// A program that decides about a flow from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedProgram {
    /// Its number.
    pub program: u8,
    /// The tag of its version (`Program::tag`): no other version reads the cookie.
    pub tag: u16,
    /// Seconds until the flow has to send requests again.
    pub expire_s: u32,
    /// The cookie that its `init` has written.
    pub cookie: [u8; 64],
}

/// The position of a decision among those of its sender: each has a higher number than the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stamp {
    /// The sender's number; decisions of sender 0 are never late.
    pub sender: u32,
    /// The decision's number.
    pub number: u64,
}

/// The outcome for a packet by the state of its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A request with this DSCP, 3 to 63.
    Request {
        /// The DSCP.
        dscp: u8,
    },
    /// Forwarded; with `renew` it requests renewal.
    Granted {
        /// Whether it requests renewal.
        renew: bool,
    },
    /// It is over the granted rate.
    OverRate,
    /// Its flow is declined.
    Declined,
    /// Some traffic of its flow is declined, [`Record::provisional_traffic`];
    /// [`Record::classified`] returns the outcome, given whether the packet is such traffic.
    Classify,
    /// The program of this number decides; [`Record::answer`] returns the outcome.
    Run(u8),
    /// Forwarded by its program without the grantor.
    Direct,
    /// Declined by its program.
    DeclinedByProgram,
    /// Its program reports an error.
    Error,
}

/// The state that a gate keeps for a flow, without the flow's addresses.
///
/// 24 bytes that every packet needs, then those of a decision, which are in the second cache line
/// of an entry.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Record {
    expire_at: u64,
    sender: u32,
    state: State,
    priority: u8,
    allowance: u8,
    program: u8,
    body: [u64; 8],
    number: u64,
}

const _: () = assert!(size_of::<Record>() == 88);

/// The value of `program` for a request, also beneath a provisional decline: its source is unknown,
const UNPROVEN: u8 = 0;
/// or has proven its address.
const PROVEN: u8 = 1;

/// Of a request: the time of its last packet.
const LAST_SEEN: usize = 0;
/// Of a grant: bytes spent in the window. The remaining bytes would not do: a grant of less and
/// then one of more within a window would forget the bytes that were sent.
const SPENT: usize = 0;
/// Of a grant: the end of the window.
const RENEW_AT: usize = 1;
/// Of a grant: the time of the next renewal request.
const NEXT_RENEWAL: usize = 2;
/// Of a grant: its rate, and the milliseconds between renewal requests.
const TERMS: usize = 3;

impl Record {
    /// Begins the record of a new flow.
    #[inline]
    pub fn new(now: u64) -> Self {
        let mut record = Self::default();
        record.begin(now);
        record
    }

    /// Begins the record of a flow whose first packet was a request at `then`.
    #[inline]
    pub fn with_first_request(then: u64) -> Self {
        let mut record = Self::new(then);
        record.ask(then);
        record
    }

    /// Makes this a new request. The stamp of the last decision stays, so that a late decision is
    /// still recognized.
    #[inline]
    fn begin(&mut self, now: u64) {
        self.state = State::Request;
        self.body[LAST_SEEN] = now;
        self.priority = FIRST;
        self.allowance = ALLOWANCE;
        self.program = UNPROVEN;
        self.expire_at = now.saturating_add(lifetime(FIRST));
    }

    /// Returns the outcome for a packet of `bytes`, Ethernet header included, and updates the
    /// record.
    #[inline(always)]
    pub fn packet(&mut self, now: u64, bytes: u32) -> Outcome {
        if now >= self.expire_at {
            self.begin(now);
        }
        match self.state {
            State::Request => Outcome::Request { dscp: dscp(self.ask(now)) },
            State::Granted => self.spend(now, bytes),
            State::Declined => Outcome::Declined,
            State::Program => Outcome::Run(self.program),
            State::Provisional => self.provisional(now),
        }
    }

    /// Returns the priority of a request.
    #[inline]
    fn ask(&mut self, now: u64) -> u8 {
        let earned = priority(now.saturating_sub(self.body[LAST_SEEN]));
        self.body[LAST_SEEN] = now;
        if earned < self.priority && self.allowance > 0 {
            self.allowance -= 1;
        } else {
            self.priority = earned;
            self.allowance = ALLOWANCE;
            self.expire_at = now.saturating_add(lifetime(earned).max(SHORTEST));
        }
        self.priority
    }

    #[inline]
    fn spend(&mut self, now: u64, bytes: u32) -> Outcome {
        let (rate_kib, step_ms) = self.terms();
        if now >= self.body[RENEW_AT] {
            self.body[RENEW_AT] = now.saturating_add(SECOND);
            self.body[SPENT] = 0;
        }
        let spent = self.body[SPENT].saturating_add(u64::from(bytes));
        if spent > u64::from(rate_kib) * KIB {
            return Outcome::OverRate;
        }
        self.body[SPENT] = spent;
        let renew = now >= self.body[NEXT_RENEWAL];
        if renew {
            self.body[NEXT_RENEWAL] = after(now, step_ms, MILLISECOND);
        }
        Outcome::Granted { renew }
    }

    /// Returns the rate and the renewal step of a grant.
    #[inline]
    fn terms(&self) -> (u32, u32) {
        ((self.body[TERMS] >> 32) as u32, self.body[TERMS] as u32)
    }

    /// Returns the outcome for the verdict of the program that [`packet`](Self::packet) named; for
    /// a missing program that is [`ProgramVerdict::Missing`].
    pub fn answer(&mut self, now: u64, answer: ProgramVerdict) -> Outcome {
        match answer {
            ProgramVerdict::Forward(prepared) => match prepared.priority {
                1 if prepared.direct => Outcome::Direct,
                0..=2 => Outcome::Granted { renew: prepared.priority == 2 },
                dscp => Outcome::Request { dscp },
            },
            ProgramVerdict::Decline => Outcome::DeclinedByProgram,
            ProgramVerdict::Error => Outcome::Error,
            ProgramVerdict::Missing => {
                self.begin(now);
                Outcome::Request { dscp: dscp(self.ask(now)) }
            }
        }
    }

    /// Returns whether a decision comes late: its sender numbered it before the one in force.
    #[inline]
    pub fn is_late(&self, stamp: Stamp) -> bool {
        stamp.sender != 0 && stamp.sender == self.sender && stamp.number <= self.number
    }

    /// Records the stamp of a decision; returns false if it comes late.
    fn take(&mut self, stamp: Stamp) -> bool {
        if self.is_late(stamp) {
            return false;
        }
        if stamp.sender != 0 {
            (self.sender, self.number) = (stamp.sender, stamp.number);
        }
        true
    }

    /// Applies a decision and returns whether it counts: one that its sender numbered before the
    /// one in force comes late and changes nothing.
    ///
    /// A provisional decline does not count either while the flow [is settled](Self::is_settled),
    /// and its stamp is never recorded, so that it makes no grant late.
    pub fn decide(&mut self, now: u64, decision: &Decision, stamp: Stamp) -> bool {
        if let Decision::Provisional(provisional) = *decision {
            return !self.is_late(stamp) && self.decline_provisionally(now, provisional);
        }
        if !self.take(stamp) {
            return false;
        }
        match *decision {
            Decision::Provisional(_) => {}
            Decision::Decline { expire_s } => {
                self.state = State::Declined;
                self.expire_at = after(now, expire_s, SECOND);
            }
            Decision::Grant(grant) => {
                let running = self.state == State::Granted && now < self.expire_at;
                if !running || now >= self.body[RENEW_AT] {
                    self.body[SPENT] = 0;
                    self.body[RENEW_AT] = now.saturating_add(SECOND);
                }
                self.body[TERMS] =
                    u64::from(grant.rate_kib) << 32 | u64::from(grant.renewal_step_ms);
                self.body[NEXT_RENEWAL] = after(now, grant.next_renewal_ms, MILLISECOND);
                self.state = State::Granted;
                self.expire_at = after(now, grant.expire_s, SECOND);
            }
        }
        true
    }

    /// Starts a program, with a cookie that its `init` has written, and returns whether that
    /// counts, as [`decide`](Self::decide) does.
    pub fn run(&mut self, now: u64, started: &StartedProgram, stamp: Stamp) -> bool {
        if !self.take(stamp) {
            return false;
        }
        self.state = State::Program;
        self.program = started.program;
        [self.priority, self.allowance] = started.tag.to_le_bytes();
        self.set_cookie(&started.cookie);
        self.expire_at = after(now, started.expire_s, SECOND);
        true
    }

    /// Returns the tag of the program's version, while a program decides.
    #[inline]
    pub fn tag(&self) -> u16 {
        // These bytes hold a request's priority and allowance, which a program does not use.
        u16::from_le_bytes([self.priority, self.allowance])
    }

    /// Returns the cookie of a flow that a program decides about.
    #[inline]
    pub fn cookie(&self) -> [u8; 64] {
        let mut cookie = [0; 64];
        let (words, _) = cookie.as_chunks_mut::<8>();
        for (bytes, word) in words.iter_mut().zip(&self.body) {
            *bytes = word.to_le_bytes();
        }
        cookie
    }

    /// Stores the cookie that the program has written.
    #[inline]
    pub fn set_cookie(&mut self, cookie: &[u8; 64]) {
        let (words, _) = cookie.as_chunks::<8>();
        for (word, bytes) in self.body.iter_mut().zip(words) {
            *word = u64::from_le_bytes(*bytes);
        }
    }

    /// Returns the state, which ends at [`expire_at`](Self::expire_at).
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the end of the state.
    #[inline]
    pub fn expire_at(&self) -> u64 {
        self.expire_at
    }

    /// Returns the priority of the last request.
    #[inline]
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// Returns the number of the program that decides, or did last.
    #[inline]
    pub fn program(&self) -> u8 {
        self.program
    }

    /// Returns the time of a request's last packet.
    #[inline]
    pub fn last_seen(&self) -> u64 {
        self.body[LAST_SEEN]
    }

    /// Returns the bytes left in the window of a granted flow at `now`.
    pub fn budget(&self, now: u64) -> u64 {
        let spent = if now < self.body[RENEW_AT] { self.body[SPENT] } else { 0 };
        (u64::from(self.terms().0) * KIB).saturating_sub(spent)
    }

    /// Returns the time of a granted flow's next renewal request.
    pub fn next_renewal_at(&self) -> u64 {
        self.body[NEXT_RENEWAL]
    }

    /// Returns the stamp of the last decision.
    pub fn stamp(&self) -> Stamp {
        Stamp { sender: self.sender, number: self.number }
    }

    /// Prefetches the second cache line of the record.
    #[inline(always)]
    pub(crate) fn fetch_decided(&self) {
        fib::fetch_ahead(&self.body[1]);
    }
}

/// Returns the time `count` units after `now`.
#[inline]
fn after(now: u64, count: u32, unit: u64) -> u64 {
    now.saturating_add(u64::from(count) * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = MILLISECOND;

    fn asks(record: &mut Record, now: u64) -> u8 {
        match record.packet(now, 64) {
            Outcome::Request { dscp } => dscp,
            other => panic!("{other:?}"),
        }
    }

    fn grant(rate_kib: u32) -> Decision {
        Decision::Grant(Grant {
            rate_kib,
            expire_s: 300,
            next_renewal_ms: 240_000,
            renewal_step_ms: 3_000,
        })
    }

    #[test]
    fn packets_a_millisecond_apart_keep_the_first_priority_while_allowed() {
        let mut record = Record::new(5 * MS);
        let dscps: Vec<u8> = (0..10).map(|n| asks(&mut record, (5 + n) * MS)).collect();
        assert_eq!(dscps[..7], [41; 7]);
        assert!(dscps[7..].iter().all(|dscp| (31..=33).contains(dscp)), "{dscps:?}");
    }

    /// Time is read once a batch, so that most packets of a flood have no gap at all.
    #[test]
    fn flood_in_batches_has_the_first_priority_once() {
        let mut record = Record::new(0);
        let mut first = 0;
        for batch in 0..1000u64 {
            let dscps: Vec<u8> = (0..64).map(|_| asks(&mut record, batch * 30_000)).collect();
            first += dscps.iter().filter(|&&dscp| dscp >= 41).count();
            assert!(batch < 1 || dscps.iter().all(|&dscp| dscp <= 27), "{batch}: {dscps:?}");
        }
        assert_eq!(first, 7, "an allowance of seven");
    }

    #[test]
    fn patient_sender_rises_in_priority() {
        let mut record = Record::new(0);
        let mut now = 0;
        let dscps = [0, 1, 2, 4, 8].map(|gap| {
            now += gap * SECOND;
            asks(&mut record, now)
        });
        assert_eq!(dscps, [41, 42, 43, 44, 45]);
    }

    #[test]
    fn request_after_its_lifetime_is_new() {
        let mut record = Record::new(0);
        asks(&mut record, 0);
        assert_eq!(asks(&mut record, 4 * SECOND), 44);
        // Of priority 41 it was kept for 35 s.
        assert_eq!(asks(&mut record, 40 * SECOND), 41);
    }

    #[test]
    fn window_has_the_bytes_of_the_rate_and_lasts_a_second() {
        let mut record = Record::new(0);
        assert!(record.decide(0, &grant(1), Stamp::default()));
        assert_eq!(record.packet(1, 1000), Outcome::Granted { renew: false });
        assert_eq!(record.packet(2, 25), Outcome::OverRate);
        assert_eq!(record.packet(3, 24), Outcome::Granted { renew: false });
        assert_eq!(record.packet(SECOND - 1, 1), Outcome::OverRate);
        assert_eq!(record.packet(SECOND, 1024), Outcome::Granted { renew: false });
        assert_eq!(record.packet(2 * SECOND - 1, 1), Outcome::OverRate);
    }

    #[test]
    fn renewal_is_requested_at_each_step_and_opens_no_window() {
        let mut record = Record::new(0);
        record.decide(0, &grant(1), Stamp::default());
        let at = |ms: u64| ms * MS;
        assert_eq!(record.packet(at(239_999), 10), Outcome::Granted { renew: false });
        assert_eq!(record.packet(at(240_000), 10), Outcome::Granted { renew: true });
        assert_eq!(record.packet(at(242_999), 10), Outcome::Granted { renew: false });
        // A dropped packet requests no renewal.
        assert_eq!(record.packet(at(243_500), 5000), Outcome::OverRate);
        assert_eq!(record.packet(at(243_500), 1000), Outcome::Granted { renew: true });
        record.decide(at(243_501), &grant(1), Stamp::default());
        assert_eq!(record.packet(at(243_502), 500), Outcome::OverRate);
        // Twice the rate: the spent bytes stay spent.
        record.decide(at(243_503), &grant(2), Stamp::default());
        assert_eq!(record.budget(at(243_503)), 2048 - 1010);
        // A rate of zero, then twice the previous rate.
        record.decide(at(243_503), &grant(0), Stamp::default());
        assert_eq!(
            (record.packet(at(243_503), 1), record.budget(at(243_503))),
            (Outcome::OverRate, 0)
        );
        record.decide(at(243_503), &grant(2), Stamp::default());
        assert_eq!(record.budget(at(243_503)), 2048 - 1010);
        assert_eq!(record.expire_at(), at(543_503));
    }

    #[test]
    fn expired_state_becomes_a_request_with_the_next_packet() {
        let mut record = Record::new(0);
        record.decide(0, &Decision::Decline { expire_s: 10 }, Stamp::default());
        assert_eq!(record.packet(10 * SECOND - 1, 64), Outcome::Declined);
        assert_eq!(asks(&mut record, 10 * SECOND), 41);
        record.decide(10 * SECOND, &grant(100), Stamp::default());
        assert_eq!(record.packet(310 * SECOND - 1, 64), Outcome::Granted { renew: true });
        assert_eq!(asks(&mut record, 310 * SECOND), 41);
    }

    #[test]
    fn late_decision_has_no_effect() {
        let mut record = Record::new(0);
        let decline = Decision::Decline { expire_s: 10 };
        let from = |sender, number| Stamp { sender, number };
        assert!(record.decide(0, &decline, from(1, 7)));
        assert!(!record.decide(0, &grant(1), from(1, 6)));
        assert!(!record.decide(0, &grant(1), from(1, 7)));
        assert_eq!(record.state(), State::Declined);
        // Not even when it has expired meanwhile.
        asks(&mut record, 11 * SECOND);
        assert!(!record.decide(11 * SECOND, &grant(1), from(1, 6)));
        // Numbers of different senders are independent.
        assert!(record.decide(0, &grant(1), from(2, 3)));
        assert!(record.decide(0, &decline, Stamp::default()));
        assert!(record.decide(0, &grant(1), from(1, 8)));
    }
}
