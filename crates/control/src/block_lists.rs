//! The block lists of a router: a thread keeps them up to date, and their filter on all interfaces.
//!
//! ```text
//!   files, feeds, ends ─► thread, ten times a second ─► Blocker ─► filter ─► steering program of each interface
//!   control socket ─► BlockListHandle ─► the same thread         └─► counters ─► show, metrics
//! ```
//!
//! The filter comes before everything else in the steering program: packets for the router itself, for VLAN devices
//! and for the kernel are dropped like those that would be forwarded. A packet that it drops counts as received and as
//! `blocked`. An interface that is only observed drops nothing.
//!
//! A new interface gets the filter before its workers start (`BlockListThread::attach`), one that replaces another
//! device has it already. After a reload whose `[block]` differs, the thread goes on with new lists, whose counters begin
//! at zero (`BlockListHandle::reconfigure`); the former filter stays until the new one replaces it.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use api::{BlockList, Item, Order, Request};
use blocklist::BlockLists;
use config::BlockConfig;
use port::af_xdp::Interface;
use port::af_xdp::steer::IngressFilter;
use threads::{Rights, Stop, Task, rights};
use xdp::Blocker;

use crate::handle::{self, ControlHandle, ControlRequests};
use crate::start::StartError;
use crate::view::View;

/// The interval at which files are looked at.
const TURN: Duration = Duration::from_millis(100);

/// The lists, and the blocker that acts by them.
#[derive(Debug)]
pub(crate) struct BlockState {
    config: BlockConfig,
    lists: BlockLists,
    blocker: Blocker,
    view: Arc<View>,
    /// Why the filter is not on all interfaces.
    error: Option<String>,
}

/// Access to the block lists of a router, if it has any. Clones refer to the same.
#[derive(Clone, Debug, Default)]
pub struct BlockListHandle(Arc<Mutex<Option<ControlHandle<BlockState>>>>);

/// The running thread. Dropping it ends it; the filter stays on the interfaces.
#[derive(Debug)]
pub(crate) struct BlockListThread {
    handle: ControlHandle<BlockState>,
    _task: Task,
}

impl BlockListThread {
    /// Puts the filter of lists on `interfaces`, and starts the thread.
    ///
    /// # Errors
    ///
    /// An error of the kernel.
    pub(crate) fn start(
        mut state: BlockState,
        interfaces: &[Interface],
    ) -> Result<Self, StartError> {
        state.attach(interfaces).map_err(StartError::Port)?;
        state.start_feeds()?;
        let system =
            |source| StartError::System { doing: "start the thread of block lists", source };
        let (handle, requests) = handle::channel().map_err(system)?;
        let run = move |stop: &Stop| run(state, &requests, stop);
        let task = Task::start("block-lists", Rights::Inherited, run).map_err(system)?;
        Ok(Self { handle, _task: task })
    }

    /// Puts the filter on interfaces that may be new.
    ///
    /// # Errors
    ///
    /// An error of the kernel; a thread that does not answer.
    pub(crate) fn attach(&self, interfaces: &[Interface]) -> Result<(), StartError> {
        let interfaces = interfaces.to_vec();
        let attached = self.handle.call(move |state| state.attach(&interfaces));
        attached.ok_or(StartError::NoAnswer)?.map_err(StartError::Port)
    }
}

impl BlockState {
    /// Reads the lists, and builds their tables.
    ///
    /// # Errors
    ///
    /// A list that cannot be read; rights that are missing; what the kernel refuses.
    pub(crate) fn load(config: &BlockConfig, view: Arc<View>) -> Result<Self, StartError> {
        let missing = rights::missing(true);
        if !missing.is_empty() {
            let reason = format!(
                "{} missing (a router that was started without [block] has given it up: restart it)",
                missing.join(", ")
            );
            return Err(StartError::BlockLists(reason));
        }
        let failed = |error: &dyn std::error::Error| StartError::BlockLists(error.to_string());
        let lists = BlockLists::open(config.all_lists(), &config.cache);
        let mut lists = lists.map_err(|error| failed(&error))?;
        let mut blocker = lists.blocker(config.observe).map_err(|error| failed(&error))?;
        lists.load(Some(&mut blocker)).map_err(|error| failed(&error))?;
        blocker.commit().map_err(|error| failed(&error))?;
        Ok(Self { config: config.clone(), lists, blocker, view, error: None })
    }

    /// Puts the present filter on interfaces without it, and takes any from those whose packets are not examined.
    fn attach(&self, interfaces: &[Interface]) -> Result<(), port::af_xdp::Error> {
        let filter: Arc<dyn IngressFilter> = Arc::clone(self.blocker.filter()) as _;
        for interface in interfaces {
            let names = &self.config.interfaces;
            let is_examined = names.is_empty() || names.contains(&interface.name());
            let wanted = is_examined.then_some(&filter);
            if !interface.has_filter(wanted) {
                interface.set_filter(wanted.cloned())?;
            }
        }
        Ok(())
    }

    /// Starts the threads of the feeds.
    fn start_feeds(&mut self) -> Result<(), StartError> {
        self.lists.start_feeds().map_err(|error| StartError::BlockLists(error.to_string()))
    }

    /// Takes other lists in place of these, or other sources that a gate's policy allows. Feeds that both have go on.
    fn reconfigure(&mut self, config: &BlockConfig) -> Result<(), StartError> {
        if self.config.has_same_lists(config) {
            if let Some(allowed) = config.allowed.as_ref().filter(|_| self.config != *config) {
                let set = self.lists.set_allowed(&mut self.blocker, allowed);
                set.map_err(|error| StartError::BlockLists(error.to_string()))?;
                self.config = config.clone();
            }
            return Ok(());
        }
        // The new lists read the file of bans.
        self.lists.save(true);
        let mut next = Self::load(config, Arc::clone(&self.view))?;
        next.lists.take_feeds(&mut self.lists);
        let interfaces = self.view.interfaces();
        let attach = |next: &Self| next.attach(&interfaces).map_err(StartError::Port);
        if let Err(error) = next.start_feeds().and_then(|()| attach(&next)) {
            self.lists.take_feeds(&mut next.lists);
            if let Err(error) = self.start_feeds() {
                log::error!("the former lists do not change any more: {error}");
            }
            return Err(error);
        }
        *self = next;
        Ok(())
    }

    /// Puts the present filter on all interfaces; logs a failure when it begins.
    fn follow(&mut self) {
        let error = self.attach(&self.view.interfaces()).err().map(|error| error.to_string());
        if let Some(error) = error.as_ref().filter(|error| self.error.as_ref() != Some(error)) {
            log::error!("an interface drops by former block lists: {error}");
        }
        self.error = error;
    }
}

fn run(mut state: BlockState, requests: &ControlRequests<BlockState>, stop: &Stop) {
    while !stop.is_set() {
        state.lists.turn(&mut state.blocker, false);
        state.follow();
        if let Err(error) = requests.serve_for(TURN, &mut state, BlockState::follow) {
            log::error!("block lists: waiting for requests: {error}");
            stop.wait(TURN);
        }
    }
}

impl BlockListHandle {
    /// Sets the thread.
    pub(crate) fn set(&self, thread: Option<&BlockListThread>) {
        let handle = thread.map(|thread| thread.handle.clone());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = handle;
    }

    /// Returns the items of the reply to a request about block lists.
    ///
    /// # Errors
    ///
    /// A router without block lists; the fault of the request.
    pub(crate) fn show(&self, request: Request) -> Result<Vec<Item>, String> {
        self.call(move |state| state.lists.show(&state.blocker, &request))
    }

    /// Executes an order about block lists and returns a report.
    ///
    /// # Errors
    ///
    /// A router without block lists; the fault of the order.
    pub fn execute(&self, order: Order) -> Result<String, String> {
        self.call(move |state| state.lists.execute(&mut state.blocker, &order))
    }

    /// Takes other lists in place of the present ones, or other sources that a gate's policy allows, and returns when
    /// they are in force. Feeds that both have go on.
    ///
    /// # Errors
    ///
    /// A list that cannot be read, or an error of the kernel: the former lists stay in force. A process without block
    /// lists.
    pub fn reconfigure(&self, config: &BlockConfig) -> Result<(), StartError> {
        let config = config.clone();
        let done = self.call(move |state| Some(Ok(state.reconfigure(&config))));
        done.map_err(StartError::BlockLists)?
    }

    /// Returns the lists with their counters; none without a thread that answers.
    pub(crate) fn status(&self) -> Vec<BlockList> {
        let list = |item| if let Item::BlockList(list) = item { Some(list) } else { None };
        let items = self.show(Request::BlockLists).unwrap_or_default();
        items.into_iter().filter_map(list).collect()
    }

    fn call<R: Send + 'static>(
        &self,
        request: impl FnOnce(&mut BlockState) -> Option<Result<R, String>> + Send + 'static,
    ) -> Result<R, String> {
        let handle = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let handle =
            handle.ok_or("not available: this process has no block lists (see [block])")?;
        let answer = handle.call(request).ok_or("the thread of block lists does not answer")?;
        answer.unwrap_or_else(|| Err("not about block lists".to_owned()))
    }
}

/// Takes the filter from interfaces.
///
/// # Errors
///
/// An error of the kernel.
pub(crate) fn detach(interfaces: &[Interface]) -> Result<(), port::af_xdp::Error> {
    interfaces.iter().try_for_each(|interface| interface.set_filter(None))
}

/// Checks the lists of a configuration as far as that is possible without starting anything; returns those that would be
/// held.
///
/// # Errors
///
/// A list that cannot be read.
pub fn check(config: &BlockConfig) -> io::Result<Vec<BlockList>> {
    let mut lists =
        BlockLists::open(config.all_lists(), &config.cache).map_err(io::Error::other)?;
    lists.load(None).map_err(io::Error::other)?;
    Ok(lists.held())
}
