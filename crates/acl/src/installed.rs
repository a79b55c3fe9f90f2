//! Installed lists: a list with the state that workers share.
//!
//! A changed list is installed beside the one that workers still use. Its counters continue those of the
//! equal rules of that one, exactly: it reads both until the next change.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use crate::{AccessList, Action, Policer, Rule, RuleCount, RuleCounters};

/// A list that workers examine packets by.
#[derive(Debug)]
pub struct InstalledList {
    tally: Arc<Tally>,
    policers: Box<[Policer]>,
    /// The number of each rule's policer, which is beyond them if it has none; empty if no rule has one.
    policer_of: Box<[u32]>,
    /// The counts that were carried over, by rule.
    carried: Vec<RuleCount>,
    /// The counts of another process, by rule, once they are known.
    inherited: OnceLock<Vec<RuleCount>>,
    /// The counters of the list before this one, which workers may still write.
    before: Option<Arc<Tally>>,
}

/// A list, and the counters of each worker.
#[derive(Debug)]
struct Tally {
    list: Arc<AccessList>,
    counters: Box<[RuleCounters]>,
}

impl Tally {
    /// Returns the counts of all workers by rule; the last one is that of the default.
    fn counts(&self) -> impl Iterator<Item = RuleCount> {
        (0..=self.list.rules().len()).map(|rule| {
            let mut sum = RuleCount::default();
            self.counters.iter().for_each(|counters| sum.add(counters.get(rule)));
            sum
        })
    }
}

impl InstalledList {
    /// Makes the state of a list for this number of workers; all counters are 0.
    pub fn new(list: Arc<AccessList>, workers: usize) -> Self {
        let rules = list.rules();
        let (policers, policer_of) = policers(rules);
        let counters = (0..workers).map(|_| RuleCounters::new(rules.len())).collect();
        Self {
            policers,
            policer_of,
            carried: vec![RuleCount::default(); rules.len() + 1],
            inherited: OnceLock::new(),
            before: None,
            tally: Arc::new(Tally { list, counters }),
        }
    }

    /// Makes a copy for one worker, with counters and policers of its own.
    pub fn separate(&self) -> Self {
        Self::new(Arc::clone(&self.tally.list), 1)
    }

    /// Makes the state of a list that replaces `before`, and continues the counters of equal rules and of
    /// the default. Workers must have left the list that `before` has replaced.
    ///
    /// # Complexity
    ///
    /// O(rules of both).
    pub fn replacing(list: Arc<AccessList>, workers: usize, before: &Self) -> Self {
        let mut carried = before.past_counts();
        if let Some(older) = &before.before {
            carry(older, before.list(), &mut carried);
        }
        let mut installed = Self::new(list, workers);
        carry_counts(carried, before.list(), &installed.tally.list, &mut installed.carried);
        installed.before = Some(Arc::clone(&before.tally));
        installed
    }

    /// Returns the list.
    #[inline]
    pub fn list(&self) -> &AccessList {
        &self.tally.list
    }

    /// Returns the counters that a worker writes; `None` beyond the number of workers.
    #[inline]
    pub fn counters(&self, worker: usize) -> Option<&RuleCounters> {
        self.tally.counters.get(worker)
    }

    /// Returns the policer of a rule.
    #[inline]
    pub fn policer(&self, rule: usize) -> Option<&Policer> {
        self.policers.get(*self.policer_of.get(rule)? as usize)
    }

    /// Returns the counts of all workers by rule; the last one is that of the default.
    pub fn counts(&self) -> Vec<RuleCount> {
        let mut counts = self.past_counts();
        if let Some(before) = &self.before {
            carry(before, self.list(), &mut counts);
        }
        counts.iter_mut().zip(self.tally.counts()).for_each(|(sum, count)| sum.add(count));
        counts
    }

    /// Returns the counts that were carried over, and those of another process.
    fn past_counts(&self) -> Vec<RuleCount> {
        let mut counts = self.carried.clone();
        let inherited = self.inherited.get().into_iter().flatten();
        counts.iter_mut().zip(inherited).for_each(|(sum, count)| sum.add(*count));
        counts
    }

    /// Continues the counts of a list of another process: by the text of each rule in order, and last that of the
    /// default, whose text has no meaning. Counts of rules that this list does not have are left out. Has an effect once.
    pub fn continue_counts(&self, counts: &[(String, RuleCount)]) {
        let Some(((_, default), rules)) = counts.split_last() else { return };
        let own = self.list().rules();
        let numbers: HashMap<_, _> = keys(own.iter().map(Rule::to_string)).zip(0..).collect();
        let mut sums = vec![RuleCount::default(); own.len() + 1];
        for (key, (_, count)) in keys(rules.iter().map(|(text, _)| text.clone())).zip(rules) {
            if let Some(sum) = numbers.get(&key).and_then(|at: &usize| sums.get_mut(*at)) {
                sum.add(*count);
            }
        }
        sums[own.len()].add(*default);
        let _ = self.inherited.set(sums);
    }
}

/// Makes the policers of rules, and the number of each rule's.
fn policers(rules: &[Rule]) -> (Box<[Policer]>, Box<[u32]>) {
    let (mut policers, mut named, mut policer_of) = (Vec::new(), HashMap::new(), Vec::new());
    for rule in rules {
        let Action::Police(rate) = rule.action else {
            policer_of.push(u32::MAX);
            continue;
        };
        let new = policers.len() as u32;
        let number = match &rule.policer {
            Some(name) => *named.entry(name).or_insert(new),
            None => new,
        };
        if number == new {
            policers.push(Policer::new(rate));
        }
        policer_of.push(number);
    }
    if policers.is_empty() {
        policer_of.clear();
    }
    (policers.into(), policer_of.into())
}

/// Adds the counts of a list to those of the equal rules of another list.
fn carry(from: &Tally, to: &AccessList, sums: &mut [RuleCount]) {
    carry_counts(from.counts(), &from.list, to, sums);
}

fn carry_counts(
    counts: impl IntoIterator<Item = RuleCount>,
    from: &AccessList,
    to: &AccessList,
    sums: &mut [RuleCount],
) {
    let text = |list: &AccessList| list.rules().iter().map(Rule::to_string).collect::<Vec<_>>();
    let numbers: HashMap<_, _> = keys(text(to).into_iter()).zip(0..).collect();
    let targets = keys(text(from).into_iter()).map(|key| numbers.get(&key).copied());
    let targets = targets.chain([Some(to.rules().len())]);
    for (count, target) in counts.into_iter().zip(targets) {
        if let Some(sum) = target.and_then(|target| sums.get_mut(target)) {
            sum.add(count);
        }
    }
}

/// Returns for each rule its text, and the number of equal rules before it.
fn keys(rules: impl Iterator<Item = String>) -> impl Iterator<Item = (String, usize)> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    rules.map(move |text| {
        let count = seen.entry(text.clone()).or_default();
        *count += 1;
        (text, *count - 1)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use super::InstalledList;
    use crate::{AccessList, Rule};

    fn list(rules: &[&str]) -> Arc<AccessList> {
        let rules = rules.iter().map(|text| Rule::parse(text, &|_| None).unwrap()).collect();
        Arc::new(AccessList::build("list", true, rules).unwrap())
    }

    fn packets(list: &InstalledList) -> Vec<u64> {
        list.counts().iter().map(|count| count.packets).collect()
    }

    #[test]
    fn counts_of_another_process_continue_by_the_text_of_rules() {
        let before = InstalledList::new(list(&["deny dscp 1", "count dscp 2", "deny dscp 1"]), 2);
        for (rule, packets) in [1, 20, 300, 4000].into_iter().enumerate() {
            before.counters(1).unwrap().count_batch(rule, packets, 100 * packets);
        }
        let texts = before.list().rules().iter().map(Rule::to_string).chain([String::new()]);
        let counts: Vec<_> = texts.zip(before.counts()).collect();
        let after = InstalledList::new(list(&["deny dscp 1", "deny dscp 1", "permit dscp 3"]), 1);
        after.continue_counts(&counts);
        assert_eq!(packets(&after), [1, 300, 0, 4000]);
        after.continue_counts(&counts);
        after.counters(0).unwrap().count_batch(2, 1, 100);
        assert_eq!(packets(&after), [1, 300, 1, 4000]);
        let third = InstalledList::replacing(list(&["permit dscp 3", "deny dscp 1"]), 1, &after);
        assert_eq!(packets(&third), [1, 1, 4000]);
    }

    #[test]
    fn rules_with_the_name_of_a_policer_share_it() {
        let rules = [
            "police 1pps policer a dscp 1",
            "permit dscp 2",
            "police 1pps dscp 3",
            "police 2pps policer b dscp 4",
            "police 1pps policer a dscp 5",
            "police 1pps dscp 6",
        ];
        let list = InstalledList::new(list(&rules), 1);
        let at = |rule: usize| list.policer(rule).map(std::ptr::from_ref);
        assert_eq!((at(0), at(1), at(6)), (at(4), None, None));
        let distinct = [0, 2, 3, 5].map(|rule| at(rule).unwrap());
        assert_eq!(HashSet::from(distinct).len(), 4);
        // The burst of eight packets is that of both rules together.
        let admitted =
            [0, 4].repeat(8).into_iter().filter(|rule| list.policer(*rule).unwrap().admit(0, 100));
        assert_eq!(admitted.count(), 8);
    }

    #[test]
    fn counters_of_equal_rules_continue_when_a_list_is_replaced() {
        let count = |list: &InstalledList, worker: usize, rule: usize, times: usize| {
            (0..times).for_each(|_| _ = list.counters(worker).unwrap().count(rule, 100));
        };
        let first = InstalledList::new(list(&["count", "permit dscp 1", "count"]), 2);
        count(&first, 0, 0, 1);
        count(&first, 1, 0, 2);
        count(&first, 0, 1, 10);
        count(&first, 1, 2, 100);
        count(&first, 0, 3, 1000);
        assert_eq!(packets(&first), [3, 10, 100, 1000]);
        let rules = list(&["deny", "permit dscp 1", "count", "count", "count"]);
        let second = InstalledList::replacing(rules, 1, &first);
        // A worker has not left the first list yet.
        count(&first, 0, 1, 5);
        count(&second, 0, 0, 7);
        assert_eq!(packets(&second), [7, 15, 3, 100, 0, 1000]);
        let third = InstalledList::replacing(list(&["permit dscp 1"]), 3, &second);
        count(&third, 2, 0, 1);
        count(&second, 0, 1, 1);
        count(&second, 0, 5, 1);
        assert_eq!(packets(&third), [17, 1001]);
        assert_eq!(third.counts()[0].bytes, 1700);
    }
}
