//! A candidate policy that runs beside the policy without an effect.
//!
//! ```text
//!   requests ─┬─► policy ────► rulings ─► gates, packets
//!             └─► candidate ─► rulings ─► compared, by flow, and forgotten
//! ```
//!
//! The effect of a policy change is best seen on real traffic. The candidate has a Lua state and
//! memory of its own and the policy's limits, so that one that fails or never ends costs its own
//! time and no more: a request waits for both. Its state reflects *its* decisions only as far as it
//! stores them itself; the requests that arrive depend on the decisions that the gates received,
//! which are the policy's.

use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};

use super::{Grantor, Request, RequestOutcome};
use crate::decision::{FlowCommand, Item};
use crate::flow::Flow;
use crate::state::{Decision, Traffic};

/// Maximum number of flows with a difference that are remembered.
const MAX_DIFFERENCES: usize = 256;

/// A flow for which the candidate and the policy differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The flow.
    pub flow: Flow,
    /// The policy's outcome of the last request with a difference.
    pub policy: RequestOutcome,
    /// The candidate's outcome of that request.
    pub candidate: RequestOutcome,
    /// The number of its requests with a difference.
    pub requests: u64,
}

/// A candidate, and its differences so far.
#[derive(Debug)]
pub struct Shadow {
    candidate: Grantor,
    decided: Vec<RequestOutcome>,
    requests: u64,
    changes: BTreeMap<(&'static str, &'static str), u64>,
    flows: HashMap<Flow, Difference>,
}

impl Shadow {
    /// Starts with a candidate.
    pub fn new(candidate: Grantor) -> Self {
        Self {
            candidate,
            decided: Vec::new(),
            requests: 0,
            changes: BTreeMap::new(),
            flows: HashMap::new(),
        }
    }

    /// Runs the candidate on requests for which the policy has returned `decided`.
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
            let full = self.flows.len() >= MAX_DIFFERENCES;
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

    /// Counts the requests that the candidate has decided.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// Counts the times that the candidate failed or exceeded its limit.
    pub fn failed(&self) -> u64 {
        self.candidate.counts().failed + self.candidate.counts().over_time
    }

    /// Returns the candidate's last error, and clears it.
    pub fn last_error(&mut self) -> Option<String> {
        self.candidate.last_error()
    }

    /// Counts the differing requests, by the outcome of each policy.
    pub fn changes(&self) -> &BTreeMap<(&'static str, &'static str), u64> {
        &self.changes
    }

    /// Returns flows with differences: the first ones, up to the maximum.
    pub fn flows(&self) -> impl Iterator<Item = &Difference> {
        self.flows.values()
    }
}

impl RequestOutcome {
    /// Returns its kind: `granted`, `declined`, `program` or `undecided`.
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
    /// Writes the decision, and the packet's disposition if it is not the default.
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
            .map(|d| (format!("{:?}", d.flow.pair()), d.candidate.to_string(), d.requests))
            .collect();
        flows.sort();
        assert_eq!(flows.len(), 3);
        let denied = flows.iter().find(|flow| flow.1 == "declined for 60 s").unwrap();
        assert_eq!(denied.2, 2, "both requests of the flow");
        assert!(flows.iter().any(|flow| flow.1 == "granted 3 KiB/s for 300 s"), "{flows:?}");
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
        assert_eq!(shadow.flows().count(), MAX_DIFFERENCES);
        let words = shadow.flows().next().unwrap().candidate.to_string();
        assert_eq!(words, "declined for 9 s, packet delivered");
    }
}
