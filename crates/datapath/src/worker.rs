//! The worker: one core's turn over its ports.
//!
//! A worker owns an arena, a queue of every port (or several, of which it sends by the
//! first) and its readers of the tables, and shares nothing that is written with any
//! other worker. A turn is:
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
//! A gate is a worker with a hook (`hook.rs`) that takes packets out of what was
//! received before they are a batch, and has them leave later, on its own account.
//!
//! Frames for one egress are sent in the order in which they came. What a port
//! does not take is offered once more after a flush, and then dropped: a queue that
//! grows without bound would only add delay.
//!
//! Tables, adjacencies and ingresses are taken anew for every batch, in the order
//! that `adjacency.rs` asks for, so that what the control side publishes holds from
//! the next batch on.
//!
//! A worker has no clock of its own: whoever runs it looks at one from time to time and
//! calls [`Worker::tick`].
//!
//! The datapath never blocks, locks, logs, allocates or panics. All memory is made
//! in [`Worker::new`]; `tests/allocation.rs` counts allocations while packets of
//! every kind pass.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fib::Reader;
use port::{Arena, Frame, Port, PortStats};

use super::batch::{Kind, SIZE};
use super::punt::Policer;
use super::rewrite::restore;
use super::source::{Arrival, drop_spoofed};
use super::turn::{Lane, Punts, Turn, rewrite};
use super::{
    Adjacencies, Batch, EgressPacket, IngressBatch, Ingresses, Lookup, PacketHook, PuntClass,
    PuntRates, ReversePathFilter, Verdict, WantSender, parse,
};
use crate::stats::WorkerStats;

/// How often [`Worker::tick`] is to be called, about.
pub const TICK: Duration = Duration::from_millis(100);

/// Batches of fewer packets than this always mark the hops that they use; larger ones, of which
/// each packet counts, in one of so many ticks: a second.
pub(super) const FEW: usize = 32;
pub(super) const MARKING: u64 = 10;

/// How far ahead of the parser packets are fetched into the cache, in frames.
const AHEAD: usize = 8;

/// What a worker is made from.
pub struct WorkerSetup<L> {
    /// The frames of all its ports.
    pub arena: Arena,
    /// Its ports; adjacencies name them by their place here.
    pub ports: Vec<Box<dyn Port>>,
    /// Its readers of the tables.
    pub tables: L,
    /// Its reader of what the hops mean.
    pub adjacencies: Reader<Adjacencies>,
    /// Its reader of what holds for packets of each port.
    pub ingresses: Reader<Ingresses>,
    /// Where it asks for next hops to be resolved.
    pub wants: WantSender,
    /// Where it counts; no other worker's.
    pub stats: Arc<WorkerStats>,
}

/// The state that a worker leaves to the next one.
#[derive(Default)]
pub struct Remains {
    /// Its hook, if it had one.
    pub hook: Option<Box<dyn PacketHook>>,
    /// The port by which other workers hand packets over, if there was one.
    pub handed: Option<Box<dyn Port>>,
}

impl fmt::Debug for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = (self.hook.is_some(), self.handed.is_some());
        f.debug_tuple("Remains").field(&has).finish()
    }
}

/// One core's share of the router.
pub struct Worker<L> {
    pub(super) arena: Arena,
    pub(super) lanes: Vec<Lane>,
    pub(super) tables: L,
    pub(super) adjacencies: Reader<Adjacencies>,
    pub(super) ingresses: Reader<Ingresses>,
    pub(super) wants: WantSender,
    pub(super) stats: Arc<WorkerStats>,
    pub(super) punts: Policer,
    frames: Vec<Frame>,
    pub(super) batch: Box<Batch>,
    pub(super) hook: Option<Box<dyn PacketHook>>,
    /// Packets that the hook sends in this turn.
    pub(super) egress: Vec<EgressPacket>,
    /// Ticks so far.
    pub(super) now: u64,
    /// Packets that wait, as last told.
    held: usize,
}

impl<L: Lookup> Worker<L> {
    /// Makes a worker, with all the memory it will use.
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
            frames: Vec::with_capacity(SIZE),
            batch: Box::new(Batch::new()),
            hook: None,
            egress: Vec::new(),
            now: 0,
            held: 0,
        }
    }

    /// Adds another receive queue of the port number `ingress`; no packet leaves by it.
    #[must_use]
    pub fn with_queue(mut self, port: Box<dyn Port>, ingress: usize) -> Self {
        self.lanes.push(Lane::new(port, ingress));
        self
    }

    /// Has it take packets of its flows from other workers, by `port`: as if they had come in
    /// on the port number `ingress`. Nothing leaves by it.
    #[must_use]
    pub fn with_handed(mut self, port: Box<dyn Port>, ingress: usize) -> Self {
        self.lanes.push(Lane::handed(port, ingress));
        self
    }

    /// Lets the host forward and answer for the router, at these rates of this worker's own;
    /// without, it is handed what its own routes lead to.
    #[must_use]
    pub fn with_punts(mut self, rates: PuntRates) -> Self {
        self.punts = Policer::new(rates);
        self
    }

    /// Makes this worker a gate's.
    #[must_use]
    pub fn with_hook(mut self, hook: Box<dyn PacketHook>) -> Self {
        self.hook = Some(hook);
        self.egress = Vec::with_capacity(SIZE);
        self
    }

    /// Takes one turn over all ports and returns how many frames were received.
    pub fn poll(&mut self) -> usize {
        let mut received = 0;
        if let Some(hook) = &mut self.hook {
            hook.begin_turn();
        }
        for from in 0..self.lanes.len() {
            received += self.turn(from);
        }
        if self.hook.is_some() {
            received += self.transmit_egress();
        }
        if received == 0 {
            self.tables.idle();
            self.adjacencies.idle();
            self.ingresses.idle();
        } else {
            self.tables.pass();
        }
        for lane in &mut self.lanes {
            lane.port.flush(&mut self.arena);
        }
        self.tell_held();
        self.stats.polled();
        received
    }

    /// Forwards one batch from one port, and what waits of those before it.
    fn turn(&mut self, from: usize) -> usize {
        let Self { arena, lanes, tables, adjacencies, ingresses, frames, batch, .. } = self;
        let (wants, stats, now) = (&mut self.wants, &*self.stats, self.now);
        let policer = &mut self.punts;
        let hook = self.hook.as_deref_mut();
        let Some(lane) = lanes.get_mut(from) else { return 0 };
        let (ingress, handed) = (lane.ingress, lane.handed);
        let all = lane.port.receive(arena, SIZE, frames);
        if all == 0 && lane.hold.len() == 0 {
            return 0;
        }
        let terms = ingresses.current().get(ingress);
        let mac = terms.mac.unwrap_or(lane.mac);
        let locals = &*terms.locals;
        if let Some(hook) = hook
            && hook.handles_port(ingress)
        {
            if terms.sources != ReversePathFilter::Off && !handed {
                let arrival = Arrival { port: ingress, mac, terms };
                drop_spoofed(arena, frames, batch, tables, adjacencies, arrival, stats);
            }
            hook.process_ingress(IngressBatch {
                arena,
                frames,
                ingress,
                handed,
                mac,
                locals,
                stats,
            });
            if frames.is_empty() && lane.hold.len() == 0 {
                return all;
            }
        }
        let received = frames.len();

        batch.clear();
        lane.hold.keys().for_each(|key| batch.wait(key));
        let mut bytes = 0;
        for frame in frames.iter().take(AHEAD) {
            arena.prefetch(frame);
        }
        for (at, frame) in frames.iter().enumerate() {
            if let Some(next) = frames.get(at + AHEAD) {
                arena.prefetch(next);
            }
            bytes += frame.len() as u64;
            batch.push(parse(arena.bytes(frame), mac, locals));
        }
        batch.seal();
        let checks = terms.sources != ReversePathFilter::Off;
        if checks {
            batch.add_sources(frames.iter().map(|frame| arena.bytes(frame)));
        }

        let (v4, v6) = batch.lookup(tables, terms.table);
        if received > 0 {
            stats.received(received as u64, bytes);
            stats.looked_up(v4 as u64, v6 as u64);
            let sample = stats.sample();
            if sample.is_wanted()
                && let Some(address) = batch.destination(bytes)
            {
                sample.fill(terms.table, address);
            }
        }
        // After the tables: every hop of theirs means something in these.
        let adjacencies = adjacencies.current();
        let (table, further, isolated) = (terms.table, terms.further, terms.isolated);
        // What was handed over waits with what came by its port, and is released with it.
        let waits = lanes.get(from).is_some_and(|lane| lane.hold.len() > 0);
        if waits {
            let (arena, lanes, wants) = (&mut *arena, &mut **lanes, &mut *wants);
            let punts = Punts { policer: &mut *policer, further, isolated };
            Turn { arena, lanes, stats, adjacencies, wants, ingress, table, punts, now }
                .release(batch);
        }

        if received < FEW || now % MARKING == 1 {
            batch.mark(wants);
        }
        let (mut sources_v4, mut sources_v6) = (batch.sources_v4(), batch.sources_v6());
        let mut judge = |kind| {
            let (own, hop) = match kind {
                Kind::V4 => sources_v4.next().map(|(from, hop)| (locals.holds_v4(from), hop)),
                Kind::V6 => sources_v6.next().map(|(from, hop)| (locals.holds_v6(from), hop)),
                Kind::Done(_) => None,
            }?;
            terms.sources.judge(adjacencies, hop, ingress, own).err()
        };
        for (frame, (kind, hop)) in frames.drain(..).zip(batch.outcomes()) {
            let refused = if checks { judge(kind) } else { None };
            let kind = refused.map_or(kind, Kind::Done);
            let verdict = match rewrite(arena.bytes_mut(&frame), kind, hop, adjacencies) {
                Ok((egress, len)) => match lanes.get_mut(usize::from(egress)) {
                    Some(lane)
                        if usize::from(egress) != ingress
                            || isolated != [false; 2]
                            || !policer.take(PuntClass::Redirect) =>
                    {
                        lane.stage(arena, frame, len);
                        continue;
                    }
                    Some(_) => restore(arena.bytes_mut(&frame), mac),
                    // An adjacency on a port that this worker does not have.
                    None => Verdict::NoRoute,
                },
                Err(verdict) => verdict,
            };
            let (arena, lanes, wants) = (&mut *arena, &mut **lanes, &mut *wants);
            let punts = Punts { policer: &mut *policer, further, isolated };
            Turn { arena, lanes, stats, adjacencies, wants, ingress, table, punts, now }
                .stay(frame, kind, hop, verdict);
        }

        for lane in lanes.iter_mut().filter(|lane| !lane.staged.is_empty()) {
            lane.send(arena, stats);
        }
        all
    }
}

impl<L> Worker<L> {
    /// Says that another [`TICK`] is over. Packets that have waited for about a second
    /// end.
    pub fn tick(&mut self) {
        self.now += 1;
        self.punts.tick();
        for lane in &mut self.lanes {
            while let Some(late) = lane.hold.expired(self.now) {
                self.arena.free(late.frame);
                self.stats.ended(Verdict::Unresolved, 1);
            }
        }
        self.tell_held();
    }

    /// Counts what the ports have lost since `before` was read from them, and returns what they
    /// have counted now: so that every packet that came for this worker is in its counters.
    pub fn count_losses(&mut self, before: &mut Vec<PortStats>) {
        before.resize_with(self.lanes.len(), PortStats::default);
        for (lane, before) in self.lanes.iter().zip(before) {
            let now = lane.port.stats();
            for (verdict, was, is) in [
                (Verdict::RxRingFull, before.rx_ring_full, now.rx_ring_full),
                (Verdict::FillEmpty, before.fill_empty, now.fill_empty),
                (Verdict::RxDropped, before.rx_dropped, now.rx_dropped),
            ] {
                self.stats.lost(verdict, is.saturating_sub(was));
            }
            let invalid = now.tx_invalid.saturating_sub(before.tx_invalid);
            self.stats.unsent(Verdict::TxInvalid, invalid);
            *before = now;
        }
    }

    /// Lets the ports take nothing more; what they have taken comes with the next
    /// polls.
    pub fn retire(&mut self) {
        self.lanes.iter_mut().for_each(|lane| lane.port.retire());
    }

    /// Ends the packets that wait: the last that a worker does. Dropping it does so too.
    pub fn close(&mut self) {
        for lane in &mut self.lanes {
            while let Some(held) = lane.hold.pop() {
                self.arena.free(held.frame);
                self.stats.ended(Verdict::Unresolved, 1);
            }
        }
        if let Some(hook) = &mut self.hook {
            hook.close(&mut self.arena, &self.stats);
        }
        self.tell_held();
    }

    /// Ends the packets that wait and gives away what is not of this worker's memory: its
    /// hook, and the port by which other workers hand packets over. Both go on with another
    /// worker.
    pub fn suspend(mut self) -> Remains {
        let mut hook = self.hook.take();
        if let Some(hook) = &mut hook {
            hook.drop_queued(&mut self.arena, &self.stats);
        }
        let handed = self.lanes.iter().position(|lane| lane.handed);
        let handed = handed.map(|at| {
            let lane = &mut self.lanes[at];
            while let Some(held) = lane.hold.pop() {
                self.arena.free(held.frame);
                self.stats.ended(Verdict::Unresolved, 1);
            }
            self.lanes.remove(at).port
        });
        self.close();
        Remains { hook, handed }
    }

    /// Returns how many packets wait: for a neighbor's MAC, or in a hook's queues.
    pub fn held(&self) -> usize {
        let queued = self.hook.as_ref().map_or(0, |hook| hook.queued());
        queued + self.lanes.iter().map(|lane| lane.hold.len()).sum::<usize>()
    }

    /// Says whether turns are wanted soon, packets or not.
    pub fn is_busy(&self) -> bool {
        self.held() > 0 || self.hook.as_ref().is_some_and(|hook| hook.has_pending_work())
    }

    #[inline]
    fn tell_held(&mut self) {
        let held = self.held();
        if held != self.held {
            self.held = held;
            self.stats.holds(held as u64);
        }
    }

    /// Returns the ports, in the order in which adjacencies number them; then the further queues
    /// of them; the one that other workers hand packets over by is the last.
    pub fn ports(&self) -> impl Iterator<Item = &dyn Port> {
        self.lanes.iter().map(|lane| &*lane.port)
    }

    /// Returns the arena.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Arc<WorkerStats> {
        &self.stats
    }
}

impl<L> Drop for Worker<L> {
    fn drop(&mut self) {
        self.close();
    }
}
