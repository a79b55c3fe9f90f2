//! The kernel, followed: it tells what changes, and is asked for the rest.
//!
//! ```text
//!              events ──► Mirror ──► Follower
//!  kernel ◄──► (groups)     ▲  └──► log ┐
//!              dump ──► a new Mirror ◄──┘ replayed, then it takes the place of the old
//! ```
//!
//! A resynchronisation, of which the start is the first, has no gap: the socket for
//! events is listening before the dump is asked for. It dumps everything into a new,
//! empty mirror while events go on being applied to the one in use; they are also kept,
//! and replayed over the dump when that is complete. Whatever the dump read too early
//! is put right by the replay, because every change since then is in it, and an event
//! says what is there and not what is different. Then the new mirror takes the place of
//! the old one: what it does not have is gone, and the follower is told of differences
//! only. That is a generation mark and sweep in which the generation is the mirror.
//!
//! It is begun by [`Kernel::start`]; by an overrun, when messages were lost; by
//! [`Kernel::resynchronise`]. An overrun in its midst begins it again, and each overrun
//! doubles the receive buffer, up to a limit. A dump that the kernel calls interrupted
//! (`NLM_F_DUMP_INTR`: something changed that may have hidden something else) is asked
//! for again and added to what is there: an entry is missed only if every pass missed
//! it. Under changes without end that could go on forever, so after some passes it is
//! taken as it is, and another resynchronisation follows.
//!
//! What this does not hold: IPv4 routes of one prefix, one type of service and one metric
//! (which `ip route append` and `prepend` make) of which one is replaced and then deleted
//! between the start of a dump and its end, may lose another. The next
//! resynchronisation finds it.
//!
//! Nothing here waits: [`Kernel::pump`] takes what is there.

use core::fmt;
use core::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::attribute::Bytes;
use super::error::{Damage, Error};
use super::follower::{Follower, Nobody};
use super::message::{Message, Messages};
use super::mirror::{Mirror, Origin};
use super::neighbour;
use super::socket::{Received, Socket};
use super::uapi::{
    AF_INET, AF_INET6, GROUP_IPV4_IFADDR, GROUP_IPV4_ROUTE, GROUP_IPV4_RULE, GROUP_IPV6_IFADDR,
    GROUP_IPV6_ROUTE, GROUP_IPV6_RULE, GROUP_LINK, GROUP_NEIGH, GROUP_NEXTHOP, NLM_F_DUMP_INTR,
    NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, RTM_GETADDR, RTM_GETLINK, RTM_GETNEIGH,
    RTM_GETNEXTHOP, RTM_GETROUTE, RTM_GETRULE,
};

const GROUPS: u32 = GROUP_LINK
    | GROUP_NEIGH
    | GROUP_IPV4_IFADDR
    | GROUP_IPV6_IFADDR
    | GROUP_IPV4_ROUTE
    | GROUP_IPV6_ROUTE
    | GROUP_IPV4_RULE
    | GROUP_IPV6_RULE
    | GROUP_NEXTHOP;

/// What is dumped, in order: the request, the family, the length of its header, and
/// what to call it. What others refer to comes first.
const DUMPS: [(u16, u8, usize, &str); 7] = [
    (RTM_GETLINK, 0, 16, "a dump of links"),
    (RTM_GETADDR, 0, 8, "a dump of addresses"),
    (RTM_GETRULE, 0, 12, "a dump of rules"),
    (RTM_GETNEXTHOP, 0, 8, "a dump of nexthop objects"),
    (RTM_GETNEIGH, 0, 12, "a dump of neighbours"),
    (RTM_GETROUTE, AF_INET, 12, "a dump of IPv4 routes"),
    (RTM_GETROUTE, AF_INET6, 12, "a dump of IPv6 routes"),
];

/// The receive buffer asked for at first, in bytes, and the most it grows to.
const BUFFER: usize = 16 << 20;
const LARGEST_BUFFER: usize = 512 << 20;
/// The memory for what one receive gives.
const RECEIVE: usize = 64 << 10;
/// How often an interrupted dump is asked for again.
const PASSES: u32 = 5;
/// How many bytes of events are kept for the replay before it begins again.
const LONGEST_LOG: usize = 1 << 30;
/// How long after one that was taken although interrupted the next one begins.
const LATER: Duration = Duration::from_secs(10);

/// How the kernel is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The receive buffer for events, in bytes. The kernel doubles it for its own use.
    pub buffer: usize,
    /// What the buffer may grow to, by overruns.
    pub largest_buffer: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { buffer: BUFFER, largest_buffer: LARGEST_BUFFER }
    }
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages read, of events and of dumps.
    pub messages: u64,
    /// How often messages were lost because the buffer was full.
    pub overruns: u64,
    /// How many resynchronisations were completed, the start included.
    pub resynchronisations: u64,
    /// How many dumps were interrupted and asked for again.
    pub interrupted: u64,
    /// Messages that were left out because they were damaged.
    pub damaged: u64,
    /// What was wrong with the last of them.
    pub last_damage: Option<Damage>,
    /// When the last resynchronisation was complete.
    pub last_resynchronised: Option<Instant>,
    /// How long it took.
    pub last_took: Duration,
    /// How much of that was spent receiving, which is the kernel's own time.
    pub last_receiving: Duration,
    /// The receive buffer, in bytes, as the system counts it.
    pub buffer: usize,
}

/// What one [`Kernel::pump`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pumped {
    /// Messages read.
    pub messages: usize,
    /// Says that the limit was reached and more is there.
    pub more: bool,
    /// Says that a resynchronisation is going on: the mirror may be out of date.
    pub resynchronising: bool,
    /// Says that one was completed just now.
    pub resynchronised: bool,
}

/// The kernel of the network namespace in which this was opened.
pub struct Kernel {
    events: Socket,
    dump: Socket,
    requests: Socket,
    poll: Epoll,
    buffer: Vec<u8>,
    mirror: Mirror,
    resync: Option<Resync>,
    /// When to resynchronise of our own accord.
    later: Option<Instant>,
    settings: Settings,
    counters: Counters,
}

/// A resynchronisation that is going on.
struct Resync {
    mirror: Mirror,
    /// Events, each as it was received.
    log: Vec<u8>,
    /// Which of [`DUMPS`].
    at: usize,
    sequence: u32,
    interrupted: bool,
    pass: u32,
    doubtful: bool,
    began: Instant,
    receiving: Duration,
}

impl Kernel {
    /// Opens sockets in the network namespace of the calling thread. From now on changes
    /// wait to be read.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn open() -> Result<Self, Error> {
        Self::with(Settings::default())
    }

    /// Opens with settings of one's own.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn with(settings: Settings) -> Result<Self, Error> {
        let events = Socket::open(GROUPS)?;
        let buffer = events.set_buffer(settings.buffer)?;
        let (dump, requests) = (Socket::open(0)?, Socket::open(0)?);
        dump.set_buffer(BUFFER)?;
        let failed = |source| Error::System { doing: "watching netlink sockets", source };
        let poll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(failed)?;
        poll.add(&events, EpollEvent::new(EpollFlags::EPOLLIN, 0)).map_err(failed)?;
        poll.add(&dump, EpollEvent::new(EpollFlags::EPOLLIN, 1)).map_err(failed)?;
        Ok(Self {
            events,
            dump,
            requests,
            poll,
            buffer: vec![0; RECEIVE],
            mirror: Mirror::new(),
            resync: None,
            later: None,
            settings,
            counters: Counters { buffer, ..Counters::default() },
        })
    }

    /// Reads everything there is, telling the follower of it at the end, and returns when
    /// that is done.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn start(&mut self, to: &mut dyn Follower) -> Result<(), Error> {
        self.resynchronise()?;
        while !self.pump(to, usize::MAX)?.resynchronised {
            if self.resync.is_some() {
                let mut fds = [PollFd::new(self.poll.0.as_fd(), PollFlags::POLLIN)];
                match poll(&mut fds, PollTimeout::from(1000u16)) {
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(source) => {
                        return Err(Error::System { doing: "waiting for a dump", source });
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads what is there, about `limit` messages at the most, and tells the follower
    /// what changes by it. Never waits.
    ///
    /// # Errors
    ///
    /// [`Error`]. What was read before has been told.
    pub fn pump(&mut self, to: &mut dyn Follower, limit: usize) -> Result<Pumped, Error> {
        let mut pumped = Pumped::default();
        if self.resync.is_none() && self.later.is_some_and(|at| at <= Instant::now()) {
            self.resynchronise()?;
        }
        loop {
            // One of each in turn, so that neither waits for the end of the other.
            let events = self.pump_events(to)?;
            let dumped = self.pump_dump(to, &mut pumped)?;
            pumped.messages += events.unwrap_or(0) + dumped.unwrap_or(0);
            if events.is_none() && dumped.is_none() {
                break;
            }
            if pumped.messages >= limit || pumped.resynchronised {
                pumped.more = true;
                break;
            }
        }
        self.counters.messages += pumped.messages as u64;
        pumped.resynchronising = self.resync.is_some();
        Ok(pumped)
    }

    /// Begins to read everything anew; [`pump`](Self::pump) goes on with it.
    ///
    /// # Errors
    ///
    /// [`Error`].
    pub fn resynchronise(&mut self) -> Result<(), Error> {
        self.later = None;
        // A dump that is under way is not ended by asking for another: the socket is.
        if self.resync.take().is_some() {
            let failed = |source| Error::System { doing: "watching netlink sockets", source };
            let dump = Socket::open(0)?;
            dump.set_buffer(BUFFER)?;
            self.poll.delete(&self.dump).map_err(failed)?;
            self.poll.add(&dump, EpollEvent::new(EpollFlags::EPOLLIN, 1)).map_err(failed)?;
            self.dump = dump;
        }
        let (kind, family, header, _) = DUMPS[0];
        let began = Instant::now();
        let sequence = self.dump.dump(kind, family, header)?;
        self.resync = Some(Resync {
            mirror: Mirror::new(),
            log: Vec::new(),
            at: 0,
            sequence,
            interrupted: false,
            pass: 1,
            doubtful: false,
            began,
            receiving: began.elapsed(),
        });
        Ok(())
    }

    /// Asks the kernel to find out the MAC of `address` on the interface `index`, or to
    /// make sure of the one it has. What it finds out comes as a neighbour.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], for instance if there is no such interface.
    pub fn resolve(&mut self, index: u32, address: IpAddr) -> Result<(), Error> {
        let number = self.requests.number();
        self.requests.send(&neighbour::resolve(index, address, number))?;
        // The kernel has done it by now, and answers only if it will not.
        let mut refused = None;
        let mut buffer = vec![0; 1024];
        while let Received::Bytes(bytes) = self.requests.receive(&mut buffer)? {
            for message in Messages::new(&buffer[..bytes]).flatten() {
                if message.kind == NLMSG_ERROR && message.sequence == number {
                    refused = errno(&message);
                }
            }
        }
        match refused {
            None => Ok(()),
            Some(source) => Err(Error::Refused { asked: "to resolve a neighbour", source }),
        }
    }

    /// Returns what the kernel has, as far as is known.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Returns what has happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Says whether a resynchronisation is going on.
    pub fn is_resynchronising(&self) -> bool {
        self.resync.is_some()
    }

    /// Reads once from the socket of events; returns how many messages, `None` if there
    /// was nothing.
    fn pump_events(&mut self, to: &mut dyn Follower) -> Result<Option<usize>, Error> {
        let bytes = match self.events.receive(&mut self.buffer)? {
            Received::Nothing => return Ok(None),
            Received::Lost => {
                self.lost()?;
                return Ok(Some(0));
            }
            Received::Bytes(bytes) => bytes,
        };
        let received = &self.buffer[..bytes];
        // Before the first dump there is nothing that an event could change.
        let first = self.counters.resynchronisations == 0;
        let mut count = 0;
        let mut overrun = false;
        for message in Messages::new(received) {
            count += 1;
            let applied = message.and_then(|message| {
                overrun |= message.kind == NLMSG_OVERRUN;
                if first { Ok(()) } else { self.mirror.apply(&message, to) }
            });
            note(&mut self.counters, applied);
        }
        if let Some(resync) = &mut self.resync {
            resync.log.extend_from_slice(received);
            // Messages begin on multiples of four.
            resync.log.resize(resync.log.len().next_multiple_of(4), 0);
            overrun |= resync.log.len() > LONGEST_LOG;
        }
        if overrun {
            self.lost()?;
        }
        Ok(Some(count))
    }

    /// Messages were lost: everything is read anew, with a larger buffer.
    fn lost(&mut self) -> Result<(), Error> {
        self.counters.overruns += 1;
        self.events.drain(&mut self.buffer)?;
        // The system doubles what it is asked for.
        let more = self.counters.buffer.min(self.settings.largest_buffer);
        self.counters.buffer = self.events.set_buffer(more)?;
        self.resynchronise()
    }

    /// Reads once from the socket of dumps; returns how many messages, `None` if there
    /// was nothing.
    fn pump_dump(
        &mut self,
        to: &mut dyn Follower,
        pumped: &mut Pumped,
    ) -> Result<Option<usize>, Error> {
        let Some(resync) = &mut self.resync else { return Ok(None) };
        let asked = DUMPS[resync.at].3;
        let before = Instant::now();
        let received = self.dump.receive(&mut self.buffer)?;
        resync.receiving += before.elapsed();
        let bytes = match received {
            Received::Nothing => return Ok(None),
            Received::Lost => {
                self.resynchronise()?;
                return Ok(Some(0));
            }
            Received::Bytes(bytes) => bytes,
        };
        let (mut count, mut done, mut broken) = (0, false, false);
        for message in Messages::new(&self.buffer[..bytes]) {
            count += 1;
            let message = match message {
                Ok(message) if message.sequence != resync.sequence => continue,
                Ok(message) => message,
                Err(damage) => {
                    note(&mut self.counters, Err(damage));
                    broken = true;
                    continue;
                }
            };
            resync.interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
            match message.kind {
                NLMSG_DONE | NLMSG_ERROR => {
                    done = true;
                    match errno(&message) {
                        None => {}
                        // A kernel before 5.3 knows no nexthop objects.
                        Some(Errno::EOPNOTSUPP | Errno::EINVAL)
                            if DUMPS[resync.at].0 == RTM_GETNEXTHOP => {}
                        Some(Errno::EINTR | Errno::EAGAIN) => resync.interrupted = true,
                        Some(source) => return Err(Error::Refused { asked, source }),
                    }
                }
                NLMSG_NOOP => {}
                _ => {
                    let applied = resync.mirror.apply_from(&message, Origin::Dump, &mut Nobody);
                    note(&mut self.counters, applied);
                }
            }
        }
        if broken {
            // Nothing tells where the next message begins, or whether the end was there.
            self.resynchronise()?;
        } else if done {
            pumped.resynchronised = self.next_dump(to)?;
        }
        Ok(Some(count))
    }

    /// A dump is complete: asks for the next one, or again for this one, or ends.
    fn next_dump(&mut self, to: &mut dyn Follower) -> Result<bool, Error> {
        let Some(resync) = &mut self.resync else { return Ok(false) };
        if resync.interrupted {
            self.counters.interrupted += 1;
        }
        if resync.interrupted && resync.pass < PASSES {
            resync.pass += 1;
        } else {
            resync.doubtful |= resync.interrupted;
            resync.pass = 1;
            resync.at += 1;
        }
        resync.interrupted = false;
        if let Some(&(kind, family, header, _)) = DUMPS.get(resync.at) {
            resync.sequence = self.dump.dump(kind, family, header)?;
            return Ok(false);
        }
        self.finish(to);
        Ok(true)
    }

    fn finish(&mut self, to: &mut dyn Follower) {
        let Some(resync) = self.resync.take() else { return };
        let Resync { mut mirror, log, .. } = resync;
        for message in Messages::new(&log).flatten() {
            // What is damaged was counted when it came.
            let _ = mirror.apply(&message, &mut Nobody);
        }
        self.mirror.become_new(mirror, to);
        let now = Instant::now();
        self.later = resync.doubtful.then_some(now + LATER);
        self.counters.resynchronisations += 1;
        self.counters.last_resynchronised = Some(now);
        self.counters.last_took = now - resync.began;
        self.counters.last_receiving = resync.receiving;
    }
}

fn note(counters: &mut Counters, applied: Result<(), Damage>) {
    if let Err(damage) = applied {
        counters.damaged += 1;
        counters.last_damage = Some(damage);
    }
}

/// Reads what the end of a dump or an answer says went wrong.
fn errno(message: &Message<'_>) -> Option<Errno> {
    let (head, _) = message.payload.split_first_chunk::<4>()?;
    match head.u32(0).cast_signed() {
        0 => None,
        negative => Some(Errno::from_raw(negative.wrapping_neg())),
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
            .field("resynchronising", &self.is_resynchronising())
            .finish_non_exhaustive()
    }
}
