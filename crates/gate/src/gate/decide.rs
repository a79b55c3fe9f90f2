//! Decisions at the gate: of a flow at once, of prefixes by a walk through the table.
//!
//! A decision about a flow without an entry gives it one, if the policy gives its
//! destination to grantors: a request whose entry had to go is answered all the same, and
//! makes room for the answer.
//!
//! A decision about prefixes applies to the flows that are known, by a walk of bounded
//! steps, and to those that come while it lasts, from a list of at most [`MOST_WIDE`]
//! that new flows are held against; the latest counts. A flow that gets no entry (admission.rs) is
//! declined by it all the same; for a grant it has to come again. A flow that a grantor has decided
//! of by itself since is left alone, by the stamp.

use super::run::Runner;
use super::{Counts, Gate};
use crate::decision::{Item, Program, Say, Scope};
use crate::flow::Flow;
use crate::index::Index;
use crate::policy::Action;
use crate::state::{Decision, Grant, Record, Stamp, State};
use crate::table::{Belongs, FlowTable};

/// The most decisions about prefixes at a time.
pub const MOST_WIDE: usize = 64;

const SECOND: u64 = 1_000_000_000;

/// What was said of a pair of prefixes.
#[derive(Clone, Copy, Debug)]
struct Rule {
    scope: Scope,
    say: Say,
    stamp: Stamp,
    until: u64,
    /// How far the walk has come.
    walked: usize,
}

/// The decisions about prefixes, the latest last.
#[derive(Debug)]
pub(super) struct Wide {
    rules: Vec<Rule>,
}

impl Default for Wide {
    /// Has room for all there may be.
    fn default() -> Self {
        Self { rules: Vec::with_capacity(MOST_WIDE) }
    }
}

impl Wide {
    /// Applies the latest rule about a flow that has just got its entry.
    #[inline]
    pub(super) fn apply<I: Index>(
        &self,
        table: &mut FlowTable<I>,
        runner: &mut Runner,
        entry: u32,
        flow: &Flow,
        now: u64,
    ) {
        if self.rules.is_empty() {
            return;
        }
        let about = |rule: &&Rule| now < rule.until && rule.scope.contains(flow);
        if let Some(rule) = self.rules.iter().rev().find(about) {
            // A flush has nothing to say to a flow that has just begun.
            if rule.say != Say::Flush {
                let _ = rule.say(table, runner, entry, now, Stamp::default());
            }
        }
    }

    /// Says whether the latest rule about a flow that gets no entry declines it.
    #[inline]
    pub(super) fn declines(&self, flow: &Flow, now: u64) -> bool {
        let about = |rule: &&Rule| now < rule.until && rule.scope.contains(flow);
        let latest = self.rules.iter().rev().find(about);
        latest.is_some_and(|rule| matches!(rule.say, Say::Decide(Decision::Decline { .. })))
    }

    /// Goes on with the walks, with at most `work` entries looked at, and forgets what is over.
    pub(super) fn walk<I: Index>(
        &mut self,
        table: &mut FlowTable<I>,
        runner: &mut Runner,
        counts: &mut Counts,
        now: u64,
        work: usize,
    ) {
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

impl Rule {
    /// Applies to a flow what is left of this at `now`, in whole seconds, rounded up.
    fn say<I: Index>(
        &self,
        table: &mut FlowTable<I>,
        runner: &mut Runner,
        entry: u32,
        now: u64,
        stamp: Stamp,
    ) -> Result<(), Ignored> {
        let expire_s = self.until.saturating_sub(now).div_ceil(SECOND) as u32;
        let say = match self.say {
            Say::Decide(Decision::Decline { .. }) => Say::Decide(Decision::Decline { expire_s }),
            Say::Decide(Decision::Grant(grant)) => {
                Say::Decide(Decision::Grant(Grant { expire_s, ..grant }))
            }
            Say::Run(program) => Say::Run(Program { expire_s, ..program }),
            Say::Flush => Say::Flush,
        };
        apply(table, runner, entry, now, &say, stamp)
    }
}

/// Has a flow that has an entry become what is said.
fn apply<I: Index>(
    table: &mut FlowTable<I>,
    runner: &mut Runner,
    entry: u32,
    now: u64,
    say: &Say,
    stamp: Stamp,
) -> Result<(), Ignored> {
    let counts = match say {
        Say::Flush => {
            table.remove(entry);
            true
        }
        Say::Decide(decision) => table.decide(entry, now, decision, stamp),
        // What comes late is not even tried.
        Say::Run(_) if table.entry(entry).record().is_late(stamp) => false,
        Say::Run(program) => {
            let begun = runner.begin(now, program).ok_or(Ignored::Program)?;
            table.run(entry, now, &begun, stamp)
        }
    };
    if counts { Ok(()) } else { Err(Ignored::Late) }
}

/// Where a decision with this result is counted.
fn counter<'a>(counts: &'a mut Counts, result: &Result<(), Ignored>) -> &'a mut u64 {
    match result {
        Ok(()) => &mut counts.decided,
        Err(Ignored::Late) => &mut counts.late,
        Err(Ignored::Unprotected) => &mut counts.unprotected,
        Err(Ignored::Program) => &mut counts.programs,
        Err(Ignored::NoRoom | Ignored::TooManyWide) => &mut counts.no_room,
    }
}

/// Why a decision has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// It was overtaken by one that its sender has made since.
    Late,
    /// The table has no entry left for the flow.
    NoRoom,
    /// The policy gives the flow's destination to no grantor.
    Unprotected,
    /// It asks for a flow program that is not there, or that refuses what it is given.
    Program,
    /// There are [`MOST_WIDE`] decisions about prefixes already.
    TooManyWide,
}

impl core::fmt::Display for Ignored {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Late => "a later decision is in force",
            Self::NoRoom => "the flow table has no entry left: give it more",
            Self::Unprotected => "the policy gives the destination to no grantor",
            Self::Program => "the flow program is not there, or refuses the cookie",
            Self::TooManyWide => "too many decisions about prefixes are in force",
        })
    }
}

impl core::error::Error for Ignored {}

impl<I: Index> Gate<I> {
    /// Takes over a decision at `now`. `hash` is how flows are hashed.
    ///
    /// # Errors
    ///
    /// [`Ignored`], which is counted too.
    pub fn decide(
        &mut self,
        now: u64,
        item: &Item,
        stamp: Stamp,
        hash: impl Fn(&Flow) -> u32,
    ) -> Result<(), Ignored> {
        let result = match (item.scope.flow(), item.say) {
            (Some(flow), Say::Flush) => {
                let hash = hash(&flow);
                if let Some(entry) = self.table.find(&flow, hash) {
                    self.table.remove(entry);
                }
                self.forget_mark(hash, now);
                Ok(())
            }
            (Some(flow), say) => self.decide_flow(now, &flow, hash(&flow), &say, stamp),
            (None, say) => return self.decide_wide(now, item.scope, say, stamp),
        };
        *counter(&mut self.counts, &result) += 1;
        result
    }

    fn decide_flow(
        &mut self,
        now: u64,
        flow: &Flow,
        hash: u32,
        say: &Say,
        stamp: Stamp,
    ) -> Result<(), Ignored> {
        let entry = match self.table.find(flow, hash) {
            Some(entry) => entry,
            None => {
                let policy = self.policy.current();
                let Some(Action::Grantors(set)) = policy.action(flow) else {
                    return Err(Ignored::Unprotected);
                };
                let belongs = Belongs { set, generation: policy.generation() as u16 };
                // No entry for what would have no effect.
                if let Say::Run(program) = say {
                    self.runner.begin(now, program).ok_or(Ignored::Program)?;
                }
                if self.table.room() == 0 {
                    self.counts.given_up += self.table.make_room(1) as u64;
                }
                let entry = self.table.insert(flow, hash, belongs, now);
                let entry = entry.map_err(|_| Ignored::NoRoom)?;
                self.counts.inserted += 1;
                self.forget_mark(hash, now);
                entry
            }
        };
        apply(&mut self.table, &mut self.runner, entry, now, say, stamp)
    }

    /// Forgets the first packet of a flow that a grantor has spoken of since.
    fn forget_mark(&mut self, hash: u32, now: u64) {
        if let Some(admission) = &mut self.admission {
            admission.forget(hash, now);
        }
    }

    fn decide_wide(
        &mut self,
        now: u64,
        scope: Scope,
        say: Say,
        stamp: Stamp,
    ) -> Result<(), Ignored> {
        let expire_s = match say {
            Say::Decide(Decision::Decline { expire_s }) => expire_s,
            Say::Decide(Decision::Grant(grant)) => grant.expire_s,
            Say::Run(program) => program.expire_s,
            Say::Flush => 0,
        };
        let until = now.saturating_add(u64::from(expire_s) * SECOND);
        let rules = &mut self.wide.rules;
        // The same prefixes again: what was said before is over.
        rules.retain(|rule| rule.scope != scope);
        if rules.len() == MOST_WIDE {
            self.counts.no_room += 1;
            return Err(Ignored::TooManyWide);
        }
        rules.push(Rule { scope, say, stamp, until, walked: 0 });
        Ok(())
    }

    /// Counts the flows that a grantor has decided of and that have not expired at `now`:
    /// a walk through the table.
    pub fn decided(&self, now: u64) -> usize {
        let in_force =
            |record: &Record| record.state() != State::Request && now < record.expire_at();
        let all = self.table.within(0..self.table.capacity());
        all.filter(|(_, entry)| in_force(entry.record())).count()
    }
}
