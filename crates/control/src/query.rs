//! Answers the read-only requests of the control socket, the HTTP API and the metrics.
//!
//! ```text
//!   control socket ─┐
//!   HTTP, metrics  ─┴─► QueryHandle ─► control thread, workers' counters, ports, the role's state
//! ```
//!
//! The holder of a [`QueryHandle`] can read everything that `show` shows, and change nothing.

use std::sync::Arc;

use super::block_lists::BlockListHandle;
use super::flow_status::FlowStatus;
use super::handle::ControlHandle;
use super::kernel_sync::KernelSync;
use super::{access, items, trace};
use crate::role::{Role, unavailable};
use crate::view::View;
use api::{Item, Request};

/// Read access to a running router.
#[derive(Clone, Debug)]
pub struct QueryHandle {
    /// The control thread.
    pub control: ControlHandle<KernelSync>,
    /// The workers, ports and interfaces.
    pub view: Arc<View>,
    /// The role of this process (router, gate or grantor), with its state.
    pub role: Arc<dyn Role>,
    /// The BGP flow specifications, if they are received.
    pub flowspec: FlowStatus,
    /// The block lists, if there are any.
    pub block_lists: BlockListHandle,
}

impl QueryHandle {
    /// Returns the items of the reply to a request. Comparisons, events and captures are not answered
    /// here (`requests.rs`): they have no items.
    ///
    /// # Errors
    ///
    /// The reason that the request is invalid, or the thread that does not answer.
    pub fn query(&self, request: &Request) -> Result<Vec<Item>, String> {
        let Self { control, view, .. } = self;
        let table = view.table();
        let no_answer = || "the control thread does not answer".to_owned();
        if let Some(items) = self.role.show(request) {
            return items;
        }
        match request.clone() {
            Request::Gate | Request::Flow { .. } | Request::Flows { .. } => {
                Err(unavailable(self.role.name(), "a gate"))
            }
            request @ (Request::BlockLists | Request::Blocked { .. }) => {
                self.block_lists.show(request)
            }
            Request::Grantor => Err(unavailable(self.role.name(), "a grantor")),
            Request::Programs => Err(unavailable(self.role.name(), "a gate or a grantor")),
            Request::Distribution => {
                Err(format!("this {} has no [distribution] in its configuration", self.role.name()))
            }
            Request::Routes { within, family } => {
                let routes = control
                    .call(move |sync| items::routes(&sync.plane, table, within.as_deref(), family));
                let routes = routes.ok_or_else(no_answer)??;
                Ok(routes.into_iter().map(Item::Route).collect())
            }
            Request::Route { address } => {
                let answer = control.call(move |sync| items::lookup(sync, table, address));
                Ok(vec![Item::Answer(answer.ok_or_else(no_answer)??)])
            }
            Request::Neighbors => {
                control.call(|sync| items::neighbors(&sync.plane)).ok_or_else(no_answer)
            }
            Request::NextHops => {
                control.call(|sync| items::next_hops(&sync.plane)).ok_or_else(no_answer)
            }
            Request::Fib => control.call(|sync| items::fibs(&sync.plane)).ok_or_else(no_answer),
            Request::Feeds => control.call(|sync| items::feeds(sync)).ok_or_else(no_answer),
            Request::AccessLists { name } => {
                let lists = control.call(move |sync| access::views(&sync.plane, name.as_deref()));
                let lists = lists.ok_or_else(no_answer)??;
                Ok(lists.into_iter().map(|list| Item::AccessList(list.item())).collect())
            }
            Request::EgressQueues => {
                let ports =
                    control.call(|sync| sync.plane.ports().clone()).ok_or_else(no_answer)?;
                Ok(view.egress_queues(&ports).into_iter().map(Item::EgressQueue).collect())
            }
            Request::Flowspec => match self.flowspec.reader() {
                Some(reader) => Ok(vec![Item::Flowspec(access::flowspec_item(&reader))]),
                None => {
                    Err("this router receives no flow specifications: see [flowspec]".to_owned())
                }
            },
            Request::Audit => {
                control.call(|sync| vec![Item::Audit(sync.audit().clone())]).ok_or_else(no_answer)
            }
            Request::Interfaces => {
                let ports =
                    control.call(|sync| sync.plane.ports().clone()).ok_or_else(no_answer)?;
                items::interfaces(&ports, view)
            }
            Request::Counters => Ok(vec![Item::Counters(items::counters(&view.stats()))]),
            Request::Workers => Ok(items::workers(&view.worker_stats())),
            Request::Trace(request) => {
                if self.role.name() != "router" {
                    return Err(unavailable(self.role.name(), "a router"));
                }
                let trace = control.call(move |sync| trace::trace(sync, &request));
                Ok(vec![Item::Trace(Box::new(trace.ok_or_else(no_answer)??))])
            }
            Request::Diff { .. } | Request::Monitor | Request::Capture(_) | Request::LastDrops => {
                Ok(Vec::new())
            }
        }
    }
}
