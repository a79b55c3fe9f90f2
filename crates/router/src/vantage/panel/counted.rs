//! What the workers have counted, added up: by number, and by rule of the policy.
//!
//! What the kernel dropped for them is added as if a worker had; of which rule it would have been is not
//! known, so it is told of none.

use gate::gate::{OutcomeCounts, RuleCounters, RuleOutcome};

use super::told::PolicyTold;
use super::{Panel, Ruling, lock};
use crate::vantage::policies::Whose;
use crate::vantage::tally::About;

/// Packets and bytes that the kernel has dropped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    declined: (u64, u64),
    blocked: (u64, u64),
    forged: (u64, u64),
}

impl Kernel {
    /// Returns all of them.
    fn all(&self) -> (u64, u64) {
        let Self { declined, blocked, forged } = self;
        (declined.0 + blocked.0 + forged.0, declined.1 + blocked.1 + forged.1)
    }
}

impl Panel {
    /// Reads what the kernel has dropped.
    pub(super) fn kernel(&self) -> Kernel {
        Kernel {
            declined: self.decisions.dropped_early(),
            blocked: self.blocked.dropped(),
            forged: self.inside.dropped(),
        }
    }

    /// Returns the workers' numbers, added up, in the order of the list.
    pub(crate) fn numbers(&self) -> Vec<(About, &'static str, u64)> {
        self.numbers_with(&self.kernel())
    }

    /// Returns them with what the kernel has dropped so far.
    pub(super) fn numbers_with(&self, kernel: &Kernel) -> Vec<(About, &'static str, u64)> {
        let mut all: Vec<(About, &'static str, u64)> = Vec::new();
        for tally in &self.tallies {
            for (at, (about, name, value)) in tally.iter().enumerate() {
                match (all.get_mut(at), name) {
                    (Some(sum), "highest_priority" | "usage_percent") => sum.2 = sum.2.max(value),
                    (Some(sum), _) => sum.2 += value,
                    (None, _) => all.push((about, name, value)),
                }
            }
        }
        // As if a worker had dropped them.
        let Kernel { declined, blocked, forged } = *kernel;
        let (packets, bytes) = kernel.all();
        let (flows, troubles) = self.decisions.early();
        let (written, more_troubles) = self.blocked.counts();
        for (about, name, value) in &mut all {
            match (about, *name) {
                (About::Packets, "received" | "xdp_dropped") => *value += packets,
                (About::Packets, "declined") => *value += declined.0,
                (About::Packets, "blocked") => *value += blocked.0,
                (About::Packets, "forged") => *value += forged.0,
                (About::Bytes, "received") => *value += bytes,
                (About::Bytes, "declined") => *value += declined.1,
                (About::Bytes, "blocked") => *value += blocked.1,
                (About::Bytes, "forged") => *value += forged.1,
                (About::Table, "xdp_flows") => *value = flows,
                (About::Table, "xdp_prefixes") => *value = written.there as u64,
                (About::Table, "xdp_prefixes_overflow") => *value = written.left as u64,
                (About::Table, "xdp_map_errors") => {
                    *value = troubles + more_troubles + self.inside.failures();
                }
                _ => {}
            }
        }
        all
    }

    /// Returns what the workers count by rule.
    pub(super) fn ledgers(&self) -> Vec<&RuleCounters> {
        self.tallies.iter().map(|tally| &**tally.ledger()).collect()
    }

    /// Tells what became of packets by the rule that decided: all that were received.
    pub(crate) fn policies(&self) -> Vec<PolicyTold> {
        self.policies_of(&lock(&self.rules), &self.kernel())
    }

    pub(super) fn policies_of(&self, ruling: &Ruling, kernel: &Kernel) -> Vec<PolicyTold> {
        let rules = &ruling.rules;
        let tell = |(whose, mut fates): (Whose<'_>, OutcomeCounts)| {
            if whose == Whose::None {
                let dropped = &mut fates[RuleOutcome::Dropped as usize];
                let (packets, bytes) = kernel.all();
                dropped.packets += packets;
                dropped.bytes += bytes;
            }
            let rule = if let Whose::Rule(rule) = whose { Some(rule) } else { None };
            let each = RuleOutcome::ALL.into_iter().map(RuleOutcome::name).zip(fates);
            PolicyTold {
                policy: whose.to_string(),
                line: rule.map(|rule| rule.line),
                action: rule.map(|rule| rules.words(rule.action)),
                packets: each.clone().map(|(name, it)| (name.to_owned(), it.packets)).collect(),
                bytes: each.map(|(name, it)| (name.to_owned(), it.bytes)).collect(),
            }
        };
        ruling.lines.told(rules, &self.ledgers()).into_iter().map(tell).collect()
    }
}
