//! The metrics of a grantor: requests by decision, memory, decisions to gates, programs, candidate.

use std::collections::BTreeMap;
use std::fmt;

use super::controller::GrantorController;
use control::exposition::{Writer, bytes, family};

impl GrantorController {
    /// Writes the metrics.
    pub(super) fn encode(&self, to: &mut Writer<'_>) -> fmt::Result {
        let state = self.status();
        let by = |numbers: &'_ BTreeMap<String, u64>| -> Vec<(String, u64)> {
            numbers.iter().map(|(name, value)| (name.clone(), *value)).collect()
        };
        let (memory, requests): (Vec<_>, Vec<_>) =
            by(&state.policy).into_iter().partition(|(name, _)| name == "memory_bytes");
        let metric = family(
            "grantor_policy",
            "Requests of flows, by the policy's decision; failed and over_time are errors of the \
             policy: `show grantor` has the last one",
        );
        to.counter(
            &metric,
            requests.iter().map(|(name, value)| ([("result", name.as_str())], *value)),
        )?;
        to.gauge(
            &bytes(
                "grantor_memory",
                "Memory in use by the policies' Lua states; at policy.max_memory_mib calls fail: \
                 raise it, or look for a table that grows",
            ),
            memory.iter().map(|(_, value)| ([], *value)),
        )?;
        let decisions = by(&state.decisions);
        let metric = family(
            "grantor_decisions",
            "Messages and decisions to the gates, by result, shared ones to gates that did not ask; \
             if abandoned, busy, shared_busy or failed grows, check the gates and the path to them",
        );
        to.counter(
            &metric,
            decisions.iter().map(|(name, value)| ([("result", name.as_str())], *value)),
        )?;
        let metric = family(
            "grantor_reloads",
            "Reloads of the grantor's policy that were applied; grows with each reload by an \
             operator or a bundle",
        );
        to.counter(&metric, [([], state.reloads)])?;
        let metric = family(
            "grantor_reloads_refused",
            "Reloads of the grantor's policy that were refused; the previous policy stays in force: \
             correct the error that the log has",
        );
        to.counter(&metric, [([], state.reloads_refused)])?;
        let programs: Vec<_> = self
            .programs()
            .into_iter()
            .filter_map(|program| {
                let (gate, number) = (program.gate?.to_string(), program.number.to_string());
                Some((gate, number, program.name?, program.state))
            })
            .collect();
        let metric = family(
            "grantor_program",
            "State of a flow program at a gate, in a label; always 1: a program that does not \
             become active was refused by the gate",
        );
        let labels = programs.iter().map(|(gate, number, name, state)| {
            let labels = [("gate", gate), ("number", number), ("program", name), ("state", state)];
            (labels.map(|(name, value)| (name, value.as_str())), 1)
        });
        to.gauge(&metric, labels)?;
        let Some(shadow) = &state.candidate else { return Ok(()) };
        // Gauges, because they start at 0 with each candidate.
        let metric = family(
            "grantor_candidate_requests",
            "Requests that the candidate has decided beside the policy, since it was loaded",
        );
        to.gauge(&metric, [([], shadow.requests)])?;
        let changes = by(&shadow.changes);
        let metric = family(
            "grantor_candidate_changes",
            "Requests for which candidate and policy differ, since the candidate was loaded; make \
             it the policy only if every change is intended",
        );
        to.gauge(&metric, changes.iter().map(|(name, value)| ([("change", name.as_str())], *value)))
    }
}
