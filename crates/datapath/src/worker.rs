//! The worker: one core's turn over its ports.
//!
//! A worker owns an arena, a queue of every port (or several, of which it sends by the first) and
//! its readers of the tables. It shares no writable memory with other workers. A turn is:
//!
//! ```text
//!   for each port:
//!     receive ─► frames ─► parse ─► Batch ─► lookup (one batch a family)
//!                                              │
//!        free  ◄─ drop ─┬─ rewrite ◄───────────┘
//!        host  ◄─ punt ─┤
//!        hold  ◄─ wait ─┤
//!                       └─► staging[egress] ─► transmit
//!   for each port: flush
//! ```
//!
//! A gate's worker has a hook (`hook.rs`), which takes packets out of the received frames before
//! they are a batch, and sends packets from its own queues later.
//!
//! Frames for one egress port are sent in the order of their arrival. Frames that a port does not
//! accept are offered once more after a flush, and then dropped: a queue that grows without bound
//! would only add delay.
//!
//! The worker takes tables, adjacencies and ingresses again for every batch, in the order that
//! `adjacencies.rs` requires, so that a publication of the control plane applies from the next batch
//! on.
//!
//! A worker has no clock of its own: the thread that runs it reads one from time to time and calls
//! [`Worker::tick`].
//!
//! The datapath never blocks, locks, logs, allocates or panics. All memory is allocated in
//! [`Worker::new`]; `tests/datapath/allocation.rs` counts allocations while packets of every kind
//! pass.

use std::fmt;
use std::iter::repeat;
use std::sync::Arc;
use std::time::Duration;

use fib::Reader;
use port::{Arena, Frame, Port};

use super::access::{AccessBatch, AccessStage};
use super::answer::AnswerContext;
use super::batch::{FEW, MARKING, SIZE};
use super::completion::{Arrivals, Completion};
use super::egress::{Egress, EgressContext};
use super::forwarding::refuse_forwarding;
use super::hold::{HELD, Hold};
use super::icmp_errors::IcmpErrors;
use super::ingress::FrameIngress;
use super::punt::Policer;
use super::queueing::Queueing;
use super::refusals::Refusals;
use super::secondary_macs::readdress;
use super::source::{Arrival, drop_spoofed, refuse_spoofed};
use super::trunk::Trunk;
use super::turn::{LANE_ROOM, Lane, Punts, Turn};
use super::vlan::TAG;
use super::{
    AccessLists, Adjacencies, Batch, Hook, IcmpLimits, IngressBatch, Ingresses, Lookup, PortQueues,
    PuntRates, WantSender,
};
use crate::stats::WorkerStats;

mod upkeep;

/// The approximate interval between calls of [`Worker::tick`].
pub const TICK: Duration = Duration::from_millis(100);

/// The parts that a worker is made from.
pub struct WorkerSetup<L> {
    /// The arena for the frames of all its ports.
    pub arena: Arena,
    /// Its ports; their index is the port number of adjacencies.
    pub ports: Vec<Box<dyn Port>>,
    /// Its readers of the tables.
    pub tables: L,
    /// Its reader of the adjacencies.
    pub adjacencies: Reader<Adjacencies>,
    /// Its reader of the settings of each port.
    pub ingresses: Reader<Ingresses>,
    /// Its end of the ring of requests to resolve next hops.
    pub wants: WantSender,
    /// Its counters, which no other worker writes.
    pub stats: Arc<WorkerStats>,
}

/// The state that a worker leaves to the next one.
#[derive(Default)]
pub struct SuspendedState {
    /// Its hook, if it had one.
    pub hook: Option<Hook>,
    /// The port of the packets that other workers hand over, if there was one.
    pub handed: Option<Box<dyn Port>>,
}

impl fmt::Debug for SuspendedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = (self.hook.is_some(), self.handed.is_some());
        f.debug_tuple("SuspendedState").field(&has).finish()
    }
}

/// One core's share of the router.
pub struct Worker<L> {
    arena: Arena,
    lanes: Vec<Lane>,
    tables: L,
    adjacencies: Reader<Adjacencies>,
    ingresses: Reader<Ingresses>,
    wants: WantSender,
    stats: Arc<WorkerStats>,
    punts: Policer,
    errors: IcmpErrors,
    frames: Vec<Frame>,
    /// How each of `frames` arrived.
    arrivals: Vec<FrameIngress>,
    /// Frames that are in a later batch of this turn.
    deferred: Vec<Frame>,
    /// The groups of ports whose batch is done in this turn.
    done: Vec<u16>,
    batch: Box<Batch>,
    refusals: Box<Refusals>,
    access: Option<Box<AccessStage>>,
    egress: Option<Egress>,
    /// The clock of the lanes that have a queue, if any has.
    queue_clock: Option<Box<dyn Fn() -> u64 + Send>>,
    /// The number of ticks so far.
    now: u64,
    /// The number of held packets that the counters report.
    held: usize,
    /// The counter of received packets at the end of the turn of a port that is under way, if no other worker takes
    /// some of them; 0 between turns.
    turn_end: u64,
}

impl<L: Lookup> Worker<L> {
    /// Makes a worker and allocates all the memory that it uses.
    pub fn new(setup: WorkerSetup<L>) -> Self {
        let WorkerSetup { arena, ports, tables, adjacencies, ingresses, wants, stats } = setup;
        Self {
            arena,
            lanes: ports.into_iter().zip(0..).map(|(port, at)| Lane::new(port, at)).collect(),
            tables,
            adjacencies,
            ingresses,
            wants,
            stats,
            punts: Policer::new(PuntRates::LOCAL_ONLY),
            errors: IcmpErrors::off(),
            frames: Vec::with_capacity(SIZE),
            arrivals: Vec::with_capacity(SIZE),
            deferred: Vec::with_capacity(SIZE),
            done: Vec::with_capacity(SIZE + HELD),
            batch: Box::new(Batch::new()),
            refusals: Box::new(Refusals::new()),
            access: None,
            egress: None,
            queue_clock: None,
            now: 0,
            held: 0,
            turn_end: 0,
        }
    }

    /// Adds another receive queue of port number `ingress`; no packet leaves by it.
    #[must_use]
    pub fn with_queue(mut self, port: Box<dyn Port>, ingress: usize) -> Self {
        self.lanes.push(Lane::new(port, ingress));
        self
    }

    /// Adds `port`, by which other workers hand over packets of this worker's flows, as if they had
    /// arrived on port number `ingress`. No packet leaves by it.
    #[must_use]
    pub fn with_handed(mut self, port: Box<dyn Port>, ingress: usize) -> Self {
        self.lanes.push(Lane::handed(port, ingress));
        self
    }

    /// Lets the host forward and answer for the router, at these rates for this worker. Without
    /// this call the worker punts only packets for the host and packets whose route leads to the
    /// host.
    #[must_use]
    pub fn with_punts(mut self, rates: PuntRates) -> Self {
        self.punts = Policer::new(rates);
        self
    }

    /// Lets this worker send ICMP errors itself, within these limits until others are
    /// published ([`Ingresses::with_icmp_limits`]); the host sends those that it
    /// cannot send.
    #[must_use]
    pub fn with_icmp_errors(mut self, limits: IcmpLimits) -> Self {
        self.errors = IcmpErrors::new(limits);
        self
    }

    /// Examines packets by access lists; `worker` is the number of this worker, whose counters it writes.
    #[must_use]
    pub fn with_access_lists(mut self, lists: Reader<AccessLists>, worker: usize) -> Self {
        self.access = Some(Box::new(AccessStage::new(lists, worker)));
        self
    }

    /// Adds queues to egress ports.
    #[must_use]
    pub fn with_egress_queues(mut self, queues: PortQueues) -> Self {
        let PortQueues { by_port, clock } = queues;
        self.queue_clock = by_port.iter().any(Option::is_some).then_some(clock);
        for (lane, queue) in self.lanes.iter_mut().zip(by_port) {
            let number = lane.ingress as u16;
            let queueing = queue.map(|queue| Queueing::new(&queue, number, LANE_ROOM));
            lane.queueing = queueing.map(Box::new);
        }
        self
    }

    /// Adds the hook of a gate or a grantor.
    #[must_use]
    pub fn with_hook(mut self, hook: Hook) -> Self {
        self.egress = Some(Egress::new(hook));
        self
    }

    /// Takes one turn over all ports and returns how many frames were received, or left a queue.
    pub fn poll(&mut self) -> usize {
        let mut received = 0;
        self.begin_queues();
        let hook_time = self.egress.as_mut().map(|egress| egress.hook.packets.begin_turn());
        // Those about packets that have waited too long.
        self.send_icmp_errors();
        for from in 0..self.lanes.len() {
            received += self.turn(from);
            self.turn_end = 0;
            self.send_icmp_errors();
        }
        if let Some(time) = hook_time {
            received += self.transmit_egress(time);
        }
        received += self.transmit_queues();
        if received == 0 {
            self.tables.idle();
            self.adjacencies.idle();
            self.ingresses.idle();
            if let Some(access) = &mut self.access {
                access.idle();
            }
        } else {
            self.tables.pass();
        }
        for lane in &mut self.lanes {
            lane.port.flush(&mut self.arena);
        }
        self.publish_held();
        self.stats.polled(received == 0);
        received
    }

    /// Sends the ICMP errors about the packets of the last batch.
    #[inline]
    fn send_icmp_errors(&mut self) {
        if self.errors.len() == 0 {
            return;
        }
        AnswerContext {
            arena: &mut self.arena,
            lanes: &mut self.lanes,
            tables: &mut self.tables,
            adjacencies: &mut self.adjacencies,
            ingresses: &mut self.ingresses,
            wants: &mut self.wants,
            stats: &self.stats,
            policer: &mut self.punts,
            errors: &mut self.errors,
            now: self.now,
        }
        .send();
    }

    /// Reads the clock of the queues.
    #[inline]
    fn begin_queues(&mut self) {
        let Some(clock) = &self.queue_clock else { return };
        let now = clock();
        let queues = self.lanes.iter_mut().filter_map(|lane| lane.queueing.as_mut());
        queues.for_each(|queueing| queueing.begin_turn(now));
    }

    /// Sends what may leave the queues, and returns the number of packets.
    #[inline]
    fn transmit_queues(&mut self) -> usize {
        if self.queue_clock.is_none() {
            return 0;
        }
        let Self { lanes, arena, stats, .. } = self;
        let each = lanes.iter_mut().filter_map(|Lane { queueing, port, .. }| {
            Some(queueing.as_mut()?.transmit(arena, &mut **port, stats))
        });
        each.sum()
    }

    /// Sends the packets of the hook, in a turn that began at `hook_time`, and returns their number.
    fn transmit_egress(&mut self, hook_time: u64) -> usize {
        let Some(egress) = &mut self.egress else { return 0 };
        egress.transmit(EgressContext {
            arena: &mut self.arena,
            lanes: &mut self.lanes,
            tables: &mut self.tables,
            adjacencies: &mut self.adjacencies,
            ingresses: &mut self.ingresses,
            batch: &mut self.batch,
            wants: &mut self.wants,
            stats: &self.stats,
            policer: &mut self.punts,
            errors: &mut self.errors,
            now: self.now,
            hook_time,
        })
    }

    /// Forwards what one port has received, and before it the held packets of that port: one batch, or
    /// several if VLAN devices with different settings are over the port.
    fn turn(&mut self, from: usize) -> usize {
        let Self { arena, lanes, tables, adjacencies, ingresses, frames, batch, .. } = self;
        let Self { arrivals, deferred, done, refusals, access, .. } = self;
        let (wants, stats, now) = (&mut self.wants, &*self.stats, self.now);
        let (policer, errors, turn_end) = (&mut self.punts, &mut self.errors, &mut self.turn_end);
        let hook = self.egress.as_mut().map(|egress| &mut *egress.hook.packets);
        let Some(lane) = lanes.get_mut(from) else { return 0 };
        let (ingress, handed) = (lane.ingress, lane.handed);
        let all = lane.port.receive(arena, SIZE, frames);
        if !handed {
            // The worker that hands packets over has recorded their arrival.
            stats.recorder().arrived(arena, frames, ingress as u16);
        }
        if all == 0 && lane.hold.len() == 0 {
            return 0;
        }
        *turn_end = stats.packets_received() + all as u64;
        let ingresses = ingresses.current();
        let own = lane.mac;
        let number = ingresses.get(ingress).member_of.unwrap_or(ingress as u16);
        let terms = ingresses.get(number.into());
        let mac = terms.mac.unwrap_or(own);
        let hook = hook.filter(|hook| hook.handles_port(ingress));
        // A hook's ports have no VLAN devices: their packets would pass it.
        let has_vlans = !terms.vlans.is_empty() && !handed && hook.is_none();
        let group = ingresses.group(number);
        let (port, vlans) = (number, &*terms.vlans);
        let trunk = has_vlans.then_some(Trunk { port, group, vlans, ingresses, mac: own });
        if !has_vlans && !terms.secondary_macs.is_empty() && !handed {
            // The worker that hands packets over has readdressed them.
            readdress(arena, frames, mac, &terms.secondary_macs);
        }
        if let Some(hook) = hook {
            let locals = &*terms.locals;
            if terms.filtered() != [false; 2] && !handed {
                let arrival = Arrival { port: ingress, mac, terms };
                drop_spoofed(arena, frames, batch, tables, adjacencies, arrival, stats);
            }
            let taken = (0, 0);
            let mut batch =
                IngressBatch { arena, frames, ingress, handed, mac, locals, stats, taken };
            hook.process_ingress(&mut batch);
            batch.finish();
            if frames.is_empty() && lane.hold.len() == 0 {
                return all;
            }
        }
        done.clear();
        loop {
            let mut group = group;
            if let Some(trunk) = &trunk {
                let held = lanes.get(from).map(|lane| &lane.hold);
                let first = frames.first().map(|frame| trunk.ingress(arena.bytes(frame)).1);
                let next = first.or_else(|| next_held_group(held, ingresses, done));
                let Some(next) = next else { break };
                group = next;
                done.push(group);
            }
            let belongs = |port| ingresses.group(port) == group;
            let terms = ingresses.get(group.into());
            let mac = terms.mac.unwrap_or(own);
            let locals = &*terms.locals;

            batch.clear();
            arrivals.clear();
            if let Some(lane) = lanes.get(from) {
                let held = lane.hold.iter().filter(|held| belongs(held.ingress.port));
                held.for_each(|held| batch.wait(held.key));
            }
            let (mut received, mut alike) = (frames.len() as u64, 0);
            let bytes;
            if let Some(trunk) = &trunk {
                (received, bytes, alike) = trunk.parse(arena, frames, group, batch, arrivals);
            } else if let Some(access) = access
                && let Some(parsed) = access.parse(arena, frames, (number, mac, locals), batch)
            {
                bytes = parsed;
            } else {
                (_, bytes) = batch.parse_while::<0>(arena, frames, |_| true, mac, locals);
            }
            batch.seal();
            let filtered = terms.filtered();
            let checks = filtered != [false; 2];
            if checks {
                batch.add_sources(untagged(arena, frames, arrivals), filtered);
            }

            let (v4, v6) = batch.lookup(tables, terms.table);
            if received > 0 {
                stats.received(received, bytes);
                stats.looked_up(v4 as u64, v6 as u64);
                let sample = stats.sample();
                if sample.is_wanted()
                    && let Some(address) = batch.destination(bytes)
                {
                    sample.fill(terms.table, address);
                }
            }
            // After the tables: these adjacencies contain every hop of those tables.
            let adjacencies = adjacencies.current();
            refusals.clear();
            if terms.forwarding_off != [false; 2] {
                let packets = untagged(arena, frames, arrivals);
                refuse_forwarding(batch, packets, adjacencies, terms, refusals);
            }
            if checks {
                let ports = arrivals.iter().map(|arrival| arrival.port).chain(repeat(number));
                refuse_spoofed(batch, adjacencies, terms, ports, refusals);
            }
            if let Some(access) = access {
                access.examine(
                    AccessBatch { arena, lanes, frames, arrivals, number, batch, refusals, stats },
                    adjacencies,
                );
            }
            let (table, further, isolated) = (terms.table, terms.further, terms.isolated);
            // Held packets that were handed over are in the queue of their ingress port, which
            // releases them.
            let waits = lanes.get(from).is_some_and(|lane| lane.hold.len() > 0);
            if waits {
                let (arena, lanes, wants) = (&mut *arena, &mut **lanes, &mut *wants);
                let answers = terms.answers.map(|table| table.is_some());
                let (policer, errors) = (&mut *policer, &mut *errors);
                let punts = Punts { policer, further, isolated, answers, errors };
                let (lane, ingress) = (ingress, FrameIngress::untagged(group));
                Turn { arena, lanes, stats, adjacencies, wants, ingress, lane, table, punts, now }
                    .release(batch, belongs);
            }

            if received < FEW as u64 || now % MARKING == 1 {
                batch.mark(wants);
            }
            let (arena, lanes, wants) = (&mut *arena, &mut **lanes, &mut *wants);
            let (policer, errors, batch) = (&mut *policer, &mut *errors, &**batch);
            let refusals = &**refusals;
            let rest = Completion {
                arena,
                lanes,
                stats,
                adjacencies,
                wants,
                policer,
                errors,
                terms,
                batch,
                refusals,
                frames,
                now,
            };
            let arrivals = match arrivals.first() {
                None if trunk.is_none() => Arrivals::Untagged(number),
                Some(first) if alike == arrivals.len() && first.priority() == 0 => {
                    match first.tags() {
                        0 => Arrivals::Untagged(first.port),
                        TAG => Arrivals::Tagged(first.port),
                        _ => Arrivals::Listed(arrivals, deferred),
                    }
                }
                _ => Arrivals::Listed(arrivals, deferred),
            };
            rest.complete(ingress, arrivals);
            if !has_vlans {
                break;
            }
            std::mem::swap(frames, deferred);
        }

        for lane in lanes.iter_mut().filter(|lane| !lane.staged.is_empty()) {
            lane.send(arena, stats);
        }
        all
    }
}

/// Iterates over the frames of a port without the tags of VLAN devices, of which `arrivals` has the lengths.
fn untagged<'w>(
    arena: &'w Arena,
    frames: &'w [Frame],
    arrivals: &'w [FrameIngress],
) -> impl Iterator<Item = &'w [u8]> {
    let tags = arrivals.iter().map(|arrival| arrival.tags()).chain(repeat(0));
    let packets = frames.iter().zip(tags).map(|(frame, tags)| arena.bytes(frame).get(tags..));
    packets.map(Option::unwrap_or_default)
}

/// Returns the group of the first held packet whose group is not in `done`. Packets of removed VLAN
/// devices are in no batch.
fn next_held_group(held: Option<&Hold>, ingresses: &Ingresses, done: &[u16]) -> Option<u16> {
    let waiting = held.into_iter().flat_map(Hold::iter).map(|held| held.ingress.port);
    let known = waiting.filter(|port| ingresses.has(*port));
    known.map(|port| ingresses.group(port)).find(|group| !done.contains(group))
}

impl<L> Drop for Worker<L> {
    fn drop(&mut self) {
        self.close();
    }
}
