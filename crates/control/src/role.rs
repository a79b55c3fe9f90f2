//! The role of a daemon: its function besides routing.
//!
//! The control plane depends on no role. A daemon provides a [`Role`], and the control socket, the
//! metrics and the page query it for the data of that role:
//!
//! ```text
//!   control socket ─► show, execute ─┐
//!   metrics        ─► encode_metrics ─┼─► Role: the state of a gate, of a grantor, or nothing
//!   page           ─► numbers        ─┘
//! ```
//!
//! A role answers `None` to a request or an order that is not of its kind; the client gets an error
//! that names the role and the kind of daemon that has an answer.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use api::{Item, Order, Request};

use serde_json::Value;

use crate::exposition::Writer;

/// A role, with its state. Called on the threads that serve clients.
pub trait Role: fmt::Debug + Send + Sync {
    /// Returns the name: `router`, `gate`, `grantor`.
    fn name(&self) -> &'static str;

    /// Returns the items of the reply to a request; `None` if the request is not of this role.
    fn show(&self, request: &Request) -> Option<Result<Vec<Item>, String>> {
        let _ = request;
        None
    }

    /// Executes an order and returns a report; `None` if the daemon executes it, or if no daemon of
    /// this role can.
    fn execute(&self, order: &Order) -> Option<Result<String, String>> {
        let _ = order;
        None
    }

    /// Writes the metrics of this role.
    ///
    /// # Errors
    ///
    /// Those of the encoder.
    fn encode_metrics(&self, to: &mut Writer<'_>) -> fmt::Result {
        let _ = to;
        Ok(())
    }

    /// Returns the values that the page's history records beside the workers' counters.
    fn numbers(&self) -> Vec<Number> {
        Vec::new()
    }

    /// Returns whether the daemon protects the network behind it: a port that cannot be served
    /// fails closed, and attacks are detected and logged.
    fn is_guard(&self) -> bool {
        false
    }

    /// Returns whether a daemon of this role hands over to a successor.
    fn hands_over(&self) -> bool {
        false
    }

    /// Returns copies of the sockets of this role, which a successor reads once it has taken over.
    ///
    /// # Errors
    ///
    /// The system's, if no descriptor is left.
    fn sockets(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }

    /// Changes the state of hooks no more: their workers are about to stop for a successor.
    fn suspend(&self) {}

    /// Changes the state of hooks again, after a successor that has failed.
    fn resume(&self) {}

    /// Returns the state of the role for a successor, as JSON, once it has been suspended.
    fn state(&self) -> Value {
        Value::Null
    }

    /// Returns whether bonds of the ports, and VLAN devices over them, forward. Packets of theirs would pass
    /// the hook of a gate or a grantor.
    fn forwards_stacked(&self) -> bool {
        false
    }

    /// Returns whether packets may be forwarded in the driver, past the hooks of workers, without a configuration
    /// that names it.
    fn may_choose_driver(&self) -> bool {
        false
    }
}

/// The role of a daemon that only routes.
#[derive(Clone, Copy, Debug)]
pub struct PlainRouter;

impl Role for PlainRouter {
    fn name(&self) -> &'static str {
        "router"
    }

    fn forwards_stacked(&self) -> bool {
        true
    }

    fn may_choose_driver(&self) -> bool {
        true
    }

    fn hands_over(&self) -> bool {
        true
    }
}

/// The role of a daemon that routes by the static routes of its configuration: nothing of the
/// kernel can be compared with it.
#[derive(Clone, Copy, Debug)]
pub struct StaticRouter;

impl Role for StaticRouter {
    fn name(&self) -> &'static str {
        "router"
    }

    fn hands_over(&self) -> bool {
        true
    }

    fn show(&self, request: &Request) -> Option<Result<Vec<Item>, String>> {
        match request {
            Request::Audit | Request::Diff { .. } => {
                let reason = "not available with static routes: this command compares the router \
                              with the kernel";
                Some(Err(reason.to_owned()))
            }
            _ => None,
        }
    }
}

/// A current value, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    /// The name, such as `policy.granted`.
    pub name: String,
    /// The value.
    pub value: u64,
    /// Whether it is a gauge, and not a counter.
    pub gauge: bool,
}

/// Returns the error for a request or an order that is not of the role `role`.
pub(crate) fn unavailable(role: &str, needs: &str) -> String {
    format!("not available on a {role}: this command needs {needs}")
}
