//! Decisions: applies those in the ring, and reports declined flows to the kernel's map.
//!
//! Every worker receives every decision; a decision about a flow is applied by the worker that owns
//! the flow. Decisions that the gate has applied and that are about declined flows are forwarded to
//! the XDP program's map, if there is one (`declined_map.rs`).

use gate::decision::{FlowCommand, Item};
use gate::state::{Decision, MAX_PROVISIONAL_S, Provisional, Traffic};

use super::GateHook;
use crate::rings::{DecisionMessage, DeclinedUpdate};

/// The maximum number of decisions that a turn applies.
const DECISIONS: usize = 4096;

impl GateHook {
    /// Applies the decisions that arrived since the last turn.
    pub(super) fn apply_decisions(&mut self) {
        for _ in 0..DECISIONS {
            let (item, stamp) = match self.rings.decisions.peek() {
                Ok(&DecisionMessage::Apply(item, stamp)) => (item, stamp),
                Ok(&DecisionMessage::Retract(upto)) => {
                    // Without room for another retraction it waits for a later turn.
                    if !self.gate.retract(upto) {
                        break;
                    }
                    let _ = self.rings.decisions.pop();
                    // Declined flows among these are reported again when they are declined again.
                    self.must_clear_declined |= self.reports_declined;
                    continue;
                }
                Err(_) => break,
            };
            let _ = self.rings.decisions.pop();
            if !self.concerns(&item) {
                continue;
            }
            // The gate counts decisions without an effect.
            let applied = self.gate.decide(self.now, &item, stamp, |flow| self.key.hash(flow));
            if applied.is_ok() {
                self.report_declined(&item);
            }
        }
        if self.must_clear_declined && self.rings.declined.push(DeclinedUpdate::Clear).is_ok() {
            self.must_clear_declined = false;
        }
    }

    /// Returns whether a decision may be about a flow of this worker.
    fn concerns(&self, item: &Item) -> bool {
        match (&self.steering, item.scope.flow()) {
            (Some(steering), Some(flow)) => steering.is_owner(self.key.hash(&flow)),
            _ => true,
        }
    }

    /// Reports the effect of a decision on declined flows. An insertion that finds the ring full may
    /// be lost; after any other loss the map has to be cleared.
    fn report_declined(&mut self, item: &Item) {
        if !self.reports_declined {
            return;
        }
        let (update, may_be_lost) = match (item.scope.flow(), item.command) {
            (Some(flow), FlowCommand::Decide(Decision::Decline { expire_s })) => {
                (DeclinedUpdate::Insert(flow, expire_s), true)
            }
            // The map has flows, and not which of their packets are declined.
            (
                Some(flow),
                FlowCommand::Decide(Decision::Provisional(Provisional {
                    expire_s,
                    traffic: Traffic::All,
                })),
            ) => (DeclinedUpdate::Insert(flow, expire_s.min(MAX_PROVISIONAL_S)), true),
            (Some(flow), _) => (DeclinedUpdate::Remove(flow), false),
            // The flows within declined prefixes are not inserted one by one.
            (None, FlowCommand::Decide(Decision::Decline { .. } | Decision::Provisional(_))) => {
                return;
            }
            (None, _) => (DeclinedUpdate::Clear, false),
        };
        self.must_clear_declined |= self.rings.declined.push(update).is_err() && !may_be_lost;
    }
}
