//! The gate as a successor: it takes the flows, the sockets of decisions and the secrets of SYN cookies of its
//! predecessor.
//!
//! ```text
//!   prepare   blocked sources, prefixes behind the gate ─► the programs that replace the predecessor's
//!   inherit   hooks' states ─► flows of each worker; secrets of SYN cookies ─► hooks are made
//!   after     the decision receiver reads the sockets
//! ```
//!
//! The predecessor stops to read decisions before its workers stop, and its hooks apply those that they have received
//! before they export their flows: a decision is in a flow, or still in a socket.
//!
//! Limits: decisions about prefixes are not handed over, nor are the counters of policies and of the gate's table; the
//! counters of packets are. The session of the decision protocol is a new one, as after a restart.

use std::cell::RefCell;

use control::daemon::GuardSuccession;
use gate::cookie::Secrets;
use port::af_xdp::Interface;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config::{FRONT, Trust};
use super::controller::GateController;
use super::saved_flows::{self, SavedFlow};

/// The state of the role that travels as JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct InheritedState {
    /// The secrets of SYN cookies, as words.
    pub(super) cookie_secrets: Option<[u64; 5]>,
}

/// The successor's part of the gate.
pub(super) struct GateSuccession<'a> {
    pub(super) controller: &'a GateController,
    pub(super) trust: &'a Trust,
    pub(super) workers: usize,
    /// Whether flows change their workers.
    pub(super) steers_in_software: bool,
    /// The flows of each worker, which its hook takes.
    pub(super) known: &'a RefCell<Vec<Vec<SavedFlow>>>,
}

impl GateSuccession<'_> {
    /// Sets the flows that the hooks take, by worker of the predecessor; returns their number.
    pub(super) fn set_flows(&self, mut flows: Vec<Vec<SavedFlow>>) -> usize {
        // Decisions of senders that were removed do not apply.
        let has_sender = |flow: &SavedFlow| {
            let sender = flow.1.stamp().sender;
            sender == 0 || self.trust.senders.iter().any(|(id, _)| *id == sender)
        };
        flows.iter_mut().for_each(|flows| flows.retain(has_sender));
        let count = flows.iter().map(Vec::len).sum();
        // The hash key and the owners are others now: each worker takes its own flows out of all.
        let flows =
            if self.steers_in_software { vec![flows.concat(); self.workers] } else { flows };
        *self.known.borrow_mut() = flows;
        count
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
        let flows = saved_flows::inherited(&hooks, self.workers)
            .map_err(|error| format!("the flows of the gate: {error}"))?;
        let count = self.set_flows(flows);
        log::info!(flows = count; "{count} flows taken over");
        if let Some(words) = state.cookie_secrets {
            self.controller.set_cookie_secrets(Secrets::from_words(words));
        }
        Ok(())
    }
}
