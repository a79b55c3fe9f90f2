//! The decision sender: sends decisions to the gates, from ordinary sockets.
//!
//! ```text
//!   deciders ─► channel ─► by gate ─► v2::Sender ═► UDP ═► gate      repeated until acknowledged
//!                                 └─► v1::Writer ═► UDP ═► gate      sent once
//! ```
//!
//! Decisions that arrive within [`GATHER`] share messages. With version 2, every configured gate gets a
//! message several times a second, with or without decisions, so that it can give the flows to another
//! grantor if this one fails. Programs are sent in the same messages to the gates that want them
//! (`programs.rs`). The gates' answers contain their session, from which the workers derive the keys of
//! sealed tunnels (`gate::tunnel`).
//!
//! The address of a gate is the outer source of the request, which the hook has compared with the
//! configured gates.
//!
//! With `share_grants` a grant goes to all configured gates, so that a flow that moves to another one by
//! BGP or ECMP keeps it; so does each decision that may end a grant. Only provisional declines do not:
//! they end none, and would fill the flow tables of gates that do not have the flow. A gate that starts,
//! or answers again after [`SILENCE`], gets the grants in force (`shared_grants.rs`), a few messages at a
//! time, between which new decisions find room.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fib::Publisher;
use gate::decision::FlowCommand;
use gate::decision::v1;
use gate::decision::v2::keys::Keys;
use gate::decision::v2::transfer::ProgramImage;
use gate::decision::v2::{PORT, sender::Sender};
use gate::policy::Address;
use gate::state::Decision;
use gate::tunnel::GateKeys;
use threads::{Rights, Stop, Task};

use super::decider::OutgoingDecision;
use super::programs::ProgramTransfers;
use super::shared_grants::{Replay, SharedGrants};
use control::progress::Turns;

/// How long a decision waits for others to share a message with, and an answer to be read.
const GATHER: Duration = Duration::from_millis(2);
/// The length of a datagram's payload: Ethernet's 1500 less the IPv6 and UDP headers.
const PAYLOAD: usize = 1452;
/// How often the state of programs is recorded, in nanoseconds.
const RECORD_INTERVAL: u64 = 50_000_000;
/// The silence after which a gate may have missed decisions: some are abandoned by then.
const SILENCE: Duration = Duration::from_secs(2);
/// The messages that may be on their way to a gate when a grant is replayed.
const REPLAY_WINDOW: usize = 64;
/// How often grants that are over are forgotten.
const PRUNE_INTERVAL: Duration = Duration::from_secs(10);
/// The capacity of the channel to the thread.
const CHANNEL: usize = 8192;

/// The version of the decision protocol, with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum ProtocolVersion {
    /// Version 1: neither authenticated nor acknowledged.
    V1,
    /// Version 2: this grantor's number and its keys.
    V2(u32, Keys),
}

/// Counters of the thread, and the time of each gate's last answer.
#[derive(Debug, Default)]
pub(super) struct SenderCounters {
    pub(super) items: AtomicU64,
    pub(super) messages: AtomicU64,
    /// Decisions for which a gate's window had no room.
    pub(super) busy: AtomicU64,
    /// Decisions that gates got beside the one that asked, and those for which such a gate's window had
    /// no room.
    pub(super) shared: AtomicU64,
    pub(super) shared_busy: AtomicU64,
    /// Grants that gates got again because they had started or returned.
    pub(super) replayed: AtomicU64,
    pub(super) answers: AtomicU64,
    pub(super) answers_refused: AtomicU64,
    pub(super) abandoned: AtomicU64,
    /// Messages that the system refused.
    pub(super) failed: AtomicU64,
    /// The time of each gate's last answer; gates of version 1 never answer.
    last_answers: Mutex<BTreeMap<IpAddr, Option<Instant>>>,
}

impl SenderCounters {
    /// Lists the gates, and the time since each one's last answer.
    pub(super) fn last_answers(&self) -> Vec<(IpAddr, Option<Duration>)> {
        let last_answers = self.last_answers.lock().unwrap_or_else(PoisonError::into_inner);
        last_answers.iter().map(|(gate, at)| (*gate, at.map(|at| at.elapsed()))).collect()
    }

    /// Records an answer of a gate, and returns whether it is the first one after [`SILENCE`].
    fn record_answer(&self, gate: IpAddr) -> bool {
        let mut last_answers = self.last_answers.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last_answers.insert(gate, Some(Instant::now())).flatten();
        before.is_none_or(|before| before.elapsed() >= SILENCE)
    }
}

/// The thread that sends decisions.
#[derive(Debug)]
pub(super) struct DecisionSender {
    pub(super) counters: Arc<SenderCounters>,
    pub(super) programs: Arc<ProgramTransfers>,
    turns: Turns,
    thread: Task,
}

impl DecisionSender {
    /// Opens the sockets and starts the thread; returns the channel for decisions too.
    pub(super) fn start(
        version: ProtocolVersion,
        gates: &[Address],
        shares: bool,
        programs: Vec<ProgramImage>,
        keys: Publisher<GateKeys>,
    ) -> io::Result<(Self, mpsc::SyncSender<OutgoingDecision>)> {
        let (decisions, received) = mpsc::sync_channel(CHANNEL);
        let port = if matches!(version, ProtocolVersion::V1) { v1::SOURCE_PORT } else { 0 };
        let socket = |address: IpAddr| -> io::Result<UdpSocket> {
            let socket = UdpSocket::bind(SocketAddr::new(address, port))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let four = socket(Ipv4Addr::UNSPECIFIED.into())?;
        // With a fixed port, an IPv6 socket would take the port of IPv4 too. A machine without IPv6 has
        // no such socket.
        let six = match port {
            0 => socket(Ipv6Addr::UNSPECIFIED.into()).ok(),
            _ => None,
        };
        let known: Vec<IpAddr> = gates.iter().copied().map(IpAddr::from).collect();
        let last_answers = Mutex::new(known.iter().map(|gate| (*gate, None)).collect());
        let counters = Arc::new(SenderCounters { last_answers, ..SenderCounters::default() });
        let turns = Turns::default();
        let (thread_counters, thread_turns) = (Arc::clone(&counters), Arc::clone(&turns));
        let programs = Arc::new(ProgramTransfers::new(programs));
        let thread_programs = Arc::clone(&programs);
        let thread = Task::start("decision sender", Rights::None, move |stop| {
            let start = Instant::now();
            let images = thread_programs.images();
            let gate = |address| (address, GateQueue::new(&version, &images));
            let gates = known.into_iter().map(gate).collect();
            let out = Vec::new();
            SenderThread {
                version,
                grants: shares.then(SharedGrants::default),
                replays: HashMap::new(),
                pruned: start,
                four,
                six,
                gates,
                keys,
                known: GateKeys::default(),
                sessions: BTreeMap::new(),
                counters: thread_counters,
                programs: thread_programs,
                images,
                record_at: 0,
                start,
                out,
            }
            .run(&received, &thread_turns, stop);
        })?;
        Ok((Self { counters, programs, turns, thread }, decisions))
    }

    pub(super) fn turns(&self) -> Turns {
        Arc::clone(&self.turns)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.thread.is_alive()
    }
}

/// The decisions that are on their way to a gate.
enum GateQueue {
    V1(v1::Writer, bool),
    V2(Box<Sender>),
}

impl GateQueue {
    fn new(version: &ProtocolVersion, programs: &[ProgramImage]) -> Self {
        match version {
            ProtocolVersion::V1 => Self::V1(v1::Writer::new(PAYLOAD), false),
            ProtocolVersion::V2(id, keys) => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                let mut sender = Sender::new(*id, keys.clone(), PAYLOAD, since.as_secs());
                sender.set_programs(programs);
                Self::V2(Box::new(sender))
            }
        }
    }
}

/// The state of the thread.
struct SenderThread {
    version: ProtocolVersion,
    /// The grants in force, if they go to all gates.
    grants: Option<SharedGrants>,
    /// The grants that a gate is still to get again.
    replays: HashMap<IpAddr, Replay>,
    pruned: Instant,
    four: UdpSocket,
    six: Option<UdpSocket>,
    gates: HashMap<IpAddr, GateQueue>,
    /// The keys of sealed tunnels: their publisher, and the state published last.
    keys: Publisher<GateKeys>,
    known: GateKeys,
    /// The session of each gate.
    sessions: BTreeMap<IpAddr, u64>,
    counters: Arc<SenderCounters>,
    programs: Arc<ProgramTransfers>,
    /// The programs that are sent to the gates.
    images: Arc<[ProgramImage]>,
    /// The next time to record the state of the programs.
    record_at: u64,
    start: Instant,
    out: Vec<u8>,
}

fn add(counter: &AtomicU64, number: u64) {
    counter.fetch_add(number, Ordering::Relaxed);
}

impl SenderThread {
    /// The loop of the thread.
    fn run(&mut self, decisions: &Receiver<OutgoingDecision>, turns: &AtomicU64, stop: &Stop) {
        while !stop.is_set() {
            turns.fetch_add(1, Ordering::Relaxed);
            match decisions.recv_timeout(GATHER) {
                Ok(decision) => {
                    self.enqueue(&decision);
                    decisions.try_iter().for_each(|decision| self.enqueue(&decision));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => drop(stop.wait(GATHER)),
            }
            self.receive_answers();
            self.update_programs();
            self.replay();
            self.send();
        }
    }

    /// Gives the gates' senders changed programs, and records the state of the programs from time to
    /// time.
    fn update_programs(&mut self) {
        let now = self.now();
        if now < self.record_at {
            return;
        }
        self.record_at = now + RECORD_INTERVAL;
        let images = self.programs.images();
        let has_changed = !Arc::ptr_eq(&images, &self.images);
        if has_changed {
            self.images = images;
        }
        let mut each = Vec::new();
        for (address, gate) in &mut self.gates {
            let GateQueue::V2(sender) = gate else { continue };
            if has_changed {
                sender.set_programs(&self.images);
            }
            each.extend(sender.programs().iter().map(|carried| (*address, carried)));
        }
        self.programs.record(each.into_iter());
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Queues a decision for its gate, and for the others if it is shared.
    fn enqueue(&mut self, decision: &OutgoingDecision) {
        self.enqueue_own(decision);
        let (gate, item) = decision;
        // About prefixes it ends grants, too (3.9 of the protocol).
        let is_provisional = matches!(item.command, FlowCommand::Decide(Decision::Provisional(_)))
            && item.scope.flow().is_some();
        let Some(grants) = self.grants.as_mut().filter(|_| !is_provisional) else { return };
        grants.record(Instant::now(), item);
        let own = IpAddr::from(*gate);
        for (_, queue) in self.gates.iter_mut().filter(|(address, _)| **address != own) {
            // Version 1 shares nothing: the configuration is refused.
            let GateQueue::V2(sender) = queue else { continue };
            let counters = &self.counters;
            let is_queued = sender.push(item).is_ok();
            add(if is_queued { &counters.shared } else { &counters.shared_busy }, 1);
        }
    }

    /// Queues a decision for the gate that has asked for it.
    fn enqueue_own(&mut self, (gate, item): &OutgoingDecision) {
        let (version, images, address) = (&self.version, &self.images, IpAddr::from(*gate));
        let queue = self.gates.entry(address).or_insert_with(|| GateQueue::new(version, images));
        add(&self.counters.items, 1);
        match queue {
            GateQueue::V2(sender) => {
                if sender.push(item).is_err() {
                    add(&self.counters.busy, 1);
                }
            }
            GateQueue::V1(writer, has_items) => {
                if !writer.push(item) {
                    let full = std::mem::replace(writer, v1::Writer::new(PAYLOAD)).finish();
                    let to = SocketAddr::new(address, v1::DESTINATION_PORT);
                    send_to(&self.four, self.six.as_ref(), &self.counters, &full, to);
                    writer.push(item);
                }
                *has_items = true;
            }
        }
    }

    /// Queues grants for a gate that has started or returned.
    fn replay(&mut self) {
        let Some(grants) = &mut self.grants else { return };
        let now = Instant::now();
        if now - self.pruned >= PRUNE_INTERVAL {
            self.pruned = now;
            grants.prune(now);
        }
        let (gates, counters) = (&mut self.gates, &self.counters);
        self.replays.retain(|gate, replay| {
            let Some(GateQueue::V2(sender)) = gates.get_mut(gate) else { return false };
            while sender.pending() < REPLAY_WINDOW
                && let Some(flow) = replay.pop_front()
            {
                let item = grants.remaining(now, &flow);
                let is_queued = item.is_some_and(|item| sender.push(&item).is_ok());
                add(&counters.replayed, is_queued.into());
            }
            !replay.is_empty()
        });
    }

    fn send(&mut self) {
        let now = self.now();
        let Self { gates, four, six, counters, out, .. } = self;
        let mut abandoned = 0;
        for (&address, gate) in gates {
            match gate {
                GateQueue::V2(sender) => {
                    sender.queue_heartbeat(now);
                    while sender.poll(now, out) {
                        send_to(four, six.as_ref(), counters, out, SocketAddr::new(address, PORT));
                    }
                    abandoned += sender.given_up();
                }
                GateQueue::V1(writer, has_items) if *has_items => {
                    *has_items = false;
                    let message = std::mem::replace(writer, v1::Writer::new(PAYLOAD)).finish();
                    let to = SocketAddr::new(address, v1::DESTINATION_PORT);
                    send_to(four, six.as_ref(), counters, &message, to);
                }
                GateQueue::V1(..) => {}
            }
        }
        counters.abandoned.store(abandoned, Ordering::Relaxed);
    }

    /// Processes the answers of gates.
    fn receive_answers(&mut self) {
        let now = self.now();
        let mut bytes = [0; 2048];
        while self.keys.reclaim().is_some() {}
        for six in [false, true] {
            while let Some((len, from)) = self.receive_answer(six, &mut bytes) {
                let gate = from.ip().to_canonical();
                let is_valid = match self.gates.get_mut(&gate) {
                    Some(GateQueue::V2(sender)) => sender.receive(now, &bytes[..len]).is_ok(),
                    _ => false,
                };
                if is_valid {
                    let has_returned = self.counters.record_answer(gate);
                    let is_new = self.update_session(gate);
                    if let Some(grants) = self.grants.as_ref().filter(|_| has_returned || is_new) {
                        self.replays.insert(gate, grants.replay());
                    }
                }
                let counters = &self.counters;
                add(if is_valid { &counters.answers } else { &counters.answers_refused }, 1);
            }
        }
    }
}

impl SenderThread {
    fn receive_answer(&self, six: bool, bytes: &mut [u8]) -> Option<(usize, SocketAddr)> {
        let socket = if six { self.six.as_ref()? } else { &self.four };
        socket.recv_from(bytes).ok()
    }

    /// Publishes the tunnel keys of a gate's session to the workers, if the session is new. Returns whether
    /// it is.
    fn update_session(&mut self, gate: IpAddr) -> bool {
        let (Some(GateQueue::V2(sender)), ProtocolVersion::V2(_, keys)) =
            (self.gates.get(&gate), &self.version)
        else {
            return false;
        };
        let session = sender.session();
        if session == 0 || self.sessions.insert(gate, session) == Some(session) {
            return false;
        }
        let each = keys.numbers().into_iter().filter_map(|number| keys.tunnel(number, session));
        let address = match gate {
            IpAddr::V4(address) => Address::V4(address.into()),
            IpAddr::V6(address) => Address::V6(address.into()),
        };
        self.known.set(address, session, each.collect());
        self.keys.publish(Box::new(self.known.clone()));
        true
    }
}

fn send_to(
    four: &UdpSocket,
    six: Option<&UdpSocket>,
    counters: &SenderCounters,
    message: &[u8],
    to: SocketAddr,
) {
    let socket = if to.is_ipv4() { Some(four) } else { six };
    match socket.map(|socket| socket.send_to(message, to)) {
        Some(Ok(_)) => add(&counters.messages, 1),
        // Version 2 repeats the message.
        _ => add(&counters.failed, 1),
    }
}

#[cfg(test)]
mod tests {
    use gate::decision::v2::receiver::Receiver;
    use gate::decision::{Item, Scope};
    use gate::flow::Flow;
    use gate::state::{Grant, Provisional, Traffic};

    use super::*;

    /// A gate that acknowledges messages and collects their commands.
    struct Gate {
        socket: UdpSocket,
        receiver: Receiver,
        commands: Vec<FlowCommand>,
    }

    impl Gate {
        fn new(address: IpAddr, keys: &Keys) -> Self {
            let socket = UdpSocket::bind((address, PORT)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
            let mut receiver = Receiver::new(7);
            receiver.set_sender(1, keys.clone());
            Self { socket, receiver, commands: Vec::new() }
        }

        fn receive(&mut self) {
            let mut bytes = [0; 2048];
            let Ok((len, from)) = self.socket.recv_from(&mut bytes) else { return };
            let mut reply = Vec::new();
            if let Ok(message) = self.receiver.receive(&bytes[..len], &mut reply) {
                self.commands.extend(message.items().map(|(item, _)| item.command));
            }
            self.socket.send_to(&reply, from).unwrap();
        }
    }

    #[test]
    fn grants_and_their_ends_go_to_all_gates_if_they_are_shared() {
        let addresses = [[127, 0, 77, 1], [127, 0, 77, 2]].map(IpAddr::from);
        let keys = Keys::new(1, &[9; 32]);
        let gates = addresses.map(|address| match address {
            IpAddr::V4(address) => Address::V4(address.into()),
            IpAddr::V6(address) => Address::V6(address.into()),
        });
        let grant =
            Grant { rate_kib: 100, expire_s: 60, next_renewal_ms: 50_000, renewal_step_ms: 1000 };
        let provisional = Provisional { expire_s: 5, traffic: Traffic::All };
        let commands = [
            FlowCommand::Decide(Decision::Grant(grant)),
            FlowCommand::Decide(Decision::Provisional(provisional)),
            FlowCommand::Decide(Decision::Decline { expire_s: 5 }),
            FlowCommand::Flush,
        ];
        for shares in [false, true] {
            let mut each = addresses.map(|address| Gate::new(address, &keys));
            let version = ProtocolVersion::V2(1, keys.clone());
            let tunnel_keys = Publisher::new(GateKeys::default());
            let (sender, decisions) =
                DecisionSender::start(version, &gates, shares, Vec::new(), tunnel_keys).unwrap();
            let begin = Instant::now();
            let receive_until = |each: &mut [Gate; 2], is_done: &dyn Fn(&[Gate; 2]) -> bool| {
                while !is_done(each) && begin.elapsed() < Duration::from_secs(20) {
                    each.iter_mut().for_each(Gate::receive);
                }
                // Nothing follows.
                (0..5).for_each(|_| each.iter_mut().for_each(Gate::receive));
            };
            let have_answered = |_: &[Gate; 2]| {
                sender.counters.last_answers().iter().all(|(_, since)| since.is_some())
            };
            receive_until(&mut each, &have_answered);
            let scope = Scope::of(&Flow::v4(1, 2));
            for command in commands {
                decisions.send((gates[0], Item { scope, command })).unwrap();
            }
            let scope = Scope::of(&Flow::v4(3, 4));
            decisions.send((gates[0], Item { scope, command: commands[0] })).unwrap();
            let expected: [Vec<FlowCommand>; 2] = [
                [&commands[..], &commands[..1]].concat(),
                if shares {
                    vec![commands[0], commands[2], commands[3], commands[0]]
                } else {
                    Vec::new()
                },
            ];
            let have = |count: usize| {
                move |each: &[Gate; 2]| {
                    each.iter().map(|gate| gate.commands.len()).sum::<usize>() >= count
                }
            };
            receive_until(&mut each, &have(expected.iter().map(Vec::len).sum()));
            let commands_of = |each: &[Gate; 2]| each.each_ref().map(|gate| gate.commands.clone());
            assert_eq!(commands_of(&each), expected, "shared: {shares}");
            if shares {
                // Both start again: each gets the grant that is in force.
                for (gate, session) in each.iter_mut().zip(8..) {
                    gate.receiver = Receiver::new(session);
                    gate.receiver.set_sender(1, keys.clone());
                    gate.commands.clear();
                }
                receive_until(&mut each, &have(2));
                for commands in commands_of(&each) {
                    let [FlowCommand::Decide(Decision::Grant(again))] = commands[..] else {
                        panic!("{commands:?}");
                    };
                    assert!((1..=60).contains(&again.expire_s), "{again:?}");
                }
                assert_eq!(sender.counters.replayed.load(Ordering::Relaxed), 2);
            }
            let shared = sender.counters.shared.load(Ordering::Relaxed);
            assert_eq!(shared, expected[1].len() as u64);
            assert_eq!(sender.counters.shared_busy.load(Ordering::Relaxed), 0);
        }
    }
}
