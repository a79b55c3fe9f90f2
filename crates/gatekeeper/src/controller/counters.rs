//! The sums of the workers' counters: by name, and by rule of the policy.
//!
//! The packets that the XDP program dropped are added as if a worker had dropped them. Their rule is
//! unknown, so that they count for no rule.

use std::collections::BTreeMap;

use datapath::Verdict;
use gate::gate::{Count, OutcomeCounts, RuleCounters, RuleOutcome};

use super::{ActiveRules, GateController, lock};
use crate::counter_snapshot::{CounterGroup, full_name, is_gauge};
use crate::inherited_state::{InheritedState, named_outcomes, outcomes_of};
use crate::rule_ids::RuleGroup;
use api::RuleTraffic;

/// The packets and bytes that the XDP program has dropped, by reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct XdpDrops([(Verdict, Count); 3]);

impl XdpDrops {
    /// Returns the total.
    fn total(&self) -> Count {
        let sum = |value: fn(&Count) -> u64| self.0.iter().map(|(_, count)| value(count)).sum();
        Count { packets: sum(|count| count.packets), bytes: sum(|count| count.bytes) }
    }

    /// Returns the drops for the reason of this name; none for another name.
    fn by_name(&self, name: &str) -> Count {
        let named = self.0.iter().find(|(reason, _)| reason.name() == name);
        named.map_or_else(Count::default, |(_, count)| *count)
    }
}

impl GateController {
    /// Reads the drops of the XDP program.
    pub(super) fn xdp_drops(&self) -> XdpDrops {
        let count = |(packets, bytes): (u64, u64)| Count { packets, bytes };
        XdpDrops([
            (Verdict::Declined, count(self.decisions.dropped_by_xdp())),
            (Verdict::Blocked, count(self.blocked.dropped())),
            (Verdict::Forged, count(self.inside.dropped())),
        ])
    }

    /// Returns the sums of the workers' counters, in the order of the list.
    pub(crate) fn counters(&self) -> Vec<(CounterGroup, &'static str, u64)> {
        self.counters_with(&self.xdp_drops())
    }

    /// Returns the sums, with these drops of the XDP program added.
    pub(super) fn counters_with(&self, xdp: &XdpDrops) -> Vec<(CounterGroup, &'static str, u64)> {
        let mut all: Vec<(CounterGroup, &'static str, u64)> = Vec::new();
        for counters in &self.counters {
            for (at, (group, name, value)) in counters.iter().enumerate() {
                match (all.get_mut(at), name) {
                    (Some(sum), "highest_priority" | "usage_percent") => sum.2 = sum.2.max(value),
                    (Some(sum), _) => sum.2 += value,
                    (None, _) => all.push((group, name, value)),
                }
            }
        }
        let total = xdp.total();
        let (flows, declined_errors) = self.decisions.declined_counts();
        let (written, blocked_errors) = self.blocked.counts();
        for (group, name, value) in &mut all {
            match (group, *name) {
                (CounterGroup::Packets, "received" | "xdp_dropped") => *value += total.packets,
                (CounterGroup::Packets, name) => *value += xdp.by_name(name).packets,
                (CounterGroup::Bytes, "received") => *value += total.bytes,
                (CounterGroup::Bytes, name) => *value += xdp.by_name(name).bytes,
                (CounterGroup::Table, "xdp_flows") => *value = flows,
                (CounterGroup::Table, "xdp_prefixes") => *value = written.installed as u64,
                (CounterGroup::Table, "xdp_prefixes_overflow") => *value = written.omitted as u64,
                (CounterGroup::Table, "xdp_map_errors") => {
                    *value = declined_errors + blocked_errors + self.inside.failures();
                }
                _ => {}
            }
        }
        all
    }

    /// Returns the workers' counters by rule.
    pub(super) fn ledgers(&self) -> Vec<&RuleCounters> {
        self.counters.iter().map(|counters| &**counters.ledger()).collect()
    }

    /// Returns the state for a successor, once the workers have stopped.
    pub(crate) fn inherited_state(&self) -> InheritedState {
        let mut counters = BTreeMap::new();
        for (group, name, value) in self.counters.iter().flat_map(|counters| counters.iter()) {
            if value > 0 && !is_gauge(group, name) {
                *counters.entry(full_name(group, name)).or_default() += value;
            }
        }
        let active = lock(&self.rules);
        let counts = active.counters.counts(&active.rules, &self.ledgers());
        let rules =
            counts.iter().map(|(group, counts)| (group.to_string(), named_outcomes(counts)));
        InheritedState {
            cookie_secrets: self.cookie_secrets().map(|secrets| secrets.to_words()),
            counters,
            rules: rules.collect(),
        }
    }

    /// Continues the counters of a predecessor.
    pub(crate) fn continue_counters(&self, state: &InheritedState) {
        // One worker has those of all; readers add them up.
        if let Some(first) = self.counters.first() {
            let past = |group, name| state.counters.get(&full_name(group, name)).copied();
            first.continue_counts(|group, name| past(group, name).unwrap_or_default());
        }
        let mut active = lock(&self.rules);
        for (name, outcomes) in &state.rules {
            active.counters.continue_counts(name, outcomes_of(outcomes));
        }
    }

    /// Returns the packets and bytes by rule: the sum is all that was received.
    pub(crate) fn rule_traffic(&self) -> Vec<RuleTraffic> {
        self.rule_traffic_of(&lock(&self.rules), &self.xdp_drops())
    }

    pub(super) fn rule_traffic_of(&self, active: &ActiveRules, xdp: &XdpDrops) -> Vec<RuleTraffic> {
        let rules = &active.rules;
        let traffic = |(group, mut outcomes): (RuleGroup<'_>, OutcomeCounts)| {
            if group == RuleGroup::None {
                let dropped = &mut outcomes[RuleOutcome::Dropped];
                let xdp = xdp.total();
                dropped.packets += xdp.packets;
                dropped.bytes += xdp.bytes;
            }
            let rule = if let RuleGroup::Rule(rule) = group { Some(rule) } else { None };
            let by_outcome = |value: fn(Count) -> u64| {
                let each = outcomes.iter();
                each.map(|(outcome, count)| (outcome.name().to_owned(), value(count))).collect()
            };
            RuleTraffic {
                policy: group.to_string(),
                line: rule.map(|rule| rule.line),
                action: rule.map(|rule| rules.action_name(rule.action)),
                packets: by_outcome(|count| count.packets),
                bytes: by_outcome(|count| count.bytes),
            }
        };
        active.counters.counts(rules, &self.ledgers()).into_iter().map(traffic).collect()
    }
}
