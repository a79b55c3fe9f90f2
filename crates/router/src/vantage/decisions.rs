//! What grantors say: from sockets of the kernel to the workers' rings.
//!
//! ```text
//!   UDP, back interface ─► from a grantor? ─► room in every ring? ─► v2::Receiver ─► rings
//!                              │ no               │ no                  │ refused
//!                              ▼                  ▼                     ▼
//!                           counted        counted, not answered    counted by reason
//! ```
//!
//! Packets to own addresses are the kernel's, decisions among them, so that this is an
//! ordinary program with ordinary sockets. They are bound to the back interface: what
//! comes in on the front one is never heard. Where it is deleted and created again, they are opened
//! again. The source is looked at before any
//! arithmetic is done for a message.
//!
//! A message that finds no room is not taken and not acknowledged: its grantor sends it
//! again. Version 1 cannot do so, and what did not fit is lost, and counted.
//!
//! Every worker is told every decision: which of them has the flow is the card's to say. Pieces of
//! programs go to the shelf (`shelf.rs`), which says what is answered.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use fib::Publisher;
use gate::decision::v1;
use gate::decision::v2::{PORT, receiver::Receiver};
use gate::flow::Flow;
use gate::state::Stamp;
use gate::tunnel::TunnelKeys;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::BindToDevice;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt, socket,
};
use port::af_xdp::Interface;
use rtrb::Producer;

use super::config::Trust;
use super::early::Writer;
use super::permits::{Exceeded, Permit, Permits, Retraction};
use super::rings::{Decided, MESSAGE};
use super::shelf::Desk;
use crate::control::progress::Turns;
use crate::control::report::LogLimiter;
use crate::control::rights;

/// How long the thread sleeps between two looks for the end, in milliseconds.
const LOOK: u16 = 50;
/// The same for a while after a message, and for how many turns.
const SOON: u16 = 1;
const QUICK: u32 = 200;
/// How often the thread checks whether the interface is another device now.
const FOLLOW: Duration = Duration::from_millis(500);
/// Messages of a socket in a row.
const BURST: usize = 64;

/// A socket, and the version that is spoken there.
#[derive(Debug)]
struct Listener {
    socket: Arc<UdpSocket>,
    version: u8,
}

/// A session of the gate, and what workers seal tunnels with in it.
#[derive(Debug)]
pub(super) struct Session {
    /// Its number.
    pub(super) number: u64,
    /// The keys, as workers read them.
    pub(super) keys: Publisher<TunnelKeys>,
}

/// Whom is listened to, and what was heard.
#[derive(Debug)]
struct Hearing {
    /// The addresses and the interface of the listeners, and the number of the device that they are
    /// bound to.
    addresses: Vec<IpAddr>,
    interface: String,
    device: Option<u32>,
    listeners: Vec<Listener>,
    receiver: Receiver,
    trust: Trust,
    rings: Vec<Producer<Decided>>,
    early: Writer,
    desk: Desk,
    counts: BTreeMap<&'static str, u64>,
    /// The keys that workers seal tunnels with.
    keys: Publisher<TunnelKeys>,
    /// The key that each sender has signed with last.
    signing: BTreeMap<u32, u16>,
    /// One of them is another now.
    rekeyed: bool,
    permits: Permits,
    /// The pending retractions of each worker.
    retractions: Vec<VecDeque<Retraction>>,
    /// When each sender said something new.
    heard: BTreeMap<u32, Instant>,
    /// Refused messages, of which the log has a line now and then.
    refused: LogLimiter,
}

/// The thread, and what it shares with who changes its mind.
#[derive(Debug)]
pub(super) struct Decisions {
    hearing: Arc<Mutex<Hearing>>,
    turns: Turns,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What there is to count, so that each is told before it has happened.
const COUNTS: [&str; 20] = [
    "messages",
    "items",
    "v1_messages",
    "v1_items",
    "v1_unknown_source",
    "v1_malformed",
    "ring_full_dropped",
    "ring_full_deferred",
    "unknown_source",
    "forged",
    "replayed",
    "too_old",
    "other_session",
    "unknown_key",
    "malformed",
    "program_offers",
    "program_chunks",
    "expiry_capped",
    "outside_prefixes",
    "over_prefix_limit",
];

impl Decisions {
    /// Listens at these addresses on this interface.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn start(
        addresses: Vec<IpAddr>,
        interface: &str,
        trust: &Trust,
        rings: Vec<Producer<Decided>>,
        early: Writer,
        desk: Desk,
        session: Session,
    ) -> io::Result<Self> {
        let retractions = rings.iter().map(|_| VecDeque::new()).collect();
        let device = if_nametoindex(interface).ok();
        let listeners = listeners(&addresses, interface, trust, &[])?;
        let mut hearing = Hearing {
            addresses,
            interface: interface.to_owned(),
            device,
            listeners: Vec::new(),
            receiver: Receiver::new(session.number),
            trust: Trust::default(),
            rings,
            early,
            desk,
            counts: COUNTS.into_iter().map(|name| (name, 0)).collect(),
            keys: session.keys,
            signing: BTreeMap::new(),
            rekeyed: false,
            permits: Permits::default(),
            retractions,
            heard: BTreeMap::new(),
            refused: LogLimiter::default(),
        };
        hearing.go_over(trust.clone(), listeners);
        let hearing = Arc::new(Mutex::new(hearing));
        let stop = Arc::new(AtomicBool::new(false));
        let turns = Turns::default();
        let (mine, ending) = (Arc::clone(&hearing), Arc::clone(&stop));
        let counted = Arc::clone(&turns);
        let thread = Builder::new().name("decisions".into()).spawn(move || {
            // It reads what strangers send.
            let _ = rights::keep(&rights::WORKER);
            hear(&mine, &counted, &ending);
        })?;
        Ok(Self { hearing, turns, stop, thread: Some(thread) })
    }

    /// Opens what others than now are to be listened to by; nothing is changed yet.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn prepare(&self, trust: &Trust) -> io::Result<Prepared> {
        let hearing = lock(&self.hearing);
        let Hearing { addresses, interface, listeners: there, .. } = &*hearing;
        let listeners = listeners(addresses, interface, trust, there)?;
        Ok(Prepared { trust: trust.clone(), listeners })
    }

    /// Listens to others from now on.
    pub(super) fn go_over(&self, prepared: Prepared) {
        lock(&self.hearing).go_over(prepared.trust, prepared.listeners);
    }

    /// Retracts all decisions of a sender so far.
    pub(super) fn flush(&self, sender: u32) {
        let mut hearing = lock(&self.hearing);
        let upto = hearing.permits.flush(sender);
        hearing.retract(upto);
    }

    /// Has declined flows dropped by this interface's program.
    pub(super) fn set_front(&self, front: Interface) {
        lock(&self.hearing).early.set_front(front);
    }

    /// Forgets which flows are dropped in the kernel.
    pub(super) fn clear_early(&self) {
        lock(&self.hearing).early.clear();
    }

    /// Says whether packets of a flow are dropped in the kernel.
    pub(super) fn is_early(&self, flow: &Flow) -> bool {
        lock(&self.hearing).early.has(flow)
    }

    /// Returns the packets that were dropped in the kernel, and their bytes.
    pub(super) fn dropped_early(&self) -> (u64, u64) {
        lock(&self.hearing).early.dropped()
    }

    /// Counts the flows whose packets are dropped in the kernel, and the times that it
    /// refused to.
    pub(super) fn early(&self) -> (u64, u64) {
        lock(&self.hearing).early.counts()
    }

    /// Returns what was heard so far.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.hearing).counts.clone()
    }

    /// Returns when each sender of version 2 said something new.
    pub(super) fn heard(&self) -> BTreeMap<u32, Instant> {
        lock(&self.hearing).heard.clone()
    }

    /// Returns where the thread counts its turns.
    pub(super) fn turns(&self) -> Turns {
        Arc::clone(&self.turns)
    }

    /// Says whether the thread is at work.
    pub(super) fn alive(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }
}

impl Drop for Decisions {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What is to be listened to and by what, not in force yet.
#[derive(Debug)]
pub(super) struct Prepared {
    trust: Trust,
    listeners: Vec<Listener>,
}

fn lock(hearing: &Mutex<Hearing>) -> MutexGuard<'_, Hearing> {
    hearing.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a socket for each address and version, but for those that there are.
fn listeners(
    addresses: &[IpAddr],
    interface: &str,
    trust: &Trust,
    there: &[Listener],
) -> io::Result<Vec<Listener>> {
    let mut all = Vec::new();
    let v1 = !trust.v1_sources.is_empty();
    for &address in addresses {
        for (version, port, wanted) in [(2, PORT, true), (1, v1::DESTINATION_PORT, v1)] {
            if !wanted {
                continue;
            }
            let at = SocketAddr::new(address, port);
            let same = |listener: &&Listener| {
                listener.version == version
                    && listener.socket.local_addr().is_ok_and(|local| local == at)
            };
            let socket = match there.iter().find(same) {
                Some(listener) => Arc::clone(&listener.socket),
                None => {
                    let socket = listen(at, interface).map_err(|error| {
                        io::Error::new(error.kind(), format!("UDP {at}: {error}"))
                    })?;
                    Arc::new(socket)
                }
            };
            all.push(Listener { socket, version });
        }
    }
    Ok(all)
}

/// Opens a socket that receives only packets of one interface, at any moment: it has the
/// interface before it has the port.
fn listen(at: SocketAddr, interface: &str) -> io::Result<UdpSocket> {
    let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Datagram, flags, None)?;
    setsockopt(&socket, BindToDevice, &interface.into())?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(at))?;
    Ok(UdpSocket::from(socket))
}

fn hear(hearing: &Mutex<Hearing>, turns: &AtomicU64, stop: &AtomicBool) {
    let mut bytes = vec![0; 65_536];
    let mut replies = [const { Vec::new() }; 2];
    let mut quick = 0u32;
    let mut followed = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        turns.fetch_add(1, Ordering::Relaxed);
        let sockets: Vec<_> =
            lock(hearing).listeners.iter().map(|it| Arc::clone(&it.socket)).collect();
        let each = sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        let mut ready: Vec<_> = each.collect();
        // Interrupted or not, all are looked at.
        let wait = if quick > 0 { SOON } else { LOOK };
        let heard = poll(&mut ready, PollTimeout::from(wait)).is_ok_and(|ready| ready > 0);
        let mut hearing = lock(hearing);
        // What workers make of decisions comes soon after them.
        let told = hearing.early.turn();
        hearing.turn_keys();
        hearing.turn_retractions();
        if followed.elapsed() >= FOLLOW {
            followed = Instant::now();
            hearing.follow_device();
        }
        quick = if heard || told { QUICK } else { quick.saturating_sub(1) };
        for at in 0..hearing.listeners.len() {
            let Listener { socket, version } = &hearing.listeners[at];
            let (socket, version) = (Arc::clone(socket), *version);
            for _ in 0..BURST {
                let Ok((len, from)) = socket.recv_from(&mut bytes) else { break };
                let message = &bytes[..len];
                if version == 1 {
                    hearing.take_v1(message, from);
                } else {
                    hearing.take_v2(message, from, &mut replies);
                    for reply in replies.iter().filter(|reply| !reply.is_empty()) {
                        // One that is lost is asked for again.
                        let _ = socket.send_to(reply, from);
                    }
                }
            }
        }
    }
}

impl Hearing {
    fn go_over(&mut self, trust: Trust, listeners: Vec<Listener>) {
        for (gone, _) in &self.trust.senders {
            if trust.senders.iter().all(|(id, _)| id != gone) {
                self.receiver.remove_sender(*gone);
            }
        }
        for (id, keys) in &trust.senders {
            self.receiver.set_sender(*id, keys.clone());
        }
        let session = self.receiver.session();
        let gone = self.permits.over(&self.trust.senders, &trust.senders, session);
        gone.into_iter().for_each(|upto| self.retract(upto));
        self.permits.set(&trust.permits);
        self.listeners = listeners;
        self.trust = trust;
        self.publish_keys();
    }

    /// Gives workers the keys of tunnels that are sealed: the key that the sender at the end has
    /// signed with last, because it certainly has that one; before its first message, its oldest.
    fn publish_keys(&mut self) {
        let key = |sender: u32| {
            let (_, keys) = self.trust.senders.iter().find(|(id, _)| *id == sender)?;
            let numbers = keys.numbers();
            let signing = self.signing.get(&sender).filter(|number| numbers.contains(number));
            keys.tunnel(*signing.or(numbers.first())?, self.receiver.session())
        };
        let keyed =
            self.trust.tunnels.iter().filter_map(|(end, sender)| Some((*end, key(*sender)?)));
        let keys = TunnelKeys::new(keyed);
        self.keys.publish(Box::new(keys));
        self.rekeyed = false;
    }

    /// Gives workers other keys where a sender signs with another one, and frees what they have let
    /// go.
    fn turn_keys(&mut self) {
        if self.rekeyed {
            self.publish_keys();
        }
        while self.keys.reclaim().is_some() {}
    }

    /// Sends pending retractions to workers, as soon as there is room in their rings.
    fn retract(&mut self, upto: Retraction) {
        self.retractions.iter_mut().for_each(|waiting| waiting.push_back(upto));
        self.turn_retractions();
    }

    fn turn_retractions(&mut self) {
        for (waiting, ring) in self.retractions.iter_mut().zip(&mut self.rings) {
            while let Some(&upto) = waiting.front() {
                if ring.push(Decided::Retract(upto)).is_err() {
                    break;
                }
                waiting.pop_front();
            }
        }
    }

    /// Opens the sockets again where the interface is another device than they are bound to: a socket
    /// keeps the number of a device, so that one deleted and created again would never be heard.
    fn follow_device(&mut self) {
        let device = if_nametoindex(&*self.interface).ok();
        if device.is_none() || device == self.device {
            return;
        }
        // Its addresses may come a moment later than the device.
        if let Ok(listeners) = listeners(&self.addresses, &self.interface, &self.trust, &[]) {
            log::info!("{} is a new device: listening for decisions on it", self.interface);
            (self.device, self.listeners) = (device, listeners);
        }
    }

    fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// Counts a message that is refused, and writes a line now and then.
    fn refuse(&mut self, name: &'static str, from: SocketAddr) {
        self.count(name);
        if let Some(times) = self.refused.happened(1, Instant::now()) {
            log::warn!("decisions refused, {times} messages, the last from {from}: {name}");
        }
    }

    fn take_v1(&mut self, message: &[u8], from: SocketAddr) {
        if !self.trust.v1_sources.contains(&from.ip()) || from.port() != v1::SOURCE_PORT {
            return self.refuse("v1_unknown_source", from);
        }
        self.count("v1_messages");
        let Ok(reader) = v1::Reader::new(message) else { return self.count("v1_malformed") };
        for item in reader {
            let Ok(mut item) = item else { return self.count("v1_malformed") };
            self.count("v1_items");
            if Permit::default().cap(&mut item.command) {
                self.count("expiry_capped");
            }
            for ring in &mut self.rings {
                let lost = ring.push(Decided::Item(item, Stamp::default())).is_err();
                *self.counts.entry("ring_full_dropped").or_default() += u64::from(lost);
            }
        }
    }

    /// Takes a message; what is to be answered is in `replies`, where it is not empty.
    fn take_v2(&mut self, message: &[u8], from: SocketAddr, replies: &mut [Vec<u8>; 2]) {
        replies.iter_mut().for_each(Vec::clear);
        let [reply, standing] = replies;
        if !self.trust.from.contains(&from.ip()) {
            return self.refuse("unknown_source", from);
        }
        if self.rings.iter().any(|ring| ring.slots() < MESSAGE) {
            return self.count("ring_full_deferred");
        }
        let refused = match self.receiver.receive(message, reply) {
            Ok(taken) => {
                let mut items = 0;
                self.heard.insert(taken.sender, Instant::now());
                let (sender, key) = (taken.sender, taken.key());
                self.rekeyed |= self.signing.insert(sender, key) != Some(key);
                if let Some(chunk) = taken.chunk {
                    let (sender, target) = (taken.sender, taken.reply_target());
                    let told = self.desk.take(sender, &chunk, &self.heard);
                    if chunk.is_offer() {
                        self.receiver.write_status(&target, &told, standing);
                    }
                    let name = if chunk.is_offer() { "program_offers" } else { "program_chunks" };
                    return self.count(name);
                }
                let now = Instant::now();
                for (item, stamp) in taken.items() {
                    items += 1;
                    let mut item = *item;
                    self.permits.hear(stamp, key);
                    let name = match self.permits.admit(sender, &mut item, now) {
                        Ok(capped) => {
                            for ring in &mut self.rings {
                                // There is room: see above.
                                let _ = ring.push(Decided::Item(item, stamp));
                            }
                            capped.then_some("expiry_capped")
                        }
                        Err(Exceeded::Prefixes) => Some("outside_prefixes"),
                        Err(Exceeded::PrefixDecisions) => Some("over_prefix_limit"),
                    };
                    if let Some(name) = name {
                        *self.counts.entry(name).or_default() += 1;
                    }
                }
                self.count("messages");
                *self.counts.entry("items").or_default() += items;
                return;
            }
            Err(refused) => refused,
        };
        use gate::decision::MessageError;
        self.count(match refused {
            MessageError::Forged => "forged",
            MessageError::Replayed => "replayed",
            MessageError::TooOld => "too_old",
            MessageError::OtherSession => "other_session",
            MessageError::UnknownKey => "unknown_key",
            MessageError::UnknownSender => "unknown_source",
            MessageError::Truncated | MessageError::Version | MessageError::Malformed => {
                "malformed"
            }
        });
    }
}
