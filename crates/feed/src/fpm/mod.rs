//! The FPM feed: the routes of FRR's zebra, sent over TCP.
//!
//! ```text
//!  zebra ─ TCP 2620 ─► frames ─► Mirror of this connection ──────────► Follower
//!  (dplane_fpm_nl)               stale routes of earlier ones, until swept ─┘
//! ```
//!
//! With `zebra -M dplane_fpm_nl` and `fpm address …`, FRR connects to a listening peer and sends
//! its routes and nexthop groups as netlink messages, without going through the kernel. The parser
//! of [`netlink`](crate::netlink) reads the messages. The differences:
//!
//! - There is one route a prefix: a message states the prefix's current route or its removal, and
//!   no attributes are matched.
//! - A change is a deletion and a new route in one frame. The follower receives one change, the
//!   result of the frame.
//! - After every connection zebra sends all its routes, but no message marks their end or lists the
//!   routes removed in the meantime. So each connection has its own mirror, and the mirrors of
//!   earlier ones hold the routes that have not been sent again: routes stay while zebra is away
//!   and while it sends them again. When no prefix that is new to this connection has arrived for a
//!   while ([`FpmOptions::quiet`]; changes of prefixes that have arrived do not count, as they
//!   never cease), or after [`FpmOptions::max_wait`], the stale routes are removed. A connection
//!   without any route ends nothing: zebra has at least the routes of connected networks. The
//!   mirrors are separate because a restarted zebra assigns new numbers to its nexthop groups.
//! - Only routes and nexthop objects are read. Links, addresses and neighbors come from the kernel;
//!   a next hop over an interface that is down is excluded by the router.
//!
//! zebra writes from its own thread and queue, and a full socket does not block it; still,
//! [`Fpm::pump`] reads all available bytes and never waits.
//!
//! Routes decide where packets go, so not every process that can connect may send them
//! (`peers.rs`). One connection is served at a time. While it lives, others are closed and counted:
//! a second peer must neither replace the first one nor have its routes swept. A zebra that crashed
//! is no obstacle, because the kernel closes its connection before another begins, and available
//! bytes are read before another connection is accepted. Keepalive probes detect a host that has
//! vanished, after [`FpmOptions::peer_timeout`].

mod frame;
mod peer_routes;
mod peers;

use core::fmt;
use core::net::SocketAddr;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{KeepAlive, RcvBuf, TcpKeepCount, TcpKeepIdle, TcpKeepInterval};

pub use self::peer_routes::{ApplyResult, PeerRoutes};
pub use self::peers::{Peers, Refusal, Refused};
use crate::netlink::{Damage, Follower, Mirror, SocketOwners};

/// The default port that FRR connects to.
pub const PORT: u16 = 2620;

/// The size of a read, in bytes. The longest frame is 64 KiB.
const READ: usize = 256 << 10;
/// The size of the socket's receive buffer, in bytes.
const SOCKET_BUFFER: usize = 8 << 20;

/// The most connections that one [`Fpm::pump`] accepts or refuses.
const MAX_ACCEPTS: usize = 16;
/// The number of keepalive probes that a peer may leave unanswered.
const PROBES: u32 = 3;

/// The options of the FPM feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FpmOptions {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The peers that may connect.
    pub peers: Peers,
    /// The time for which a silent peer may leave keepalive probes unanswered before it counts as
    /// gone; whole seconds, at least 4.
    pub peer_timeout: Duration,
    /// The time without a new prefix after which zebra is assumed to have sent all routes.
    pub quiet: Duration,
    /// The time after a connection at which zebra is assumed to have sent all routes in any case.
    pub max_wait: Duration,
}

impl Default for FpmOptions {
    fn default() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], PORT));
        Self {
            listen,
            peers: Peers::default(),
            peer_timeout: Duration::from_secs(20),
            quiet: Duration::from_secs(3),
            max_wait: Duration::from_secs(120),
        }
    }
}

/// Counters of the FPM feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FpmCounters {
    /// Frames read.
    pub frames: u64,
    /// Netlink messages read.
    pub messages: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Connections refused.
    pub refused: u64,
    /// The last of them.
    pub last_refused: Option<Refused>,
    /// Sweeps: stale routes were removed because zebra was assumed to have sent all routes.
    pub sweeps: u64,
    /// Messages ignored and connections closed because they were damaged.
    pub parse_errors: u64,
    /// The last such damage.
    pub last_damage: Option<Damage>,
    /// The time of the last sweep.
    pub last_swept: Option<Instant>,
}

/// The result of one [`Fpm::pump`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FpmProgress {
    /// Messages read.
    pub messages: usize,
    /// Whether the limit was reached, so that more may be available.
    pub more: bool,
    /// Whether zebra is connected.
    pub connected: bool,
    /// Whether zebra may not have sent everything yet, or is not connected.
    pub resynchronizing: bool,
    /// Whether this call has swept.
    pub resynchronized: bool,
}

/// A connection, from its first byte on.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// `buffer[start..end]` has been read and not yet parsed.
    start: usize,
    end: usize,
    began: Instant,
    /// The arrival time of the last prefix that was new to this connection.
    last_new: Instant,
    /// Whether a route has arrived on it.
    has_routes: bool,
    /// Whether the stale routes of earlier connections have been removed.
    swept: bool,
}

/// The listening end of the FPM feed.
pub struct Fpm {
    listener: TcpListener,
    owners: SocketOwners,
    connection: Option<Connection>,
    poll: Epoll,
    routes: PeerRoutes,
    options: FpmOptions,
    counters: FpmCounters,
}

impl Fpm {
    /// Starts to listen.
    ///
    /// # Errors
    ///
    /// The system's error, for example if another process listens on the address.
    pub fn listen(options: FpmOptions) -> io::Result<Self> {
        let owners = SocketOwners::open().map_err(io::Error::other)?;
        let listener = TcpListener::bind(options.listen)?;
        listener.set_nonblocking(true)?;
        let poll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        poll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        Ok(Self {
            listener,
            owners,
            connection: None,
            poll,
            routes: PeerRoutes::new(),
            options,
            counters: FpmCounters::default(),
        })
    }

    /// Returns the address that it listens on.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Reads the available messages, about `limit` at the most, and reports the changes to the
    /// follower. Never waits.
    ///
    /// A broken connection is no error: its routes stay until the next connection.
    ///
    /// # Errors
    ///
    /// The system's error on the listening socket.
    pub fn pump(&mut self, to: &mut dyn Follower, limit: usize) -> io::Result<FpmProgress> {
        let mut progress = FpmProgress::default();
        loop {
            self.read(&mut progress, to, limit);
            // While bytes are unread it is unknown whether the peer is still connected.
            if progress.more || !self.accept()? {
                break;
            }
        }
        if !progress.more && self.due().is_some_and(|due| due <= Instant::now()) {
            progress.resynchronized = self.sweep(to);
        }
        progress.connected = self.connection.is_some();
        progress.resynchronizing =
            self.connection.as_ref().is_none_or(|connection| !connection.swept);
        Ok(progress)
    }

    /// Reads the bytes of the peer, until none is available or `limit` is reached.
    fn read(&mut self, progress: &mut FpmProgress, to: &mut dyn Follower, limit: usize) {
        while let Some(connection) = &mut self.connection {
            match connection.receive() {
                Ok(0) => self.connection = None,
                Ok(_) => match connection.apply_frames(&mut self.routes, &mut self.counters, to) {
                    Ok(messages) => progress.messages += messages,
                    Err(damage) => {
                        count_damage(&mut self.counters, damage);
                        self.connection = None;
                    }
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.connection = None,
            }
            if progress.messages >= limit {
                progress.more = true;
                break;
            }
        }
    }

    /// Closes the connection, so that zebra sends all routes again with the next one. The routes
    /// stay meanwhile.
    pub fn restart_session(&mut self) {
        self.connection = None;
    }

    /// Returns whether zebra is connected and is assumed to have sent all routes.
    pub fn is_complete(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.swept)
    }

    /// Returns when to [`pump`](Self::pump) without new bytes: zebra is then assumed to have sent
    /// all routes. `None` while the connection has sent no route.
    pub fn due(&self) -> Option<Instant> {
        let connection = self.connection.as_ref()?;
        let quiet = connection.last_new + self.options.quiet;
        let waits = connection.has_routes && !connection.swept;
        waits.then(|| quiet.min(connection.began + self.options.max_wait))
    }

    /// Reports every route to a new follower.
    pub fn report_routes(&self, to: &mut dyn Follower) {
        self.routes.report_routes(to);
    }

    /// Removes all routes: zebra has been away for too long.
    pub fn clear(&mut self, to: &mut dyn Follower) {
        self.routes.clear(to);
    }

    /// Returns the routes of the last connection: all routes, unless [`stale`](Self::stale) has
    /// some.
    pub fn mirror(&self) -> &Mirror {
        self.routes.mirror()
    }

    /// Returns the routes of earlier connections that have been neither sent again nor swept.
    pub fn stale(&self) -> &[Mirror] {
        self.routes.stale()
    }

    /// Returns the counters.
    pub fn counters(&self) -> &FpmCounters {
        &self.counters
    }

    /// Accepts the first waiting connection that is allowed, if none is open, and refuses the
    /// others; returns whether it has accepted one.
    fn accept(&mut self) -> io::Result<bool> {
        for _ in 0..MAX_ACCEPTS {
            let (stream, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(false),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => continue,
                    _ => return Err(error),
                },
            };
            match self.check(&stream, peer) {
                Ok(()) => {
                    self.serve(stream)?;
                    return Ok(true);
                }
                Err(why) => {
                    self.counters.refused += 1;
                    self.counters.last_refused = Some(Refused { peer, why });
                }
            }
        }
        Ok(false)
    }

    /// Checks whether a connection may be served.
    fn check(&mut self, stream: &TcpStream, peer: SocketAddr) -> Result<(), Refusal> {
        if self.connection.is_some() {
            return Err(Refusal::Busy);
        }
        // A closed connection has no address.
        let own = stream.local_addr().map_err(|_| Refusal::NoUser)?;
        let owner = self.owners.of(own, peer).map_err(Refusal::System)?;
        self.options.peers.check(peer.ip(), owner)
    }

    /// Starts to serve a connection.
    fn serve(&mut self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        // Optional: on an error the buffer is smaller.
        let _ = setsockopt(&stream, RcvBuf, &SOCKET_BUFFER);
        let wait = (self.options.peer_timeout.as_secs() as u32 / (PROBES + 1)).max(1);
        setsockopt(&stream, KeepAlive, &true)?;
        setsockopt(&stream, TcpKeepIdle, &wait)?;
        setsockopt(&stream, TcpKeepInterval, &wait)?;
        setsockopt(&stream, TcpKeepCount, &PROBES)?;
        self.poll.add(&stream, EpollEvent::new(EpollFlags::EPOLLIN, 1))?;
        self.counters.connections += 1;
        let now = Instant::now();
        self.connection = Some(Connection {
            stream,
            buffer: vec![0; READ],
            start: 0,
            end: 0,
            began: now,
            last_new: now,
            has_routes: false,
            swept: false,
        });
        self.routes.connect();
        Ok(())
    }

    fn sweep(&mut self, to: &mut dyn Follower) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        connection.swept = true;
        self.routes.sweep(to);
        self.counters.sweeps += 1;
        self.counters.last_swept = Some(Instant::now());
        true
    }
}

impl Connection {
    /// Reads once; 0 is the end of the stream.
    fn receive(&mut self) -> io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        // A frame is shorter than the buffer, so that there is room.
        let bytes = self.stream.read(&mut self.buffer[self.end..])?;
        self.end += bytes;
        Ok(bytes)
    }

    /// Applies every complete frame; returns the number of messages in them.
    fn apply_frames(
        &mut self,
        routes: &mut PeerRoutes,
        counters: &mut FpmCounters,
        to: &mut dyn Follower,
    ) -> Result<usize, Damage> {
        let applied = routes.apply(&self.buffer[self.start..self.end], to);
        self.start += applied.bytes;
        counters.frames += applied.frames;
        counters.messages += applied.messages as u64;
        counters.parse_errors += applied.parse_errors;
        counters.last_damage = applied.last_damage.or(counters.last_damage);
        if applied.new > 0 {
            self.has_routes = true;
            self.last_new = Instant::now();
        }
        applied.broken.map_or(Ok(applied.messages), Err)
    }
}

fn count_damage(counters: &mut FpmCounters, damage: Damage) {
    counters.parse_errors += 1;
    counters.last_damage = Some(damage);
}

impl AsFd for Fpm {
    /// Returns what becomes readable when there is something to [`pump`](Fpm::pump).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poll.0.as_fd()
    }
}

impl fmt::Debug for Fpm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fpm")
            .field("options", &self.options)
            .field("connected", &self.connection.is_some())
            .field("mirror", self.routes.mirror())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
