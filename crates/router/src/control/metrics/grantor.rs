//! What a grantor counts, and what comes of bundles.

use std::collections::BTreeMap;
use std::fmt;

use super::Gathered;
use super::writer::{Writer, bytes, family};

impl Gathered {
    pub(super) fn encode_grantor(&self, to: &mut Writer<'_>) -> fmt::Result {
        let Ok(grantor) = self.role.grantor() else { return Ok(()) };
        let state = grantor.status();
        let by = |numbers: &'_ BTreeMap<String, u64>| -> Vec<(String, u64)> {
            numbers.iter().map(|(name, value)| (name.clone(), *value)).collect()
        };
        let (memory, requests): (Vec<_>, Vec<_>) =
            by(&state.policy).into_iter().partition(|(name, _)| name == "memory_bytes");
        let metric = family(
            "grantor_policy",
            "Requests, by the policy's decision; failed and over_time are faults of the policy: \
             show grantor has its last error",
        );
        to.counter(
            &metric,
            requests.iter().map(|(name, value)| ([("result", name.as_str())], *value)),
        )?;
        to.gauge(
            &bytes("grantor_memory", "Memory that the policies' Lua states have in use; at policy.max_memory_mib calls begin to fail"),
            memory.iter().map(|it| ([], it.1)),
        )?;
        let post = by(&state.decisions);
        let metric = family("grantor_decisions", "Messages and decisions to the gates, by result");
        to.counter(
            &metric,
            post.iter().map(|(name, value)| ([("result", name.as_str())], *value)),
        )?;
        let metric = family("grantor_reloads", "Reloads of the policy that were applied");
        to.counter(&metric, [([], state.reloads)])?;
        let metric = family(
            "grantor_reloads_refused",
            "Reloads of the policy that were refused; the previous policy stays in force: see the \
             log",
        );
        to.counter(&metric, [([], state.reloads_refused)])?;
        let programs: Vec<_> = grantor
            .programs()
            .into_iter()
            .filter_map(|it| {
                Some((it.gate?.to_string(), it.number.to_string(), it.name?, it.state))
            })
            .collect();
        let metric = family("grantor_program", "State of a flow program at a gate; always 1");
        let labels = programs.iter().map(|(gate, number, name, state)| {
            let labels = [("gate", gate), ("number", number), ("program", name), ("state", state)];
            (labels.map(|(name, value)| (name, value.as_str())), 1)
        });
        to.gauge(&metric, labels)?;
        let Some(shadow) = &state.candidate else { return Ok(()) };
        // They begin anew with each candidate.
        let metric = family(
            "grantor_candidate_requests",
            "Requests that the candidate has decided beside the policy, since it was loaded",
        );
        to.gauge(&metric, [([], shadow.requests)])?;
        let changes = by(&shadow.changes);
        let metric = family(
            "grantor_candidate_changes",
            "Requests for which candidate and policy differ, since the candidate was loaded",
        );
        to.gauge(&metric, changes.iter().map(|(name, value)| ([("change", name.as_str())], *value)))
    }

    pub(super) fn encode_distribution(&self, to: &mut Writer<'_>) -> fmt::Result {
        let Ok(agent_status) = self.role.distribution() else { return Ok(()) };
        let state = agent_status.status();
        let metric = family("distribution_version", "Version of the bundle in force; 0 for none");
        to.gauge(&metric, [([], state.version.unwrap_or(0))])?;
        let metric = family(
            "distribution_floor",
            "The highest version of a bundle that was ever applied; lower ones are refused",
        );
        to.gauge(&metric, [([], state.floor)])?;
        let metric = family(
            "distribution_state",
            "State of this member of the distribution, in a label; always 1",
        );
        to.gauge(&metric, [([("state", state.state.as_str())], 1)])?;
        let metric = family(
            "distribution_error",
            "1 while the source of bundles has no valid one; show distribution has the reason",
        );
        to.gauge(&metric, [([], u64::from(state.last_error.is_some()))])?;
        let metric = family(
            "distribution_events",
            "Polls of the source and bundles, by result; if polls_failed grows, the source cannot \
             be reached",
        );
        let counts = state.counts.iter();
        to.counter(&metric, counts.map(|(what, count)| ([("result", what.as_str())], *count)))
    }
}
