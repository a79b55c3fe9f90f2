//! Which rule has which line of the workers' ledgers, over all reloads.
//!
//! ```text
//!   [[policy]] │ 192.0.2.0/24 │ … │        line │ 0 │ 1 │ 2 │ … 511        of each worker
//!                    └── the first 256 ──────────┘   └─► free: what is there is of rules that are gone
//! ```
//!
//! Who counts (`gate::gate::Ledger`) knows numbers of lines; who reads wants prefixes, and numbers
//! that never go down. So a rule keeps its line for as long as its prefix is in the policy,
//! whatever else changes of it. The first [`MOST`] of a policy get one; beyond, and while those before
//! them have one, rules are told together as `others`.
//!
//! **A line that is used again** has counts of the rule before. They are not cleared, which only
//! the worker could do: what is there when it changes hands is its new rule's zero, and goes to `gone`, so
//! that the sum over all stays what was received. There are twice as many lines as rules that may
//! have one, and the line that is free for longest is taken first: a line is never used again by the
//! policy after the one that had it, of which a worker might still count.
//!
//! Packets of which no rule has decided, without a route or of blocked sources, are `none`; so
//! are those that the kernel dropped before a worker saw them.

use std::fmt;

use feed::netlink::AnyPrefix;
use gate::gate::{Count, OutcomeCounts, RULES, RuleCounters, RuleId};

use super::config::{Rule, Rules};

/// Rules that have a line of their own.
pub(super) const MOST: usize = 256;

const _: () = assert!(2 * MOST <= RULES);

/// A line of the ledgers.
#[derive(Clone, Debug)]
struct Place {
    line: RuleId,
    /// Whose it is.
    of: Option<AnyPrefix>,
    /// What was there when it became that.
    zero: OutcomeCounts,
    /// The reload since which it is free.
    since: u64,
}

/// Who has which line.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    places: Vec<Place>,
    /// Of rules that are gone, on lines that are used again.
    gone: OutcomeCounts,
    reloads: u64,
}

/// Of which packets something is told.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Whose<'r> {
    /// Of this rule.
    Rule(&'r Rule),
    /// Of rules without a line.
    Others,
    /// Of rules that are no longer there.
    Gone,
    /// Of no rule.
    None,
}

impl fmt::Display for Whose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => rule.prefix.fmt(f),
            Self::Others => f.write_str("others"),
            Self::Gone => f.write_str("gone"),
            Self::None => f.write_str("none"),
        }
    }
}

/// Returns the line of a policy's rule by its place, which is its own if no rule had one before.
pub(super) fn first(place: usize) -> RuleId {
    RuleId::of_rule(place).filter(|_| place < MOST).unwrap_or(RuleId::OTHERS)
}

impl Lines {
    /// Begins with rules that have the first lines.
    pub(super) fn new(rules: &Rules) -> Self {
        let place = |at| {
            let line = RuleId::of_rule(at)?;
            let of = rules.rules.iter().find(|rule| rule.counted == line).map(|rule| rule.prefix);
            Some(Place { line, of, zero: OutcomeCounts::default(), since: 0 })
        };
        Self {
            places: (0..RULES).map_while(place).collect(),
            gone: OutcomeCounts::default(),
            reloads: 0,
        }
    }

    /// Finds lines for another policy: what it becomes when that is in force.
    pub(super) fn over(&self, rules: &mut Rules, ledgers: &[&RuleCounters]) -> Self {
        let mut next = Self { reloads: self.reloads + 1, ..self.clone() };
        let there: Vec<AnyPrefix> = rules.rules.iter().map(|rule| rule.prefix).collect();
        let mut free: Vec<usize> = Vec::new();
        for (at, place) in next.places.iter_mut().enumerate() {
            if place.of.is_none() {
                free.push(at);
            } else if !place.of.is_some_and(|prefix| there.contains(&prefix)) {
                // Not for this policy: the one before it is still at work.
                (place.of, place.since) = (None, next.reloads);
            }
        }
        free.sort_by_key(|&at| (next.places[at].since, at));
        let mut free = free.into_iter();
        let mut left =
            MOST - next.places.iter().filter(|place| place.of.is_some()).count().min(MOST);
        let mut line = |prefix: &AnyPrefix| {
            if let Some(place) = next.places.iter().find(|place| place.of == Some(*prefix)) {
                return place.line;
            }
            let Some(at) = (left > 0).then(|| free.next()).flatten() else { return RuleId::OTHERS };
            left -= 1;
            let place = &mut next.places[at];
            let now = sum(ledgers, place.line);
            next.gone = plus(next.gone, minus(now, place.zero));
            (place.of, place.zero) = (Some(*prefix), now);
            place.line
        };
        for rule in &mut rules.rules {
            rule.counted = line(&rule.prefix);
        }
        next
    }

    /// Tells what became of packets: by rule in the order of the policy, then of the rest.
    pub(super) fn told<'r>(
        &self,
        rules: &'r Rules,
        ledgers: &[&RuleCounters],
    ) -> Vec<(Whose<'r>, OutcomeCounts)> {
        let counts = |place: &Place| minus(sum(ledgers, place.line), place.zero);
        let of_rule = |rule: &'r Rule| {
            let place = self.places.iter().find(|place| place.line == rule.counted)?;
            Some((Whose::Rule(rule), counts(place)))
        };
        let mut all: Vec<_> = rules.rules.iter().filter_map(of_rule).collect();
        let free = self.places.iter().filter(|place| place.of.is_none());
        all.push((Whose::Others, sum(ledgers, RuleId::OTHERS)));
        all.push((Whose::Gone, free.map(counts).fold(self.gone, plus)));
        all.push((Whose::None, sum(ledgers, RuleId::NONE)));
        all
    }
}

fn sum(ledgers: &[&RuleCounters], line: RuleId) -> OutcomeCounts {
    ledgers.iter().map(|ledger| ledger.read(line)).fold(OutcomeCounts::default(), plus)
}

fn both(one: OutcomeCounts, other: OutcomeCounts, of: impl Fn(u64, u64) -> u64) -> OutcomeCounts {
    let count = |at: usize| {
        let (one, other): (Count, Count) = (one[at], other[at]);
        Count { packets: of(one.packets, other.packets), bytes: of(one.bytes, other.bytes) }
    };
    std::array::from_fn(count)
}

fn plus(one: OutcomeCounts, other: OutcomeCounts) -> OutcomeCounts {
    both(one, other, u64::wrapping_add)
}

fn minus(one: OutcomeCounts, other: OutcomeCounts) -> OutcomeCounts {
    both(one, other, u64::wrapping_sub)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::path::Path;

    use fib::Publisher;
    use gate::flow::{Flow, Key};
    use gate::gate::{Gate, Packet, RuleOutcome, Verdict};
    use std::sync::Arc;

    use super::*;
    use crate::vantage::Config;

    /// Rules of grantors, of 10.0.N.0/24 for each number.
    fn rules(numbers: impl IntoIterator<Item = u32>) -> Rules {
        let mut text = String::from(
            "[front]\ninterface = 'a'\n[back]\ninterface = 'b'\n[link]\nbandwidth = '1mbit'\n\
             [[grantors]]\nname = 'site'\nmembers = [{ address = '10.9.0.1' }]\n",
        );
        for number in numbers {
            let prefix = IpAddr::V4((0x0a00_0000 | number << 8).into());
            let action = ["grantors = 'site'", "action = 'back'", "action = 'drop'"];
            let action = action[number as usize % action.len()];
            text += &format!("[[policy]]\nprefix = '{prefix}/24'\n{action}\n");
        }
        Config::parse(&text, Path::new("gate.toml")).unwrap().rules
    }

    /// Workers by the policy in force, and what is told of it.
    struct Rig {
        gates: Vec<Gate>,
        ledgers: Vec<Arc<RuleCounters>>,
        key: Key,
        publisher: Publisher<gate::policy::Policy>,
        rules: Rules,
        lines: Lines,
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
            let lines = Lines::new(&rules);
            Self { gates, ledgers, key: Key::random(), publisher, rules, lines, sent: 0 }
        }

        fn each(&self) -> Vec<&RuleCounters> {
            self.ledgers.iter().map(|ledger| &**ledger).collect()
        }

        fn reload(&mut self, mut rules: Rules) {
            let next = self.lines.over(&mut rules, &self.each());
            let generation = self.publisher.current().generation() + 1;
            self.publisher.publish(Box::new(rules.policy(generation).unwrap()));
            (self.rules, self.lines) = (rules, next);
        }

        /// Sends so many packets of 100 bytes to 10.0.N.1, to the workers in turn.
        fn send(&mut self, number: u32, packets: u64) {
            for _ in 0..packets {
                let worker = self.sent as usize % self.gates.len();
                self.sent += 1;
                let flow = Flow::v4(self.sent as u32, 0x0a00_0001 | number << 8);
                let packet = Packet { flow, hash: self.key.hash(&flow), bytes: 100 };
                self.gates[worker].process(self.sent, &[packet], &mut [Verdict::NoRoute]);
            }
        }

        /// Returns the packets of each by name, if there are any; everything adds up.
        fn told(&self) -> Vec<(String, u64)> {
            let told = self.lines.told(&self.rules, &self.each());
            let each = told.iter().map(|(whose, fates)| {
                let all = fates.iter().map(|count| count.packets).sum::<u64>();
                assert_eq!(fates.iter().map(|count| count.bytes).sum::<u64>(), all * 100);
                (whose.to_string(), all)
            });
            let each: Vec<_> = each.collect();
            assert_eq!(each.iter().map(|it| it.1).sum::<u64>(), self.sent, "{each:?}");
            each.into_iter().filter(|it| it.1 > 0).collect()
        }
    }

    fn named(all: &[(&str, u64)]) -> Vec<(String, u64)> {
        all.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn each_rule_has_what_became_of_its_packets() {
        let mut rig = Rig::new(rules(0..3));
        (0..4).for_each(|number| rig.send(number, 3 + u64::from(number)));
        let told = rig.lines.told(&rig.rules, &rig.each());
        let of = |at: usize, fate: RuleOutcome| told[at].1[fate as usize].packets;
        assert_eq!(of(0, RuleOutcome::Request), 3);
        assert_eq!(of(1, RuleOutcome::Passed), 4);
        assert_eq!(of(2, RuleOutcome::Dropped), 5);
        let last = told.last().unwrap();
        assert_eq!((last.0, last.1[RuleOutcome::Dropped as usize].packets), (Whose::None, 6));
        let all = [("10.0.0.0/24", 3), ("10.0.1.0/24", 4), ("10.0.2.0/24", 5), ("none", 6)];
        assert_eq!(rig.told(), named(&all));
    }

    #[test]
    fn a_rule_that_stays_keeps_its_counts_and_one_that_comes_back_begins_anew() {
        let mut rig = Rig::new(rules([1, 2, 3]));
        (1..4).for_each(|number| rig.send(number, 10));
        // Another order; 2 goes, 4 comes.
        rig.reload(rules([4, 3, 1]));
        (1..5).for_each(|number| rig.send(number, 1));
        let all = [
            ("10.0.4.0/24", 1),
            ("10.0.3.0/24", 11),
            ("10.0.1.0/24", 11),
            ("gone", 10),
            ("none", 1),
        ];
        assert_eq!(rig.told(), named(&all));
        rig.reload(rules([1, 2, 3, 4]));
        rig.send(2, 5);
        let all = [
            ("10.0.1.0/24", 11),
            ("10.0.2.0/24", 5),
            ("10.0.3.0/24", 11),
            ("10.0.4.0/24", 1),
            ("gone", 10),
            ("none", 1),
        ];
        assert_eq!(rig.told(), named(&all));
    }

    #[test]
    fn lines_are_used_again_and_never_by_the_next_policy() {
        let most = MOST as u32;
        let mut rig = Rig::new(rules(0..most));
        let mut gone = 0;
        for turn in 0..5 {
            let mine = |part: u32| (turn + part) * most..(turn + part + 1) * most;
            let before: Vec<RuleId> = rig.rules.rules.iter().map(|rule| rule.counted).collect();
            assert!(before.iter().all(|line| *line != RuleId::OTHERS));
            mine(0).step_by(17).for_each(|number| rig.send(number, 2));
            let told = rig.told();
            let of_rules = told.iter().filter(|it| it.0.contains('/'));
            assert!(of_rules.clone().all(|it| it.1 == 2) && of_rules.count() > 10);
            let what = told.iter().find(|it| it.0 == "gone").map_or(0, |it| it.1);
            assert_eq!(what, gone);
            gone += mine(0).step_by(17).count() as u64 * 2;
            rig.reload(rules(mine(1)));
            assert!(rig.rules.rules.iter().all(|rule| !before.contains(&rule.counted)));
        }
    }

    #[test]
    fn no_more_have_a_line_than_may_and_the_line_that_is_free_for_longest_is_next() {
        let most = MOST as u32;
        let mut rig = Rig::new(rules(0..3));
        rig.reload(rules(0..most + 50));
        let own = rig.rules.rules.iter().filter(|rule| rule.counted != RuleId::OTHERS);
        assert_eq!(own.count(), MOST);
        assert!(rig.rules.rules[..MOST].iter().all(|rule| rule.counted != RuleId::OTHERS));
        // One rule after the other is replaced.
        rig.reload(rules(0..10));
        let mut last = Vec::new();
        for turn in 0..RULES as u32 {
            rig.reload(rules((0..9).chain([100 + turn])));
            last.push(rig.rules.rules[9].counted);
        }
        for (at, line) in last.iter().enumerate() {
            assert!(!last[..at].iter().rev().take(RULES - 20).any(|before| before == line));
        }
    }

    #[test]
    fn rules_beyond_the_first_are_told_together_until_there_is_room() {
        let most = MOST as u32;
        let mut rig = Rig::new(rules(0..most + 50));
        rig.send(most - 1, 2);
        rig.send(most, 3);
        rig.send(most + 49, 4);
        let kept = format!("10.0.{}.0/24", most - 1);
        assert_eq!(rig.told(), named(&[(&kept, 2), ("others", 7)]));
        // The first of the file has none where those behind it have had them before.
        let others = (0..=most).map(|number| (number + most) % (most + 1));
        rig.reload(rules(others));
        rig.send(most, 1);
        assert_eq!(rig.told(), named(&[(&kept, 2), ("others", 8)]));
        rig.reload(rules(1..=most));
        rig.send(most, 1);
        let own = format!("10.{}.{}.0/24", most >> 8, most & 255);
        assert_eq!(rig.told(), named(&[(&kept, 2), (&own, 1), ("others", 8)]));
    }
}
