//! A candidate beside the policy: asked about the same requests, heard by nobody.
//!
//! ```text
//!   requests ─┬─► policy ────► rulings ─► gates, packets
//!             └─► candidate ─► rulings ─► compared, by flow, and forgotten
//! ```
//!
//! What a change of policy would do is best seen on the traffic that there is. The candidate
//! has a Lua state and memory of its own and the policy's limits, so that one that fails or never
//! ends costs its own time and no more: a request waits for both. Its state is what *its* decisions
//! would have led to only as far as it remembers them itself; which packets ask depends on
//! what the gates were told, which is the policy's.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};

use super::{Grantor, Request, RequestOutcome};
use crate::decision::{FlowCommand, Item};
use crate::flow::Flow;
use crate::state::{Decision, Traffic};

/// The most flows that are remembered of those that change.
const MOST: usize = 256;

/// A flow of which the candidate says something else than the policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The flow.
    pub flow: Flow,
    /// What the policy said of its last request that they differ on.
    pub policy: RequestOutcome,
    /// What the candidate said.
    pub candidate: RequestOutcome,
    /// Its requests on which they differ.
    pub requests: u64,
}

/// A candidate, and what has come of it so far.
#[derive(Debug)]
pub struct Shadow {
    candidate: Grantor,
    decided: Vec<RequestOutcome>,
    requests: u64,
    changes: BTreeMap<(&'static str, &'static str), u64>,
    flows: HashMap<Flow, Difference>,
}

impl Shadow {
    /// Has a candidate asked from now on.
    pub fn new(candidate: Grantor) -> Self {
        Self {
            candidate,
            decided: Vec::new(),
            requests: 0,
            changes: BTreeMap::new(),
            flows: HashMap::new(),
        }
    }

    /// Asks the candidate about requests of which the policy has said `decided`.
    pub fn compare(&mut self, now: u64, requests: &[Request<'_>], decided: &[RequestOutcome]) {
        self.decided.clear();
        self.candidate.decide(now, requests, &mut self.decided);
        for ((policy, candidate), request) in decided.iter().zip(&self.decided).zip(requests) {
            self.requests += 1;
            if policy == candidate {
                continue;
            }
            *self.changes.entry((policy.kind(), candidate.kind())).or_default() += 1;
            let Some(flow) = request.flow() else { continue };
            let full = self.flows.len() >= MOST;
            match self.flows.entry(flow) {
                Entry::Occupied(mut known) => {
                    let known = known.get_mut();
                    (known.policy, known.candidate) = (*policy, *candidate);
                    known.requests += 1;
                }
                Entry::Vacant(place) if !full => {
                    let (policy, candidate) = (*policy, *candidate);
                    place.insert(Difference { flow, policy, candidate, requests: 1 });
                }
                Entry::Vacant(_) => {}
            }
        }
    }

    /// Counts the requests that the candidate was asked about.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Counts the times that the candidate failed or was over its time.
    pub fn failed(&self) -> u64 {
        self.candidate.counts().failed + self.candidate.counts().over_time
    }

    /// Returns what the candidate's last error was, and forgets it.
    pub fn last_error(&mut self) -> Option<String> {
        self.candidate.last_error()
    }

    /// Counts the requests on which they differ, by what each said.
    pub fn changes(&self) -> &BTreeMap<(&'static str, &'static str), u64> {
        &self.changes
    }

    /// Returns flows on which they differ: the first that were met, so many at the most.
    pub fn flows(&self) -> impl Iterator<Item = &Difference> {
        self.flows.values()
    }
}

impl RequestOutcome {
    /// Returns what it is in a word: `granted`, `declined`, `program` or `undecided`.
    pub fn kind(&self) -> &'static str {
        match self.item.map(|Item { command, .. }| command) {
            Some(FlowCommand::Decide(Decision::Grant(_))) => "granted",
            Some(FlowCommand::Decide(Decision::Decline { .. } | Decision::Provisional(_))) => {
                "declined"
            }
            Some(FlowCommand::Run(_)) => "program",
            Some(FlowCommand::Flush) | None => "undecided",
        }
    }
}

impl core::fmt::Display for RequestOutcome {
    /// Says what the gate is told, and what becomes of the packet where that is not usual.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let usual = match self.item.map(|Item { command, .. }| command) {
            Some(FlowCommand::Decide(Decision::Grant(grant))) => {
                write!(f, "granted {} KiB/s for {} s", grant.rate_kib, grant.expire_s)?;
                true
            }
            Some(FlowCommand::Decide(Decision::Decline { expire_s })) => {
                write!(f, "declined for {expire_s} s, proven")?;
                false
            }
            Some(FlowCommand::Decide(Decision::Provisional(decline))) => {
                write!(f, "declined for {} s", decline.expire_s)?;
                match decline.traffic {
                    Traffic::All => {}
                    Traffic::Protocol(protocol) => write!(f, " (protocol {protocol})")?,
                    Traffic::Port { protocol, port } => {
                        write!(f, " (protocol {protocol}, port {port})")?;
                    }
                }
                false
            }
            Some(FlowCommand::Run(program)) => {
                write!(f, "program {} for {} s", program.program, program.expire_s)?;
                true
            }
            Some(FlowCommand::Flush) => {
                f.write_str("forgotten")?;
                false
            }
            None => {
                f.write_str("nothing returned")?;
                false
            }
        };
        match (self.deliver, usual) {
            (true, false) => f.write_str(", packet delivered"),
            (false, true) => f.write_str(", packet dropped"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use fib::Publisher;

    use super::super::tests::{grantor, lists, syn};
    use super::*;

    #[test]
    fn candidate_is_compared_without_an_effect() {
        let lists = Publisher::new(lists(&[("deny", "0.0.0.5")]));
        let policy = "function decide(p) return grant { rate = 100 } end";
        let candidate = "local deny = list 'deny'
            local seen = 0
            function decide(p)
                seen = seen + 1
                if p:src_in(deny) then return decline(60) end
                if p.dst_port == 81 then return grant { rate = seen } end
                if p.dst_port == 82 then error('nothing for it') end
                return grant { rate = 100 }
            end";
        let mut policy = grantor(policy, &lists);
        let mut shadow = Shadow::new(grantor(candidate, &lists));
        let packets = [syn(1, 80), syn(5, 80), syn(2, 81), syn(5, 80), syn(3, 82)];
        for packet in &packets {
            let requests = [Request { packet, dscp: 41, congested: false }];
            let mut decided = Vec::new();
            policy.decide(7, &requests, &mut decided);
            shadow.compare(7, &requests, &decided);
            assert_eq!(decided[0].to_string(), "granted 100 KiB/s for 300 s");
        }
        assert_eq!((shadow.requests(), shadow.failed()), (5, 1));
        // The fallback is what the third kind gets.
        let changes = [(("granted", "declined"), 3), (("granted", "granted"), 1)];
        assert_eq!(shadow.changes(), &changes.into());
        let mut flows: Vec<_> = shadow
            .flows()
            .map(|it| (format!("{:?}", it.flow.pair()), it.candidate.to_string(), it.requests))
            .collect();
        flows.sort();
        assert_eq!(flows.len(), 3);
        let denied = flows.iter().find(|it| it.1 == "declined for 60 s").unwrap();
        assert_eq!(denied.2, 2, "both requests of the flow");
        assert!(flows.iter().any(|it| it.1 == "granted 3 KiB/s for 300 s"), "{flows:?}");
        assert!(shadow.last_error().unwrap().contains("nothing for it"));
    }

    #[test]
    fn remembered_flows_are_bounded() {
        let none = Publisher::new(lists(&[]));
        let mut policy = grantor("function decide(p) return decline(9) end", &none);
        let candidate =
            "function decide(p) return { kind = 'decline', expire = 9, deliver = true } end";
        let mut shadow = Shadow::new(grantor(candidate, &none));
        for src in 0..1000 {
            let packet = syn(src, 80);
            let requests = [Request { packet: &packet, dscp: 41, congested: false }];
            let mut decided = Vec::new();
            policy.decide(7, &requests, &mut decided);
            shadow.compare(7, &requests, &decided);
        }
        assert_eq!(shadow.changes(), &[(("declined", "declined"), 1000)].into());
        assert_eq!(shadow.flows().count(), MOST);
        let words = shadow.flows().next().unwrap().candidate.to_string();
        assert_eq!(words, "declined for 9 s, packet delivered");
    }
}
