//! The sums of the workers' counters: by name, and by rule of the policy.
//!
//! The packets that the XDP program dropped are added as if a worker had dropped them. Their rule is
//! unknown, so that they count for no rule.

use gate::gate::{OutcomeCounts, RuleCounters, RuleOutcome};

use super::{ActiveRules, GateController, lock};
use crate::counter_snapshot::CounterGroup;
use crate::rule_ids::RuleGroup;
use api::RuleTraffic;

/// The packets and bytes that the XDP program has dropped, by reason.
#[derive(Clone, Copy, Debug)]
pub(super) struct XdpDrops {
    declined: (u64, u64),
    blocked: (u64, u64),
    forged: (u64, u64),
}

impl XdpDrops {
    /// Returns the total.
    fn total(&self) -> (u64, u64) {
        let Self { declined, blocked, forged } = self;
        (declined.0 + blocked.0 + forged.0, declined.1 + blocked.1 + forged.1)
    }
}

impl GateController {
    /// Reads the drops of the XDP program.
    pub(super) fn xdp_drops(&self) -> XdpDrops {
        XdpDrops {
            declined: self.decisions.dropped_by_xdp(),
            blocked: self.blocked.dropped(),
            forged: self.inside.dropped(),
        }
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
        let XdpDrops { declined, blocked, forged } = *xdp;
        let (packets, bytes) = xdp.total();
        let (flows, declined_errors) = self.decisions.declined_counts();
        let (written, blocked_errors) = self.blocked.counts();
        for (group, name, value) in &mut all {
            match (group, *name) {
                (CounterGroup::Packets, "received" | "xdp_dropped") => *value += packets,
                (CounterGroup::Packets, "declined") => *value += declined.0,
                (CounterGroup::Packets, "blocked") => *value += blocked.0,
                (CounterGroup::Packets, "forged") => *value += forged.0,
                (CounterGroup::Bytes, "received") => *value += bytes,
                (CounterGroup::Bytes, "declined") => *value += declined.1,
                (CounterGroup::Bytes, "blocked") => *value += blocked.1,
                (CounterGroup::Bytes, "forged") => *value += forged.1,
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

    /// Returns the packets and bytes by rule: the sum is all that was received.
    pub(crate) fn rule_traffic(&self) -> Vec<RuleTraffic> {
        self.rule_traffic_of(&lock(&self.rules), &self.xdp_drops())
    }

    pub(super) fn rule_traffic_of(&self, active: &ActiveRules, xdp: &XdpDrops) -> Vec<RuleTraffic> {
        let rules = &active.rules;
        let traffic = |(group, mut fates): (RuleGroup<'_>, OutcomeCounts)| {
            if group == RuleGroup::None {
                let dropped = &mut fates[RuleOutcome::Dropped as usize];
                let (packets, bytes) = xdp.total();
                dropped.packets += packets;
                dropped.bytes += bytes;
            }
            let rule = if let RuleGroup::Rule(rule) = group { Some(rule) } else { None };
            let each = RuleOutcome::ALL.into_iter().map(RuleOutcome::name).zip(fates);
            RuleTraffic {
                policy: group.to_string(),
                line: rule.map(|rule| rule.line),
                action: rule.map(|rule| rules.action_name(rule.action)),
                packets: each
                    .clone()
                    .map(|(name, count)| (name.to_owned(), count.packets))
                    .collect(),
                bytes: each.map(|(name, count)| (name.to_owned(), count.bytes)).collect(),
            }
        };
        active.counters.counts(rules, &self.ledgers()).into_iter().map(traffic).collect()
    }
}
