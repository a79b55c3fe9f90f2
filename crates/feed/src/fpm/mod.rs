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
//!   has come for a while ([`Settings::quiet`]; changes of those that have come do not
//!   count, as they never cease), or after [`Settings::longest`], what is left is gone.
//!   The mirrors are apart because a zebra that was restarted gives the numbers of its
//!   nexthop groups new meanings.
//! - Only routes and nexthop objects are taken. Links, addresses and neighbours are the
//!   kernel's to tell; a way out over an interface that is down is the router's to leave
//!   out.
//!
//! zebra writes from a thread and a queue of its own, and is not held up by a socket that
//! is full; still, [`Fpm::pump`] takes whatever is there and waits for nothing. One
//! connection is served, the latest: a zebra that comes back after a crash must not wait
//! for the old connection to be given up.

mod frame;

use core::fmt;
use core::net::SocketAddr;
use std::io::{self, Read};
use std::mem;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::{KeepAlive, RcvBuf};

use crate::netlink::{Damage, Follower, Mirror};

/// The port that FRR connects to unless told otherwise.
pub const PORT: u16 = 2620;

/// How much is read at once, in bytes. The longest frame is 64 KiB.
const READ: usize = 256 << 10;
/// How much may wait in the socket, in bytes.
const WAITING: usize = 8 << 20;

/// How FRR is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// For how long no new prefix must come until everything is taken to have been sent.
    pub quiet: Duration,
    /// How long after a connection everything is taken to have been sent in any case.
    pub longest: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let listen = SocketAddr::from(([127, 0, 0, 1], PORT));
        Self { listen, quiet: Duration::from_secs(3), longest: Duration::from_secs(120) }
    }
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames read.
    pub frames: u64,
    /// Netlink messages read.
    pub messages: u64,
    /// Connections accepted.
    pub connections: u64,
    /// How often everything was taken to have been sent, and the rest was swept away.
    pub sweeps: u64,
    /// Messages left out, and streams given up, because they were damaged.
    pub damaged: u64,
    /// What was wrong with the last of them.
    pub last_damage: Option<Damage>,
    /// When the last sweep was.
    pub last_swept: Option<Instant>,
}

/// What one [`Fpm::pump`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pumped {
    /// Messages read.
    pub messages: usize,
    /// Says that the limit was reached and more may be there.
    pub more: bool,
    /// Says that zebra is connected.
    pub connected: bool,
    /// Says that zebra may not have sent everything yet, or is not connected.
    pub resynchronising: bool,
    /// Says that the sweep was done just now.
    pub resynchronised: bool,
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
    /// Says that what was left of earlier connections is gone.
    swept: bool,
}

/// FRR, listened to.
pub struct Fpm {
    listener: TcpListener,
    connection: Option<Connection>,
    poll: Epoll,
    /// What has come by the last connection.
    mirror: Mirror,
    /// What is left of earlier ones; no two have the same prefix.
    older: Vec<Mirror>,
    settings: Settings,
    counters: Counters,
}

impl Fpm {
    /// Listens.
    ///
    /// # Errors
    ///
    /// What the system says, for instance if somebody else listens there.
    pub fn listen(settings: Settings) -> io::Result<Self> {
        let listener = TcpListener::bind(settings.listen)?;
        listener.set_nonblocking(true)?;
        let poll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        poll.add(&listener, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        Ok(Self {
            listener,
            connection: None,
            poll,
            mirror: Mirror::new(),
            older: Vec::new(),
            settings,
            counters: Counters::default(),
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
    pub fn pump(&mut self, to: &mut dyn Follower, limit: usize) -> io::Result<Pumped> {
        let mut pumped = Pumped::default();
        self.accept()?;
        while let Some(connection) = &mut self.connection {
            match connection.receive() {
                Ok(0) => self.connection = None,
                Ok(_) => {
                    let (mirror, older) = (&mut self.mirror, &mut self.older);
                    match connection.understand(mirror, older, &mut self.counters, to) {
                        Ok(messages) => pumped.messages += messages,
                        Err(damage) => {
                            note(&mut self.counters, damage);
                            self.connection = None;
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.connection = None,
            }
            if pumped.messages >= limit {
                pumped.more = true;
                break;
            }
        }
        if !pumped.more && self.due().is_some_and(|due| due <= Instant::now()) {
            pumped.resynchronised = self.sweep(to);
        }
        pumped.connected = self.connection.is_some();
        pumped.resynchronising =
            self.connection.as_ref().is_none_or(|connection| !connection.swept);
        Ok(pumped)
    }

    /// Has zebra send everything again: the connection is closed, and its next one begins
    /// with that. Routes stay meanwhile.
    pub fn again(&mut self) {
        self.connection = None;
    }

    /// Says whether zebra is connected, and is taken to have sent everything.
    pub fn is_complete(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.swept)
    }

    /// Returns when to [`pump`](Self::pump) although nothing has come: then everything is
    /// taken to have been sent.
    pub fn due(&self) -> Option<Instant> {
        let connection = self.connection.as_ref()?;
        let quiet = connection.last_new + self.settings.quiet;
        (!connection.swept).then(|| quiet.min(connection.began + self.settings.longest))
    }

    /// Tells a follower that knows nothing yet of every route there is.
    pub fn tell(&self, to: &mut dyn Follower) {
        self.older.iter().chain([&self.mirror]).for_each(|mirror| mirror.tell_routes(to));
    }

    /// Forgets all routes: zebra has been away for too long.
    pub fn forget(&mut self, to: &mut dyn Follower) {
        self.mirror.become_new(Mirror::new(), to);
        self.forget_older(to);
    }

    /// Returns what zebra has sent by the last connection: all there is, unless
    /// [`left`](Self::left) has something.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Returns what is left of earlier connections, and has not been sent again or swept.
    pub fn left(&self) -> &[Mirror] {
        &self.older
    }

    /// Returns what has happened so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes the latest connection that waits, in place of the one there is.
    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(()),
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => continue,
                    _ => return Err(error),
                },
            };
            stream.set_nonblocking(true)?;
            // Neither is needed: a smaller buffer, and a dead peer noticed later.
            let _ = setsockopt(&stream, RcvBuf, &WAITING);
            let _ = setsockopt(&stream, KeepAlive, &true);
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
                swept: false,
            });
            self.older.push(mem::take(&mut self.mirror));
            self.older.retain(|older| !older.has_no_routes());
        }
    }

    fn sweep(&mut self, to: &mut dyn Follower) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        connection.swept = true;
        self.forget_older(to);
        self.counters.sweeps += 1;
        self.counters.last_swept = Some(Instant::now());
        true
    }

    fn forget_older(&mut self, to: &mut dyn Follower) {
        for mut older in self.older.drain(..) {
            older.become_new(Mirror::new(), to);
        }
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
    fn understand(
        &mut self,
        mirror: &mut Mirror,
        older: &mut [Mirror],
        counters: &mut Counters,
        to: &mut dyn Follower,
    ) -> Result<usize, Damage> {
        let (mut messages, mut new) = (0, 0);
        while let Some((length, content)) = frame::first(&self.buffer[self.start..self.end])? {
            let framed = mirror.apply_frame(content, older, to);
            messages += framed.messages;
            new += framed.new;
            counters.frames += 1;
            counters.messages += framed.messages as u64;
            if let Some(damage) = framed.damage {
                note(counters, Damage { at: damage.at + frame::HEADER, ..damage });
            }
            self.start += length;
        }
        if new > 0 {
            self.last_new = Instant::now();
        }
        Ok(messages)
    }
}

fn note(counters: &mut Counters, damage: Damage) {
    counters.damaged += 1;
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
            .field("settings", &self.settings)
            .field("connected", &self.connection.is_some())
            .field("mirror", &self.mirror)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
