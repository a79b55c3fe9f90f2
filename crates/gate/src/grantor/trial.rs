//! A policy tried on recorded packets: a simulated gate and grantor.
//!
//! ```text
//!   time, packet ─► Gate ─┬─ request, renewal ─► Grantor ─► decision ─► Gate
//!                         ├─ granted ──────────► passes       │
//!                         └─ dropped                          └─ delivered? passes
//! ```
//!
//! The gate is the real one, with every destination protected, time is the recording's, and
//! decisions take effect at once. The link is not simulated: requests neither wait for one another
//! nor displace each other, so that the number of passed packets is an upper bound. A flow's
//! packets are those of the recording: a sender may have behaved differently after a decline.

use std::collections::HashMap;

use fib::{Prefix, Publisher};

use super::{Grantor, Request, RequestOutcome};
use crate::flow::{Flow, Key};
use crate::gate::{Gate, Packet, Verdict};
use crate::policy::{Action, Address, Grantor as At, PolicyBuilder};
use crate::program::Programs;
use crate::state::Stamp;

/// The bytes of the header that the gate counts beside a packet.
const ETHERNET: u32 = 14;
/// Maximum number of table entries to maintain beside a packet.
const WORK: u32 = 64;

/// The summary of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowSummary {
    /// Its packets.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// Packets that the policy has decided about.
    pub requests: u64,
    /// Packets that reached the protected network.
    pub passed: u64,
    /// Their bytes.
    pub passed_bytes: u64,
    /// The policy's last outcome.
    pub last: Option<RequestOutcome>,
}

/// A gate and a grantor without a link between them.
pub struct Trial {
    gate: Gate,
    grantor: Grantor,
    key: Key,
    number: u64,
    decided: Vec<RequestOutcome>,
    flows: HashMap<Flow, FlowSummary>,
    unread: u64,
    // The publishers that the gate reads from.
    _programs: Publisher<Programs>,
}

impl Trial {
    /// Begins with a table of `entries` flows and a policy without decisions.
    ///
    /// # Panics
    ///
    /// As [`Gate::new`].
    pub fn new(entries: usize, grantor: Grantor, programs: Programs) -> Self {
        let mut draft = PolicyBuilder::new();
        let set = draft.set(&[At { address: Address::V4(1), weight: 1 }]);
        draft.v4(Prefix::ALL, Action::Grantors(set));
        draft.v6(Prefix::ALL, Action::Grantors(set));
        let policy = match draft.build(1) {
            Ok(policy) => Publisher::new(policy),
            Err(bad) => unreachable!("two default routes are a policy: {bad}"),
        };
        let programs = Publisher::new(programs);
        let mut gate = Gate::new(entries, policy.reader(), 0);
        gate.set_programs(programs.reader());
        Self {
            gate,
            grantor,
            // A fixed key: a recording has no attacker, and the result is reproducible.
            key: Key::new({
                let mut state = 0x9e37_79b9_7f4a_7c15_u64;
                move || {
                    state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                    state
                }
            }),
            number: 0,
            decided: Vec::new(),
            flows: HashMap::new(),
            unread: 0,
            _programs: programs,
        }
    }

    /// Processes the next packet, from its IP header on, at `now` nanoseconds, not before the last.
    pub fn packet(&mut self, now: u64, bytes: &[u8]) {
        let request = Request { packet: bytes, dscp: 0, congested: false };
        let Some(flow) = request.flow() else {
            self.unread += 1;
            return;
        };
        let hash = self.key.hash(&flow);
        let len = bytes.len() as u32;
        let packet = Packet { flow, hash, bytes: len + ETHERNET };
        let mut verdicts = [Verdict::NoRoute];
        self.gate.run_maintenance(now, WORK);
        self.gate.process_with(now, &[packet], |_| bytes, &mut verdicts);
        let dscp = match verdicts[0] {
            Verdict::Request { dscp, .. } => Some(dscp),
            Verdict::Granted { renew: true, .. } => Some(2),
            _ => None,
        };
        let summary = self.flows.entry(flow).or_default();
        summary.packets += 1;
        summary.bytes += u64::from(len);
        let mut passes = matches!(verdicts[0], Verdict::Granted { .. } | Verdict::Direct { .. });
        if let Some(dscp) = dscp {
            self.decided.clear();
            self.grantor.decide(now, &[Request { dscp, ..request }], &mut self.decided);
            summary.requests += 1;
            summary.last = self.decided.first().copied().or(summary.last);
            passes = self.decided.iter().any(|decided| decided.deliver);
            for item in self.decided.iter().filter_map(|decided| decided.item) {
                self.number += 1;
                let stamp = Stamp { sender: 1, number: self.number };
                // A decision without effect, as with a missing program, shows in the passed
                // packets.
                let _ = self.gate.decide(now, &item, stamp, |flow| self.key.hash(flow));
            }
        }
        if passes {
            summary.passed += 1;
            summary.passed_bytes += u64::from(len);
        }
    }

    /// Ends the trial: returns the summary of each flow, and the number of unreadable packets.
    pub fn end(self) -> (HashMap<Flow, FlowSummary>, u64) {
        (self.flows, self.unread)
    }

    /// Returns the policy's counters.
    pub fn counts(&self) -> &super::GrantorCounters {
        self.grantor.counts()
    }

    /// Returns the policy's last error, and clears it.
    pub fn last_error(&mut self) -> Option<String> {
        self.grantor.last_error()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{grantor, lists, syn};
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn trial(policy: &str) -> Trial {
        let none = Publisher::new(lists(&[]));
        Trial::new(256, grantor(policy, &none), Programs::default())
    }

    fn summary(trial: Trial, src: u32) -> FlowSummary {
        let (flows, unread) = trial.end();
        assert_eq!(unread, 0);
        let flow = Flow::v4(src, 0xc000_0207);
        *flows.get(&flow).unwrap()
    }

    #[test]
    fn declined_flow_is_dropped_until_the_decline_expires() {
        let mut trial = trial("function decide(p) return decline(10) end");
        for second in 0..30 {
            trial.packet(second * SECOND, &syn(1, 80));
        }
        // Requests at 0, 10 and 20 seconds, or a packet later.
        let summary = summary(trial, 1);
        assert_eq!((summary.packets, summary.requests, summary.passed), (30, 3, 0));
        assert_eq!(summary.last.unwrap().to_string(), "declined for 10 s");
    }

    #[test]
    fn granted_flow_passes_at_its_rate_and_requests_renewal() {
        // 1 KiB a second: 18 packets of 40 bytes and an Ethernet header.
        let mut trial =
            trial("function decide(p) return grant { rate = 1, expire = 100, renewal = 5 } end");
        for number in 0..1000 {
            trial.packet(number * SECOND / 100, &syn(1, 80));
        }
        let summary = summary(trial, 1);
        assert_eq!(summary.packets, 1000);
        assert!((170..=200).contains(&summary.passed), "{summary:?}");
        // The first, and renewals from 5 s on, each 3 s.
        assert!((2..=4).contains(&summary.requests), "{summary:?}");
    }

    #[test]
    fn policy_without_decisions_gets_each_request_and_delivers_nothing() {
        let mut trial = trial("function decide(p) end");
        (0..50).for_each(|number| trial.packet(number, &syn(1, 80)));
        trial.packet(50, b"no packet");
        let (flows, unread) = trial.end();
        let summary = flows.values().next().unwrap();
        assert_eq!((unread, flows.len(), summary.requests, summary.passed), (1, 1, 50, 0));
        assert_eq!(
            (summary.bytes, summary.last.unwrap().to_string().as_str()),
            (2000, "nothing returned")
        );
    }
}
