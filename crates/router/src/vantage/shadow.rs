//! A candidate beside the policy: what it would have decided of packets that were sampled.
//!
//! ```text
//!   workers ─► samples (sampler.rs) ─┬─► policy ────► outcome ─┐
//!                                    └─► candidate ─► outcome ─┴─► counted by both, where they differ
//! ```
//!
//! What another policy would do is best seen on the traffic that there is. Packets are decided by the
//! policy in force alone; the candidate is compared with it here, on the control side, so that the
//! packet path pays nothing more than the samples that it leaves anyway. What is told is
//! therefore an estimate: a sample stands for as many packets as there are to one (`web/top.rs` has
//! the error), and what the kernel drops is not sampled at all.
//!
//! An *outcome* is what the rules say of a pair of addresses, not what became of the packet: which
//! grantors would be asked, and not what they say. Grantor sets are the same if they have one name and
//! the same members by the same weights; a limit is not an outcome.
//!
//! Counting goes by the tables that a gate looks packets up in, a thousand samples a second and
//! worker; the prefixes that decided, which are not in these tables, are looked for in the lists when
//! somebody asks ([`OutcomeTold::of`]), which is the slow twin of it. All begins anew with each
//! policy and each candidate. Memory is bounded: [`PAIRS`] pairs of outcomes, [`RECENT`] flows.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use gate::flow::Flow;
use gate::policy::sources::SourceClass;
use gate::policy::{Action, Policy, PolicyError};

use super::config::{Rules, Set};
use super::panel::told::{CandidateTold, ChangedTold, DifferingTold, OutcomeTold};
use super::sampler::Sampled;

/// Pairs of outcomes that are told apart; the rest is counted together.
const PAIRS: usize = 256;
/// Flows that are remembered of those whose outcome would be another.
const RECENT: usize = 64;
/// What the rest is called.
const OTHERS: &str = "others";

/// The outcomes that there are without a grantor set, in words; those with one have the numbers after.
const WITHOUT: [&str; 7] = ["no route", "back", "front", "drop", "allowed", "blocked", "forged"];
const ALLOWED: usize = 4;
const BLOCKED: usize = 5;
const FORGED: usize = 6;

/// One of two policies.
#[derive(Debug)]
struct Side {
    rules: Arc<Rules>,
    policy: Policy,
    /// The outcome's number of each of the policy's sets.
    sets: Vec<usize>,
}

impl Side {
    /// Makes a policy, and numbers its sets by `words`, of which it may add some.
    fn new(rules: Arc<Rules>, mut number: impl FnMut(&Set) -> usize) -> Result<Self, PolicyError> {
        let policy = rules.policy(1)?;
        let each = (0..=u16::MAX).map_while(|set| policy.set(set).and_then(|_| rules.set(set)));
        let sets = each.map(&mut number).collect();
        Ok(Self { rules, policy, sets })
    }

    /// Says what the policy makes of a flow, by the outcome's number.
    fn outcome(&self, flow: &Flow) -> usize {
        let said = self.policy.source(flow);
        match self.policy.action(flow) {
            _ if said == Some(SourceClass::Blocked) => BLOCKED,
            None => 0,
            Some(Action::Back) => 1,
            Some(Action::Front) => 2,
            Some(Action::Drop) => 3,
            Some(Action::Forged) => FORGED,
            Some(Action::Grantors(_)) if said.is_some() => ALLOWED,
            Some(Action::Grantors(set)) => self.sets.get(usize::from(set)).copied().unwrap_or(0),
        }
    }
}

/// A flow whose outcome would be another.
#[derive(Clone, Copy, Debug)]
struct Recent {
    source: IpAddr,
    destination: IpAddr,
    /// Packets that its samples stand for.
    packets: u64,
    last: Instant,
}

/// Samples, and the packets that they stand for.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    samples: u64,
    packets: u64,
}

/// The policy and its candidate, and what has come of it so far.
#[derive(Debug)]
pub(super) struct Shadow {
    policy: Side,
    candidate: Side,
    /// By the outcome's number.
    words: Vec<String>,
    all: Sums,
    changes: BTreeMap<(usize, usize), Sums>,
    /// Pairs beyond those that are told apart.
    others: Sums,
    /// The latest last.
    recent: VecDeque<Recent>,
}

/// Returns a flow; none if its addresses are of two families.
fn flow(source: IpAddr, destination: IpAddr) -> Option<Flow> {
    match (source, destination) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Flow::v4(src.into(), dst.into())),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Flow::v6(src.into(), dst.into())),
        _ => None,
    }
}

/// Puts a set of a candidate into words: those of the policy's, where it is the same.
fn words_of(set: &Set, policy: &Rules) -> String {
    let mine = policy.sets.iter().find(|mine| mine.name == set.name);
    let alike = mine.is_none_or(|mine| {
        let grantors = |set: &Set| -> Vec<_> { set.members.iter().map(|it| it.grantor).collect() };
        let (mine, its) = (grantors(mine), grantors(set));
        mine.len() == its.len() && mine.iter().all(|grantor| its.contains(grantor))
    });
    let others = if alike { "" } else { " of other members" };
    format!("grantors {}{others}", set.name)
}

impl OutcomeTold {
    /// Says what rules make of a flow, and which prefix of theirs decides; `policy` is what sets are
    /// told by, where that is another.
    pub(super) fn of(
        rules: &Rules,
        policy: Option<&Rules>,
        source: IpAddr,
        destination: IpAddr,
    ) -> Self {
        if let Some(prefix) = rules.blocking(source) {
            let rule = Some(prefix.to_string());
            return Self { action: WITHOUT[BLOCKED].to_owned(), rule, line: None };
        }
        if rules.is_forged(source, destination) {
            return Self { action: WITHOUT[FORGED].to_owned(), rule: None, line: None };
        }
        let rule = rules.find(destination);
        let by = |action: String| Self {
            action,
            rule: rule.map(|rule| rule.prefix.to_string()),
            line: rule.map(|rule| rule.line),
        };
        match rule.map(|rule| rule.action) {
            None => by(WITHOUT[0].to_owned()),
            Some(Action::Grantors(set)) => {
                if let Some(prefix) = rules.allowing(source) {
                    let rule = Some(prefix.to_string());
                    return Self { action: WITHOUT[ALLOWED].to_owned(), rule, line: None };
                }
                let set = rules.sets.get(usize::from(set));
                by(set.map_or_else(String::new, |set| words_of(set, policy.unwrap_or(rules))))
            }
            Some(action) => by(rules.words(action)),
        }
    }
}

impl Shadow {
    /// Compares rules with their candidate from now on; none if they have none.
    ///
    /// # Errors
    ///
    /// [`PolicyError`]; rules that were judged have none.
    pub(super) fn new(rules: &Arc<Rules>) -> Result<Option<Self>, PolicyError> {
        let Some(candidate) = &rules.candidate else { return Ok(None) };
        let mut words: Vec<String> = WITHOUT.map(str::to_owned).into();
        let mut number = |set: &Set| {
            let its = words_of(set, rules);
            words.iter().position(|known| *known == its).unwrap_or_else(|| {
                words.push(its);
                words.len() - 1
            })
        };
        let policy = Side::new(Arc::clone(rules), &mut number)?;
        let candidate = Side::new(Arc::clone(candidate), &mut number)?;
        Ok(Some(Self {
            policy,
            candidate,
            words,
            all: Sums::default(),
            changes: BTreeMap::new(),
            others: Sums::default(),
            recent: VecDeque::with_capacity(RECENT),
        }))
    }

    /// Looks at a packet that was sampled.
    pub(super) fn see(&mut self, now: Instant, sampled: &Sampled) {
        let Some(flow) = flow(sampled.source, sampled.destination) else { return };
        let packets = u64::from(sampled.every);
        self.all.add(packets);
        let pair = (self.policy.outcome(&flow), self.candidate.outcome(&flow));
        if pair.0 == pair.1 {
            return;
        }
        let known = self.changes.len() < PAIRS || self.changes.contains_key(&pair);
        let sums = if known { self.changes.entry(pair).or_default() } else { &mut self.others };
        sums.add(packets);
        let &Sampled { source, destination, .. } = sampled;
        let is = |it: &Recent| (it.source, it.destination) == (source, destination);
        let before = self.recent.iter().position(is).and_then(|at| self.recent.remove(at));
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        let packets = packets + before.map_or(0, |it| it.packets);
        self.recent.push_back(Recent { source, destination, packets, last: now });
    }

    /// Tells of it.
    pub(super) fn told(&self) -> CandidateTold {
        let words = |outcome: usize| self.words.get(outcome).cloned().unwrap_or_default();
        let differing = |policy, candidate, sums: Sums| {
            let Sums { samples, packets } = sums;
            DifferingTold { policy, candidate, samples, packets }
        };
        let mut changes: Vec<_> = self
            .changes
            .iter()
            .map(|(&(was, will), &sums)| differing(words(was), words(will), sums))
            .collect();
        if self.others.samples > 0 {
            changes.push(differing(OTHERS.to_owned(), OTHERS.to_owned(), self.others));
        }
        changes.sort_by_key(|it| std::cmp::Reverse(it.packets));
        let (mine, its) = (&*self.policy.rules, &*self.candidate.rules);
        let changed = |it: &Recent| ChangedTold {
            source: it.source,
            destination: it.destination,
            policy: OutcomeTold::of(mine, None, it.source, it.destination),
            candidate: OutcomeTold::of(its, Some(mine), it.source, it.destination),
            packets: it.packets,
            ago: it.last.elapsed().as_secs_f64(),
        };
        CandidateTold {
            version: its.version.clone(),
            prefixes: its.rules.len() as u64,
            samples: self.all.samples,
            packets: self.all.packets,
            changes,
            flows: self.recent.iter().rev().map(changed).collect(),
        }
    }
}

impl Sums {
    fn add(&mut self, packets: u64) {
        self.samples += 1;
        self.packets += packets;
    }
}

#[cfg(test)]
mod tests;
