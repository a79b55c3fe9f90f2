//! The comparison of a policy with its candidate, as the control socket returns it.

use std::cmp::Reverse;
use std::net::IpAddr;

use api::{ChangedDecision, PolicyComparison};
use gate::flow::Pair;
use gate::grantor::{Difference, Shadow};

/// The maximum number of reported flows with another decision.
const MAX_FLOWS: usize = 256;

/// Returns the comparison with a candidate.
pub fn comparison(candidate: &Shadow) -> PolicyComparison {
    let changes = candidate.changes().iter();
    let mut flows: Vec<_> = candidate.flows().map(changed_decision).collect();
    flows.sort_unstable_by_key(|flow| (Reverse(flow.requests), flow.source, flow.destination));
    PolicyComparison {
        requests: candidate.requests(),
        failed: candidate.failed(),
        changes: changes.map(|((was, will), count)| (format!("{was}_{will}"), *count)).collect(),
        flows,
    }
}

/// Adds the comparison of another worker.
pub(super) fn add_comparison(sum: &mut PolicyComparison, other: PolicyComparison) {
    sum.requests += other.requests;
    sum.failed += other.failed;
    for (change, count) in other.changes {
        *sum.changes.entry(change).or_default() += count;
    }
    sum.flows.extend(other.flows);
    sum.flows.truncate(MAX_FLOWS);
}

/// Returns the status of a difference.
fn changed_decision(difference: &Difference) -> ChangedDecision {
    let (source, destination) = match difference.flow.pair() {
        Pair::V4 { src, dst } => (IpAddr::V4(src.into()), IpAddr::V4(dst.into())),
        Pair::V6 { src, dst } => (IpAddr::V6(src.into()), IpAddr::V6(dst.into())),
    };
    ChangedDecision {
        source,
        destination,
        policy: difference.policy.to_string(),
        candidate: difference.candidate.to_string(),
        requests: difference.requests,
    }
}
