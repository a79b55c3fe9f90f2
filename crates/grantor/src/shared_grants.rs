//! The grants in force, for gates that start or return.
//!
//! ```text
//!   decisions ─► SharedGrants ─┬─ a gate answers in a new session, or after a silence ─► its Replay
//!                              └─ Replay ─► grants, a few at a time, with the time that is left to them
//! ```
//!
//! A replay is a list of flows. Each is looked up when its turn comes, so that a grant that has ended or
//! changed since then is not sent. A flow program restarts with its initial cookie, since the grantor does
//! not know its state.
//!
//! At most [`MOST`] grants are remembered; a further one goes to all gates, and to none that starts later.
//! Decisions about prefixes are not replayed.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use gate::decision::{FlowCommand, Item, Scope};
use gate::flow::Flow;
use gate::state::Decision;

/// The most grants that are remembered.
const MOST: usize = 1 << 18;

/// A grant, and when it was made.
#[derive(Clone, Copy, Debug)]
struct SharedGrant {
    command: FlowCommand,
    made: Instant,
}

/// Returns the seconds that a command is in force, if it is a grant.
fn lifetime(command: &FlowCommand) -> Option<Duration> {
    let seconds = match command {
        FlowCommand::Decide(Decision::Grant(grant)) => grant.expire_s,
        FlowCommand::Run(program) => program.expire_s,
        FlowCommand::Decide(_) | FlowCommand::Flush => return None,
    };
    Some(Duration::from_secs(seconds.into()))
}

impl SharedGrant {
    /// Returns the command with the time that is left to it; `None` if it is over.
    fn remaining(&self, now: Instant) -> Option<FlowCommand> {
        let age = now.saturating_duration_since(self.made);
        let left = lifetime(&self.command)?.checked_sub(age).filter(|left| !left.is_zero())?;
        // Rounded up: the gate that has it from the beginning counts whole seconds, too.
        let expire_s = left.as_secs() as u32 + u32::from(left.subsec_nanos() > 0);
        let mut command = self.command;
        match &mut command {
            FlowCommand::Decide(Decision::Grant(grant)) => {
                let age = u32::try_from(age.as_millis()).unwrap_or(u32::MAX);
                grant.next_renewal_ms = grant.next_renewal_ms.saturating_sub(age);
                grant.expire_s = expire_s;
            }
            FlowCommand::Run(program) => program.expire_s = expire_s,
            FlowCommand::Decide(_) | FlowCommand::Flush => {}
        }
        Some(command)
    }
}

/// The flows whose grants a gate is to get.
pub(super) type Replay = VecDeque<Flow>;

/// The grants in force.
#[derive(Debug, Default)]
pub(super) struct SharedGrants(HashMap<Flow, SharedGrant>);

impl SharedGrants {
    /// Records a decision: a grant, or the end of grants.
    pub(super) fn record(&mut self, now: Instant, item: &Item) {
        let Item { scope, command } = item;
        let flow = scope.flow();
        match (command, flow) {
            // It ends no grant.
            (FlowCommand::Decide(Decision::Provisional(_)), Some(_)) => {}
            (FlowCommand::Decide(Decision::Grant(_)) | FlowCommand::Run(_), Some(flow)) => {
                if self.0.len() >= MOST {
                    self.prune(now);
                }
                if self.0.len() < MOST || self.0.contains_key(&flow) {
                    self.0.insert(flow, SharedGrant { command: *command, made: now });
                }
            }
            (FlowCommand::Decide(Decision::Decline { .. }) | FlowCommand::Flush, Some(flow)) => {
                self.0.remove(&flow);
            }
            // Any decision about prefixes replaces the grants of their flows.
            (_, None) => self.0.retain(|flow, _| !scope.contains(flow)),
        }
    }

    /// Forgets the grants that are over.
    pub(super) fn prune(&mut self, now: Instant) {
        self.0.retain(|_, grant| grant.remaining(now).is_some());
    }

    /// Returns the flows of all grants.
    pub(super) fn replay(&self) -> Replay {
        self.0.keys().copied().collect()
    }

    /// Returns the grant of a flow with the time that is left to it.
    pub(super) fn remaining(&self, now: Instant, flow: &Flow) -> Option<Item> {
        let command = self.0.get(flow)?.remaining(now)?;
        Some(Item { scope: Scope::of(flow), command })
    }
}

#[cfg(test)]
mod tests {
    use fib::Prefix;
    use gate::state::{Grant, Provisional, Traffic};

    use super::*;

    fn grant(expire_s: u32, next_renewal_ms: u32) -> FlowCommand {
        let grant = Grant { rate_kib: 9, expire_s, next_renewal_ms, renewal_step_ms: 100 };
        FlowCommand::Decide(Decision::Grant(grant))
    }

    fn about(flow: u32, command: FlowCommand) -> Item {
        Item { scope: Scope::of(&Flow::v4(flow, 9)), command }
    }

    #[test]
    fn grant_is_replayed_with_the_time_that_is_left_to_it() {
        let (begin, mut grants) = (Instant::now(), SharedGrants::default());
        grants.record(begin, &about(1, grant(60, 50_000)));
        let flow = Flow::v4(1, 9);
        for (after, expected) in [
            (0, Some(grant(60, 50_000))),
            (10_500, Some(grant(50, 39_500))),
            (59_500, Some(grant(1, 0))),
            (60_000, None),
        ] {
            let now = begin + Duration::from_millis(after);
            let command = grants.remaining(now, &flow).map(|item| item.command);
            assert_eq!(command, expected, "after {after} ms");
        }
        grants.prune(begin + Duration::from_secs(59));
        assert_eq!(grants.replay(), [flow]);
        grants.prune(begin + Duration::from_secs(60));
        assert!(grants.replay().is_empty());
    }

    #[test]
    fn grant_ends_by_what_ends_it_at_a_gate() {
        let (now, mut grants) = (Instant::now(), SharedGrants::default());
        let provisional = Provisional { expire_s: 5, traffic: Traffic::All };
        let decline = FlowCommand::Decide(Decision::Decline { expire_s: 5 });
        let wide = Scope::V4(Prefix::truncate(4, 30), Prefix::truncate(9, 32));
        for (flow, command, remains) in [
            (1, FlowCommand::Decide(Decision::Provisional(provisional)), true),
            (1, grant(90, 80_000), true),
            (1, decline, false),
            (1, FlowCommand::Flush, false),
        ] {
            grants.record(now, &about(flow, grant(60, 50_000)));
            grants.record(now, &about(flow, command));
            assert_eq!(grants.remaining(now, &Flow::v4(flow, 9)).is_some(), remains, "{command:?}");
        }
        for flow in 3..9 {
            grants.record(now, &about(flow, grant(60, 50_000)));
        }
        grants.record(now, &Item { scope: wide, command: decline });
        let left = (3..9).filter(|flow| grants.remaining(now, &Flow::v4(*flow, 9)).is_some());
        assert_eq!(left.collect::<Vec<_>>(), [3, 8]);
    }
}
