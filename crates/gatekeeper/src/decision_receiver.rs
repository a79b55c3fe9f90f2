//! The decision receiver: carries grantors' decisions from UDP sockets to the workers' rings.
//!
//! ```text
//!   UDP, back interface ─► from a grantor? ─► room in every ring? ─► v2::Receiver ─► rings
//!                              │ no               │ no                  │ refused
//!                              ▼                  ▼                     ▼
//!                           counted        counted, not acknowledged   counted by reason
//! ```
//!
//! Packets to the gate's own addresses go to the kernel, decisions among them, so that ordinary sockets
//! receive them. The sockets are bound to the back interface: a message that arrives on the front
//! interface is never read. If the interface is deleted and created again, the sockets are opened
//! again. The source address is checked before any cryptography.
//!
//! A message that finds a ring full is neither accepted nor acknowledged, and its grantor sends it
//! again. Version 1 has no acknowledgments: what does not fit is lost and counted.
//!
//! Every worker receives every decision, because the card chooses the worker of a flow. Chunks of
//! programs go to the program store (`program_store.rs`), which returns the answer.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use threads::{Rights, Stop, Task};

use super::config::Trust;
use super::declined_map::DeclinedMap;
use super::program_store::ProgramInbox;
use super::rings::{DecisionMessage, MESSAGE};
use super::sender_limits::{LimitExceeded, Retraction, SenderLimits, SenderPolicer};
use control::progress::Turns;
use control::report::LogLimiter;

/// How long the thread waits for a message before it checks its stop flag, in milliseconds.
const IDLE_WAIT: u16 = 50;
/// The same after a message, and for this many turns.
const BUSY_WAIT: u16 = 1;
const BUSY_TURNS: u32 = 200;
/// How long the thread waits while it leaves messages in the sockets.
const SUSPENDED_WAIT: Duration = Duration::from_millis(1);
/// How often the thread checks whether the interface is another device.
const DEVICE_CHECK: Duration = Duration::from_millis(500);
/// The maximum number of messages read from a socket in a row.
const BURST: usize = 64;

/// A socket, and its protocol version.
#[derive(Debug)]
struct Listener {
    socket: Arc<UdpSocket>,
    version: u8,
}

/// The places at which decisions arrive.
#[derive(Debug)]
pub(super) struct ListenConfig {
    /// The gate's own addresses.
    pub(super) addresses: Vec<IpAddr>,
    /// The interface behind the gate.
    pub(super) interface: String,
    /// The sockets of a predecessor.
    pub(super) inherited: Vec<UdpSocket>,
}

/// A session of the gate, and the tunnel keys of the session.
#[derive(Debug)]
pub(super) struct Session {
    /// The number of the session.
    pub(super) number: u64,
    /// The keys that workers seal tunnels with.
    pub(super) keys: Publisher<TunnelKeys>,
}

/// The state of the thread, which configuration changes access too.
#[derive(Debug)]
struct ReceiverState {
    /// The addresses and the interface of the listeners, and the index of the device that they are
    /// bound to.
    addresses: Vec<IpAddr>,
    interface: String,
    device: Option<u32>,
    listeners: Vec<Listener>,
    receiver: Receiver,
    trust: Trust,
    rings: Vec<Producer<DecisionMessage>>,
    declined: DeclinedMap,
    programs: ProgramInbox,
    counts: BTreeMap<&'static str, u64>,
    /// The keys that workers seal tunnels with.
    keys: Publisher<TunnelKeys>,
    /// The key of each sender's last message.
    signing: BTreeMap<u32, u16>,
    /// A sender has changed its key since the keys were published.
    rekeyed: bool,
    policer: SenderPolicer,
    /// The pending retractions of each worker.
    retractions: Vec<VecDeque<Retraction>>,
    /// Whether messages are left in the sockets: another process reads them, or will.
    is_suspended: bool,
    /// The time of each sender's last new message.
    last_messages: BTreeMap<u32, Instant>,
    /// Limits the log lines about refused messages.
    refused: LogLimiter,
}

/// The thread that receives decisions, and the state shared with it.
#[derive(Debug)]
pub(super) struct DecisionReceiver {
    state: Arc<Mutex<ReceiverState>>,
    turns: Turns,
    thread: Task,
}

/// The names of all counters, so that each is exported before its first event.
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

impl DecisionReceiver {
    /// Starts to listen. With sockets of a predecessor, which still reads
    /// them, the receiver is [suspended](Self::suspend).
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn start(
        listen: ListenConfig,
        trust: &Trust,
        rings: Vec<Producer<DecisionMessage>>,
        declined: DeclinedMap,
        programs: ProgramInbox,
        session: Session,
    ) -> io::Result<Self> {
        let ListenConfig { addresses, interface, inherited } = listen;
        let retractions = rings.iter().map(|_| VecDeque::new()).collect();
        let device = if_nametoindex(&*interface).ok();
        let is_suspended = !inherited.is_empty();
        // Their versions follow from their ports.
        let of = |socket| Listener { socket: Arc::new(socket), version: 0 };
        let inherited: Vec<_> = inherited.into_iter().map(of).collect();
        let listeners = listeners(&addresses, &interface, trust, &inherited)?;
        let mut state = ReceiverState {
            addresses,
            interface,
            device,
            listeners: Vec::new(),
            receiver: Receiver::new(session.number),
            trust: Trust::default(),
            rings,
            declined,
            programs,
            counts: COUNTS.into_iter().map(|name| (name, 0)).collect(),
            keys: session.keys,
            signing: BTreeMap::new(),
            rekeyed: false,
            policer: SenderPolicer::default(),
            retractions,
            is_suspended,
            last_messages: BTreeMap::new(),
            refused: LogLimiter::default(),
        };
        state.apply(trust.clone(), listeners);
        let state = Arc::new(Mutex::new(state));
        let turns = Turns::default();
        let (thread_state, thread_turns) = (Arc::clone(&state), Arc::clone(&turns));
        let thread = Task::start("decisions", Rights::Worker, move |stop| {
            receive(&thread_state, &thread_turns, stop);
        })?;
        Ok(Self { state, turns, thread })
    }

    /// Leaves messages in the sockets from now on.
    pub(super) fn suspend(&self) {
        lock(&self.state).is_suspended = true;
    }

    /// Reads messages again.
    pub(super) fn resume(&self) {
        lock(&self.state).is_suspended = false;
    }

    /// Returns copies of the sockets.
    ///
    /// # Errors
    ///
    /// The system's, if no descriptor is left.
    pub(super) fn sockets(&self) -> io::Result<Vec<OwnedFd>> {
        let state = lock(&self.state);
        let copy = |listener: &Listener| listener.socket.as_fd().try_clone_to_owned();
        state.listeners.iter().map(copy).collect()
    }

    /// Opens the sockets that another configuration needs, without a change of the current ones.
    ///
    /// # Errors
    ///
    /// The system's.
    pub(super) fn prepare(&self, trust: &Trust) -> io::Result<Prepared> {
        let state = lock(&self.state);
        let ReceiverState { addresses, interface, listeners: current, .. } = &*state;
        let listeners = listeners(addresses, interface, trust, current)?;
        Ok(Prepared { trust: trust.clone(), listeners })
    }

    /// Applies a prepared configuration.
    pub(super) fn apply(&self, prepared: Prepared) {
        lock(&self.state).apply(prepared.trust, prepared.listeners);
    }

    /// Retracts all decisions of a sender so far.
    pub(super) fn flush(&self, sender: u32) {
        let mut state = lock(&self.state);
        let upto = state.policer.flush(sender);
        state.retract(upto);
    }

    /// Sets the interface whose XDP program drops declined flows.
    pub(super) fn set_front(&self, front: Interface) {
        lock(&self.state).declined.set_front(front);
    }

    /// Removes all flows from the XDP program's map.
    pub(super) fn clear_declined(&self) {
        lock(&self.state).declined.clear();
    }

    /// Returns whether the XDP program drops packets of a flow.
    pub(super) fn is_dropped_by_xdp(&self, flow: &Flow) -> bool {
        lock(&self.state).declined.contains(flow)
    }

    /// Returns the packets that the XDP program dropped, and their bytes.
    pub(super) fn dropped_by_xdp(&self) -> (u64, u64) {
        lock(&self.state).declined.dropped()
    }

    /// Returns the number of flows in the XDP program's map and of updates that the kernel refused.
    pub(super) fn declined_counts(&self) -> (u64, u64) {
        lock(&self.state).declined.counts()
    }

    /// Returns the counters.
    pub(super) fn counts(&self) -> BTreeMap<&'static str, u64> {
        lock(&self.state).counts.clone()
    }

    /// Returns the time of the last new message of each sender of version 2.
    pub(super) fn last_messages(&self) -> BTreeMap<u32, Instant> {
        lock(&self.state).last_messages.clone()
    }

    /// Returns the thread's turn counter, its sign of life.
    pub(super) fn turns(&self) -> Turns {
        Arc::clone(&self.turns)
    }

    /// Returns whether the thread runs.
    pub(super) fn is_alive(&self) -> bool {
        self.thread.is_alive()
    }
}

/// A configuration with its sockets, not in force yet.
#[derive(Debug)]
pub(super) struct Prepared {
    trust: Trust,
    listeners: Vec<Listener>,
}

fn lock(state: &Mutex<ReceiverState>) -> MutexGuard<'_, ReceiverState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens a socket for each address and version that `current` does not have.
fn listeners(
    addresses: &[IpAddr],
    interface: &str,
    trust: &Trust,
    current: &[Listener],
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
                [0, version].contains(&listener.version)
                    && listener.socket.local_addr().is_ok_and(|local| local == at)
            };
            let socket = match current.iter().find(same) {
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

/// Opens a socket that only ever receives packets of one interface: it is bound to the interface
/// before it is bound to the port.
fn listen(at: SocketAddr, interface: &str) -> io::Result<UdpSocket> {
    let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(family, SockType::Datagram, flags, None)?;
    setsockopt(&socket, BindToDevice, &interface.into())?;
    bind(socket.as_raw_fd(), &SockaddrStorage::from(at))?;
    Ok(UdpSocket::from(socket))
}

fn receive(state: &Mutex<ReceiverState>, turns: &AtomicU64, stop: &Stop) {
    let mut bytes = vec![0; 65_536];
    let mut replies = [const { Vec::new() }; 2];
    let mut busy_turns = 0u32;
    let mut device_checked = Instant::now();
    while !stop.is_set() {
        turns.fetch_add(1, Ordering::Relaxed);
        let sockets: Vec<_> =
            lock(state).listeners.iter().map(|listener| Arc::clone(&listener.socket)).collect();
        let each = sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN));
        let mut ready: Vec<_> = each.collect();
        // All sockets are read, whatever poll returns: a signal may have interrupted it.
        let wait = if busy_turns > 0 { BUSY_WAIT } else { IDLE_WAIT };
        let has_message = poll(&mut ready, PollTimeout::from(wait)).is_ok_and(|ready| ready > 0);
        let mut state = lock(state);
        // The workers' updates of declined flows arrive soon after the decisions.
        let has_update = state.declined.apply_updates();
        state.update_keys();
        state.send_retractions();
        if device_checked.elapsed() >= DEVICE_CHECK {
            device_checked = Instant::now();
            state.check_device();
        }
        busy_turns =
            if has_message || has_update { BUSY_TURNS } else { busy_turns.saturating_sub(1) };
        if state.is_suspended {
            drop(state);
            stop.wait(SUSPENDED_WAIT);
            continue;
        }
        for at in 0..state.listeners.len() {
            let Listener { socket, version } = &state.listeners[at];
            let (socket, version) = (Arc::clone(socket), *version);
            for _ in 0..BURST {
                let Ok((len, from)) = socket.recv_from(&mut bytes) else { break };
                let message = &bytes[..len];
                if version == 1 {
                    state.process_v1(message, from);
                } else {
                    state.process_v2(message, from, &mut replies);
                    for reply in replies.iter().filter(|reply| !reply.is_empty()) {
                        // A lost answer is repeated: the grantor sends its message again.
                        let _ = socket.send_to(reply, from);
                    }
                }
            }
        }
    }
}

impl ReceiverState {
    fn apply(&mut self, trust: Trust, listeners: Vec<Listener>) {
        for (removed, _) in &self.trust.senders {
            if trust.senders.iter().all(|(id, _)| id != removed) {
                self.receiver.remove_sender(*removed);
            }
        }
        for (id, keys) in &trust.senders {
            self.receiver.set_sender(*id, keys.clone());
        }
        let session = self.receiver.session();
        let retractions = self.policer.retractions(&self.trust.senders, &trust.senders, session);
        retractions.into_iter().for_each(|upto| self.retract(upto));
        self.policer.set_limits(&trust.limits);
        self.listeners = listeners;
        self.trust = trust;
        self.publish_keys();
    }

    /// Publishes the keys of sealed tunnels to the workers: for each end, the key of its sender's last
    /// message, because the sender certainly has that one; before its first message, its oldest key.
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

    /// Publishes the keys again if a sender has changed its key, and frees keys that no worker uses.
    fn update_keys(&mut self) {
        if self.rekeyed {
            self.publish_keys();
        }
        while self.keys.reclaim().is_some() {}
    }

    /// Queues a retraction for all workers, and sends it as far as their rings have room.
    fn retract(&mut self, upto: Retraction) {
        self.retractions.iter_mut().for_each(|pending| pending.push_back(upto));
        self.send_retractions();
    }

    /// Sends pending retractions as far as the rings have room.
    fn send_retractions(&mut self) {
        for (pending, ring) in self.retractions.iter_mut().zip(&mut self.rings) {
            while let Some(&upto) = pending.front() {
                if ring.push(DecisionMessage::Retract(upto)).is_err() {
                    break;
                }
                pending.pop_front();
            }
        }
    }

    /// Opens the sockets again if the interface is another device than the one that they are bound to:
    /// a socket keeps the index of its device, and would receive nothing from a new device with the
    /// same name.
    fn check_device(&mut self) {
        let device = if_nametoindex(&*self.interface).ok();
        if device.is_none() || device == self.device {
            return;
        }
        // The addresses may be set a moment after the device appears: then the next check succeeds.
        if let Ok(listeners) = listeners(&self.addresses, &self.interface, &self.trust, &[]) {
            log::info!(
                interface = &*self.interface;
                "{} is a new device: listening for decisions on it",
                self.interface
            );
            (self.device, self.listeners) = (device, listeners);
        }
    }

    fn count(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// Counts a refused message, and logs it at a limited rate.
    fn refuse(&mut self, name: &'static str, from: SocketAddr) {
        self.count(name);
        if let Some(times) = self.refused.count(1, Instant::now()) {
            log::warn!(
                times, from:%, reason = name;
                "decisions refused, {times} messages, the last from {from}: {name}"
            );
        }
    }

    fn process_v1(&mut self, message: &[u8], from: SocketAddr) {
        if !self.trust.v1_sources.contains(&from.ip()) || from.port() != v1::SOURCE_PORT {
            return self.refuse("v1_unknown_source", from);
        }
        self.count("v1_messages");
        let Ok(reader) = v1::Reader::new(message) else { return self.count("v1_malformed") };
        for item in reader {
            let Ok(mut item) = item else { return self.count("v1_malformed") };
            self.count("v1_items");
            if SenderLimits::default().cap(&mut item.command) {
                self.count("expiry_capped");
            }
            for ring in &mut self.rings {
                let lost = ring.push(DecisionMessage::Apply(item, Stamp::default())).is_err();
                *self.counts.entry("ring_full_dropped").or_default() += u64::from(lost);
            }
        }
    }

    /// Processes a message; `replies` has the answers afterwards, and an empty one is not sent.
    fn process_v2(&mut self, message: &[u8], from: SocketAddr, replies: &mut [Vec<u8>; 2]) {
        replies.iter_mut().for_each(Vec::clear);
        let [acknowledgment, program_state] = replies;
        if !self.trust.from.contains(&from.ip()) {
            return self.refuse("unknown_source", from);
        }
        if self.rings.iter().any(|ring| ring.slots() < MESSAGE) {
            return self.count("ring_full_deferred");
        }
        let refused = match self.receiver.receive(message, acknowledgment) {
            Ok(taken) => {
                let mut items = 0;
                self.last_messages.insert(taken.sender, Instant::now());
                let (sender, key) = (taken.sender, taken.key());
                self.rekeyed |= self.signing.insert(sender, key) != Some(key);
                if let Some(chunk) = taken.chunk {
                    let (sender, target) = (taken.sender, taken.reply_target());
                    let state = self.programs.accept(sender, &chunk, &self.last_messages);
                    if chunk.is_offer() {
                        self.receiver.write_status(&target, &state, program_state);
                    }
                    let name = if chunk.is_offer() { "program_offers" } else { "program_chunks" };
                    return self.count(name);
                }
                let now = Instant::now();
                for (item, stamp) in taken.items() {
                    items += 1;
                    let mut item = *item;
                    self.policer.record(stamp, key);
                    let name = match self.policer.admit(sender, &mut item, now) {
                        Ok(capped) => {
                            for ring in &mut self.rings {
                                // The ring has room: it was checked above.
                                let _ = ring.push(DecisionMessage::Apply(item, stamp));
                            }
                            capped.then_some("expiry_capped")
                        }
                        Err(LimitExceeded::Prefixes) => Some("outside_prefixes"),
                        Err(LimitExceeded::PrefixDecisions) => Some("over_prefix_limit"),
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
