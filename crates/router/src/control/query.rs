//! A look: what may be asked of a router at work without changing anything of it.
//!
//! ```text
//!   control socket ─┐
//!   HTTP, metrics  ─┴─► Look ─► control thread, workers' counters, ports, the gate's panel
//! ```
//!
//! Who holds one can find everything out that `show` shows, and do nothing.

use std::sync::Arc;

use super::api::{Item, Request};
use super::handle::ControlHandle;
use super::items;
use super::kernel_sync::KernelSync;
use crate::daemon::View;
use crate::role::Role;

/// Everybody who is asked.
#[derive(Clone, Debug)]
pub(crate) struct QueryHandle {
    pub(crate) control: ControlHandle<KernelSync>,
    pub(crate) view: Arc<View>,
    /// What this is, and who is asked about that.
    pub(crate) role: Role,
}

impl QueryHandle {
    /// Finds out what was asked. A comparison and a stream of events are not of that kind:
    /// they have no items here.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the question, or who does not answer.
    pub(crate) fn find(&self, request: &Request) -> Result<Vec<Item>, String> {
        let Self { control, view, .. } = self;
        let table = view.table();
        let gone = || "the control thread does not answer".to_owned();
        let gate = || self.role.gate();
        match request.clone() {
            Request::Gate => Ok(vec![Item::Gate(gate()?.status())]),
            Request::Grantor => Ok(vec![Item::Grantor(self.role.grantor()?.status())]),
            Request::Programs => Ok(self.role.programs()?.into_iter().map(Item::Program).collect()),
            Request::Distribution => {
                Ok(vec![Item::Distribution(self.role.distribution()?.status())])
            }
            Request::Flow { src, dst } => Ok(vec![Item::Flow(gate()?.flow(src, dst)?)]),
            Request::Flows { most } => {
                Ok(gate()?.flows(most)?.into_iter().map(Item::Flow).collect())
            }
            Request::Routes { within, family } => {
                let found = control
                    .call(move |it| items::routes(&it.plane, table, within.as_deref(), family));
                let routes = found.ok_or_else(gone)??;
                Ok(routes.into_iter().map(Item::Route).collect())
            }
            Request::Route { address } => {
                let found = control.call(move |it| items::answer(it, table, address));
                Ok(vec![Item::Answer(found.ok_or_else(gone)??)])
            }
            Request::Neighbors => control.call(|it| items::neighbors(&it.plane)).ok_or_else(gone),
            Request::NextHops => control.call(|it| items::next_hops(&it.plane)).ok_or_else(gone),
            Request::Fib => control.call(|it| items::fibs(&it.plane)).ok_or_else(gone),
            Request::Feeds => control.call(|it| items::feeds(it)).ok_or_else(gone),
            Request::Audit => {
                control.call(|it| vec![Item::Audit(it.audit().clone())]).ok_or_else(gone)
            }
            Request::Interfaces => {
                let ports = control.call(|it| it.plane.ports().clone()).ok_or_else(gone)?;
                items::interfaces(&ports, view)
            }
            Request::Counters => Ok(vec![Item::Counters(items::counters(&view.stats()))]),
            Request::Workers => Ok(items::workers(&view.worker_stats())),
            Request::Diff { .. } | Request::Monitor => Ok(Vec::new()),
        }
    }
}
