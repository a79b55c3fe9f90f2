//! Decisions of grantors, taken from the ring, and told to the kernel's side.
//!
//! They come to every worker; one about a flow is left to the worker whose it is. What the gate
//! has taken over and is about declined flows goes on to the filter before user space, where
//! there is one (`early.rs`).

use gate::decision::{FlowCommand, Item};
use gate::state::{Decision, LONGEST_PROVISIONAL_S, Provisional, Traffic};

use super::GateHook;
use crate::vantage::rings::{Decided, Early};

/// Decisions that are taken in a turn.
const DECISIONS: usize = 4096;

impl GateHook {
    /// Takes what was decided since the last turn.
    pub(super) fn take_decisions(&mut self) {
        for _ in 0..DECISIONS {
            let (item, stamp) = match self.ends.decisions.peek() {
                Ok(&Decided::Item(item, stamp)) => (item, stamp),
                Ok(&Decided::Retract(upto)) => {
                    // It waits where there is no room.
                    if !self.gate.retract(upto) {
                        break;
                    }
                    let _ = self.ends.decisions.pop();
                    // Declined flows among these are reported again when they are declined again.
                    self.early_lost |= self.early;
                    continue;
                }
                Err(_) => break,
            };
            let _ = self.ends.decisions.pop();
            if !self.concerns(&item) {
                continue;
            }
            // What has no effect is counted there.
            let done = self.gate.decide(self.now, &item, stamp, |flow| self.key.hash(flow));
            if done.is_ok() {
                self.tell_early(&item);
            }
        }
        if self.early_lost && self.ends.early.push(Early::Clear).is_ok() {
            self.early_lost = false;
        }
    }

    /// Says whether a decision may be about a flow that comes to this worker.
    fn concerns(&self, item: &Item) -> bool {
        match (&self.steering, item.scope.flow()) {
            (Some(steering), Some(flow)) => steering.has(self.key.hash(&flow)),
            _ => true,
        }
    }

    /// Tells the kernel's side what a decision means for declined flows. What finds no room
    /// there may be lost where it declines; where it does not, all is to be forgotten.
    fn tell_early(&mut self, item: &Item) {
        if !self.early {
            return;
        }
        let (told, may_be_lost) = match (item.scope.flow(), item.command) {
            (Some(flow), FlowCommand::Decide(Decision::Decline { expire_s })) => {
                (Early::Decline(flow, expire_s), true)
            }
            // The kernel knows flows, and not which of their packets are declined.
            (
                Some(flow),
                FlowCommand::Decide(Decision::Provisional(Provisional {
                    expire_s,
                    traffic: Traffic::All,
                })),
            ) => (Early::Decline(flow, expire_s.min(LONGEST_PROVISIONAL_S)), true),
            (Some(flow), _) => (Early::Forgive(flow), false),
            // Flows within those prefixes are not looked for one by one.
            (None, FlowCommand::Decide(Decision::Decline { .. } | Decision::Provisional(_))) => {
                return;
            }
            (None, _) => (Early::Clear, false),
        };
        self.early_lost |= self.ends.early.push(told).is_err() && !may_be_lost;
    }
}
