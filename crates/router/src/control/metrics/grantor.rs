//! What a grantor counts, and what comes of bundles.

use std::collections::BTreeMap;
use std::fmt;

use super::Gathered;
use super::writer::{Writer, bytes, family};

impl Gathered {
    pub(super) fn encode_grantor(&self, to: &mut Writer<'_>) -> fmt::Result {
        let Ok(grantor) = self.role.grantor() else { return Ok(()) };
        let told = grantor.told();
        let by = |numbers: &'_ BTreeMap<String, u64>| -> Vec<(String, u64)> {
            numbers.iter().map(|(name, value)| (name.clone(), *value)).collect()
        };
        let (memory, said): (Vec<_>, Vec<_>) =
            by(&told.policy).into_iter().partition(|(name, _)| name == "memory_bytes");
        let it = family("grantor_policy", "What the policy said of requests");
        to.counter(&it, said.iter().map(|(name, value)| ([("what", name.as_str())], *value)))?;
        to.gauge(
            &bytes("grantor_memory", "What the policies have in use"),
            memory.iter().map(|it| ([], it.1)),
        )?;
        let post = by(&told.post);
        let it = family("grantor_decisions", "Decisions on their way to the gates");
        to.counter(&it, post.iter().map(|(name, value)| ([("what", name.as_str())], *value)))?;
        let it = family("grantor_reloads", "Policies read anew");
        to.counter(&it, [([], told.reloads)])?;
        let it = family("grantor_reloads_refused", "Those that were not taken over");
        to.counter(&it, [([], told.reloads_refused)])?;
        let programs: Vec<_> = grantor
            .programs()
            .into_iter()
            .filter_map(|it| {
                Some((it.gate?.to_string(), it.number.to_string(), it.name?, it.state))
            })
            .collect();
        let it = family("grantor_program", "How it stands with a flow program at a gate");
        let labels = programs.iter().map(|(gate, number, name, state)| {
            let labels = [("gate", gate), ("number", number), ("program", name), ("state", state)];
            (labels.map(|(name, value)| (name, value.as_str())), 1)
        });
        to.gauge(&it, labels)?;
        let Some(shadow) = &told.shadow else { return Ok(()) };
        // They begin anew with each candidate.
        let it =
            family("grantor_candidate_requests", "Requests that the candidate was asked about");
        to.gauge(&it, [([], shadow.requests)])?;
        let changes = by(&shadow.changes);
        let it = family("grantor_candidate_changes", "Those that it says something else of");
        to.gauge(&it, changes.iter().map(|(name, value)| ([("change", name.as_str())], *value)))
    }

    pub(super) fn encode_distribution(&self, to: &mut Writer<'_>) -> fmt::Result {
        let Ok(board) = self.role.distribution() else { return Ok(()) };
        let told = board.told();
        let it = family("distribution_version", "The bundle in force; 0 for none");
        to.gauge(&it, [([], told.version.unwrap_or(0))])?;
        let it = family("distribution_floor", "The highest version that was ever taken over");
        to.gauge(&it, [([], told.floor)])?;
        let it = family("distribution_state", "The state that a member is in; always 1");
        to.gauge(&it, [([("state", told.state.as_str())], 1)])?;
        let it = family("distribution_trouble", "1 while the source gives nothing that is sound");
        to.gauge(&it, [([], u64::from(told.trouble.is_some()))])?;
        let it = family("distribution", "What became of bundles: see the guide");
        let counts = told.counts.iter();
        to.counter(&it, counts.map(|(what, count)| ([("what", what.as_str())], *count)))
    }
}
