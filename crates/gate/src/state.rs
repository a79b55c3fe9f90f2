//! The state of a flow: request, granted, declined, program (thesis, figure 4.3).
//!
//! ```text
//!             a decision                 a decision
//!   ┌──────────────────── Request ────────────────────┐
//!   ▼    grant (a)       ▲   ▲   ▲      decline (b)   ▼
//!   Granted ─ expires (e)┘   │   └─ expires (f) ─ Declined
//!   └─ renews (d)            │
//!                Program ────┴─ expires (g), or nothing to go by
//!                └─ begun (c) by a decision, as (a) and (b); may ask for renewal (h)
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
//! Whatever the state, a decision brings the flow to the one it names; that is how a
//! grantor changes its mind. The exception is a **provisional** decline (`state/provisional.rs`):
//! it rests on a packet whose source may be forged, so it never overrides a grant, a program, a
//! decline by address or a proof, lasts seconds, and leaves the flow a request beneath it. A flow
//! that expires is a request again with the very
//! packet that finds it so, and a new one: of the first priority. So is a request whose
//! lifetime is over, whether or not its entry has been taken away yet: what a packet gets
//! never depends on how far the table has been swept.
//!
//! **Request** is `priority.rs`. **Declined** drops. **Granted** sends while the bytes of
//! the current second last: windows of one second, each of `rate` × 1024 bytes, the next
//! beginning with the first packet after the last one's end; the frame's Ethernet header
//! counts, and a packet that the window has no room for does not draw from it. From
//! `next_renewal_at` on one packet every `step` carries DSCP 2, so that the grantor may
//! renew in time; a packet that is dropped asks for nothing. **Program** asks a program
//! (`program/`), which is not run here: [`Record::packet`] says which, and
//! [`Record::answer`] takes what it said. A flow whose program is not there, in the version that
//! the flow began with, or says nothing that counts, is a request again, and a new one.
//!
//! Two differences from Gatekeeper's own implementation, so that a decision means what it
//! says: a grant that finds the flow granted leaves the window running, where a renewal
//! would hand out a second one; and a decision that its sender numbered before the one in
//! force is refused as late, where retransmission could undo what came after it. What a
//! program remembers is its own: a decision that names it again begins it anew.
//!
//! Time is monotonic, in nanoseconds from any beginning. Everything here is a function of
//! it, of the packet and of the record; tests/model.rs holds it against a slow twin.

mod bytes;
mod provisional;
mod traffic;

pub use bytes::BYTES;
pub use provisional::LONGEST_PROVISIONAL_S;
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
    /// Asking for a decision.
    #[default]
    Request,
    /// Let through, up to a rate.
    Granted,
    /// Not let through.
    Declined,
    /// A program decides of each packet.
    Program,
    /// Asking for a decision, while some or all of its packets are declined on no proof.
    Provisional,
}

/// What a grantor decides of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// To let it through.
    Grant(Grant),
    /// To drop its packets for so many seconds, overriding earlier decisions: because of its
    /// addresses, or with proof that the source of its packets is genuine.
    Decline {
        /// Seconds until it may ask again.
        expire_s: u32,
    },
    /// To drop some of its packets for a few seconds, without proof that its source is genuine.
    Provisional(Provisional),
}

/// A decline that rests on what a packet was, and not on proof of where it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provisional {
    /// Seconds until these packets may ask again; [`LONGEST_PROVISIONAL_S`] at the most.
    pub expire_s: u32,
    /// Which packets of the flow.
    pub traffic: Traffic,
}

/// On what terms a flow is let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Grant {
    /// KiB (1024 bytes) a second.
    pub rate_kib: u32,
    /// Seconds until the flow has to ask again.
    pub expire_s: u32,
    /// Milliseconds until packets ask for renewal.
    pub next_renewal_ms: u32,
    /// Milliseconds between packets that ask.
    pub renewal_step_ms: u32,
}

/// A program that is to decide of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartedProgram {
    /// Its number.
    pub program: u8,
    /// Which version of it (`Program::tag`): no other reads the cookie.
    pub tag: u16,
    /// Seconds until the flow has to ask again.
    pub expire_s: u32,
    /// The cookie, as its `init` has left it.
    pub cookie: [u8; 64],
}

/// Which of a sender's decisions this is: each has a higher number than those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Stamp {
    /// Who numbered it; 0 is nobody, whose decisions are never late.
    pub sender: u32,
    /// Its number.
    pub number: u64,
}

/// What becomes of a packet by the state of its flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It asks, with this DSCP, 3 to 63.
    Request {
        /// The DSCP.
        dscp: u8,
    },
    /// It may go; with `renew` it asks for renewal on its way.
    Granted {
        /// Whether it asks.
        renew: bool,
    },
    /// It is over the granted rate.
    OverRate,
    /// Its flow is declined.
    Declined,
    /// Some traffic of its flow is declined, [`Record::provisional_traffic`];
    /// [`Record::classified`] makes an outcome of whether the packet is such traffic.
    Classify,
    /// The program of this number is to say; [`Record::answer`] makes an outcome of that.
    Run(u8),
    /// Its program lets it go as it is, without the grantor.
    Direct,
    /// Its program declines it.
    DeclinedByProgram,
    /// Its program found something wrong.
    Error,
}

/// What a gate remembers of a flow, beside whose it is.
///
/// 24 bytes that every packet needs, then those that only a decision has; an entry has the
/// latter in its second line.
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

/// The value of `program` for a request, beneath a provisional decline too: its source is unknown,
const UNPROVEN: u8 = 0;
/// or its source has shown that the address is its own.
const PROVEN: u8 = 1;

/// Of a request: when a packet asked last.
const LAST_SEEN: usize = 0;
/// Of a grant: bytes spent in the window. What is left would not do: a grant of less and then one of
/// more within a window would forget what was sent.
const SPENT: usize = 0;
/// Of a grant: when the window is over.
const RENEW_AT: usize = 1;
/// Of a grant: when packets ask for renewal next.
const NEXT_RENEWAL: usize = 2;
/// Of a grant: its rate, and the milliseconds between packets that ask.
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

    /// Makes this a request that has just begun. What was decided last stays known, so
    /// that a late decision is still told from a new one.
    #[inline]
    fn begin(&mut self, now: u64) {
        self.state = State::Request;
        self.body[LAST_SEEN] = now;
        self.priority = FIRST;
        self.allowance = ALLOWANCE;
        self.program = UNPROVEN;
        self.expire_at = now.saturating_add(lifetime(FIRST));
    }

    /// Decides what becomes of a packet of `bytes`, Ethernet header included, and
    /// remembers it.
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

    /// The rate and the step of a grant.
    #[inline]
    fn terms(&self) -> (u32, u32) {
        ((self.body[TERMS] >> 32) as u32, self.body[TERMS] as u32)
    }

    /// Makes an outcome of what the program that [`packet`](Self::packet) named said; where
    /// it is not there, that is [`ProgramVerdict::Missing`].
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

    /// Says whether a decision comes late: its sender numbered it before the one in force.
    #[inline]
    pub fn is_late(&self, stamp: Stamp) -> bool {
        stamp.sender != 0 && stamp.sender == self.sender && stamp.number <= self.number
    }

    /// Remembers which decision this is; false if it comes late.
    fn take(&mut self, stamp: Stamp) -> bool {
        if self.is_late(stamp) {
            return false;
        }
        if stamp.sender != 0 {
            (self.sender, self.number) = (stamp.sender, stamp.number);
        }
        true
    }

    /// Takes over a decision and says whether it counts: one that its sender numbered
    /// before the one in force comes late and changes nothing.
    ///
    /// A provisional decline does not count either while the flow [is settled](Self::is_settled),
    /// and its stamp is never remembered, so that none makes a grant come late.
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

    /// Has a program decide from now on, with a cookie that its `init` has been given, and
    /// says whether that counts, as [`decide`](Self::decide) does.
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

    /// Returns which version of the program decides, while one does.
    #[inline]
    pub fn tag(&self) -> u16 {
        // A request's, which a program has no use for: begun anew with the next one.
        u16::from_le_bytes([self.priority, self.allowance])
    }

    /// Returns the cookie of a flow that a program decides of.
    #[inline]
    pub fn cookie(&self) -> [u8; 64] {
        let mut cookie = [0; 64];
        let (words, _) = cookie.as_chunks_mut::<8>();
        for (bytes, word) in words.iter_mut().zip(&self.body) {
            *bytes = word.to_le_bytes();
        }
        cookie
    }

    /// Takes note of what the program has made of the cookie.
    #[inline]
    pub fn set_cookie(&mut self, cookie: &[u8; 64]) {
        let (words, _) = cookie.as_chunks::<8>();
        for (word, bytes) in self.body.iter_mut().zip(words) {
            *word = u64::from_le_bytes(*bytes);
        }
    }

    /// Returns the state; after [`expire_at`](Self::expire_at) it is over.
    #[inline]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns when the state is over.
    #[inline]
    pub fn expire_at(&self) -> u64 {
        self.expire_at
    }

    /// Returns the priority of a request that came last.
    #[inline]
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// Returns the number of the program that decides, or did last.
    #[inline]
    pub fn program(&self) -> u8 {
        self.program
    }

    /// Returns when a packet of a request asked last.
    #[inline]
    pub fn last_seen(&self) -> u64 {
        self.body[LAST_SEEN]
    }

    /// Returns the bytes left in the window that a granted flow is in at `now`.
    pub fn budget(&self, now: u64) -> u64 {
        let spent = if now < self.body[RENEW_AT] { self.body[SPENT] } else { 0 };
        (u64::from(self.terms().0) * KIB).saturating_sub(spent)
    }

    /// Returns when packets of a granted flow ask for renewal next.
    pub fn next_renewal_at(&self) -> u64 {
        self.body[NEXT_RENEWAL]
    }

    /// Returns which decision is in force, or was last.
    pub fn stamp(&self) -> Stamp {
        Stamp { sender: self.sender, number: self.number }
    }

    /// Asks the CPU for what a decision has left.
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
    fn ten_packets_a_millisecond_apart() {
        let mut record = Record::new(5 * MS);
        let dscps: Vec<u8> = (0..10).map(|n| asks(&mut record, (5 + n) * MS)).collect();
        assert_eq!(dscps[..7], [41; 7]);
        assert!(dscps[7..].iter().all(|dscp| (31..=33).contains(dscp)), "{dscps:?}");
    }

    /// Time is read once a batch, so that most packets of a flood have no gap at all.
    #[test]
    fn a_flood_by_batches_has_the_first_priority_once() {
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
    fn a_patient_sender_rises() {
        let mut record = Record::new(0);
        let mut now = 0;
        let dscps = [0, 1, 2, 4, 8].map(|gap| {
            now += gap * SECOND;
            asks(&mut record, now)
        });
        assert_eq!(dscps, [41, 42, 43, 44, 45]);
    }

    #[test]
    fn who_waits_too_long_is_new() {
        let mut record = Record::new(0);
        asks(&mut record, 0);
        assert_eq!(asks(&mut record, 4 * SECOND), 44);
        // Of priority 41 it was remembered for 35 s.
        assert_eq!(asks(&mut record, 40 * SECOND), 41);
    }

    #[test]
    fn a_window_is_as_large_as_the_rate_and_a_second_long() {
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
    fn renewal_is_asked_for_step_by_step_and_hands_out_no_window() {
        let mut record = Record::new(0);
        record.decide(0, &grant(1), Stamp::default());
        let at = |ms: u64| ms * MS;
        assert_eq!(record.packet(at(239_999), 10), Outcome::Granted { renew: false });
        assert_eq!(record.packet(at(240_000), 10), Outcome::Granted { renew: true });
        assert_eq!(record.packet(at(242_999), 10), Outcome::Granted { renew: false });
        // A packet that is dropped asks for nothing.
        assert_eq!(record.packet(at(243_500), 5000), Outcome::OverRate);
        assert_eq!(record.packet(at(243_500), 1000), Outcome::Granted { renew: true });
        record.decide(at(243_501), &grant(1), Stamp::default());
        assert_eq!(record.packet(at(243_502), 500), Outcome::OverRate);
        // Twice the rate: what is spent stays spent.
        record.decide(at(243_503), &grant(2), Stamp::default());
        assert_eq!(record.budget(at(243_503)), 2048 - 1010);
        // Nothing at all, and then twice the rate again.
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
    fn states_expire_with_the_packet_that_finds_them_so() {
        let mut record = Record::new(0);
        record.decide(0, &Decision::Decline { expire_s: 10 }, Stamp::default());
        assert_eq!(record.packet(10 * SECOND - 1, 64), Outcome::Declined);
        assert_eq!(asks(&mut record, 10 * SECOND), 41);
        record.decide(10 * SECOND, &grant(100), Stamp::default());
        assert_eq!(record.packet(310 * SECOND - 1, 64), Outcome::Granted { renew: true });
        assert_eq!(asks(&mut record, 310 * SECOND), 41);
    }

    #[test]
    fn a_late_decision_undoes_nothing() {
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
        // Numbers of different senders say nothing of each other.
        assert!(record.decide(0, &grant(1), from(2, 3)));
        assert!(record.decide(0, &decline, Stamp::default()));
        assert!(record.decide(0, &grant(1), from(1, 8)));
    }
}
