//! The kernel, followed: it tells what changes, and is asked for the rest.
//!
//! ```text
//!              events ─┬► Mirror ──► Follower
//!  kernel ◄──► (groups) └► log ─┐
//!              dump ────────────┴► a new Mirror, which takes the place of the old
//! ```
//!
//! A resynchronization, of which the start is the first, has no gap: the socket for
//! events is listening before the dump is asked for. Everything is dumped into a new,
//! empty mirror, and events go into it as well, in the order in which things happened
//! (`kernel/resync.rs`); they go on being applied to the mirror in use, too. Then the new
//! one takes its place: what it does not have is gone, and the follower is told of
//! differences only. That is a generation mark and sweep in which the generation is the
//! mirror.
//!
//! It is begun by [`Kernel::start`]; by an overrun, when messages were lost; by
//! [`Kernel::resynchronize`]; when IPv6 routes end by themselves, which the kernel does not
//! say in time ([`Mirror::expiry`]). An overrun in its midst begins it again, and each overrun
//! doubles the receive buffer, up to a limit.
//!
//! Nothing here waits: [`Kernel::pump`] takes what is there.

mod counters;
mod resync;

use core::fmt;
use core::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::error::Error;
use super::follower::Follower;
use super::lookup::{Lookup, LookupResult};
use super::message::Messages;
use super::mirror::Mirror;
use super::neighbor;
use super::socket::{Received, Socket};
use super::uapi::{
    GROUP_IPV4_IFADDR, GROUP_IPV4_NETCONF, GROUP_IPV4_ROUTE, GROUP_IPV4_RULE, GROUP_IPV6_IFADDR,
    GROUP_IPV6_NETCONF, GROUP_IPV6_ROUTE, GROUP_IPV6_RULE, GROUP_LINK, GROUP_NEIGH, GROUP_NEXTHOP,
    NLMSG_ERROR, NLMSG_OVERRUN,
};
pub use counters::KernelCounters;
use counters::count_damage;
use resync::{Resync, Step};

const GROUPS: u32 = GROUP_LINK
    | GROUP_NEIGH
    | GROUP_IPV4_IFADDR
    | GROUP_IPV6_IFADDR
    | GROUP_IPV4_ROUTE
    | GROUP_IPV6_ROUTE
    | GROUP_IPV4_RULE
    | GROUP_IPV6_RULE
    | GROUP_IPV4_NETCONF
    | GROUP_IPV6_NETCONF
    | GROUP_NEXTHOP;

/// The receive buffer asked for at first, in bytes, and the most it grows to.
const BUFFER: usize = 16 << 20;
const LARGEST_BUFFER: usize = 512 << 20;
/// The memory for what one receive gives.
const RECEIVE: usize = 64 << 10;
/// How many receives of events come before one of a dump.
const EVENTS_PER_DUMP_READ: usize = 64;
/// How long after the expiry of a route the routes are read again: the kernel counts in hundredths
/// of a second, and messages take their time.
const EXPIRY_SLACK: Duration = Duration::from_millis(30);
/// How long after a resynchronization one may follow for the sake of routes that end.
const MIN_EXPIRY_GAP: Duration = Duration::from_millis(500);
/// How long after one that was taken although interrupted the next one begins.
const INTERRUPTED_RETRY: Duration = Duration::from_secs(10);

/// How the kernel is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelOptions {
    /// The receive buffer for events, in bytes. The kernel doubles it for its own use.
    pub buffer: usize,
    /// What the buffer may grow to, by overruns.
    pub largest_buffer: usize,
}

impl Default for KernelOptions {
    fn default() -> Self {
        Self { buffer: BUFFER, largest_buffer: LARGEST_BUFFER }
    }
}

/// What one [`Kernel::pump`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelProgress {
    /// Messages read.
    pub messages: usize,
    /// Whether the limit was reached and more is there.
    pub more: bool,
    /// Whether a resynchronization is going on: the mirror may be out of date.
    pub resynchronizing: bool,
    /// Whether one was completed just now.
    pub resynchronized: bool,
}

/// The kernel of the network namespace in which this was opened.
pub struct Kernel {
    events: Socket,
    dump: Socket,
    requests: Socket,
    /// For lookups of single routes; opened by the first.
    lookup: Option<Lookup>,
    poll: Epoll,
    buffer: Vec<u8>,
    mirror: Mirror,
    resync: Option<Resync>,
    /// When to resynchronize of our own accord.
    retry_at: Option<Instant>,
    options: KernelOptions,
    counters: KernelCounters,
}

impl Kernel {
    /// Opens sockets in the network namespace of the calling thread. From now on changes
    /// wait to be read.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn open() -> Result<Self, Error> {
        Self::open_with(KernelOptions::default())
    }

    /// Opens with options of one's own.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn open_with(options: KernelOptions) -> Result<Self, Error> {
        let events = Socket::open(GROUPS)?;
        let buffer = events.set_buffer(options.buffer)?;
        let (dump, requests) = (Socket::open(0)?, Socket::open(0)?);
        dump.set_buffer(BUFFER)?;
        let failed = |source| Error::System { operation: "watching netlink sockets", source };
        let poll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        poll.add(&events, EpollEvent::new(EpollFlags::EPOLLIN, 0)).map_err(failed)?;
        poll.add(&dump, EpollEvent::new(EpollFlags::EPOLLIN, 1)).map_err(failed)?;
        Ok(Self {
            events,
            dump,
            requests,
            lookup: None,
            poll,
            buffer: vec![0; RECEIVE],
            mirror: Mirror::new(),
            resync: None,
            retry_at: None,
            options,
            counters: KernelCounters { buffer, ..KernelCounters::default() },
        })
    }

    /// Reads everything there is, telling the follower of it at the end, and returns when
    /// that is done.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn start(&mut self, to: &mut dyn Follower) -> Result<(), Error> {
        self.resynchronize()?;
        while !self.pump(to, usize::MAX)?.resynchronized {
            if self.resync.is_some() {
                wait(&self.poll.0)?;
            }
        }
        Ok(())
    }

    /// Reads everything but routes, which takes milliseconds, telling the follower of it at
    /// the end, and returns when that is done: for who has routes of before, until
    /// [`start`](Self::start) reads them. To be called before it, if at all.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn start_without_routes(&mut self, to: &mut dyn Follower) -> Result<(), Error> {
        let mut resync = Resync::begin(&mut self.dump)?.without_routes();
        loop {
            let (step, count) =
                resync.advance(&mut self.dump, &mut self.buffer, &mut self.counters)?;
            self.counters.messages += count as u64;
            match step {
                Step::Progress => {}
                Step::Idle => wait(&self.dump)?,
                Step::Lost => {
                    // What is still to come of it is nobody's any more.
                    self.dump = self.replace_dump_socket()?;
                    resync = Resync::begin(&mut self.dump)?.without_routes();
                }
                Step::Done => break,
            }
        }
        self.mirror.replace_with(resync.into_mirror(), to);
        Ok(())
    }

    /// Reads what is there, about `limit` messages at the most, and tells the follower
    /// what changes by it. Never waits.
    ///
    /// # Errors
    ///
    /// [`Error`]. What was read before has been told.
    pub fn pump(&mut self, to: &mut dyn Follower, limit: usize) -> Result<KernelProgress, Error> {
        let mut progress = KernelProgress::default();
        if self.due().is_some_and(|at| at <= Instant::now()) {
            self.resynchronize()?;
        }
        loop {
            // Events first, as an event that has been read is known to be older than what
            // the dump says next; but not without end.
            let before = progress.messages;
            let mut idle = false;
            for _ in 0..EVENTS_PER_DUMP_READ {
                let events = self.pump_events(to)?;
                progress.messages += events.unwrap_or(0);
                idle = events.is_none();
                if idle || progress.messages >= limit {
                    break;
                }
            }
            let dumped = self.pump_dump(to, &mut progress)?;
            progress.messages += dumped.unwrap_or(0);
            if idle && dumped.is_none() && progress.messages == before {
                break;
            }
            if progress.messages >= limit || progress.resynchronized {
                progress.more = true;
                break;
            }
        }
        self.counters.messages += progress.messages as u64;
        progress.resynchronizing = self.resync.is_some();
        Ok(progress)
    }

    /// Begins to read everything anew; [`pump`](Self::pump) goes on with it.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn resynchronize(&mut self) -> Result<(), Error> {
        self.retry_at = None;
        // A dump that is under way is not ended by asking for another: the socket is.
        if self.resync.take().is_some() {
            self.dump = self.replace_dump_socket()?;
        }
        self.resync = Some(Resync::begin(&mut self.dump)?);
        Ok(())
    }

    /// Makes another socket for dumps, in place of the one there is.
    fn replace_dump_socket(&self) -> Result<Socket, Error> {
        let failed = |source| Error::System { operation: "watching netlink sockets", source };
        let dump = Socket::open(0)?;
        dump.set_buffer(BUFFER)?;
        self.poll.delete(&self.dump).map_err(failed)?;
        self.poll.add(&dump, EpollEvent::new(EpollFlags::EPOLLIN, 1)).map_err(failed)?;
        Ok(dump)
    }

    /// Asks the kernel to find out the MAC of `address` on the interface `index`, or to
    /// make sure of the one it has. What it finds out comes as a neighbor.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], for instance if there is no such interface.
    pub fn resolve(&mut self, index: u32, address: IpAddr) -> Result<(), Error> {
        let number = self.requests.number();
        self.requests.send(&neighbor::resolve(index, address, number))?;
        // The kernel has done it by now, and answers only if it will not.
        let mut refused = None;
        let mut buffer = vec![0; 1024];
        while let Received::Bytes(bytes) = self.requests.receive(&mut buffer)? {
            for message in Messages::new(&buffer[..bytes]).flatten() {
                if message.kind == NLMSG_ERROR && message.sequence == number {
                    refused = message.errno();
                }
            }
        }
        match refused {
            None => Ok(()),
            Some(source) => Err(Error::Refused { request: "to resolve a neighbor", source }),
        }
    }

    /// Queries the kernel for the route of `table` that it uses for `address`, and reports the
    /// resulting changes to the follower. Returns whether the answer had a usable route: it has
    /// none if the route refuses packets, or is of another table.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn reread(
        &mut self,
        table: u32,
        address: IpAddr,
        to: &mut dyn Follower,
    ) -> Result<bool, Error> {
        let mut lookup = match self.lookup.take() {
            Some(lookup) => lookup,
            None => Lookup::open()?,
        };
        let mut taken = Ok(false);
        let found = lookup.get_with(address, |message| {
            taken = self.mirror.correct(table, address, Some(message), to);
        });
        self.lookup = Some(lookup);
        if found? == LookupResult::NoRoute {
            taken = self.mirror.correct(table, address, None, to);
        }
        count_damage(&mut self.counters, taken.map(drop));
        Ok(taken.unwrap_or(false))
    }

    /// Returns when to [`pump`](Self::pump) although nothing has come.
    pub fn due(&self) -> Option<Instant> {
        if self.resync.is_some() {
            return None;
        }
        // After the moment itself, and not for each of several that end together.
        let last = self.counters.last_resynchronized;
        let expiry = self.mirror.expiry().map(|at| at + EXPIRY_SLACK);
        let expiry = expiry.map(|at| last.map_or(at, |last| at.max(last + MIN_EXPIRY_GAP)));
        self.retry_at.into_iter().chain(expiry).min()
    }

    /// Returns what the kernel has, as far as is known.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Returns what has happened so far.
    pub fn counters(&self) -> &KernelCounters {
        &self.counters
    }

    /// Returns whether a resynchronization is going on.
    pub fn is_resynchronizing(&self) -> bool {
        self.resync.is_some()
    }

    /// Reads once from the socket of events; returns how many messages, `None` if there
    /// was nothing.
    fn pump_events(&mut self, to: &mut dyn Follower) -> Result<Option<usize>, Error> {
        let bytes = match self.events.receive(&mut self.buffer)? {
            Received::Nothing => return Ok(None),
            Received::Lost => {
                self.handle_overrun()?;
                return Ok(Some(0));
            }
            Received::Bytes(bytes) => bytes,
        };
        let received = &self.buffer[..bytes];
        // Before the first dump there is nothing that an event could change.
        let first = self.counters.resynchronizations == 0;
        let mut count = 0;
        let mut overrun = false;
        for message in Messages::new(received) {
            count += 1;
            let applied = message.and_then(|message| {
                overrun |= message.kind == NLMSG_OVERRUN;
                if first { Ok(()) } else { self.mirror.apply(&message, to) }
            });
            count_damage(&mut self.counters, applied);
        }
        if let Some(resync) = &mut self.resync {
            overrun |= !resync.log_events(received);
        }
        if overrun {
            self.handle_overrun()?;
        }
        Ok(Some(count))
    }

    /// Messages were lost: everything is read anew, with a larger buffer.
    fn handle_overrun(&mut self) -> Result<(), Error> {
        self.counters.overruns += 1;
        self.events.drain(&mut self.buffer)?;
        // The system doubles what it is asked for.
        let more = self.counters.buffer.min(self.options.largest_buffer);
        self.counters.buffer = self.events.set_buffer(more)?;
        self.resynchronize()
    }

    /// Reads once from the socket of dumps; returns how many messages, `None` if there
    /// was nothing.
    fn pump_dump(
        &mut self,
        to: &mut dyn Follower,
        progress: &mut KernelProgress,
    ) -> Result<Option<usize>, Error> {
        let Some(resync) = &mut self.resync else { return Ok(None) };
        let (step, count) = resync.advance(&mut self.dump, &mut self.buffer, &mut self.counters)?;
        match step {
            Step::Idle => return Ok(None),
            Step::Progress => {}
            Step::Lost => self.resynchronize()?,
            Step::Done => {
                self.finish(to);
                progress.resynchronized = true;
            }
        }
        Ok(Some(count))
    }

    fn finish(&mut self, to: &mut dyn Follower) {
        let Some(resync) = self.resync.take() else { return };
        let incomplete = resync.incomplete;
        self.counters.last_receiving = resync.receiving;
        let began = resync.began;
        self.mirror.replace_with(resync.into_mirror(), to);
        let now = Instant::now();
        self.retry_at = incomplete.then_some(now + INTERRUPTED_RETRY);
        self.counters.resynchronizations += 1;
        self.counters.last_resynchronized = Some(now);
        self.counters.last_took = now - began;
    }
}

/// Waits until there is something to read, a second at the most.
fn wait(what: &impl AsFd) -> Result<(), Error> {
    let mut fds = [PollFd::new(what.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(1000u16)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(source) => Err(Error::System { operation: "waiting for a dump", source }),
    }
}

impl AsFd for Kernel {
    /// Returns what becomes readable when there is something to [`pump`](Kernel::pump).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.0.as_fd()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("mirror", &self.mirror)
            .field("counters", &self.counters)
            .field("resynchronizing", &self.is_resynchronizing())
            .finish_non_exhaustive()
    }
}
