//! The worker: one core's turn over its ports.
//!
//! A worker owns an arena, one queue of every port and its readers of the tables,
//! and shares nothing that is written with any other worker. A turn is:
//!
//! ```text
//!   for each port:
//!     receive ─► frames ─► parse ─► Batch ─► lookup (one batch a family)
//!                                              │
//!        free  ◄─ drop ─┬─ rewrite ◄───────────┘
//!        host  ◄─ punt ─┤
//!                       └─► staging[egress] ─► transmit
//!   for each port: flush
//! ```
//!
//! Frames for one egress are sent in the order in which they came. What a port
//! does not take is offered once more after a flush, and then dropped: a queue that
//! grows without bound would only add delay.
//!
//! Tables, adjacencies and ingresses are taken anew for every batch, in the order
//! that `adjacency.rs` asks for, so that what the control side publishes holds from
//! the next batch on.
//!
//! The datapath never blocks, locks, logs, allocates or panics. All memory is made
//! in [`Worker::new`]; `tests/allocation.rs` counts allocations while packets of
//! every kind pass.

use std::sync::Arc;

use fib::Reader;
use port::{Arena, Frame, Port};

use super::batch::{Kind, SIZE};
use super::{
    Adjacencies, Batch, Ingresses, Lookup, SourceCheck, Verdict, flow_v4, flow_v6, parse,
    rewrite_v4, rewrite_v6,
};
use crate::stats::WorkerStats;

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
    /// Where it counts; no other worker's.
    pub stats: Arc<WorkerStats>,
}

/// A port, and what waits to leave on it during one batch.
struct Lane {
    port: Box<dyn Port>,
    mac: [u8; 6],
    staged: Vec<Frame>,
    staged_bytes: u64,
}

/// One core's share of the router.
pub struct Worker<L> {
    arena: Arena,
    lanes: Vec<Lane>,
    tables: L,
    adjacencies: Reader<Adjacencies>,
    ingresses: Reader<Ingresses>,
    stats: Arc<WorkerStats>,
    frames: Vec<Frame>,
    batch: Box<Batch>,
}

impl<L: Lookup> Worker<L> {
    /// Makes a worker, with all the memory it will use.
    pub fn new(setup: WorkerSetup<L>) -> Self {
        let WorkerSetup { arena, ports, tables, adjacencies, ingresses, stats } = setup;
        let lanes = ports.into_iter().map(|port| Lane {
            mac: port.mac(),
            port,
            staged: Vec::with_capacity(SIZE),
            staged_bytes: 0,
        });
        Self {
            arena,
            lanes: lanes.collect(),
            tables,
            adjacencies,
            ingresses,
            stats,
            frames: Vec::with_capacity(SIZE),
            batch: Box::new(Batch::new()),
        }
    }

    /// Takes one turn over all ports and returns how many frames were received.
    pub fn poll(&mut self) -> usize {
        let mut received = 0;
        for ingress in 0..self.lanes.len() {
            received += self.turn(ingress);
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
        self.stats.polled();
        received
    }

    /// Forwards one batch from one port.
    fn turn(&mut self, ingress: usize) -> usize {
        let Self { arena, lanes, tables, adjacencies, ingresses, stats, frames, batch } = self;
        let Some(lane) = lanes.get_mut(ingress) else { return 0 };
        let received = lane.port.receive(arena, SIZE, frames);
        if received == 0 {
            return 0;
        }
        let mac = lane.mac;
        let terms = ingresses.current().get(ingress);
        let locals = &*terms.locals;

        batch.clear();
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
        stats.received(received as u64, bytes);
        batch.seal();
        let checks = terms.sources != SourceCheck::Off;
        if checks {
            batch.add_sources(frames.iter().map(|frame| arena.bytes(frame)));
        }

        let (v4, v6) = batch.lookup(tables, terms.table);
        stats.looked_up(v4 as u64, v6 as u64);
        // After the tables: every hop of theirs means something in these.
        let adjacencies = adjacencies.current();

        let (mut sources_v4, mut sources_v6) = (batch.sources_v4(), batch.sources_v6());
        let mut judge = |kind| {
            let (own, hop) = match kind {
                Kind::V4 => sources_v4.next().map(|(from, hop)| (locals.holds_v4(from), hop)),
                Kind::V6 => sources_v6.next().map(|(from, hop)| (locals.holds_v6(from), hop)),
                Kind::Done(_) => None,
            }?;
            terms.sources.judge(adjacencies, hop, ingress, own).err()
        };
        for (mut frame, (kind, hop)) in frames.drain(..).zip(batch.outcomes()) {
            let refused = if checks { judge(kind) } else { None };
            let rewritten = match refused.map_or(kind, Kind::Done) {
                Kind::V4 => {
                    let bytes = arena.bytes_mut(&frame);
                    let hop = adjacencies.resolve(hop, |seed| flow_v4(bytes, seed));
                    rewrite_v4(bytes, adjacencies.get(hop))
                }
                Kind::V6 => {
                    let bytes = arena.bytes_mut(&frame);
                    let hop = adjacencies.resolve(hop, |seed| flow_v6(bytes, seed));
                    rewrite_v6(bytes, adjacencies.get(hop))
                }
                Kind::Done(verdict) => Err(verdict),
            };
            match rewritten {
                Ok((egress, len)) => {
                    if len != frame.len() {
                        arena.resize(&mut frame, len);
                    }
                    match lanes.get_mut(usize::from(egress)) {
                        Some(lane) => {
                            lane.staged_bytes += len as u64;
                            lane.staged.push(frame);
                        }
                        // An adjacency on a port that this worker does not have.
                        None => finish(arena, lanes, stats, ingress, frame, Verdict::NoRoute),
                    }
                }
                Err(verdict) => finish(arena, lanes, stats, ingress, frame, verdict),
            }
        }

        for lane in lanes.iter_mut().filter(|lane| !lane.staged.is_empty()) {
            lane.send(arena, stats);
        }
        received
    }

    /// Returns the ports, in the order in which adjacencies number them.
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

impl Lane {
    /// Sends what is staged, counts it, and drops what the port refuses twice.
    fn send(&mut self, arena: &mut Arena, stats: &WorkerStats) {
        let staged = self.staged.len();
        self.port.transmit(arena, &mut self.staged);
        if !self.staged.is_empty() {
            self.port.flush(arena);
            self.port.transmit(arena, &mut self.staged);
        }
        let refused = self.staged.len();
        for frame in self.staged.drain(..) {
            self.staged_bytes -= frame.len() as u64;
            arena.free(frame);
        }
        stats.ended(Verdict::Sent, (staged - refused) as u64);
        stats.sent_bytes(self.staged_bytes);
        self.staged_bytes = 0;
        if refused > 0 {
            stats.ended(Verdict::TxFull, refused as u64);
        }
    }
}

/// Ends a packet that is not sent: hands it to the host of the port it came from,
/// or frees it.
fn finish(
    arena: &mut Arena,
    lanes: &mut [Lane],
    stats: &WorkerStats,
    ingress: usize,
    frame: Frame,
    verdict: Verdict,
) {
    let mut verdict = verdict;
    if verdict.class() == super::Class::Punted
        && let Some(lane) = lanes.get_mut(ingress)
    {
        if !lane.port.punt(arena, frame) {
            verdict = Verdict::NoHost;
        }
    } else {
        arena.free(frame);
    }
    stats.ended(verdict, 1);
}
