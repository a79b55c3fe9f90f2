//! The metrics of the distribution of bundles, for each daemon that takes policies as bundles.

use std::fmt;

use api::DistributionStatus;

use crate::exposition::{Writer, family};

/// Writes the metrics of a member of a distribution.
///
/// # Errors
///
/// Those of the encoder.
pub fn encode_distribution(to: &mut Writer<'_>, state: &DistributionStatus) -> fmt::Result {
    let metric = family("distribution_version", "Version of the bundle in force; 0 for none");
    to.gauge(&metric, [([], state.version.unwrap_or(0))])?;
    let metric = family(
        "distribution_floor",
        "The highest version of a bundle that was ever applied; lower ones are refused",
    );
    to.gauge(&metric, [([], state.floor)])?;
    let metric = family(
        "distribution_state",
        "State of this member of the distribution, in a label; always 1: rolled_back \
         needs an operator",
    );
    to.gauge(&metric, [([("state", state.state.as_str())], 1)])?;
    let metric = family(
        "distribution_error",
        "1 while the source has no valid bundle: `show distribution` has the reason",
    );
    to.gauge(&metric, [([], u64::from(state.last_error.is_some()))])?;
    if let Some(blocked) = &state.blocked {
        let metric = family(
            "distribution_blocked_prefixes",
            "Prefixes that the fleet has blocked, by whether this gate drops them; for those that are \
             refused, `show distribution` has the reasons",
        );
        let counts = [("applied", blocked.applied), ("refused", blocked.refused.len() as u64)];
        to.gauge(&metric, counts.map(|(result, count)| ([("result", result)], count)))?;
    }
    let metric = family(
        "distribution_events",
        "Polls of the source and bundles found there, by result; if polls_failed grows, the \
         source cannot be reached",
    );
    let counts = state.counts.iter();
    to.counter(&metric, counts.map(|(result, count)| ([("result", result.as_str())], *count)))
}
