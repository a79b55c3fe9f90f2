//! Decisions to the gates, from a socket of the kernel.
//!
//! ```text
//!   policies ─► channel ─► by gate ─► v2::Sender ═► UDP ═► gate      sent again until acknowledged
//!                                 └─► v1::Writer ═► UDP ═► gate      sent once
//! ```
//!
//! Decisions that come within [`GATHER`] share messages. By version 2 every gate that is
//! configured hears of this grantor a few times a second, decisions or not, so that it can give
//! the flows to another when this one is gone. Programs are sent to the gates that want them by the same
//! messages (`programs.rs`).
//! Workers check a gate's sealed tunnels by the session in its answers (`gate::tunnel`).
//! The gate's address is the outer
//! source of the packet that asked, which the hook has held against the gates that are
//! configured.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fib::Publisher;
use gate::decision::v1;
use gate::decision::v2::keys::Keys;
use gate::decision::v2::transfer::ProgramImage;
use gate::decision::v2::{PORT, sender::Sender};
use gate::policy::Address;
use gate::tunnel::GateKeys;

use super::decide::Letter;
use super::programs::Programs;
use crate::control::progress::Turns;
use crate::control::rights;
use crate::vantage::config::ip;

/// How long decisions wait for others to share a message with, and answers to be read.
const GATHER: Duration = Duration::from_millis(2);
/// Bytes of a datagram: Ethernet's 1500 less IPv6 and UDP headers.
const PAYLOAD: usize = 1452;
/// How often it is noted how it stands with programs: nanoseconds.
const NOTE: u64 = 50_000_000;
/// Decisions on their way to this thread.
const LETTERS: usize = 8192;

/// How decisions are spoken.
#[derive(Clone, Debug)]
pub enum Voice {
    /// Version 1: neither authenticated nor acknowledged.
    V1,
    /// Version 2, as the grantor of this number, with these keys.
    V2(u32, Keys),
}

/// What was sent.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) items: AtomicU64,
    pub(super) messages: AtomicU64,
    /// Decisions that the gate's window had no room for.
    pub(super) busy: AtomicU64,
    pub(super) answers: AtomicU64,
    pub(super) answers_refused: AtomicU64,
    pub(super) given_up: AtomicU64,
    /// Messages that the system did not take.
    pub(super) failed: AtomicU64,
    /// When each gate has answered last; gates of version 1 never do.
    heard: Mutex<BTreeMap<IpAddr, Option<Instant>>>,
}

impl Sent {
    /// Lists the gates, and how long ago each has answered, if it has.
    pub(super) fn heard(&self) -> Vec<(IpAddr, Option<Duration>)> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.iter().map(|(gate, at)| (*gate, at.map(|at| at.elapsed()))).collect()
    }

    fn hears(&self, gate: IpAddr) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.insert(gate, Some(Instant::now()));
    }
}

/// The thread.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) sent: Arc<Sent>,
    pub(super) programs: Arc<Programs>,
    turns: Turns,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Post {
    /// Opens the sockets and starts the thread; letters go to what is returned beside it.
    pub(super) fn start(
        voice: Voice,
        gates: &[Address],
        programs: Vec<ProgramImage>,
        keys: Publisher<GateKeys>,
    ) -> io::Result<(Self, mpsc::SyncSender<Letter>)> {
        let (letters, received) = mpsc::sync_channel(LETTERS);
        let port = if matches!(voice, Voice::V1) { v1::SOURCE_PORT } else { 0 };
        let socket = |address: IpAddr| -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind(SocketAddr::new(address, port))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let four = socket(Ipv4Addr::UNSPECIFIED.into())?;
        // A socket of version 6 would take the port of the other family too; a machine without
        // IPv6 has none.
        let six = match port {
            0 => socket(Ipv6Addr::UNSPECIFIED.into()).ok(),
            _ => None,
        };
        let known: Vec<IpAddr> = gates.iter().copied().map(ip).collect();
        let heard = Mutex::new(known.iter().map(|gate| (*gate, None)).collect());
        let sent = Arc::new(Sent { heard, ..Sent::default() });
        let stop = Arc::new(AtomicBool::new(false));
        let turns = Turns::default();
        let counted = Arc::clone(&turns);
        let (counts, ending) = (Arc::clone(&sent), Arc::clone(&stop));
        let programs = Arc::new(Programs::new(programs));
        let carried = Arc::clone(&programs);
        let thread = Builder::new().name("post".into()).spawn(move || {
            let _ = rights::keep(&[]);
            let begin = Instant::now();
            let parcels = carried.parcels();
            let gate = |address| (address, Gate::new(&voice, &parcels));
            let gates = known.into_iter().map(gate).collect();
            let out = Vec::new();
            Office {
                voice,
                four,
                six,
                gates,
                keys,
                known: GateKeys::default(),
                sessions: BTreeMap::new(),
                sent: counts,
                programs: carried,
                parcels,
                note_at: 0,
                begin,
                out,
            }
            .work(&received, &counted, &ending);
        })?;
        Ok((Self { sent, programs, turns, stop, thread: Some(thread) }, letters))
    }

    pub(super) fn turns(&self) -> Turns {
        Arc::clone(&self.turns)
    }

    pub(super) fn alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What is under way to a gate.
enum Gate {
    V1(v1::Writer, bool),
    V2(Box<Sender>),
}

impl Gate {
    fn new(voice: &Voice, programs: &[ProgramImage]) -> Self {
        match voice {
            Voice::V1 => Self::V1(v1::Writer::new(PAYLOAD), false),
            Voice::V2(id, keys) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let mut sender = Sender::new(*id, keys.clone(), PAYLOAD, since.as_secs());
                sender.set_programs(programs);
                Self::V2(Box::new(sender))
            }
        }
    }
}

struct Office {
    voice: Voice,
    four: UdpSocket,
    six: Option<UdpSocket>,
    gates: HashMap<IpAddr, Gate>,
    /// The keys that gates seal tunnels with, as workers read them, and as published last.
    keys: Publisher<GateKeys>,
    known: GateKeys,
    /// The session of each gate that it is of.
    sessions: BTreeMap<IpAddr, u64>,
    sent: Arc<Sent>,
    programs: Arc<Programs>,
    /// Those of them that the gates are given.
    parcels: Arc<[ProgramImage]>,
    /// When it is noted next how it stands with them.
    note_at: u64,
    begin: Instant,
    out: Vec<u8>,
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl Office {
    fn work(&mut self, letters: &Receiver<Letter>, turns: &AtomicU64, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            turns.fetch_add(1, Ordering::Relaxed);
            match letters.recv_timeout(GATHER) {
                Ok(letter) => {
                    self.take(&letter);
                    letters.try_iter().for_each(|letter| self.take(&letter));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(GATHER),
            }
            self.hear();
            self.carry();
            self.send();
        }
    }

    /// Has the gates be given other programs, if there are some; and notes now and then how it
    /// stands with them.
    fn carry(&mut self) {
        let now = self.now();
        if now < self.note_at {
            return;
        }
        self.note_at = now + NOTE;
        let parcels = self.programs.parcels();
        let others = !Arc::ptr_eq(&parcels, &self.parcels);
        if others {
            self.parcels = parcels;
        }
        let mut each = Vec::new();
        for (address, gate) in &mut self.gates {
            let Gate::V2(sender) = gate else { continue };
            if others {
                sender.set_programs(&self.parcels);
            }
            each.extend(sender.programs().iter().map(|carried| (*address, carried)));
        }
        self.programs.note(each.into_iter());
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn take(&mut self, (gate, item): &Letter) {
        let (voice, parcels, address) = (&self.voice, &self.parcels, ip(*gate));
        let kept = self.gates.entry(address).or_insert_with(|| Gate::new(voice, parcels));
        add(&self.sent.items, 1);
        match kept {
            Gate::V2(sender) => {
                if sender.push(item).is_err() {
                    add(&self.sent.busy, 1);
                }
            }
            Gate::V1(writer, something) => {
                if !writer.push(item) {
                    let full = std::mem::replace(writer, v1::Writer::new(PAYLOAD)).finish();
                    let to = SocketAddr::new(address, v1::DESTINATION_PORT);
                    post(&self.four, self.six.as_ref(), &self.sent, &full, to);
                    writer.push(item);
                }
                *something = true;
            }
        }
    }

    fn send(&mut self) {
        let now = self.now();
        let Self { gates, four, six, sent, out, .. } = self;
        let mut given_up = 0;
        for (&address, gate) in gates {
            match gate {
                Gate::V2(sender) => {
                    sender.queue_heartbeat(now);
                    while sender.poll(now, out) {
                        post(four, six.as_ref(), sent, out, SocketAddr::new(address, PORT));
                    }
                    given_up += sender.given_up();
                }
                Gate::V1(writer, something) if *something => {
                    *something = false;
                    let message = std::mem::replace(writer, v1::Writer::new(PAYLOAD)).finish();
                    let to = SocketAddr::new(address, v1::DESTINATION_PORT);
                    post(four, six.as_ref(), sent, &message, to);
                }
                Gate::V1(..) => {}
            }
        }
        sent.given_up.store(given_up, Ordering::Relaxed);
    }

    /// Takes what gates have answered.
    fn hear(&mut self) {
        let now = self.now();
        let mut bytes = [0; 2048];
        while self.keys.reclaim().is_some() {}
        for six in [false, true] {
            while let Some((len, from)) = self.take_answer(six, &mut bytes) {
                let gate = from.ip().to_canonical();
                let heard = match self.gates.get_mut(&gate) {
                    Some(Gate::V2(sender)) => sender.receive(now, &bytes[..len]).is_ok(),
                    _ => false,
                };
                if heard {
                    self.sent.hears(gate);
                    self.learn(gate);
                }
                add(if heard { &self.sent.answers } else { &self.sent.answers_refused }, 1);
            }
        }
    }
}

impl Office {
    fn take_answer(&self, six: bool, bytes: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let socket = if six { self.six.as_ref()? } else { &self.four };
        socket.recv_from(bytes).ok()
    }

    /// Publishes the tunnel keys of a gate's session to the workers, if the session is new.
    fn learn(&mut self, gate: IpAddr) {
        let (Some(Gate::V2(sender)), Voice::V2(_, keys)) = (self.gates.get(&gate), &self.voice)
        else {
            return;
        };
        let session = sender.session();
        if session == 0 || self.sessions.insert(gate, session) == Some(session) {
            return;
        }
        let each = keys.numbers().into_iter().filter_map(|number| keys.tunnel(number, session));
        let address = match gate {
            IpAddr::V4(address) => Address::V4(address.into()),
            IpAddr::V6(address) => Address::V6(address.into()),
        };
        self.known.set(address, session, each.collect());
        self.keys.publish(Box::new(self.known.clone()));
    }
}

fn post(four: &UdpSocket, six: Option<&UdpSocket>, sent: &Sent, message: &[u8], to: SocketAddr) {
    let socket = if to.is_ipv4() { Some(four) } else { six };
    match socket.map(|socket| socket.send_to(message, to)) {
        Some(Ok(_)) => add(&sent.messages, 1),
        // Version 2 sends it again.
        _ => add(&sent.failed, 1),
    }
}
