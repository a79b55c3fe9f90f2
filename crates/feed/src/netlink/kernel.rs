//! The kernel feed: netlink events keep a mirror current, and dumps resynchronize it.
//!
//! ```text
//!              events ─┬► Mirror ──► Follower
//!  kernel ◄──► (groups) └► log ─┐
//!              dump ────────────┴► a new Mirror, which replaces the old one
//! ```
//!
//! A resynchronization, of which the start is the first, has no gap: the event socket is open before
//! the dump is requested. The dump goes into a new, empty mirror, and so do the events, in the order
//! in which they happened (`kernel/resync.rs`); events are also applied to the mirror in use. Then the
//! new mirror replaces the old one: entries that it lacks are removed, and the follower receives only
//! the differences. This is mark and sweep, with the mirror as the generation.
//!
//! A resynchronization begins by [`Kernel::start`]; after an overrun, which loses messages; by
//! [`Kernel::resynchronize`]; when IPv6 routes expire, which the kernel does not report in time
//! ([`Mirror::expiry`]); and when the default of `rp_filter` changes, which it copies to some
//! interfaces without a message. An overrun during a resynchronization restarts it, and each overrun doubles
//! the receive buffer, up to a limit.
//!
//! No call waits for the kernel: [`Kernel::pump`] reads what is available.

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
/// The groups of a feed without routes: links and addresses.
const GROUPS_WITHOUT_ROUTES: u32 = GROUP_LINK | GROUP_IPV4_IFADDR | GROUP_IPV6_IFADDR;

/// The receive buffer requested at first, in bytes, and the most it grows to.
const BUFFER: usize = 16 << 20;
const LARGEST_BUFFER: usize = 512 << 20;
/// The size of the buffer for one receive, in bytes.
const RECEIVE: usize = 64 << 10;
/// The number of event receives before one dump receive.
const EVENTS_PER_DUMP_READ: usize = 64;
/// The delay between the expiry of a route and the resynchronization: the kernel counts in
/// hundredths of a second, and messages take time.
const EXPIRY_SLACK: Duration = Duration::from_millis(30);
/// The minimum interval between two resynchronizations for expired routes.
const MIN_EXPIRY_GAP: Duration = Duration::from_millis(500);
/// The delay after a resynchronization with an interrupted dump until the next one.
const INTERRUPTED_RETRY: Duration = Duration::from_secs(10);

/// Options of the kernel feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelOptions {
    /// The receive buffer for events, in bytes. The kernel doubles it for its own use.
    pub buffer: usize,
    /// The limit to which overruns may grow the buffer.
    pub largest_buffer: usize,
    /// Whether routes, rules and neighbors are followed. Otherwise no dump reads routes, and
    /// only links and addresses are followed after the start.
    pub routes: bool,
}

impl Default for KernelOptions {
    fn default() -> Self {
        Self { buffer: BUFFER, largest_buffer: LARGEST_BUFFER, routes: true }
    }
}

/// The result of one [`Kernel::pump`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelProgress {
    /// Messages read.
    pub messages: usize,
    /// Whether the limit was reached and more messages are available.
    pub more: bool,
    /// Whether a resynchronization is going on: the mirror may be out of date.
    pub resynchronizing: bool,
    /// Whether this call completed one.
    pub resynchronized: bool,
}

/// The routing state of the kernel, of the network namespace in which this was opened.
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
    /// The time of the next scheduled resynchronization.
    retry_at: Option<Instant>,
    options: KernelOptions,
    counters: KernelCounters,
}

impl Kernel {
    /// Opens sockets in the network namespace of the calling thread. Later changes wait in the socket
    /// until they are read.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn open() -> Result<Self, Error> {
        Self::open_with(KernelOptions::default())
    }

    /// Opens the sockets with other than the default options.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn open_with(options: KernelOptions) -> Result<Self, Error> {
        let events = Socket::open(if options.routes { GROUPS } else { GROUPS_WITHOUT_ROUTES })?;
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

    /// Reads the kernel's complete state, reports it to the follower at the end, and returns then.
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

    /// Reads the kernel's state except routes, which takes milliseconds, and reports it to the
    /// follower at the end. A caller that has routes from an image uses it before
    /// [`start`](Self::start).
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
                    // The rest of the interrupted dump is discarded with its socket.
                    self.dump = self.replace_dump_socket()?;
                    resync = Resync::begin(&mut self.dump)?.without_routes();
                }
                Step::Done => break,
            }
        }
        self.mirror.replace_with(resync.into_mirror(), to);
        Ok(())
    }

    /// Reads the available messages, about `limit` of them at most, and reports the changes to the
    /// follower. Never waits.
    ///
    /// # Errors
    ///
    /// [`Error`]. Messages read before the error have been reported.
    pub fn pump(&mut self, to: &mut dyn Follower, limit: usize) -> Result<KernelProgress, Error> {
        let mut progress = KernelProgress::default();
        if self.due().is_some_and(|at| at <= Instant::now()) {
            self.resynchronize()?;
        }
        loop {
            // Events first: an event that has been read is older than the next part of the dump. The
            // number of receives is bounded.
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

    /// Begins a resynchronization; [`pump`](Self::pump) continues it.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn resynchronize(&mut self) -> Result<(), Error> {
        self.retry_at = None;
        // A new request does not end a dump in progress; closing its socket does.
        if self.resync.take().is_some() {
            self.dump = self.replace_dump_socket()?;
        }
        let resync = Resync::begin(&mut self.dump)?;
        self.resync = Some(if self.options.routes { resync } else { resync.without_routes() });
        Ok(())
    }

    /// Replaces the socket for dumps.
    fn replace_dump_socket(&self) -> Result<Socket, Error> {
        let failed = |source| Error::System { operation: "watching netlink sockets", source };
        let dump = Socket::open(0)?;
        dump.set_buffer(BUFFER)?;
        self.poll.delete(&self.dump).map_err(failed)?;
        self.poll.add(&dump, EpollEvent::new(EpollFlags::EPOLLIN, 1)).map_err(failed)?;
        Ok(dump)
    }

    /// Requests that the kernel resolve or confirm the MAC of `address` on the interface `index`. The
    /// result arrives as a neighbor.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], for instance if there is no such interface.
    pub fn resolve(&mut self, index: u32, address: IpAddr) -> Result<(), Error> {
        let number = self.requests.number();
        self.requests.send(&neighbor::resolve(index, address, number))?;
        // The kernel has executed the request and answers only on an error.
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

    /// Returns the time at which to call [`pump`](Self::pump) even if no message has arrived.
    pub fn due(&self) -> Option<Instant> {
        if self.resync.is_some() {
            return None;
        }
        // After the expiry itself, and once for several that expire together.
        let last = self.counters.last_resynchronized;
        let expiry = self.mirror.expiry().map(|at| at + EXPIRY_SLACK);
        let expiry = expiry.map(|at| last.map_or(at, |last| at.max(last + MIN_EXPIRY_GAP)));
        self.retry_at.into_iter().chain(expiry).min()
    }

    /// Returns the copy of the kernel's state.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Returns the counters.
    pub fn counters(&self) -> &KernelCounters {
        &self.counters
    }

    /// Returns whether a resynchronization is going on.
    pub fn is_resynchronizing(&self) -> bool {
        self.resync.is_some()
    }

    /// Reads once from the event socket; returns the number of messages, `None` if nothing was
    /// available.
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
        // Before the first dump the mirror is empty, and an event has nothing to change.
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
        if self.mirror.is_stale() && self.resync.is_none() {
            self.retry_at = Some(Instant::now());
        }
        Ok(Some(count))
    }

    /// Starts a resynchronization after lost messages, with a larger buffer.
    fn handle_overrun(&mut self) -> Result<(), Error> {
        self.counters.overruns += 1;
        self.events.drain(&mut self.buffer)?;
        // The kernel doubles the requested size.
        let more = self.counters.buffer.min(self.options.largest_buffer);
        self.counters.buffer = self.events.set_buffer(more)?;
        self.resynchronize()
    }

    /// Reads once from the dump socket; returns the number of messages, `None` if nothing was
    /// available.
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
        let is_unfinished = incomplete || self.mirror.is_stale();
        self.retry_at = is_unfinished.then_some(now + INTERRUPTED_RETRY);
        self.counters.resynchronizations += 1;
        self.counters.last_resynchronized = Some(now);
        self.counters.last_took = now - began;
    }
}

/// Waits until the descriptor is readable, a second at most.
fn wait(what: &impl AsFd) -> Result<(), Error> {
    let mut fds = [PollFd::new(what.as_fd(), PollFlags::POLLIN)];
    match poll(&mut fds, PollTimeout::from(1000u16)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(source) => Err(Error::System { operation: "waiting for a dump", source }),
    }
}

impl AsFd for Kernel {
    /// Returns a descriptor that is readable when [`pump`](Kernel::pump) has something to read.
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
