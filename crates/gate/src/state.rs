//! The state of a flow: request, granted, declined (thesis, figure 4.3).
//!
//! ```text
//!             a decision                 a decision
//!   ┌──────────────────── Request ────────────────────┐
//!   ▼    grant (a)         ▲   ▲        decline (b)   ▼
//!   Granted ── expires (e) ┘   └── expires (f) ── Declined
//!   └─ renews (d): still granted, DSCP 2 asks
//! ```
//!
//! Whatever the state, a decision brings the flow to the one it names; that is how a
//! grantor changes its mind. A flow that expires is a request again with the very
//! packet that finds it so, and a new one: of the first priority. So is a request whose
//! lifetime is over, whether or not its entry has been taken away yet: what a packet gets
//! never depends on how far the table has been swept.
//!
//! **Request** is `priority.rs`. **Declined** drops. **Granted** sends while the bytes of
//! the current second last: windows of one second, each of `rate` × 1024 bytes, the next
//! beginning with the first packet after the last one's end; the frame's Ethernet header
//! counts, and a packet that the window has no room for does not draw from it. From
//! `next_renewal_at` on one packet every `step` carries DSCP 2, so that the grantor may
//! renew in time; a packet that is dropped asks for nothing.
//!
//! Two departures from the published gates, both towards what a decision says (study,
//! 2.3): a grant that finds the flow granted leaves the window running, where a renewal
//! would hand out a second one; and a decision that its sender numbered before the one in
//! force is refused as late, where retransmission could undo what came after it.
//!
//! Time is monotonic, in nanoseconds from any beginning. Everything here is a function of
//! it, of the packet and of the record; tests/model.rs holds it against a slow twin.

use crate::priority::{ALLOWANCE, FIRST, dscp, lifetime, priority};

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
}

/// What a grantor decides of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// To let it through.
    Grant(Grant),
    /// To keep it out for so many seconds.
    Decline {
        /// Seconds until it may ask again.
        expire_s: u32,
    },
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
}

/// What a gate remembers of a flow, beside whose it is.
///
/// 24 bytes that every packet needs, then those of a decision, which an entry has in its
/// second line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Record {
    expire_at: u64,
    last_seen: u64,
    state: State,
    priority: u8,
    allowance: u8,
    decided: Decided,
}

/// What a decision has left.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Decided {
    /// Bytes left in the window.
    budget: u64,
    /// When the window is over.
    renew_at: u64,
    next_renewal_at: u64,
    rate_kib: u32,
    step_ms: u32,
    number: u64,
    sender: u32,
}

impl Record {
    /// Begins the record of a new flow.
    #[inline]
    pub fn new(now: u64) -> Self {
        let mut record = Self::default();
        record.begin(now);
        record
    }

    /// Makes this a request that has just begun. What was decided last stays known, so
    /// that a late decision is still told from a new one.
    #[inline]
    fn begin(&mut self, now: u64) {
        self.state = State::Request;
        self.last_seen = now;
        self.priority = FIRST;
        self.allowance = ALLOWANCE;
        self.expire_at = now.saturating_add(lifetime(FIRST));
    }

    /// Decides what becomes of a packet of `bytes`, Ethernet header included, and
    /// remembers it.
    #[inline]
    pub fn packet(&mut self, now: u64, bytes: u32) -> Outcome {
        if now >= self.expire_at {
            self.begin(now);
        }
        match self.state {
            State::Request => Outcome::Request { dscp: dscp(self.ask(now)) },
            State::Granted => self.spend(now, bytes),
            State::Declined => Outcome::Declined,
        }
    }

    /// Returns the priority of a request.
    #[inline]
    fn ask(&mut self, now: u64) -> u8 {
        let earned = priority(now.saturating_sub(self.last_seen));
        self.last_seen = now;
        if earned < self.priority && self.allowance > 0 {
            self.allowance -= 1;
        } else {
            self.priority = earned;
            self.allowance = ALLOWANCE;
            self.expire_at = now.saturating_add(lifetime(earned));
        }
        self.priority
    }

    #[inline]
    fn spend(&mut self, now: u64, bytes: u32) -> Outcome {
        let decided = &mut self.decided;
        if now >= decided.renew_at {
            decided.renew_at = now.saturating_add(SECOND);
            decided.budget = u64::from(decided.rate_kib) * KIB;
        }
        let Some(left) = decided.budget.checked_sub(u64::from(bytes)) else {
            return Outcome::OverRate;
        };
        decided.budget = left;
        let renew = now >= decided.next_renewal_at;
        if renew {
            decided.next_renewal_at = after(now, decided.step_ms, MILLISECOND);
        }
        Outcome::Granted { renew }
    }

    /// Takes over a decision and says whether it counts: one that its sender numbered
    /// before the one in force comes late and changes nothing.
    pub fn decide(&mut self, now: u64, decision: &Decision, stamp: Stamp) -> bool {
        let last = &mut self.decided;
        if stamp.sender != 0 {
            if stamp.sender == last.sender && stamp.number <= last.number {
                return false;
            }
            (last.sender, last.number) = (stamp.sender, stamp.number);
        }
        match *decision {
            Decision::Decline { expire_s } => {
                self.state = State::Declined;
                self.expire_at = after(now, expire_s, SECOND);
            }
            Decision::Grant(grant) => {
                let window = u64::from(grant.rate_kib) * KIB;
                let running = self.state == State::Granted && now < self.expire_at;
                if running && now < last.renew_at {
                    let spent = u64::from(last.rate_kib) * KIB - last.budget;
                    last.budget = window.saturating_sub(spent);
                } else {
                    last.budget = window;
                    last.renew_at = now.saturating_add(SECOND);
                }
                last.rate_kib = grant.rate_kib;
                last.step_ms = grant.renewal_step_ms;
                last.next_renewal_at = after(now, grant.next_renewal_ms, MILLISECOND);
                self.state = State::Granted;
                self.expire_at = after(now, grant.expire_s, SECOND);
            }
        }
        true
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

    /// Returns when a packet asked last.
    #[inline]
    pub fn last_seen(&self) -> u64 {
        self.last_seen
    }

    /// Returns the bytes left in the window that a granted flow is in at `now`.
    pub fn budget(&self, now: u64) -> u64 {
        if now >= self.decided.renew_at {
            u64::from(self.decided.rate_kib) * KIB
        } else {
            self.decided.budget
        }
    }

    /// Returns when packets of a granted flow ask for renewal next.
    pub fn next_renewal_at(&self) -> u64 {
        self.decided.next_renewal_at
    }

    /// Returns which decision is in force, or was last.
    pub fn stamp(&self) -> Stamp {
        Stamp { sender: self.decided.sender, number: self.decided.number }
    }

    /// Asks the CPU for what a decision has left.
    #[inline(always)]
    pub(crate) fn fetch_decided(&self) {
        fib::fetch_ahead(&self.decided);
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

    /// The study's second test.
    #[test]
    fn ten_packets_a_millisecond_apart() {
        let mut record = Record::new(5 * MS);
        let dscps: Vec<u8> = (0..10).map(|n| asks(&mut record, (5 + n) * MS)).collect();
        assert_eq!(dscps[..7], [41; 7]);
        assert!(dscps[7..].iter().all(|dscp| (31..=33).contains(dscp)), "{dscps:?}");
    }

    /// The study's third test.
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
