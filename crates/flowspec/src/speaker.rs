//! Speaker: the thread that accepts sessions and publishes the rules of their flow specifications.
//!
//! ```text
//!   BIRD, GoBGP ─ TCP ─► sessions ─► table ─ 100 ms after the first change ─► rules ─► publish
//! ```
//!
//! One thread serves all sockets with poll(2). Connections are checked as those of FRR are
//! ([`feed::fpm::Peers`]): on this host by the user that has them open, from other hosts by address, because
//! a peer can have packets dropped. A session that ends takes its flow specifications
//! with it (RFC 4271, section 8.2.2). Limits: [`MOST_SESSIONS`]; a peer that does not read what it is sent is
//! closed.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use feed::fpm::{Peers, Refusal, Refused};
use feed::netlink::SocketOwners;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::message::{Notification, Update};
use crate::session::{EndReason, Session, SpeakerIdentity};
use crate::table::{FlowRules, PeerId, RefusedFlow, Table};

/// The most sessions at a time.
pub const MOST_SESSIONS: usize = 16;

/// The port on which the speaker listens unless it is configured: that of BGP belongs to the router.
pub const PORT: u16 = 1179;

/// The time from a change to its publication: a router sends many at once.
const PUBLISH_DELAY: Duration = Duration::from_millis(100);
/// The time between two looks at the clock.
const TICK: Duration = Duration::from_secs(1);
/// The most bytes that wait for a peer.
const MOST_UNSENT: usize = 1 << 16;
/// The most refused flow specifications of a status.
const MOST_REFUSED: usize = 1000;

/// The options of a speaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowspecOptions {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The own AS.
    pub own_as: u32,
    /// The peers' AS.
    pub peer_as: u32,
    /// The own BGP identifier.
    pub router_id: Ipv4Addr,
    /// The hold time that is offered, in seconds: 0, or at least 3.
    pub hold_time: u16,
    /// The peers that may connect.
    pub peers: Peers,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionStatus {
    /// The peer's address.
    pub peer: SocketAddr,
    /// Whether updates are received.
    pub is_established: bool,
    /// The number of its flow specifications when rules were published last.
    pub flows: usize,
    /// When the connection was accepted.
    pub since: Instant,
}

/// The state of a speaker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpeakerStatus {
    /// The sessions.
    pub sessions: Vec<SessionStatus>,
    /// The number of flow specifications, those with rules and those without.
    pub flows: usize,
    /// The number of rules.
    pub rules: usize,
    /// Flow specifications without rules: at most 1000.
    pub refused: Vec<RefusedFlow>,
    /// Their number.
    pub refused_flows: usize,
    /// Malformed flow specifications, which were skipped.
    pub malformed: u64,
    /// The last session that ended, and the reason.
    pub last_end: Option<(SocketAddr, EndReason)>,
    /// Connections that were refused.
    pub refused_connections: u64,
    /// The last of them.
    pub last_refused: Option<Refused>,
}

/// An event of a speaker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpeakerEvent {
    /// The rules have changed; these replace all before.
    Rules(FlowRules),
    /// A session is established.
    Established(SocketAddr),
    /// A session has ended.
    Ended(SocketAddr, EndReason),
}

/// A reader of a speaker's state, which outlives the speaker.
#[derive(Clone, Debug)]
pub struct StatusReader {
    status: Arc<Mutex<SpeakerStatus>>,
    /// The address that the speaker listens on.
    pub listen: SocketAddr,
}

impl StatusReader {
    /// Returns the state.
    pub fn read(&self) -> SpeakerStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A thread that receives flow specifications. Dropping it ends the sessions and waits for the thread.
#[derive(Debug)]
pub struct Speaker {
    status: StatusReader,
    /// Its end wakes the thread.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Speaker {
    /// Starts to listen; `report` gets the events, on the speaker's thread.
    ///
    /// # Errors
    ///
    /// The system's error, for example if another process listens on the address.
    pub fn start(
        options: FlowspecOptions,
        report: impl FnMut(SpeakerEvent) + Send + 'static,
    ) -> io::Result<Self> {
        let owners = SocketOwners::open().map_err(io::Error::other)?;
        let listener = TcpListener::bind(options.listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (alive, end) = UnixStream::pair()?;
        let status = Arc::<Mutex<SpeakerStatus>>::default();
        let service = Service {
            options,
            owners,
            listener,
            end,
            connections: Vec::new(),
            next_id: 0,
            table: Table::default(),
            publish_at: None,
            status: SpeakerStatus::default(),
            shared: Arc::clone(&status),
            report,
        };
        let name = "flowspec".to_owned();
        let thread = thread::Builder::new().name(name).spawn(move || service.run())?;
        let status = StatusReader { status, listen: address };
        Ok(Self { status, alive: Some(alive), thread: Some(thread) })
    }

    /// Returns a reader of its state.
    pub fn status_reader(&self) -> StatusReader {
        self.status.clone()
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            // Fails only if the thread panicked, which has been reported.
            let _ = thread.join();
        }
    }
}

/// A connection with its session.
struct Connection {
    id: PeerId,
    stream: TcpStream,
    peer: SocketAddr,
    since: Instant,
    session: Session,
    /// Its flow specifications when they were published last.
    flows: usize,
    ended: Option<EndReason>,
}

struct Service<P> {
    options: FlowspecOptions,
    owners: SocketOwners,
    listener: TcpListener,
    end: UnixStream,
    connections: Vec<Connection>,
    next_id: PeerId,
    table: Table,
    /// When the table's rules are to be published, if they have changed.
    publish_at: Option<Instant>,
    status: SpeakerStatus,
    shared: Arc<Mutex<SpeakerStatus>>,
    report: P,
}

impl<P: FnMut(SpeakerEvent)> Service<P> {
    fn run(mut self) {
        while let Some(ready) = self.wait() {
            let now = Instant::now();
            for (at, is_ready) in ready.connections.into_iter().enumerate() {
                self.serve(at, is_ready, now);
            }
            if ready.listener {
                self.accept(now);
            }
            self.remove_ended(now);
            if self.publish_at.is_some_and(|due| due <= now) {
                self.publish();
            }
            self.show();
        }
        for connection in &mut self.connections {
            connection.session.end(Notification::SHUTDOWN);
            // The peer learns it from the end of the connection otherwise.
            let _ = connection.send();
        }
    }

    /// Waits for a socket or for the clock; `None`: the speaker has been dropped.
    fn wait(&self) -> Option<Ready> {
        let flags = |connection: &Connection| match connection.session.to_send.is_empty() {
            true => PollFlags::POLLIN,
            false => PollFlags::POLLIN | PollFlags::POLLOUT,
        };
        let mut sockets = vec![
            PollFd::new(self.end.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.listener.as_fd(), PollFlags::POLLIN),
        ];
        let streams = self.connections.iter();
        sockets.extend(streams.map(|c| PollFd::new(c.stream.as_fd(), flags(c))));
        let delay = self.publish_at.map(|due| due.saturating_duration_since(Instant::now()));
        let timeout = delay.map_or(TICK, |delay| delay.min(TICK) + Duration::from_millis(1));
        let timeout = PollTimeout::try_from(timeout).unwrap_or(PollTimeout::ZERO);
        match poll(&mut sockets, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => thread::sleep(PUBLISH_DELAY),
        }
        let mut ready = sockets.iter().map(|socket| socket.any().unwrap_or(true));
        if ready.next() == Some(true) {
            return None;
        }
        Some(Ready { listener: ready.next() == Some(true), connections: ready.collect() })
    }

    fn accept(&mut self, now: Instant) {
        loop {
            let (stream, peer) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // No descriptor is free, for example: the connection still waits.
                Err(_) => return thread::sleep(PUBLISH_DELAY),
            };
            if let Err(why) = self.check(&stream, peer) {
                self.status.refused_connections += 1;
                self.status.last_refused = Some(Refused { peer, why });
                continue;
            }
            if stream.set_nonblocking(true).is_err() {
                continue;
            }
            let FlowspecOptions { own_as, peer_as, router_id, hold_time, .. } = self.options;
            let local =
                SpeakerIdentity { own_as, peer_as, identifier: router_id.into(), hold_time };
            let session = Session::new(local, now);
            let id = self.next_id;
            self.next_id += 1;
            let (since, flows, ended) = (now, 0, None);
            self.connections.push(Connection { id, stream, peer, since, session, flows, ended });
            self.serve(self.connections.len() - 1, false, now);
        }
    }

    fn check(&mut self, stream: &TcpStream, peer: SocketAddr) -> Result<(), Refusal> {
        if self.connections.len() >= MOST_SESSIONS {
            return Err(Refusal::Full);
        }
        // A closed connection has no address.
        let own = stream.local_addr().map_err(|_| Refusal::NoUser)?;
        let owner = self.owners.of(own, peer).map_err(Refusal::System)?;
        self.options.peers.check(peer.ip(), owner)
    }

    /// Receives from a connection and sends what waits for it.
    fn serve(&mut self, at: usize, is_ready: bool, now: Instant) {
        let Self { connections, table, publish_at, status, report, .. } = self;
        let Some(connection) = connections.get_mut(at) else { return };
        let (id, was_established) = (connection.id, connection.session.is_established());
        let mut apply = |update: Update| {
            status.malformed += u64::from(update.malformed);
            if !update.announced.is_empty() || !update.withdrawn.is_empty() {
                publish_at.get_or_insert(now + PUBLISH_DELAY);
            }
            table.apply(id, update)
        };
        let received = match is_ready {
            true => connection.receive(now, &mut apply),
            false => Ok(()),
        };
        let result = received.and_then(|()| connection.session.tick(now));
        let sent = connection.send();
        if connection.session.is_established() && !was_established {
            report(SpeakerEvent::Established(connection.peer));
        }
        connection.ended = result.and(sent).err();
    }

    /// Removes connections that have ended, with their flow specifications.
    fn remove_ended(&mut self, now: Instant) {
        let Self { connections, table, publish_at, status, report, .. } = self;
        connections.retain(|connection| {
            let Some(reason) = connection.ended else { return true };
            if table.remove(connection.id) {
                publish_at.get_or_insert(now + PUBLISH_DELAY);
            }
            status.last_end = Some((connection.peer, reason));
            report(SpeakerEvent::Ended(connection.peer, reason));
            false
        });
    }

    fn publish(&mut self) {
        self.publish_at = None;
        for connection in &mut self.connections {
            connection.flows = self.table.count(connection.id);
        }
        let rules = self.table.rules();
        self.status.flows = rules.flows;
        self.status.rules = rules.rules.len();
        self.status.refused_flows = rules.refused.len();
        self.status.refused = rules.refused.iter().take(MOST_REFUSED).cloned().collect();
        // The state is that of the rules when the report arrives.
        self.show();
        (self.report)(SpeakerEvent::Rules(rules));
    }

    fn show(&mut self) {
        let sessions = self.connections.iter().map(|connection| SessionStatus {
            peer: connection.peer,
            is_established: connection.session.is_established(),
            flows: connection.flows,
            since: connection.since,
        });
        self.status.sessions = sessions.collect();
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.clone_from(&self.status);
    }
}

/// The sockets that have something to read, room to write, or an error.
struct Ready {
    listener: bool,
    connections: Vec<bool>,
}

impl Connection {
    fn receive(
        &mut self,
        now: Instant,
        apply: &mut impl FnMut(Update) -> Result<(), Notification>,
    ) -> Result<(), EndReason> {
        let mut buffer = [0; 1 << 16];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(EndReason::Closed),
            Ok(len) => self.session.receive(&buffer[..len], now, apply),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(()),
                _ => Err(EndReason::Closed),
            },
        }
    }

    fn send(&mut self) -> Result<(), EndReason> {
        let to_send = &mut self.session.to_send;
        while !to_send.is_empty() {
            match self.stream.write(to_send) {
                Ok(0) => return Err(EndReason::Closed),
                Ok(len) => drop(to_send.drain(..len)),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock if to_send.len() <= MOST_UNSENT => break,
                    _ => return Err(EndReason::Closed),
                },
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::message::tests::update;
    use crate::message::{self, Open};

    fn options() -> FlowspecOptions {
        FlowspecOptions {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            own_as: 65001,
            peer_as: 65002,
            router_id: Ipv4Addr::LOCALHOST,
            hold_time: 90,
            peers: Peers::default(),
        }
    }

    fn connect(speaker: &Speaker) -> TcpStream {
        let mut stream = TcpStream::connect(speaker.status.listen).expect("a connection");
        let mut bytes = Vec::new();
        let open = Open { my_as: 65002, hold_time: 90, identifier: 9, has_flowspec: [true; 2] };
        open.encode(&mut bytes);
        message::append_keepalive(&mut bytes);
        stream.write_all(&bytes).expect("sent");
        stream
    }

    #[test]
    fn rules_follow_the_sessions_and_end_with_them() {
        let (sender, receiver) = mpsc::channel();
        let speaker = Speaker::start(options(), move |event| {
            let texts = match event {
                SpeakerEvent::Rules(rules) => rules.rules.iter().map(ToString::to_string).collect(),
                SpeakerEvent::Established(_) => vec!["established".to_owned()],
                SpeakerEvent::Ended(_, reason) => vec![reason.to_string()],
            };
            sender.send(texts).expect("the test waits");
        });
        let speaker = speaker.expect("a free port");
        let next = || receiver.recv_timeout(Duration::from_secs(20)).expect("rules");
        let mut stream = connect(&speaker);
        assert_eq!(next(), ["established"]);
        let reach = [0, 1, 133, 0, 0, 3, 3, 0x81, 17];
        let both = update(&[(14, &reach), (16, &[0x80, 6, 0, 0, 0, 0, 0, 0])]);
        stream.write_all(&both).expect("sent");
        assert_eq!(next(), ["deny to 0.0.0.0/0 ipproto udp"]);
        stream.write_all(&update(&[(15, &[0, 1, 133, 3, 3, 0x81, 17])])).expect("sent");
        assert_eq!(next(), [""; 0]);
        stream.write_all(&both).expect("sent");
        assert_eq!(next().len(), 1);
        drop(stream);
        assert_eq!(next(), ["connection closed by the peer"]);
        assert_eq!(next(), [""; 0]);
        let status = speaker.status.read();
        assert_eq!((status.flows, status.refused_connections), (0, 0));
    }

    #[test]
    fn dropped_speaker_ends_its_sessions() {
        let speaker = Speaker::start(options(), |_| {}).expect("a free port");
        let mut stream = connect(&speaker);
        let began = Instant::now();
        while !speaker.status.read().sessions.iter().any(|session| session.is_established) {
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", speaker.status.read());
            thread::sleep(Duration::from_millis(5));
        }
        drop(speaker);
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("the end");
        let mut expected = Vec::new();
        Notification::SHUTDOWN.encode(&mut expected);
        assert!(bytes.ends_with(&expected), "{bytes:?}");
    }

    #[test]
    fn peer_that_is_not_allowed_is_refused() {
        let peers = Peers { users: vec![1], remote: Vec::new() };
        let speaker = Speaker::start(FlowspecOptions { peers, ..options() }, |_| {});
        let speaker = speaker.expect("a free port");
        let mut stream = TcpStream::connect(speaker.status.listen).expect("a connection");
        assert_eq!(stream.read(&mut [0]).expect("the end"), 0);
        let began = Instant::now();
        while speaker.status.read().refused_connections == 0 {
            assert!(began.elapsed() < Duration::from_secs(20));
            thread::sleep(Duration::from_millis(5));
        }
        assert!(matches!(
            speaker.status.read().last_refused,
            Some(Refused { why: Refusal::User(_), .. })
        ));
    }
}
