//! The evaluation of a candidate policy: what it would have decided about sampled packets.
//!
//! ```text
//!   workers ─► samples (sampler.rs) ─┬─► policy ────► outcome ─┐
//!                                    └─► candidate ─► outcome ─┴─► counted by both where they differ
//! ```
//!
//! The effect of another policy is best measured on real traffic. Only the policy in force decides
//! about packets. The candidate is compared with it here, on the control plane, so that the packet path
//! pays only for the samples, which it makes anyway. The result is an estimate: a sample represents
//! several packets (`dashboard/src/destinations.rs` has the error), and packets that the XDP program drops are not
//! sampled.
//!
//! An *outcome* is the rules' action for an address pair, and not the packet's verdict: it names the
//! grantor set, and not the grantors' decision. Two grantor sets are the same if they have one name and
//! the same members with the same weights. A limit is not part of an outcome.
//!
//! Samples, a thousand a second and worker, are evaluated with the gate's lookup tables. These do not
//! contain the prefix that decided; a status request searches the lists for it ([`outcome_of`]), which
//! is also the slow counterpart that tests compare with. A new policy or candidate resets the numbers.
//! Memory is bounded: [`PAIRS`] pairs of outcomes, [`RECENT`] flows.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use gate::flow::Flow;
use gate::policy::sources::SourceClass;
use gate::policy::{Action, Policy, PolicyError};

use super::config::{Rules, Set};
use api::{CandidateStatus, ChangedFlow, Outcome, OutcomeChange};
use gate::sample::PacketSample;

/// The maximum number of pairs of outcomes that are counted separately.
const PAIRS: usize = 256;
/// The maximum number of recorded flows with another outcome.
const RECENT: usize = 64;
/// The name of all other pairs.
const OTHERS: &str = "others";

/// The outcomes without a grantor set; outcomes with one have the numbers that follow.
const FIXED_OUTCOMES: [&str; 7] =
    ["no route", "back", "front", "drop", "allowed", "blocked", "forged"];
const ALLOWED: usize = 4;
const BLOCKED: usize = 5;
const FORGED: usize = 6;

/// One of the two policies.
#[derive(Debug)]
struct Side {
    rules: Arc<Rules>,
    policy: Policy,
    /// The number of the outcome of each grantor set.
    sets: Vec<usize>,
}

impl Side {
    /// Builds a policy, and numbers its grantor sets by `number`.
    fn new(rules: Arc<Rules>, mut number: impl FnMut(&Set) -> usize) -> Result<Self, PolicyError> {
        let policy = rules.policy(1)?;
        let each = (0..=u16::MAX).map_while(|set| policy.set(set).and_then(|_| rules.set(set)));
        let sets = each.map(&mut number).collect();
        Ok(Self { rules, policy, sets })
    }

    /// Returns the number of the outcome for a flow.
    fn outcome(&self, flow: &Flow) -> usize {
        let source = self.policy.source(flow);
        match self.policy.action(flow) {
            _ if source == Some(SourceClass::Blocked) => BLOCKED,
            None => 0,
            Some(Action::Back) => 1,
            Some(Action::Front) => 2,
            Some(Action::Drop) => 3,
            Some(Action::Forged) => FORGED,
            Some(Action::Grantors(_)) if source.is_some() => ALLOWED,
            Some(Action::Grantors(set)) => self.sets.get(usize::from(set)).copied().unwrap_or(0),
        }
    }
}

/// A flow with another outcome.
#[derive(Clone, Copy, Debug)]
struct Recent {
    source: IpAddr,
    destination: IpAddr,
    /// The packets that its samples represent.
    packets: u64,
    last: Instant,
}

/// The number of samples, and of the packets that they represent.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    samples: u64,
    packets: u64,
}

/// Compares the policy in force with its candidate.
#[derive(Debug)]
pub(super) struct CandidateEvaluation {
    policy: Side,
    candidate: Side,
    /// The names of the outcomes, by number.
    names: Vec<String>,
    all: Sums,
    changes: BTreeMap<(usize, usize), Sums>,
    /// The pairs that are not counted separately.
    others: Sums,
    /// The latest flow is the last.
    recent: VecDeque<Recent>,
}

/// Returns a flow, or `None` if the addresses are of two families.
fn flow(source: IpAddr, destination: IpAddr) -> Option<Flow> {
    match (source, destination) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => Some(Flow::v4(src.into(), dst.into())),
        (IpAddr::V6(src), IpAddr::V6(dst)) => Some(Flow::v6(src.into(), dst.into())),
        _ => None,
    }
}

/// Returns the name of a set's outcome: the policy's, if it has the same set.
fn outcome_name(set: &Set, policy: &Rules) -> String {
    let mine = policy.sets.iter().find(|mine| mine.name == set.name);
    let is_same = mine.is_none_or(|mine| {
        let grantors =
            |set: &Set| -> Vec<_> { set.members.iter().map(|member| member.grantor).collect() };
        let (mine, its) = (grantors(mine), grantors(set));
        mine.len() == its.len() && mine.iter().all(|grantor| its.contains(grantor))
    });
    let suffix = if is_same { "" } else { " of other members" };
    format!("grantors {}{suffix}", set.name)
}

/// Returns the outcome of rules for a flow and the prefix that decides. `policy`, if it is another
/// one, is the policy by which grantor sets are named.
pub(super) fn outcome_of(
    rules: &Rules,
    policy: Option<&Rules>,
    source: IpAddr,
    destination: IpAddr,
) -> Outcome {
    if let Some(prefix) = rules.blocking(source) {
        let rule = Some(prefix.to_string());
        return Outcome { action: FIXED_OUTCOMES[BLOCKED].to_owned(), rule, line: None };
    }
    if rules.is_forged(source, destination) {
        return Outcome { action: FIXED_OUTCOMES[FORGED].to_owned(), rule: None, line: None };
    }
    let rule = rules.find(destination);
    let by = |action: String| Outcome {
        action,
        rule: rule.map(|rule| rule.prefix.to_string()),
        line: rule.map(|rule| rule.line),
    };
    match rule.map(|rule| rule.action) {
        None => by(FIXED_OUTCOMES[0].to_owned()),
        Some(Action::Grantors(set)) => {
            if let Some(prefix) = rules.allowing(source) {
                let rule = Some(prefix.to_string());
                return Outcome { action: FIXED_OUTCOMES[ALLOWED].to_owned(), rule, line: None };
            }
            let set = rules.sets.get(usize::from(set));
            by(set.map_or_else(String::new, |set| outcome_name(set, policy.unwrap_or(rules))))
        }
        Some(action) => by(rules.action_name(action)),
    }
}

impl CandidateEvaluation {
    /// Makes the comparison of rules with their candidate; `None` if they have none.
    ///
    /// # Errors
    ///
    /// [`PolicyError`]; rules that were checked have no such error.
    pub(super) fn new(rules: &Arc<Rules>) -> Result<Option<Self>, PolicyError> {
        let Some(candidate) = &rules.candidate else { return Ok(None) };
        let mut names: Vec<String> = FIXED_OUTCOMES.map(str::to_owned).into();
        let mut number = |set: &Set| {
            let name = outcome_name(set, rules);
            names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            })
        };
        let policy = Side::new(Arc::clone(rules), &mut number)?;
        let candidate = Side::new(Arc::clone(candidate), &mut number)?;
        Ok(Some(Self {
            policy,
            candidate,
            names,
            all: Sums::default(),
            changes: BTreeMap::new(),
            others: Sums::default(),
            recent: VecDeque::with_capacity(RECENT),
        }))
    }

    /// Evaluates a sample.
    pub(super) fn evaluate(&mut self, now: Instant, sample: &PacketSample) {
        let Some(flow) = flow(sample.source, sample.destination) else { return };
        let packets = u64::from(sample.every);
        self.all.add(packets);
        let pair = (self.policy.outcome(&flow), self.candidate.outcome(&flow));
        if pair.0 == pair.1 {
            return;
        }
        let is_separate = self.changes.len() < PAIRS || self.changes.contains_key(&pair);
        let sums =
            if is_separate { self.changes.entry(pair).or_default() } else { &mut self.others };
        sums.add(packets);
        let &PacketSample { source, destination, .. } = sample;
        let is_same = |flow: &Recent| (flow.source, flow.destination) == (source, destination);
        let before = self.recent.iter().position(is_same).and_then(|at| self.recent.remove(at));
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        let packets = packets + before.map_or(0, |flow| flow.packets);
        self.recent.push_back(Recent { source, destination, packets, last: now });
    }

    /// Returns the result so far.
    pub(super) fn status(&self) -> CandidateStatus {
        let name = |outcome: usize| self.names.get(outcome).cloned().unwrap_or_default();
        let change = |policy, candidate, sums: Sums| {
            let Sums { samples, packets } = sums;
            OutcomeChange { policy, candidate, samples, packets }
        };
        let mut changes: Vec<_> = self
            .changes
            .iter()
            .map(|(&(was, will), &sums)| change(name(was), name(will), sums))
            .collect();
        if self.others.samples > 0 {
            changes.push(change(OTHERS.to_owned(), OTHERS.to_owned(), self.others));
        }
        changes.sort_by_key(|change| std::cmp::Reverse(change.packets));
        let (policy, candidate) = (&*self.policy.rules, &*self.candidate.rules);
        let changed = |flow: &Recent| ChangedFlow {
            source: flow.source,
            destination: flow.destination,
            policy: outcome_of(policy, None, flow.source, flow.destination),
            candidate: outcome_of(candidate, Some(policy), flow.source, flow.destination),
            packets: flow.packets,
            ago: flow.last.elapsed().as_secs_f64(),
        };
        CandidateStatus {
            version: candidate.version.clone(),
            prefixes: candidate.rules.len() as u64,
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
