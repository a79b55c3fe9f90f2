//! Provisional declines: the effect of a packet without proof of its source.
//!
//! ```text
//!   Request ── provisional decline ──► Provisional ── over, or the flow has expired ──► Request
//!      ▲                                   │  packets it is about: declined
//!      │                                   │  all others: requests, by the flow's patience
//!      └────────────── proof ──────────────┘
//! ```
//!
//! Any host can forge a packet with a client's address, and a policy that declines such a packet
//! would decline the client. So a decline that does not state that it rests on proof
//! (docs/decisions/0028)
//!
//! - does not count while the flow is settled: granted, run by a program, declined by its
//!   addresses, or proven to be its source's own by an answered SYN cookie;
//! - lasts [`MAX_PROVISIONAL_S`] at the most;
//! - may be about a protocol or a port of the flow, and leaves the flow a request beneath it, with
//!   the patience that it has shown (after one about all packets it is a new one);
//! - leaves no stamp, so that a grant that it has overtaken still counts.
//!
//! The record of such a flow has the words of a request, and two more: until when, and which
//! packets.

use super::{LAST_SEEN, Outcome, PROVEN, Provisional, Record, SECOND, State, Traffic, after, dscp};

/// The most seconds that a provisional decline lasts.
pub const MAX_PROVISIONAL_S: u32 = 10;

/// The end of a provisional decline.
const UNTIL: usize = 1;
/// The declined packets, encoded by [`Traffic::to_word`].
const TRAFFIC: usize = 2;
const _: () = assert!(UNTIL != LAST_SEEN && TRAFFIC != LAST_SEEN);

impl Record {
    /// Returns whether a provisional decline of the flow has no effect at `now`.
    #[inline]
    pub fn is_settled(&self, now: u64) -> bool {
        now < self.expire_at
            && match self.state {
                State::Granted | State::Declined | State::Program => true,
                State::Request | State::Provisional => self.program == PROVEN,
            }
    }

    /// Returns whether the source of a request has shown that its address is its own.
    #[inline]
    pub fn is_proven(&self) -> bool {
        matches!(self.state, State::Request | State::Provisional) && self.program == PROVEN
    }

    /// Records that the flow's source has proven its address: what was declined
    /// provisionally is a request again.
    pub fn prove(&mut self, now: u64) {
        if now >= self.expire_at {
            self.begin(now);
        }
        if matches!(self.state, State::Request | State::Provisional) {
            self.state = State::Request;
            self.program = PROVEN;
        }
    }

    /// Applies a provisional decline, if the flow is not settled, and returns whether it counts.
    pub(super) fn decline_provisionally(&mut self, now: u64, decline: Provisional) -> bool {
        if self.is_settled(now) {
            return false;
        }
        if now >= self.expire_at {
            self.begin(now);
        }
        let until = after(now, decline.expire_s.min(MAX_PROVISIONAL_S), SECOND);
        self.state = State::Provisional;
        self.body[UNTIL] = until;
        self.body[TRAFFIC] = decline.traffic.to_word();
        self.expire_at = self.expire_at.max(until);
        true
    }

    /// Decides what becomes of a packet of a flow that is declined provisionally.
    #[cold]
    pub(super) fn provisional(&mut self, now: u64) -> Outcome {
        let traffic = Traffic::from_word(self.body[TRAFFIC]);
        if now >= self.body[UNTIL] {
            self.state = State::Request;
            // To have been declined is no patience.
            if traffic == Traffic::All {
                self.begin(now);
            }
            return Outcome::Request { dscp: dscp(self.ask(now)) };
        }
        match traffic {
            Traffic::All => Outcome::Declined,
            _ => Outcome::Classify,
        }
    }

    /// Makes an outcome of whether a packet is the traffic that [`packet`](Self::packet) named.
    pub fn classified(&mut self, now: u64, is_declined: bool) -> Outcome {
        if is_declined {
            return Outcome::Declined;
        }
        let priority = self.ask(now);
        // The decline lasts as long as it was to, however impatient the rest of the flow is.
        self.expire_at = self.expire_at.max(self.body[UNTIL]);
        Outcome::Request { dscp: dscp(priority) }
    }

    /// Returns when a provisional decline is over.
    pub fn provisional_until(&self) -> u64 {
        self.body[UNTIL]
    }

    /// Returns the packets that a provisional decline is about.
    pub fn provisional_traffic(&self) -> Traffic {
        Traffic::from_word(self.body[TRAFFIC])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Decision, Grant, Stamp};

    const UDP: Traffic = Traffic::Protocol(17);

    fn declines(expire_s: u32, traffic: Traffic) -> Decision {
        Decision::Provisional(Provisional { expire_s, traffic })
    }

    fn grant() -> Decision {
        Decision::Grant(Grant {
            rate_kib: 1,
            expire_s: 300,
            next_renewal_ms: 240_000,
            renewal_step_ms: 1,
        })
    }

    #[test]
    fn provisional_decline_of_a_settled_flow_has_no_effect() {
        let stamp = Stamp::default();
        for settled in [grant(), Decision::Decline { expire_s: 300 }] {
            let mut record = Record::new(0);
            assert!(record.decide(0, &settled, stamp));
            let before = record.to_bytes();
            assert!(!record.decide(1, &declines(600, Traffic::All), stamp));
            assert_eq!(record.to_bytes(), before);
            // When that is over it is a request like any other.
            assert!(record.decide(300 * SECOND, &declines(600, Traffic::All), stamp));
            assert_eq!(record.packet(300 * SECOND, 60), Outcome::Declined);
        }
        let mut record = Record::new(0);
        record.prove(0);
        assert!(record.is_proven() && !record.decide(1, &declines(600, Traffic::All), stamp));
        assert_eq!(record.packet(2, 60), Outcome::Request { dscp: 41 });
        // The proof is over with the request, and a decline by address needs none.
        assert!(record.decide(3, &Decision::Decline { expire_s: 1 }, stamp));
        assert_eq!(record.packet(SECOND + 3, 60), Outcome::Request { dscp: 41 });
        assert!(!record.is_proven());
    }

    #[test]
    fn provisional_decline_lasts_ten_seconds_at_most() {
        let mut record = Record::new(0);
        assert!(record.decide(0, &declines(600, Traffic::All), Stamp::default()));
        assert_eq!(record.packet(10 * SECOND - 1, 60), Outcome::Declined);
        assert_eq!(record.packet(10 * SECOND, 60), Outcome::Request { dscp: 41 });
        assert!(record.decide(10 * SECOND, &declines(2, Traffic::All), Stamp::default()));
        assert_eq!(record.packet(12 * SECOND - 1, 60), Outcome::Declined);
        assert_eq!(record.packet(12 * SECOND, 60), Outcome::Request { dscp: 41 });
    }

    #[test]
    fn provisional_decline_of_some_traffic_keeps_the_priority_of_the_rest() {
        let mut record = Record::new(0);
        assert_eq!(record.packet(0, 60), Outcome::Request { dscp: 41 });
        assert!(record.decide(1, &declines(10, UDP), Stamp::default()));
        for at in 0..1_000 {
            assert_eq!(record.packet(2 + at, 60), Outcome::Classify);
            assert_eq!(record.classified(2 + at, true), Outcome::Declined);
        }
        assert_eq!(record.packet(SECOND, 60), Outcome::Classify);
        assert_eq!(record.classified(SECOND, false), Outcome::Request { dscp: 42 });
        for at in 0..100 {
            let now = SECOND + at;
            assert_eq!(record.packet(now, 60), Outcome::Classify);
            record.classified(now, false);
        }
        assert_eq!(record.packet(10 * SECOND, 60), Outcome::Classify, "not a moment less");
        assert!(matches!(record.packet(10 * SECOND + 1, 60), Outcome::Request { .. }));
    }

    #[test]
    fn grant_is_not_late_after_a_later_provisional_decline() {
        let mut record = Record::new(0);
        let from = |number| Stamp { sender: 1, number };
        assert!(record.decide(0, &declines(10, Traffic::All), from(5)));
        assert!(record.decide(1, &grant(), from(4)));
        assert_eq!(record.state(), State::Granted);
        // It is late itself where a decision of its sender is later.
        let mut record = Record::new(0);
        assert!(record.decide(0, &Decision::Decline { expire_s: 0 }, from(5)));
        assert!(!record.decide(1, &declines(10, Traffic::All), from(4)));
    }

    #[test]
    fn proof_ends_a_provisional_decline() {
        let mut record = Record::new(0);
        assert!(record.decide(0, &declines(10, Traffic::All), Stamp::default()));
        record.prove(1);
        assert_eq!(record.packet(2, 60), Outcome::Request { dscp: 41 });
        assert!(record.is_proven());
    }
}
