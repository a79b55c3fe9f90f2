//! Decisions at the gate: about a flow at once, about prefixes by a walk through the table.
//!
//! A decision about a flow without an entry makes one, if the policy assigns its destination to
//! grantors: a request whose entry was evicted can be decided all the same, and its decision evicts
//! another entry. A grant finds room as long as anything in the table is not granted; declines have
//! a share of it (`table/eviction.rs`).
//!
//! **A provisional decline** rests on no proof that its packet was not forged
//! (`state/provisional.rs`). It has no effect on a flow that is granted, run by a program, declined
//! by its addresses, or proven. It makes an entry only where a packet of the flow would, and only
//! if one is free: forged sources that a policy declines take no room from others.
//!
//! A decision about prefixes applies to the known flows, by a walk of bounded steps, and to flows
//! that arrive during its lifetime, from a list of at most [`MAX_PREFIX_DECISIONS`] that new flows
//! are matched against; the latest counts. It declines a flow without an entry too (admission.rs);
//! for a grant the flow has to send another packet. The stamp protects a flow with a later decision
//! of its own.
//!
//! Decisions are **retracted** by their stamps: all of a sender up to a number ([`Gate::retract`]),
//! by such a walk too. A flow with one of them in force is removed, and sends requests again.

use super::run::ProgramRunner;
use super::{Gate, GateCounters};
use crate::decision::{FlowCommand, Item, ProgramDecision, Scope};
use crate::flow::Flow;
use crate::index::Index;
use crate::policy::Action;
use crate::state::{Decision, Grant, Record, Stamp, State};
use crate::table::{FlowTable, PolicyBinding};

/// Maximum number of decisions about prefixes at a time.
pub const MAX_PREFIX_DECISIONS: usize = 64;

const SECOND: u64 = 1_000_000_000;

/// A decision about a pair of prefixes.
#[derive(Clone, Copy, Debug)]
struct PrefixDecision {
    scope: Scope,
    command: FlowCommand,
    stamp: Stamp,
    until: u64,
    /// The position of the walk.
    walked: usize,
}

/// Decisions to retract: those of a sender, up to a number.
#[derive(Clone, Copy, Debug)]
struct Retraction {
    up_to: Stamp,
    /// The position of the walk.
    walked: usize,
}

/// Maximum number of retractions at a time.
const MAX_RETRACTIONS: usize = 64;

/// The decisions about prefixes, the latest last, and the retractions.
#[derive(Debug)]
pub(super) struct PrefixDecisions {
    rules: Vec<PrefixDecision>,
    retractions: Vec<Retraction>,
}

impl Default for PrefixDecisions {
    /// Allocates for the maximum.
    fn default() -> Self {
        Self {
            rules: Vec::with_capacity(MAX_PREFIX_DECISIONS),
            retractions: Vec::with_capacity(MAX_RETRACTIONS),
        }
    }
}

impl PrefixDecisions {
    /// Applies the latest decision about a flow that has just got its entry.
    #[inline]
    pub(super) fn apply<I: Index>(
        &self,
        table: &mut FlowTable<I>,
        runner: &mut ProgramRunner,
        entry: u32,
        flow: &Flow,
        now: u64,
    ) {
        if self.rules.is_empty() {
            return;
        }
        let about = |rule: &&PrefixDecision| now < rule.until && rule.scope.contains(flow);
        if let Some(rule) = self.rules.iter().rev().find(about) {
            if declines(&rule.command) {
                table.enforce_declined_share();
            }
            // A flush has no effect on a new flow.
            if rule.command != FlowCommand::Flush {
                let _ = rule.say(table, runner, entry, now, rule.stamp);
            }
        }
    }

    /// Returns whether the latest decision about a flow without an entry declines it.
    #[inline]
    pub(super) fn declines(&self, flow: &Flow, now: u64) -> bool {
        let about = |rule: &&PrefixDecision| now < rule.until && rule.scope.contains(flow);
        let latest = self.rules.iter().rev().find(about);
        latest.is_some_and(|rule| declines(&rule.command))
    }

    /// Continues the walks, reading at most `work` entries, and removes what has expired.
    pub(super) fn walk<I: Index>(
        &mut self,
        table: &mut FlowTable<I>,
        runner: &mut ProgramRunner,
        counts: &mut GateCounters,
        now: u64,
        work: usize,
    ) {
        if !self.retractions.is_empty() {
            self.walk_retractions(table, counts, work);
        }
        if self.rules.is_empty() {
            return;
        }
        let mut left = work;
        for rule in &mut self.rules {
            while left > 0 && rule.walked < table.capacity() {
                let part = rule.walked..rule.walked + left.min(64);
                rule.walked = part.end;
                left -= part.len();
                let mut met = [0; 64];
                let mut count = 0;
                for (entry, kept) in table.within(part) {
                    if rule.scope.contains(&kept.flow()) {
                        met[count] = entry;
                        count += 1;
                    }
                }
                for &entry in &met[..count] {
                    let result = rule.say(table, runner, entry, now, rule.stamp);
                    *counter(counts, &result) += 1;
                }
            }
        }
        let capacity = table.capacity();
        self.rules.retain(|rule| rule.walked < capacity || now < rule.until);
    }
}

impl PrefixDecisions {
    /// Continues the retractions, with at most `work` entries read for each.
    #[cold]
    fn walk_retractions<I: Index>(
        &mut self,
        table: &mut FlowTable<I>,
        counts: &mut GateCounters,
        work: usize,
    ) {
        for Retraction { up_to, walked } in &mut self.retractions {
            let end = (*walked + work).min(table.capacity());
            while *walked < end {
                let part = *walked..end.min(*walked + 64);
                *walked = part.end;
                let mut met = [0; 64];
                let mut count = 0;
                for (entry, kept) in table.within(part) {
                    let (state, stamp) = (kept.record().state(), kept.record().stamp());
                    let theirs = stamp.sender == up_to.sender && stamp.number <= up_to.number;
                    if theirs && state != State::Request {
                        met[count] = entry;
                        count += 1;
                    }
                }
                met[..count].iter().for_each(|&entry| table.remove(entry));
                counts.retracted += count as u64;
            }
        }
        let capacity = table.capacity();
        self.retractions.retain(|retraction| retraction.walked < capacity);
    }
}

impl PrefixDecision {
    /// Applies this decision to a flow with its remaining lifetime at `now`, in whole seconds,
    /// rounded up.
    fn say<I: Index>(
        &self,
        table: &mut FlowTable<I>,
        runner: &mut ProgramRunner,
        entry: u32,
        now: u64,
        stamp: Stamp,
    ) -> Result<(), IgnoredReason> {
        let expire_s = self.until.saturating_sub(now).div_ceil(SECOND) as u32;
        let command = match self.command {
            FlowCommand::Decide(Decision::Decline { .. } | Decision::Provisional(_)) => {
                FlowCommand::Decide(Decision::Decline { expire_s })
            }
            FlowCommand::Decide(Decision::Grant(grant)) => {
                FlowCommand::Decide(Decision::Grant(Grant { expire_s, ..grant }))
            }
            FlowCommand::Run(program) => FlowCommand::Run(ProgramDecision { expire_s, ..program }),
            FlowCommand::Flush => FlowCommand::Flush,
        };
        apply(table, runner, entry, now, &command, stamp)
    }
}

/// Applies a command to a flow with an entry.
fn apply<I: Index>(
    table: &mut FlowTable<I>,
    runner: &mut ProgramRunner,
    entry: u32,
    now: u64,
    command: &FlowCommand,
    stamp: Stamp,
) -> Result<(), IgnoredReason> {
    let record = table.entry(entry).record();
    let counts = match command {
        FlowCommand::Flush => {
            table.remove(entry);
            true
        }
        FlowCommand::Decide(Decision::Provisional(_)) if record.is_settled(now) => {
            return Err(IgnoredReason::Unproven);
        }
        FlowCommand::Decide(decision) => table.decide(entry, now, decision, stamp),
        // A late command is not even tried.
        FlowCommand::Run(_) if record.is_late(stamp) => false,
        FlowCommand::Run(program) => {
            let started = runner.begin(now, program).ok_or(IgnoredReason::Program)?;
            table.run(entry, now, &started, stamp)
        }
    };
    if counts { Ok(()) } else { Err(IgnoredReason::Late) }
}

/// Returns whether a command drops packets.
fn declines(command: &FlowCommand) -> bool {
    matches!(command, FlowCommand::Decide(Decision::Decline { .. } | Decision::Provisional(_)))
}

/// Returns the counter of a decision with this result.
fn counter<'a>(counts: &'a mut GateCounters, result: &Result<(), IgnoredReason>) -> &'a mut u64 {
    match result {
        Ok(()) => &mut counts.decided,
        Err(IgnoredReason::Late) => &mut counts.late,
        Err(IgnoredReason::Unprotected) => &mut counts.unprotected,
        Err(IgnoredReason::Program) => &mut counts.programs,
        Err(IgnoredReason::Unproven) => &mut counts.unproven,
        Err(IgnoredReason::NoRoom | IgnoredReason::TooManyPrefixes) => &mut counts.table_full,
    }
}

/// The reason why a decision has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IgnoredReason {
    /// Its sender has made a later one.
    Late,
    /// The table has no entry left for the flow.
    NoRoom,
    /// The policy assigns the flow's destination to no grantor.
    Unprotected,
    /// It names a flow program that is missing, or that refuses the cookie.
    Program,
    /// A decline without proof of a flow that is granted or proven, or has no entry.
    Unproven,
    /// There are [`MAX_PREFIX_DECISIONS`] decisions about prefixes already.
    TooManyPrefixes,
}

impl core::fmt::Display for IgnoredReason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Late => "a later decision is in force",
            Self::NoRoom => "the flow table has no free entry: raise `flow_table.entries`",
            Self::Unprotected => "the policy assigns the destination to no grantor",
            Self::Program => "the flow program is missing, or refuses the cookie",
            Self::Unproven => "the flow is granted or proven, and the decline rests on no proof",
            Self::TooManyPrefixes => "too many decisions about prefixes are in force",
        })
    }
}

impl core::error::Error for IgnoredReason {}

impl<I: Index> Gate<I> {
    /// Applies a decision at `now`. `hash` hashes flows.
    ///
    /// # Errors
    ///
    /// [`IgnoredReason`], which is counted too.
    pub fn decide(
        &mut self,
        now: u64,
        item: &Item,
        stamp: Stamp,
        hash: impl Fn(&Flow) -> u32,
    ) -> Result<(), IgnoredReason> {
        let result = match (item.scope.flow(), item.command) {
            (Some(flow), FlowCommand::Flush) => {
                let hash = hash(&flow);
                if let Some(entry) = self.table.find(&flow, hash) {
                    self.table.remove(entry);
                }
                self.forget_first_seen(hash, now);
                Ok(())
            }
            (Some(flow), command) => self.decide_flow(now, &flow, hash(&flow), &command, stamp),
            (None, command) => return self.decide_prefixes(now, item.scope, command, stamp),
        };
        *counter(&mut self.counts, &result) += 1;
        result
    }

    /// Returns the decisions about prefixes that are in force at `now`, the latest last, with the lifetime that is left to them
    /// in seconds, rounded up. [`decide`](Self::decide) takes them.
    pub fn prefix_decisions(&self, now: u64) -> impl Iterator<Item = (Item, Stamp)> {
        let in_force = self.wide.rules.iter().filter(move |rule| now < rule.until);
        in_force.map(move |rule| {
            let mut command = rule.command;
            let left = (rule.until - now).div_ceil(SECOND) as u32;
            match &mut command {
                FlowCommand::Decide(Decision::Decline { expire_s }) => *expire_s = left,
                FlowCommand::Decide(Decision::Provisional(decline)) => decline.expire_s = left,
                FlowCommand::Decide(Decision::Grant(grant)) => grant.expire_s = left,
                FlowCommand::Run(program) => program.expire_s = left,
                FlowCommand::Flush => {}
            }
            (Item { scope: rule.scope, command }, rule.stamp)
        })
    }

    /// Retracts all decisions of a sender up to a number, those about prefixes at once and those
    /// about flows by a walk; returns whether there is room for another walk.
    pub fn retract(&mut self, up_to: Stamp) -> bool {
        let theirs = |stamp: Stamp| stamp.sender == up_to.sender && stamp.number <= up_to.number;
        let PrefixDecisions { rules, retractions } = &mut self.wide;
        // A retraction up to a higher number makes those up to lower ones unnecessary.
        retractions.retain(|retraction| !theirs(retraction.up_to));
        if retractions.len() == MAX_RETRACTIONS {
            return false;
        }
        rules.retain(|rule| !theirs(rule.stamp));
        retractions.push(Retraction { up_to, walked: 0 });
        true
    }

    /// Returns whether a walk through the table is under way.
    pub fn is_walking(&self) -> bool {
        let capacity = self.table.capacity();
        let walks = |rule: &PrefixDecision| rule.walked < capacity;
        !self.wide.retractions.is_empty() || self.wide.rules.iter().any(walks)
    }

    fn decide_flow(
        &mut self,
        now: u64,
        flow: &Flow,
        hash: u32,
        command: &FlowCommand,
        stamp: Stamp,
    ) -> Result<(), IgnoredReason> {
        let declines = declines(command);
        let entry = match self.table.find(flow, hash) {
            Some(entry) => {
                let state = self.table.entry(entry).record().state();
                // The flow itself may be evicted otherwise: it is not declined yet.
                if declines && !matches!(state, State::Declined | State::Provisional) {
                    self.counts.evicted += self.table.enforce_declined_share() as u64;
                }
                entry
            }
            None => {
                let policy = self.policy.current();
                let Some(Action::Grantors(set)) = policy.action(flow) else {
                    return Err(IgnoredReason::Unprotected);
                };
                let binding = PolicyBinding { set, generation: policy.generation() as u16 };
                // A decision without effect makes no entry.
                if let FlowCommand::Run(program) = command {
                    self.runner.begin(now, program).ok_or(IgnoredReason::Program)?;
                }
                if matches!(command, FlowCommand::Decide(Decision::Provisional(_)))
                    && self.is_pressed()
                {
                    return Err(IgnoredReason::Unproven);
                }
                if declines {
                    self.counts.evicted += self.table.enforce_declined_share() as u64;
                }
                if self.table.room() == 0 {
                    self.counts.evicted += self.table.make_room_for_grant() as u64;
                }
                let entry = self.table.insert(flow, hash, binding, now);
                let entry = entry.map_err(|_| IgnoredReason::NoRoom)?;
                self.counts.inserted += 1;
                self.forget_first_seen(hash, now);
                entry
            }
        };
        apply(&mut self.table, &mut self.runner, entry, now, command, stamp)
    }

    /// Returns whether the first packet of a flow gets no entry, or only by an eviction.
    fn is_pressed(&self) -> bool {
        let flows = self.table.len();
        let asks = self.admission.as_ref().is_some_and(|admission| admission.is_pressed(flows));
        asks || self.table.room() == 0
    }

    /// Forgets the first packet of a flow that a grantor has decided about.
    fn forget_first_seen(&mut self, hash: u32, now: u64) {
        if let Some(admission) = &mut self.admission {
            admission.forget(hash, now);
        }
    }

    fn decide_prefixes(
        &mut self,
        now: u64,
        scope: Scope,
        command: FlowCommand,
        stamp: Stamp,
    ) -> Result<(), IgnoredReason> {
        let expire_s = match command {
            FlowCommand::Decide(Decision::Decline { expire_s }) => expire_s,
            // About prefixes it rests on addresses, not on a packet.
            FlowCommand::Decide(Decision::Provisional(decline)) => decline.expire_s,
            FlowCommand::Decide(Decision::Grant(grant)) => grant.expire_s,
            FlowCommand::Run(program) => program.expire_s,
            FlowCommand::Flush => 0,
        };
        let until = now.saturating_add(u64::from(expire_s) * SECOND);
        let rules = &mut self.wide.rules;
        // A decision about the same prefixes replaces the last one.
        rules.retain(|rule| rule.scope != scope);
        if rules.len() == MAX_PREFIX_DECISIONS {
            self.counts.table_full += 1;
            return Err(IgnoredReason::TooManyPrefixes);
        }
        rules.push(PrefixDecision { scope, command, stamp, until, walked: 0 });
        Ok(())
    }

    /// Counts the flows with a decision that has not expired at `now`, by a walk through the table.
    pub fn decided(&self, now: u64) -> usize {
        let in_force =
            |record: &Record| record.state() != State::Request && now < record.expire_at();
        let all = self.table.within(0..self.table.capacity());
        all.filter(|(_, entry)| in_force(entry.record())).count()
    }
}
