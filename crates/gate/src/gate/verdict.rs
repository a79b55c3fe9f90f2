//! Verdicts on packets, and their counters.
//!
//! Every packet ends in one [`Verdict`] and is counted once, with its bytes, so that at
//! any moment between two batches
//!
//! ```text
//!   received = requests + granted + allowed + passed + asked + Σ dropped by reason
//! ```

use super::rule_counters::{Count, RuleCounters, RuleOutcome};
use crate::cookie::Cookie;
use crate::policy::{Address, RuleId};

/// The verdict on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To the grantor, encapsulated, as a request with this DSCP, 3 to 63.
    Request {
        /// The grantor.
        grantor: Address,
        /// The DSCP.
        dscp: u8,
    },
    /// To the grantor, encapsulated, with DSCP 1, or 2 where it asks for renewal.
    Granted {
        /// The grantor.
        grantor: Address,
        /// Whether it requests renewal.
        renew: bool,
    },
    /// To the protected network without the grantor, with DSCP 1 and otherwise unchanged, on the
    /// route to the grantor. A flow program decides this.
    Direct {
        /// The grantor.
        grantor: Address,
    },
    /// To the grantor, encapsulated, with DSCP 1: its source is on the allow-list.
    Allowed {
        /// The grantor.
        grantor: Address,
    },
    /// To the back network, unchanged.
    Back,
    /// To the front network, unchanged.
    Front,
    /// The policy has no route: the address may be the gate's own.
    NoRoute,
    /// Dropped, and answered by a cookie: its source has to prove its address.
    Ask {
        /// The numbers of the answer.
        cookie: Cookie,
    },
    /// Dropped.
    Drop(DropReason),
}

impl Verdict {
    /// Returns the outcome that is counted by rule.
    #[inline]
    pub fn outcome(&self) -> RuleOutcome {
        match self {
            Self::Request { .. } => RuleOutcome::Request,
            Self::Granted { .. } | Self::Direct { .. } | Self::Allowed { .. } => {
                RuleOutcome::Granted
            }
            Self::Back | Self::Front => RuleOutcome::Passed,
            Self::NoRoute | Self::Ask { .. } | Self::Drop(_) => RuleOutcome::Dropped,
        }
    }
}

/// The reason to drop a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// Its source is on the block list.
    Blocked,
    /// Its flow is declined.
    Declined,
    /// It is over the rate that its flow was granted.
    OverRate,
    /// The policy drops packets to this destination.
    Policy,
    /// No grantor of the set is usable.
    NoGrantor,
    /// Its flow's program declines it.
    Program,
    /// Its flow's program reported an error.
    ProgramError,
    /// The traffic to its prefix is over the prefix's limit.
    OverLimit,
    /// The traffic to its destination is over the limit of each destination.
    OverDestinationLimit,
    /// It returned a cookie, and was meant for the gate.
    Proof,
    /// Only a forger sends it to the front: its source is behind the gate or the gate's own, or it
    /// is for a tunnel's end.
    Forged,
}

/// Counters of verdicts and of changes to the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GateCounters {
    /// All packets.
    pub received: Count,
    /// Requests.
    pub requests: Count,
    /// Granted packets, including renewal requests and direct packets.
    pub granted: Count,
    /// Granted packets that go directly.
    pub direct: Count,
    /// Granted packets that request renewal.
    pub renewals: Count,
    /// Of sources on the allow-list, to protected destinations.
    pub allowed: Count,
    /// To the back network as they are.
    pub back: Count,
    /// To the front network as they are.
    pub front: Count,
    /// Without a route.
    pub no_route: Count,
    /// Dropped, of sources on the block list.
    pub blocked: Count,
    /// Dropped, of declined flows.
    pub declined: Count,
    /// Dropped, over the granted rate.
    pub over_rate: Count,
    /// Dropped by the policy.
    pub policy: Count,
    /// Dropped, because no grantor is usable.
    pub no_grantor: Count,
    /// Dropped, declined by a program.
    pub program: Count,
    /// Dropped, because a program reported an error.
    pub program_error: Count,
    /// Dropped, over the limit of a prefix.
    pub over_limit: Count,
    /// Dropped, over the limit of a destination.
    pub over_destination_limit: Count,
    /// Packets that only a forger sends to the front.
    pub forged: Count,
    /// Dropped SYNs that were to be answered by a cookie.
    pub syn_cookies: Count,
    /// Dropped resets that returned a cookie.
    pub proofs: Count,
    /// Flows that got an entry.
    pub inserted: u64,
    /// Requests that were forwarded without an entry.
    pub without_entry: u64,
    /// First packets of flows that need a second packet for an entry.
    pub first_seen: u64,
    /// First packets of such flows that could not be remembered.
    pub first_seen_overflow: u64,
    /// Flows that got an entry with their second packet.
    pub readmitted: u64,
    /// Flows that got an entry because their sources have proven their addresses.
    pub validated: u64,
    /// Resets of flows without an entry that carried no valid cookie, while some were outstanding.
    pub invalid_cookies: u64,
    /// SYNs that were not answered by a cookie because of the rate limit, or because the cookie
    /// would have been acceptable. They were forwarded as requests.
    pub cookies_rate_limited: u64,
    /// Entries that were evicted.
    pub evicted: u64,
    /// Entries that expired.
    pub expired: u64,
    /// Decisions that took effect on a flow.
    pub decided: u64,
    /// Flows that send requests again because a decision was retracted.
    pub retracted: u64,
    /// Decisions that came late.
    pub late: u64,
    /// Declines without proof of the source that had no effect: the flow was granted or proven, or
    /// had no entry.
    pub unproven: u64,
    /// Decisions without a free entry.
    pub table_full: u64,
    /// Decisions about destinations that the policy assigns to no grantor.
    pub unprotected: u64,
    /// Decisions to run a program that is missing, or that refuses the cookie.
    pub programs: u64,
}

impl GateCounters {
    /// Counts a packet by its verdict, here and by rule.
    #[inline]
    pub(super) fn verdict(
        &mut self,
        ledger: &RuleCounters,
        line: RuleId,
        verdict: &Verdict,
        bytes: u32,
    ) {
        self.received.add(bytes);
        let count = match verdict {
            Verdict::Request { .. } => &mut self.requests,
            Verdict::Granted { renew, .. } => {
                if *renew {
                    self.renewals.add(bytes);
                }
                &mut self.granted
            }
            Verdict::Direct { .. } => {
                self.direct.add(bytes);
                &mut self.granted
            }
            Verdict::Allowed { .. } => &mut self.allowed,
            Verdict::Back => &mut self.back,
            Verdict::Front => &mut self.front,
            Verdict::NoRoute => &mut self.no_route,
            Verdict::Drop(DropReason::Blocked) => &mut self.blocked,
            Verdict::Drop(DropReason::Declined) => &mut self.declined,
            Verdict::Drop(DropReason::OverRate) => &mut self.over_rate,
            Verdict::Drop(DropReason::Policy) => &mut self.policy,
            Verdict::Drop(DropReason::NoGrantor) => &mut self.no_grantor,
            Verdict::Drop(DropReason::Program) => &mut self.program,
            Verdict::Drop(DropReason::ProgramError) => &mut self.program_error,
            Verdict::Drop(DropReason::OverLimit) => &mut self.over_limit,
            Verdict::Drop(DropReason::OverDestinationLimit) => &mut self.over_destination_limit,
            Verdict::Ask { .. } => &mut self.syn_cookies,
            Verdict::Drop(DropReason::Proof) => &mut self.proofs,
            Verdict::Drop(DropReason::Forged) => &mut self.forged,
        };
        count.add(bytes);
        ledger.enter(line, verdict.outcome(), bytes);
    }

    /// Returns the sum of all verdicts, which equals [`received`](Self::received).
    pub fn ended(&self) -> Count {
        let all = [
            self.requests,
            self.granted,
            self.allowed,
            self.back,
            self.front,
            self.no_route,
            self.blocked,
            self.declined,
            self.over_rate,
            self.policy,
            self.no_grantor,
            self.program,
            self.program_error,
            self.over_limit,
            self.over_destination_limit,
            self.syn_cookies,
            self.proofs,
            self.forged,
        ];
        let packets = all.iter().map(|count| count.packets).sum();
        Count { packets, bytes: all.iter().map(|count| count.bytes).sum() }
    }
}
