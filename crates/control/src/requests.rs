//! The replies of a router, gate or grantor to the requests of the control socket.
//!
//! ```text
//!   Message ─┬─ show ─► QueryHandle, comparison with the kernel, events
//!            └─ do ───► role, or the daemon on the thread that started it
//! ```

use std::iter;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::audit::diff::{self, DiffOptions};
use super::capture::{self, SessionNumber};
use super::handle::ControlHandle;
use super::kernel_sync::KernelSync;
use super::query::QueryHandle;
use super::server::{POLL_INTERVAL, ReplyWriter, RequestError, Responder};
use crate::role::unavailable;
use api::{Item, Message, Order, Request};

/// Events of a stream that are written before the server checks that the client is connected.
const EVENT_BURST: usize = 1024;

/// The orders that the daemon executes, on the thread that started it.
pub(crate) trait Orders: Send + 'static {
    /// Reads the configuration again and applies it; returns a report.
    fn reload(&mut self) -> Result<String, String>;

    /// Returns a function that saves the image on the client's thread, so that the daemon does not
    /// wait for a disk.
    fn saver(&self) -> Result<SaveImage, String>;

    /// Returns whether the daemon runs the program at its path.
    fn is_current(&self) -> bool;

    /// Starts the program at the daemon's path, which takes over; returns the receiver of the result.
    fn upgrade(&mut self) -> Result<Receiver<UpgradeResult>, String>;

    /// With `only`, leaves an interface's packets to the kernel and counts them; otherwise receives
    /// them again.
    fn observe(&mut self, interface: &str, only: bool) -> Result<(), String>;
}

/// The result of an upgrade: a report or the reason of its failure.
pub(crate) type UpgradeResult = Result<String, String>;

/// Saves the image and returns a report.
pub(crate) type SaveImage = Box<dyn FnOnce() -> Result<String, String> + Send>;

/// The handles through which the server answers requests.
#[derive(Debug)]
pub(crate) struct ServerHandles<D> {
    pub(crate) query: QueryHandle,
    /// The daemon, which executes orders.
    pub(crate) orders: ControlHandle<D>,
    /// Locked during a comparison with the kernel: one at a time.
    pub(crate) comparing: Arc<Mutex<()>>,
    /// The number of the last capture.
    pub(crate) captures: SessionNumber,
}

impl<D> Clone for ServerHandles<D> {
    fn clone(&self) -> Self {
        let Self { query, orders, comparing, captures } = self;
        Self {
            query: query.clone(),
            orders: orders.clone(),
            comparing: Arc::clone(comparing),
            captures: Arc::clone(captures),
        }
    }
}

impl<D: Orders> Responder for ServerHandles<D> {
    fn respond(
        &self,
        message: Message,
        client: &UnixStream,
        reply: &mut ReplyWriter<'_>,
    ) -> Result<(), RequestError> {
        match message {
            Message::Show(request @ Request::Diff { settle, sample, seed }) => {
                if let Some(Err(error)) = self.query.role.show(&request) {
                    return Err(RequestError::Failed(error));
                }
                // One at a time, because each holds a copy of the kernel's routes.
                let Ok(_guard) = self.comparing.try_lock() else {
                    let reason = "another comparison is running: try again when it has ended";
                    return Err(RequestError::Failed(reason.to_owned()));
                };
                let options = DiffOptions { settle: Duration::from_millis(settle), sample, seed };
                diff::run(&self.query.control, options, &mut |item| reply.item(item))
            }
            Message::Show(Request::Monitor) => monitor(self, client, reply),
            Message::Show(Request::Capture(conditions)) => {
                capture::stream(&self.query, &self.captures, &conditions, client, reply)
            }
            message => {
                let items = match message {
                    Message::Show(Request::LastDrops) => capture::last_drops(&self.query),
                    Message::Show(request) => self.query.query(&request),
                    Message::Do(order) => execute(order, self),
                };
                let items = items.map_err(RequestError::Failed)?;
                Ok(items.into_iter().try_for_each(|item| reply.item(item))?)
            }
        }
    }
}

/// Streams events to a client until it disconnects or sends anything.
fn monitor<D>(
    handles: &ServerHandles<D>,
    client: &UnixStream,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), RequestError> {
    let no_answer = || RequestError::Failed("the control thread does not answer".to_owned());
    let events = handles.query.control.call(KernelSync::subscribe).ok_or_else(no_answer)?;
    loop {
        match events.recv_timeout(POLL_INTERVAL) {
            Ok(first) => {
                for event in iter::once(first).chain(events.try_iter().take(EVENT_BURST)) {
                    reply.item(Item::Event((*event).clone()))?;
                }
                reply.flush()?;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        let mut readable = [PollFd::new(client.as_fd(), PollFlags::POLLIN)];
        if poll(&mut readable, PollTimeout::ZERO).is_ok_and(|ready| ready > 0) {
            return Ok(());
        }
    }
}

/// The result of an order at the daemon.
enum OrderResult {
    /// The order is done; a report for the client.
    Done(String),
    /// The client's thread saves the image, so that the daemon does not wait for a disk.
    Save(SaveImage),
    /// The client's thread waits for the result.
    Upgrade(Receiver<UpgradeResult>),
}

/// Has the daemon or the role execute an order.
fn execute<D: Orders>(order: Order, handles: &ServerHandles<D>) -> Result<Vec<Item>, String> {
    let role = &handles.query.role;
    let order = match order {
        Order::Upgrade { or_reload: true }
            if handles.orders.call(|daemon| daemon.is_current()) == Some(true) =>
        {
            Order::Reload
        }
        order => order,
    };
    if let Some(done) = role.execute(&order) {
        return done.map(|report| vec![Item::Done(report)]);
    }
    if matches!(order, Order::Ban { .. } | Order::Unban { .. } | Order::ApplyLists) {
        return handles.query.block_lists.execute(order).map(|report| vec![Item::Done(report)]);
    }
    let role = role.name();
    let result = handles.orders.call(move |daemon| match order {
        Order::Rollback | Order::Retry => {
            Err(format!("this {role} has no [distribution] in its configuration"))
        }
        Order::Flush { .. } => Err(unavailable(role, "a gate")),
        Order::Ban { .. } | Order::Unban { .. } | Order::ApplyLists => {
            Err(unavailable(role, "block lists"))
        }
        Order::Reload => daemon.reload().map(OrderResult::Done),
        Order::Save => daemon.saver().map(OrderResult::Save),
        Order::Upgrade { .. } => daemon.upgrade().map(OrderResult::Upgrade),
        Order::Promote { interface } => daemon
            .observe(&interface, false)
            .map(|()| OrderResult::Done(format!("{interface}: its packets are the router's"))),
        Order::Demote { interface } => daemon.observe(&interface, true).map(|()| {
            OrderResult::Done(format!("{interface}: its packets are the kernel's, and counted"))
        }),
    });
    let no_answer = || "the router does not answer: it may be about to end".to_owned();
    let report = match result.ok_or_else(no_answer)?? {
        OrderResult::Done(report) => report,
        OrderResult::Save(save) => save()?,
        OrderResult::Upgrade(result) => {
            result.recv().unwrap_or_else(|_| Err("the router ended".to_owned()))?
        }
    };
    Ok(vec![Item::Done(report)])
}
