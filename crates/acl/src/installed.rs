//! Installed lists: a list with the state that workers share.

use std::sync::Arc;

use crate::{AccessList, Action, Policer, RuleCount, RuleCounters};

/// A list that workers examine packets by.
#[derive(Debug)]
pub struct InstalledList {
    /// The list.
    pub list: Arc<AccessList>,
    /// The counters of each worker.
    counters: Box<[RuleCounters]>,
    /// The policer of each rule that has one; empty if no rule has.
    policers: Box<[Option<Policer>]>,
}

impl InstalledList {
    /// Makes the state of a list for this number of workers; all counters are 0.
    pub fn new(list: Arc<AccessList>, workers: usize) -> Self {
        let rules = list.rules();
        let policer = |action: &Action| match action {
            Action::Police(rate) => Some(Policer::new(*rate)),
            _ => None,
        };
        let policers: Box<[_]> = rules.iter().map(|rule| policer(&rule.action)).collect();
        let has_policers = policers.iter().any(Option::is_some);
        Self {
            counters: (0..workers).map(|_| RuleCounters::new(rules.len())).collect(),
            policers: if has_policers { policers } else { Box::default() },
            list,
        }
    }

    /// Returns the counters that a worker writes; `None` beyond the number of workers.
    #[inline]
    pub fn counters(&self, worker: usize) -> Option<&RuleCounters> {
        self.counters.get(worker)
    }

    /// Returns the policer of a rule.
    #[inline]
    pub fn policer(&self, rule: usize) -> Option<&Policer> {
        self.policers.get(rule)?.as_ref()
    }

    /// Returns the counts of all workers by rule; the last one is that of the default.
    pub fn counts(&self) -> Vec<RuleCount> {
        let mut counts = vec![RuleCount::default(); self.list.rules().len() + 1];
        for counters in &self.counters {
            counts.iter_mut().zip(counters.read()).for_each(|(sum, count)| sum.add(count));
        }
        counts
    }
}
