//! The gate as a successor: it takes the flows, the sockets of decisions and the secrets of SYN cookies of its
//! predecessor.
//!
//! ```text
//!   prepare   blocked sources, prefixes behind the gate ─► the programs that replace the predecessor's
//!   inherit   hooks' states ─► flows of each worker, decisions about prefixes; secrets of SYN cookies ─► hooks are made
//!   after     the decision receiver reads the sockets
//! ```
//!
//! The predecessor stops to read decisions before its workers stop, and its hooks apply those that they have received
//! before they export their flows: a decision is in a flow, or still in a socket.
//!
//! Counters continue, by name and by the prefix of a rule. The state of the role has those of the workers; those of XDP programs are the
//! interfaces'.
//!
//! Limits: gauges start again. The session of the decision protocol is a new one, as after a restart.

use std::cell::RefCell;

use control::daemon::GuardSuccession;
use gate::cookie::Secrets;
use gate::state::Stamp;
use port::af_xdp::Interface;
use serde::Deserialize;
use serde_json::Value;

use super::config::{FRONT, Trust};
use super::controller::GateController;
use super::hook_state::{self, HookState, PrefixDecision};
use super::inherited_state::InheritedState;
use super::saved_flows::{self, SavedFlow};

/// The successor's part of the gate.
pub(super) struct GateSuccession<'a> {
    pub(super) controller: &'a GateController,
    pub(super) trust: &'a Trust,
    pub(super) workers: usize,
    /// Whether flows change their workers.
    pub(super) steers_in_software: bool,
    /// The state of each worker, which its hook takes.
    pub(super) known: &'a RefCell<Vec<HookState>>,
}

impl GateSuccession<'_> {
    /// Sets the flows that the hooks take, by worker of the predecessor; returns their number.
    pub(super) fn set_flows(&self, mut flows: Vec<Vec<SavedFlow>>) -> usize {
        flows.iter_mut().for_each(|flows| flows.retain(|(_, record)| self.trusts(record.stamp())));
        let count = flows.iter().map(Vec::len).sum();
        // The hash key and the owners are others now: each worker takes its own flows out of all.
        let flows =
            if self.steers_in_software { vec![flows.concat(); self.workers] } else { flows };
        for (state, flows) in self.known.borrow_mut().iter_mut().zip(flows) {
            state.flows = flows;
        }
        count
    }

    /// Sets the decisions about prefixes that each hook takes.
    fn set_prefix_decisions(&self, mut decisions: Vec<PrefixDecision>) {
        decisions.retain(|(_, stamp)| self.trusts(*stamp));
        for state in self.known.borrow_mut().iter_mut() {
            state.prefix_decisions.clone_from(&decisions);
        }
    }

    /// Returns whether a decision applies: those of senders that were removed do not.
    fn trusts(&self, stamp: Stamp) -> bool {
        let Stamp { sender, .. } = stamp;
        sender == 0 || self.trust.senders.iter().any(|(id, _)| *id == sender)
    }
}

impl GuardSuccession for GateSuccession<'_> {
    fn prepare(&self, interfaces: &[Interface]) {
        if let Some(front) = interfaces.get(FRONT) {
            self.controller.set_front(front);
        }
    }

    fn inherit(&self, role: &Value, hooks: Vec<Vec<u8>>) -> Result<(), String> {
        let state = InheritedState::deserialize(role)
            .map_err(|error| format!("the state of the gate: {error}"))?;
        let damaged = |error: std::io::Error| format!("the state of a worker: {error}");
        let mut flows = Vec::new();
        for (worker, hook) in hooks.iter().enumerate() {
            let (decisions, its_flows) = hook_state::split(hook).map_err(damaged)?;
            flows.extend_from_slice(its_flows);
            // Those of the others are the same.
            if worker == 0 {
                self.set_prefix_decisions(decisions);
            }
        }
        let flows = saved_flows::inherited(&flows, self.workers).map_err(damaged)?;
        let count = self.set_flows(flows);
        log::info!(flows = count; "{count} flows taken over");
        self.controller.continue_counters(&state);
        if let Some(words) = state.cookie_secrets {
            self.controller.set_cookie_secrets(Secrets::from_words(words));
        }
        Ok(())
    }
}
