//! Verdicts on packets, and their counters.
//!
//! Every packet ends in one [`Verdict`] and is counted once, with its bytes, so that at
//! any moment between two batches
//!
//! ```text
//!   received = requests + granted + allowed + back + front + Σ dropped by reason
//! ```

use verdict::VerdictMap;

use super::rule_counters::{Count, RuleCounters, RuleOutcome};
use crate::cookie::Cookie;
use crate::policy::{Address, RuleId};

/// The reason of a drop: the final verdict on the packet, one of [`DropReason::GATE`].
pub use verdict::Verdict as DropReason;

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
    /// To the grantor, encapsulated, with DSCP 1, or 2 where it requests renewal.
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
    /// Dropped, by reason.
    pub dropped: VerdictMap<Count>,
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
            Verdict::NoRoute => &mut self.dropped[DropReason::NoRoute],
            Verdict::Ask { .. } => &mut self.dropped[DropReason::SynCookie],
            Verdict::Drop(reason) => &mut self.dropped[*reason],
        };
        count.add(bytes);
        ledger.enter(line, verdict.outcome(), bytes);
    }

    /// Returns the sum of all verdicts, which equals [`received`](Self::received).
    pub fn ended(&self) -> Count {
        let forwarded = [self.requests, self.granted, self.allowed, self.back, self.front];
        let dropped = self.dropped.iter().map(|(_, count)| *count);
        forwarded.into_iter().chain(dropped).fold(Count::default(), |sum, count| Count {
            packets: sum.packets + count.packets,
            bytes: sum.bytes + count.bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::DropReason;

    /// Returns the code of all tests below a folder.
    fn test_code(folder: &Path, is_test: bool) -> String {
        let mut code = String::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_test = is_test || path.file_stem().is_some_and(|stem| stem == "tests");
            if path.is_dir() {
                code += &test_code(&path, is_test);
            } else {
                let text = fs::read_to_string(&path).unwrap();
                let start = if is_test { Some(0) } else { text.find("#[cfg(test)]\nmod tests {") };
                code += start.map_or("", |start| &text[start..]);
            }
        }
        code
    }

    #[test]
    fn every_drop_reason_has_a_test_that_names_it() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gate");
        let code = test_code(&folder, false);
        for reason in DropReason::GATE {
            let name = format!("DropReason::{reason:?}");
            let mut uses = code.match_indices(&name).map(|(at, _)| &code[at + name.len()..]);
            let is_used = uses.any(|rest| !rest.starts_with(char::is_alphanumeric));
            assert!(is_used, "no test in src/gate names {name}");
        }
    }
}
