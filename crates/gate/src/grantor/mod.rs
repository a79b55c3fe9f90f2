//! The grantor without I/O: requests in, a policy in Lua decides, decisions out.
//!
//! ```text
//!   packet ─► decapsulate.rs ─┬─► granted: deliver
//!                             └─► request ─► batch ─► headers.rs, lists.rs ─► script.rs ─► policy_result.rs
//!                                            headers; sources and             decide(p)    decision for the
//!                                            destinations looked                           gate, and whether
//!                                            up in all lists                               to deliver the packet
//! ```
//!
//! Each worker has a grantor of its own, with a Lua state and the policy's stores; only the lists
//! are shared, as snapshots. Requests are few (a twentieth of the link), so that a policy may take
//! microseconds; `script.rs` limits its time and memory. A shadow policy runs beside the policy
//! (`shadow.rs`), a trial on recorded packets (`trial.rs`). A dry run (`dry_run.rs`) finds errors
//! before the first packet arrives. Fragments can be decided as the packets that they belong to
//! (`fragments.rs`). A policy that fails, by an error, by time or by memory, is counted, and the
//! packet gets the fallback: traffic never waits for a script to be fixed, and granted packets
//! never run one.
//!
//! docs/guide/grantor.md documents policies; those of [`shipped`] are examples that work.
//! `decision/` sends the decisions to gates.

pub mod shipped;

mod bytecode;
mod decapsulate;
mod dry_run;
mod fragments;
mod headers;
mod lists;
mod policy_result;
mod script;
mod script_context;
mod shadow;
mod store;
mod trial;

pub use decapsulate::{
    DecapsulatedPacket, DecapsulationError, decapsulate, decapsulate_checked, decapsulate_with,
};
pub use dry_run::dry_run;
pub use fragments::{Fragments, Reassembly};
pub use lists::{List, ListError, ListPrefix, Lists, Value, lines};
pub use policy_result::PolicyResult;
pub use shadow::{Difference, Shadow};
pub use trial::{FlowSummary, Trial};

use core::cell::RefCell;
use core::fmt;
use std::rc::Rc;

use fib::{Hop, Reader};

use crate::decision::{FlowCommand, Item, Scope};
use crate::flow::{Flow, Pair};
use crate::state::{Decision, Provisional, Traffic};
use headers::PacketHeaders;
use script::{CallError, Script};
use script_context::{ScriptContext, SharedContext};

/// Maximum number of requests that are looked up together.
pub const BATCH: usize = 32;

/// The limits of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of Lua instructions for a decision.
    pub instructions: u64,
    /// Maximum memory of the policy, in bytes.
    pub memory: usize,
    /// The result for a packet when the policy fails.
    pub fallback: PolicyResult,
}

impl Default for Limits {
    /// 100,000 instructions, 64 MiB; declined provisionally for ten seconds when the policy fails.
    fn default() -> Self {
        let decline = Provisional { expire_s: 10, traffic: Traffic::All };
        let decline = FlowCommand::Decide(Decision::Provisional(decline));
        let fallback = PolicyResult { command: Some(decline), deliver: false };
        Self { instructions: 100_000, memory: 64 << 20, fallback }
    }
}

/// A packet that requests a decision, out of its tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The packet, from its IP header on.
    pub packet: &'a [u8],
    /// The outer DSCP, 2 to 63.
    pub dscp: u8,
    /// Whether it met congestion.
    pub congested: bool,
}

impl Request<'_> {
    /// Returns the flow of its packet, if it is one.
    pub fn flow(&self) -> Option<Flow> {
        PacketHeaders::new(self.packet, self.dscp, self.congested).map(|headers| headers.flow)
    }
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestOutcome {
    /// The decision for the gate, if there is one.
    pub item: Option<Item>,
    /// Whether the packet is delivered.
    pub deliver: bool,
}

/// Counters of decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantorCounters {
    /// Packets that requested a decision.
    pub requests: u64,
    /// Among them, flows that had been granted and ask for renewal.
    pub renewals: u64,
    /// Granted.
    pub granted: u64,
    /// Declined.
    pub declined: u64,
    /// Assigned a program.
    pub programs: u64,
    /// Requests without a decision.
    pub undecided: u64,
    /// Packets that could not be parsed.
    pub unread: u64,
    /// Packets that were delivered.
    pub delivered: u64,
    /// Times that the policy ended with an error.
    pub failed: u64,
    /// Times that it exceeded its time.
    pub over_time: u64,
}

/// The error that a policy is rejected with, by Lua.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError(pub String);

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScriptError {}

/// A worker's grantor. It stays on the thread that made it.
pub struct Grantor {
    script: Script,
    context: SharedContext,
    limits: Limits,
    counts: GrantorCounters,
    last_error: Option<String>,
}

impl fmt::Debug for Grantor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grantor").field("counts", &self.counts).finish_non_exhaustive()
    }
}

impl Grantor {
    /// Loads a policy from its text.
    ///
    /// # Errors
    ///
    /// Lua's error: in the syntax, while the policy was loaded, a missing list, or no function
    /// `decide`.
    pub fn new(policy: &str, lists: Reader<Lists>, limits: Limits) -> Result<Self, ScriptError> {
        let context = ScriptContext {
            headers: PacketHeaders::default(),
            at: 0,
            now: 0,
            lists,
            wanted: Vec::new(),
            found: Vec::new(),
        };
        let context = Rc::new(RefCell::new(context));
        let script = Script::new(policy, &context, limits.instructions, limits.memory);
        let script = script.map_err(|error| ScriptError(error.to_string()))?;
        context.borrow_mut().lists.idle();
        Ok(Self { script, context, limits, counts: GrantorCounters::default(), last_error: None })
    }

    /// Replaces the policy, or keeps this one if the new one is invalid. The policy's state is
    /// lost; the counters go on.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn reload(&mut self, policy: &str) -> Result<(), ScriptError> {
        let previous = std::mem::take(&mut self.context.borrow_mut().wanted);
        let (instructions, memory) = (self.limits.instructions, self.limits.memory);
        let script = Script::new(policy, &self.context, instructions, memory);
        let mut context = self.context.borrow_mut();
        context.lists.idle();
        match script {
            Ok(script) => self.script = script,
            Err(error) => {
                context.wanted = previous;
                return Err(ScriptError(error.to_string()));
            }
        }
        Ok(())
    }

    /// Decides about requests at `now`, and appends the outcome of each to `decided`.
    pub fn decide(
        &mut self,
        now: u64,
        requests: &[Request<'_>],
        decided: &mut Vec<RequestOutcome>,
    ) {
        for requests in requests.chunks(BATCH) {
            let mut headers = [None; BATCH];
            for (request, headers) in requests.iter().zip(&mut headers) {
                *headers = PacketHeaders::new(request.packet, request.dscp, request.congested);
            }
            let headers = &headers[..requests.len()];
            self.context.borrow_mut().look_up(now, headers);
            for (at, headers) in headers.iter().enumerate() {
                self.counts.requests += 1;
                let Some(headers) = headers else {
                    self.counts.unread += 1;
                    decided.push(RequestOutcome { item: None, deliver: false });
                    continue;
                };
                {
                    let mut context = self.context.borrow_mut();
                    (context.headers, context.at) = (*headers, at);
                }
                let result = self.ask();
                self.count(headers, &result);
                let scope = Scope::of(&headers.flow);
                let item = result.command.map(|command| Item { scope, command });
                decided.push(RequestOutcome { item, deliver: result.deliver });
            }
        }
        self.context.borrow_mut().lists.idle();
    }

    fn ask(&mut self) -> PolicyResult {
        match self.script.decide() {
            Ok(result) => result,
            Err(failed) => {
                match failed {
                    CallError::OverTime => self.counts.over_time += 1,
                    CallError::Error(error) => {
                        self.counts.failed += 1;
                        self.last_error = Some(error);
                    }
                }
                self.limits.fallback
            }
        }
    }

    fn count(&mut self, headers: &PacketHeaders, result: &PolicyResult) {
        let counts = &mut self.counts;
        counts.renewals += u64::from(headers.dscp == 2);
        counts.delivered += u64::from(result.deliver);
        *match result.command {
            Some(FlowCommand::Decide(Decision::Grant(_))) => &mut counts.granted,
            Some(FlowCommand::Decide(Decision::Decline { .. } | Decision::Provisional(_))) => {
                &mut counts.declined
            }
            Some(FlowCommand::Run(_)) => &mut counts.programs,
            Some(FlowCommand::Flush) | None => &mut counts.undecided,
        } += 1;
    }

    /// Returns the counters.
    pub fn counts(&self) -> &GrantorCounters {
        &self.counts
    }

    /// Returns the policy's last error, and clears it.
    pub fn last_error(&mut self) -> Option<String> {
        self.last_error.take()
    }

    /// Returns the bytes that the policy has in use.
    pub fn memory(&self) -> usize {
        self.script.memory()
    }
}

impl ScriptContext {
    /// Looks up a batch in the lists that the policy has named.
    fn look_up(&mut self, now: u64, headers: &[Option<PacketHeaders>]) {
        self.now = now;
        let lists = self.lists.current();
        self.found.resize_with(self.wanted.len(), Default::default);
        for (name, found) in self.wanted.iter().zip(&mut self.found) {
            for (dst, found) in [false, true].into_iter().zip(found) {
                found.clear();
                found.resize(headers.len(), None);
                // A removed list has no values.
                if let Some(list) = lists.get(name) {
                    let flows = headers.iter().map(|headers| headers.map(|headers| headers.flow));
                    find(list, flows, dst, found);
                }
            }
        }
    }
}

/// Looks up the sources or destinations of flows, those of a family together.
fn find(
    list: &List,
    flows: impl Iterator<Item = Option<Flow>>,
    dst: bool,
    found: &mut [Option<Value>],
) {
    let (mut four, mut six) = ([0; BATCH], [0; BATCH]);
    let (mut of_four, mut of_six) = ([0; BATCH], [0; BATCH]);
    let (mut fours, mut sixes) = (0, 0);
    for (at, flow) in flows.enumerate() {
        match flow.map(|flow| flow.pair()) {
            Some(Pair::V4 { src, dst: to }) => {
                (four[fours], of_four[fours]) = (if dst { to } else { src }, at);
                fours += 1;
            }
            Some(Pair::V6 { src, dst: to }) => {
                (six[sixes], of_six[sixes]) = (if dst { to } else { src }, at);
                sixes += 1;
            }
            None => {}
        }
    }
    let mut hops = [Hop::NONE; BATCH];
    let values = list.v4_batch(&four[..fours], &mut hops[..fours]);
    values.zip(of_four).for_each(|(value, at)| found[at] = value.cloned());
    let values = list.v6_batch(&six[..sixes], &mut hops[..sixes]);
    values.zip(of_six).for_each(|(value, at)| found[at] = value.cloned());
}

#[cfg(test)]
mod forged;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
