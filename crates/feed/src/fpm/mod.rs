//! The FPM feed: what FRR's zebra has for routes, sent by itself.
//!
//! ```text
//!  zebra ─ TCP 2620 ─► frames ─► Mirror of this connection ──────────► Follower
//!  (dplane_fpm_nl)               what is left of earlier ones, until swept ─┘
//! ```
//!
//! With `zebra -M dplane_fpm_nl` and `fpm address …`, FRR connects to whoever listens and
//! sends its routes and nexthop groups as netlink messages, without going through the
//! kernel; the messages are read by the parser of [`netlink`](crate::netlink). What is
//! different:
//!
//! - There is one route a prefix: a message says what it is now, or that it is gone, and
//!   nothing is matched.
//! - A change is a deletion and a new route in one frame. The follower is told once, of
//!   what is there after the frame.
//! - After every connection zebra sends everything it has, and nothing says when that is
//!   done, nor what has gone in the meantime. So each connection has a mirror of its own,
//!   and those of earlier ones hold what has not been said again: routes stay while zebra
//!   is away and while it repeats itself. When no prefix that is new to this connection
//!   has come for a while ([`FpmOptions::quiet`]; changes of those that have come do not
//!   count, as they never cease), or after [`FpmOptions::max_wait`], what is left is gone.
//!   A connection that has sent no route ends nothing: zebra has at least the routes of
//!   connected networks. The mirrors are apart because a zebra that was restarted gives
//!   the numbers of its nexthop groups new meanings.
//! - Only routes and nexthop objects are taken. Links, addresses and neighbors are the
//!   kernel's to tell; a way out over an interface that is down is the router's to leave
//!   out.
//!
//! zebra writes from a thread and a queue of its own, and is not held up by a socket that
//! is full; still, [`Fpm::pump`] reads all available bytes and never waits.
//!
//! Routes decide where packets go, so not every process that can connect may send them
//! (`peers.rs`). One connection is served at a time. While it lives, others are closed and
//! counted: a second peer must neither replace the first one nor have its routes swept. A
//! zebra that crashed is no obstacle, because the kernel closes its connection before
//! another begins and what is there is read before another is taken; a host that vanished is
//! noticed by keepalive probes, after [`FpmOptions::peer_timeout`].

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

/// The port that FRR connects to unless told otherwise.
pub const PORT: u16 = 2620;

/// How much is read at once, in bytes. The max_wait frame is 64 KiB.
const READ: usize = 256 << 10;
/// How much may wait in the socket, in bytes.
const SOCKET_BUFFER: usize = 8 << 20;

/// The most connections that one [`Fpm::pump`] accepts or refuses.
const MAX_ACCEPTS: usize = 16;
/// The number of keepalive probes that a peer may leave unanswered.
const PROBES: u32 = 3;

/// How FRR is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FpmOptions {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The peers that may connect.
    pub peers: Peers,
    /// How long a peer that sends nothing may leave keepalive probes unanswered before it
    /// counts as gone; whole seconds, at least 4.
    pub peer_timeout: Duration,
    /// For how long no new prefix must come until everything is taken to have been sent.
    pub quiet: Duration,
    /// How long after a connection everything is taken to have been sent in any case.
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

/// What has happened so far.
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
    /// How often everything was taken to have been sent, and the rest was swept away.
    pub sweeps: u64,
    /// Messages left out, and streams given up, because they were damaged.
    pub parse_errors: u64,
    /// What was wrong with the last of them.
    pub last_damage: Option<Damage>,
    /// When the last sweep was.
    pub last_swept: Option<Instant>,
}

/// What one [`Fpm::pump`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FpmProgress {
    /// Messages read.
    pub messages: usize,
    /// Whether the limit was reached and more may be there.
    pub more: bool,
    /// Whether zebra is connected.
    pub connected: bool,
    /// Whether zebra may not have sent everything yet, or is not connected.
    pub resynchronizing: bool,
    /// Whether the sweep was done just now.
    pub resynchronized: bool,
}

/// A connection, from its first byte on.
struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// `buffer[start..end]` has been read and not yet understood.
    start: usize,
    end: usize,
    began: Instant,
    /// When a prefix came that had not come before.
    last_new: Instant,
    /// Whether a route has arrived on it.
    has_routes: bool,
    /// Whether what was left of earlier connections is gone.
    swept: bool,
}

/// FRR, listened to.
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
    /// Listens.
    ///
    /// # Errors
    ///
    /// What the system says, for instance if somebody else listens there.
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

    /// Returns where it listens.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Reads what is there, about `limit` messages at the most, and tells the follower
    /// what changes by it. Never waits.
    ///
    /// A connection that breaks is no error: its routes stay, and the next one is waited
    /// for.
    ///
    /// # Errors
    ///
    /// What the system says of the socket that listens.
    pub fn pump(&mut self, to: &mut dyn Follower, limit: usize) -> io::Result<FpmProgress> {
        let mut progress = FpmProgress::default();
        loop {
            self.read(&mut progress, to, limit);
            // With the rest unread it is not known whether the peer is still there.
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

    /// Reads what the peer has sent, until nothing is there or `limit` is reached.
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

    /// Has zebra send everything again: the connection is closed, and its next one begins
    /// with that. Routes stay meanwhile.
    pub fn restart_session(&mut self) {
        self.connection = None;
    }

    /// Returns whether zebra is connected, and is taken to have sent everything.
    pub fn is_complete(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.swept)
    }

    /// Returns when to [`pump`](Self::pump) although nothing has come: then everything is
    /// taken to have been sent. Never, while the connection has sent no route.
    pub fn due(&self) -> Option<Instant> {
        let connection = self.connection.as_ref()?;
        let quiet = connection.last_new + self.options.quiet;
        let waits = connection.has_routes && !connection.swept;
        waits.then(|| quiet.min(connection.began + self.options.max_wait))
    }

    /// Tells a follower that knows nothing yet of every route there is.
    pub fn report_routes(&self, to: &mut dyn Follower) {
        self.routes.report_routes(to);
    }

    /// Forgets all routes: zebra has been away for too long.
    pub fn clear(&mut self, to: &mut dyn Follower) {
        self.routes.clear(to);
    }

    /// Returns what zebra has sent by the last connection: all there is, unless
    /// [`stale`](Self::stale) has something.
    pub fn mirror(&self) -> &Mirror {
        self.routes.mirror()
    }

    /// Returns what is left of earlier connections, and has not been sent again or swept.
    pub fn stale(&self) -> &[Mirror] {
        self.routes.stale()
    }

    /// Returns what has happened so far.
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

    /// Judges whether a connection may be served.
    fn check(&mut self, stream: &TcpStream, peer: SocketAddr) -> Result<(), Refusal> {
        if self.connection.is_some() {
            return Err(Refusal::Busy);
        }
        // Of a connection that is gone there is no address.
        let own = stream.local_addr().map_err(|_| Refusal::NoUser)?;
        let owner = self.owners.of(own, peer).map_err(Refusal::System)?;
        self.options.peers.check(peer.ip(), owner)
    }

    /// Begins with a connection.
    fn serve(&mut self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        // Not needed: without it the buffer is smaller.
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
    /// Reads once; 0 is the end.
    fn receive(&mut self) -> io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        // A frame is shorter than the buffer, so that there is room.
        let bytes = self.stream.read(&mut self.buffer[self.end..])?;
        self.end += bytes;
        Ok(bytes)
    }

    /// Applies every frame that is whole; returns how many messages they held.
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
