//! Counters by rule: which rule owns which line of the workers' ledgers, across reloads.
//!
//! ```text
//!   [[policy]] │ 192.0.2.0/24 │ … │        line │ 0 │ 1 │ 2 │ … 511        of each worker
//!                    └── the first 256 ──────────┘   └─► free: has the counts of a removed rule
//! ```
//!
//! The ledger (`gate::gate::RuleCounters`) counts by line number. A reader needs prefixes, and counters that
//! never decrease. So a rule keeps its line as long as its prefix is in the policy, whatever else
//! changes about the rule. The first [`MAX_COUNTED_RULES`] rules of a policy get a line; the others, and those that
//! find all lines taken, are counted together as `others`.
//!
//! **Reuse of a line.** A reused line has the counts of its former rule. Only the worker could clear
//! them, so that they stay: the value at the change of owner is the new rule's zero and is added to
//! `removed`, which keeps the sum over all rules equal to the packets received. There are twice as many
//! lines as rules with a line, and the line that has been free for longest is reused first. The policy
//! directly after the former owner's policy never reuses its line, because a worker might still count
//! on it.
//!
//! **A successor** continues the counts of the rules of its predecessor, by prefix: what a rule had counted there is below its
//! zero here.
//!
//! Packets about which no rule decides (without a route, or of blocked sources) count as `none`, and so
//! do the packets that the XDP program drops before a worker sees them.

use std::fmt;

use feed::netlink::AnyPrefix;
use gate::gate::{Count, OutcomeCounts, RuleCounters};
use gate::policy::{MAX_RULE_IDS, RuleId};

use super::config::{MAX_COUNTED_RULES, Rule, Rules};

const _: () = assert!(2 * MAX_COUNTED_RULES <= MAX_RULE_IDS);

/// The names of groups of rules.
const OTHERS: &str = "others";
const NONE: &str = "none";

/// A line of the ledgers.
#[derive(Clone, Debug)]
struct Slot {
    line: RuleId,
    /// The prefix of its rule.
    owner: Option<AnyPrefix>,
    /// Its counts when the rule got it.
    zero: OutcomeCounts,
    /// The number of the reload that freed it.
    since: u64,
}

/// The rules' lines, and the counts of removed rules.
#[derive(Clone, Debug)]
pub(super) struct RuleIds {
    slots: Vec<Slot>,
    /// The counts of removed rules whose lines were reused.
    removed: OutcomeCounts,
    /// The counts of another process: of the rules without a line, and of no rule.
    past_others: OutcomeCounts,
    past_none: OutcomeCounts,
    reloads: u64,
}

/// The rules that a group of counters covers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RuleGroup<'r> {
    /// This rule.
    Rule(&'r Rule),
    /// The rules without a line.
    Others,
    /// Rules of an earlier policy.
    Removed,
    /// No rule.
    None,
}

impl fmt::Display for RuleGroup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.prefix.fmt(f),
            Self::Others => f.write_str(OTHERS),
            Self::Removed => f.write_str("removed"),
            Self::None => f.write_str(NONE),
        }
    }
}

impl RuleIds {
    /// Makes the counters of the first policy, whose rules have the first lines.
    pub(super) fn new(rules: &Rules) -> Self {
        let slot = |at| {
            let line = RuleId::of_rule(at)?;
            let owner =
                rules.rules.iter().find(|rule| rule.counted == line).map(|rule| rule.prefix);
            Some(Slot { line, owner, zero: OutcomeCounts::default(), since: 0 })
        };
        Self {
            slots: (0..MAX_RULE_IDS).map_while(slot).collect(),
            removed: OutcomeCounts::default(),
            past_others: OutcomeCounts::default(),
            past_none: OutcomeCounts::default(),
            reloads: 0,
        }
    }

    /// Continues the counts of another process, by the names that [`counts`](Self::counts) has given to the groups. Those of a rule that this
    /// policy does not count by itself are those of removed rules.
    pub(super) fn continue_counts(&mut self, name: &str, past: OutcomeCounts) {
        let owner = |slot: &&mut Slot| slot.owner.is_some_and(|prefix| prefix.to_string() == name);
        if let Some(slot) = self.slots.iter_mut().find(owner) {
            slot.zero = minus(slot.zero, past);
            return;
        }
        let group = match name {
            OTHERS => &mut self.past_others,
            NONE => &mut self.past_none,
            _ => &mut self.removed,
        };
        *group = plus(*group, past);
    }

    /// Assigns lines to the rules of the next policy, and returns the counters to use once it is in
    /// force.
    pub(super) fn assign_lines(&self, rules: &mut Rules, ledgers: &[&RuleCounters]) -> Self {
        let mut next = Self { reloads: self.reloads + 1, ..self.clone() };
        let prefixes: Vec<AnyPrefix> = rules.rules.iter().map(|rule| rule.prefix).collect();
        let mut free: Vec<usize> = Vec::new();
        for (at, slot) in next.slots.iter_mut().enumerate() {
            if slot.owner.is_none() {
                free.push(at);
            } else if !slot.owner.is_some_and(|prefix| prefixes.contains(&prefix)) {
                // This policy does not reuse the line: workers may still use the one before it.
                (slot.owner, slot.since) = (None, next.reloads);
            }
        }
        free.sort_by_key(|&at| (next.slots[at].since, at));
        let mut free = free.into_iter();
        let mut left = MAX_COUNTED_RULES
            - next.slots.iter().filter(|slot| slot.owner.is_some()).count().min(MAX_COUNTED_RULES);
        let mut line = |prefix: &AnyPrefix| {
            if let Some(slot) = next.slots.iter().find(|slot| slot.owner == Some(*prefix)) {
                return slot.line;
            }
            let Some(at) = (left > 0).then(|| free.next()).flatten() else { return RuleId::OTHERS };
            left -= 1;
            let slot = &mut next.slots[at];
            let now = sum(ledgers, slot.line);
            next.removed = plus(next.removed, minus(now, slot.zero));
            (slot.owner, slot.zero) = (Some(*prefix), now);
            slot.line
        };
        for rule in &mut rules.rules {
            rule.counted = line(&rule.prefix);
        }
        next
    }

    /// Returns the counts by rule in the order of the policy, then those of the other groups.
    pub(super) fn counts<'r>(
        &self,
        rules: &'r Rules,
        ledgers: &[&RuleCounters],
    ) -> Vec<(RuleGroup<'r>, OutcomeCounts)> {
        let counts = |slot: &Slot| minus(sum(ledgers, slot.line), slot.zero);
        let of_rule = |rule: &'r Rule| {
            let slot = self.slots.iter().find(|slot| slot.line == rule.counted)?;
            Some((RuleGroup::Rule(rule), counts(slot)))
        };
        let mut all: Vec<_> = rules.rules.iter().filter_map(of_rule).collect();
        let free = self.slots.iter().filter(|slot| slot.owner.is_none());
        all.push((RuleGroup::Others, plus(self.past_others, sum(ledgers, RuleId::OTHERS))));
        all.push((RuleGroup::Removed, free.map(counts).fold(self.removed, plus)));
        all.push((RuleGroup::None, plus(self.past_none, sum(ledgers, RuleId::NONE))));
        all
    }
}

fn sum(ledgers: &[&RuleCounters], line: RuleId) -> OutcomeCounts {
    ledgers.iter().map(|ledger| ledger.read(line)).fold(OutcomeCounts::default(), plus)
}

fn combine(
    left: OutcomeCounts,
    right: OutcomeCounts,
    operation: impl Fn(u64, u64) -> u64,
) -> OutcomeCounts {
    OutcomeCounts::from_fn(|outcome| {
        let (left, right) = (left[outcome], right[outcome]);
        Count {
            packets: operation(left.packets, right.packets),
            bytes: operation(left.bytes, right.bytes),
        }
    })
}

fn plus(left: OutcomeCounts, right: OutcomeCounts) -> OutcomeCounts {
    combine(left, right, u64::wrapping_add)
}

fn minus(left: OutcomeCounts, right: OutcomeCounts) -> OutcomeCounts {
    combine(left, right, u64::wrapping_sub)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use fib::{Prefix, Publisher};
    use gate::flow::{Flow, Key};
    use gate::gate::{Gate, Packet, RuleOutcome, Verdict};

    use super::*;
    use crate::Config;

    /// Returns 10.0.N.0/24.
    fn prefix(number: u32) -> Prefix<u32> {
        Prefix::new(0x0a00_0000 | number << 8, 24).unwrap()
    }

    /// Rules of grantors, of 10.0.N.0/24 for each number.
    fn rules(numbers: impl IntoIterator<Item = u32>) -> Rules {
        let mut text = String::from(
            "[front]\ninterface = 'a'\n[back]\ninterface = 'b'\n[link]\nbandwidth = '1mbit'\n\
             [[grantors]]\nname = 'site'\nmembers = [{ address = '10.9.0.1' }]\n",
        );
        for number in numbers {
            let prefix = prefix(number);
            let action = ["grantors = 'site'", "action = 'back'", "action = 'drop'"];
            let action = action[number as usize % action.len()];
            text += &format!("[[policy]]\nprefix = '{prefix}'\n{action}\n");
        }
        Config::parse(&text, Path::new("gate.toml")).unwrap().rules
    }

    /// Workers with the policy in force, and its counters.
    struct Rig {
        gates: Vec<Gate>,
        ledgers: Vec<Arc<RuleCounters>>,
        key: Key,
        publisher: Publisher<gate::policy::Policy>,
        rules: Rules,
        counters: RuleIds,
        sent: u64,
    }

    impl Rig {
        fn new(rules: Rules) -> Self {
            let publisher = Publisher::new(rules.policy(1).unwrap());
            let ledgers = vec![Arc::<RuleCounters>::default(), Arc::default()];
            let gate = |ledger: &Arc<RuleCounters>| {
                let mut gate = Gate::new(1000, publisher.reader(), 0);
                gate.set_ledger(Arc::clone(ledger));
                gate
            };
            let gates = ledgers.iter().map(gate).collect();
            let counters = RuleIds::new(&rules);
            Self { gates, ledgers, key: Key::random(), publisher, rules, counters, sent: 0 }
        }

        fn each(&self) -> Vec<&RuleCounters> {
            self.ledgers.iter().map(|ledger| &**ledger).collect()
        }

        fn reload(&mut self, rules: Rules) {
            self.assign_lines(rules);
            let generation = self.publisher.current().generation() + 1;
            self.publisher.publish(Box::new(self.rules.policy(generation).unwrap()));
        }

        /// Assigns lines to the next rules, which the gates do not use.
        fn assign_lines(&mut self, mut rules: Rules) {
            let next = self.counters.assign_lines(&mut rules, &self.each());
            (self.rules, self.counters) = (rules, next);
        }

        /// Sends packets of 100 bytes to 10.0.N.1, to the workers in turn.
        fn send(&mut self, number: u32, packets: u64) {
            for _ in 0..packets {
                let worker = self.sent as usize % self.gates.len();
                self.sent += 1;
                let flow = Flow::v4(self.sent as u32, 0x0a00_0001 | number << 8);
                let packet = Packet { flow, hash: self.key.hash(&flow), bytes: 100 };
                self.gates[worker].process(self.sent, &[packet], &mut [Verdict::NoRoute]);
            }
        }

        /// Returns the nonzero packet counts by name; checks that they add up.
        fn packets(&self) -> Vec<(String, u64)> {
            let counts = self.counters.counts(&self.rules, &self.each());
            let each = counts.iter().map(|(group, outcomes)| {
                let all = outcomes.iter().map(|(_, count)| count.packets).sum::<u64>();
                assert_eq!(outcomes.iter().map(|(_, count)| count.bytes).sum::<u64>(), all * 100);
                (group.to_string(), all)
            });
            let each: Vec<_> = each.collect();
            assert_eq!(each.iter().map(|(_, packets)| packets).sum::<u64>(), self.sent, "{each:?}");
            each.into_iter().filter(|(_, packets)| *packets > 0).collect()
        }
    }

    fn named(all: &[(&str, u64)]) -> Vec<(String, u64)> {
        all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn packets_count_for_the_rule_that_decided() {
        let mut rig = Rig::new(rules(0..3));
        (0..4).for_each(|number| rig.send(number, 3 + u64::from(number)));
        let counts = rig.counters.counts(&rig.rules, &rig.each());
        let of = |at: usize, outcome: RuleOutcome| counts[at].1[outcome].packets;
        assert_eq!(of(0, RuleOutcome::Request), 3);
        assert_eq!(of(1, RuleOutcome::Passed), 4);
        assert_eq!(of(2, RuleOutcome::Dropped), 5);
        let last = counts.last().unwrap();
        assert_eq!((last.0, last.1[RuleOutcome::Dropped].packets), (RuleGroup::None, 6));
        let all = [("10.0.0.0/24", 3), ("10.0.1.0/24", 4), ("10.0.2.0/24", 5), ("none", 6)];
        assert_eq!(rig.packets(), named(&all));
    }

    #[test]
    fn rule_keeps_its_counts_across_reloads_until_it_is_removed() {
        let mut rig = Rig::new(rules([1, 2, 3]));
        (1..4).for_each(|number| rig.send(number, 10));
        // Another order; 2 is removed, 4 is added.
        rig.reload(rules([4, 3, 1]));
        (1..5).for_each(|number| rig.send(number, 1));
        let all = [
            ("10.0.4.0/24", 1),
            ("10.0.3.0/24", 11),
            ("10.0.1.0/24", 11),
            ("removed", 10),
            ("none", 1),
        ];
        assert_eq!(rig.packets(), named(&all));
        rig.reload(rules([1, 2, 3, 4]));
        rig.send(2, 5);
        let all = [
            ("10.0.1.0/24", 11),
            ("10.0.2.0/24", 5),
            ("10.0.3.0/24", 11),
            ("10.0.4.0/24", 1),
            ("removed", 10),
            ("none", 1),
        ];
        assert_eq!(rig.packets(), named(&all));
    }

    #[test]
    fn successor_continues_the_counts_of_its_predecessor_by_prefix() {
        let mut before = Rig::new(rules([1, 2, 3]));
        (1..5).for_each(|number| before.send(number, 10 * u64::from(number)));
        // Another policy: 1 has gone, 4 is new.
        let mut after = Rig::new(rules([4, 3, 2]));
        for (group, past) in before.counters.counts(&before.rules, &before.each()) {
            after.counters.continue_counts(&group.to_string(), past);
        }
        after.sent = before.sent;
        (1..5).for_each(|number| after.send(number, 1));
        let all = [
            ("10.0.4.0/24", 1),
            ("10.0.3.0/24", 31),
            ("10.0.2.0/24", 21),
            ("removed", 10),
            ("none", 41),
        ];
        assert_eq!(after.packets(), named(&all));
        // And by a reload that removes a rule with a past.
        after.reload(rules([4, 3]));
        after.send(3, 1);
        let all = [("10.0.4.0/24", 1), ("10.0.3.0/24", 32), ("removed", 31), ("none", 41)];
        assert_eq!(after.packets(), named(&all));
    }

    #[test]
    fn freed_line_is_never_reused_by_the_next_policy() {
        let most = MAX_COUNTED_RULES as u32;
        let mut rig = Rig::new(rules(0..most));
        let mut gone = 0;
        for turn in 0..5 {
            let mine = |part: u32| (turn + part) * most..(turn + part + 1) * most;
            let before: Vec<RuleId> = rig.rules.rules.iter().map(|rule| rule.counted).collect();
            assert!(before.iter().all(|line| *line != RuleId::OTHERS));
            mine(0).step_by(17).for_each(|number| rig.send(number, 2));
            let packets = rig.packets();
            let by_rule = packets.iter().filter(|(name, _)| name.contains('/'));
            assert!(by_rule.clone().all(|(_, count)| *count == 2) && by_rule.count() > 10);
            let removed = packets.iter().find(|(name, _)| name == "removed");
            assert_eq!(removed.map_or(0, |(_, count)| *count), gone);
            gone += mine(0).step_by(17).count() as u64 * 2;
            rig.reload(rules(mine(1)));
            assert!(rig.rules.rules.iter().all(|rule| !before.contains(&rule.counted)));
        }
    }

    #[test]
    fn lines_are_limited_and_the_longest_free_line_is_reused_first() {
        let most = MAX_COUNTED_RULES as u32;
        let mut rig = Rig::new(rules(0..3));
        rig.reload(rules(0..most + 50));
        let own = rig.rules.rules.iter().filter(|rule| rule.counted != RuleId::OTHERS);
        assert_eq!(own.count(), MAX_COUNTED_RULES);
        assert!(
            rig.rules.rules[..MAX_COUNTED_RULES].iter().all(|rule| rule.counted != RuleId::OTHERS)
        );
        // Each reload replaces one rule.
        let ten = rules(0..10);
        rig.reload(ten.clone());
        let mut last = Vec::new();
        for turn in 0..MAX_RULE_IDS as u32 {
            let mut next = ten.clone();
            next.rules[9].prefix = AnyPrefix::V4(prefix(100 + turn));
            rig.assign_lines(next);
            last.push(rig.rules.rules[9].counted);
        }
        for (at, line) in last.iter().enumerate() {
            assert!(!last[..at].iter().rev().take(MAX_RULE_IDS - 20).any(|before| before == line));
        }
    }

    #[test]
    fn rules_without_a_line_count_together_until_a_line_is_free() {
        let most = MAX_COUNTED_RULES as u32;
        let mut rig = Rig::new(rules(0..most + 50));
        rig.send(most - 1, 2);
        rig.send(most, 3);
        rig.send(most + 49, 4);
        let first = format!("10.0.{}.0/24", most - 1);
        assert_eq!(rig.packets(), named(&[(&first, 2), ("others", 7)]));
        // The first rule of the file has no line if the rules behind it had the lines before.
        let others = (0..=most).map(|number| (number + most) % (most + 1));
        rig.reload(rules(others));
        rig.send(most, 1);
        assert_eq!(rig.packets(), named(&[(&first, 2), ("others", 8)]));
        rig.reload(rules(1..=most));
        rig.send(most, 1);
        let own = format!("10.{}.{}.0/24", most >> 8, most & 255);
        assert_eq!(rig.packets(), named(&[(&first, 2), (&own, 1), ("others", 8)]));
    }
}
