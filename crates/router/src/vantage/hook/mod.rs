//! A worker's hook: its gate and its share of the link, between its ports.
//!
//! ```text
//!   sift   parse ─► flow, hash ─► Gate::process, a part ─► verdicts
//!            request, granted, back ─► kept, by number ─► Link
//!            front, not for us ─────► stays in the batch
//!            the rest ──────────────► dropped, counted
//!   next   ICMP first, then in turn cookies and what the Link lets go
//! ```
//!
//! Time is read once a turn. The worker's link is its share of the configured bandwidth;
//! what its queues have no place for is counted as `low_priority` where it was a request,
//! and as `link_full` else.
//!
//! **The hash** of a flow is taken here, under a key that all workers share, once a packet. All packets of a
//! pair have to come to one worker whatever their ports, since nothing of a flow is shared
//! between workers: a card with several queues sees to that, or `steering.rs`.
//!
//! Packets from the back network are routed like any others; where TCP is to be held to what fits
//! the tunnel, the SYNs among them are looked at, because what a server announces is
//! what its client will send through the tunnel.
//!
//! | file | what it is |
//! |---|---|
//! | `setup` | what a hook is made from |
//! | `decide` | decisions, at the beginning of a turn |
//! | `talk` | questions about flows, then |
//! | `sift` | what came in: parsed, hashed, judged |
//! | `settle` | what becomes of a packet by its verdict |
//! | `leave` | what leaves next |

mod decide;
mod egress;
mod ingress;
mod queries;
mod settle;
mod setup;

use std::sync::{Arc, Mutex, PoisonError};

use fib::Reader;
use gate::flow::Key as HashKey;
use gate::gate::{Gate, Packet, Verdict as Judged};
use gate::limit::link::Link;
use gate::tunnel::{PrivateData, Stream, TunnelKeys};
use port::{Arena, Frame};
use wire::tunnel::Header;

use super::config::{BACK, FRONT};
use super::cookie::Asker;
use super::kept::Kept;
use super::last::Last;
use super::reply::Replies;
use super::retained;
use super::rings::Ends;
use super::sampler::Sampler;
use super::steering::Steering;
use super::tally::{Sight, Tally};
use crate::datapath::{EgressPacket, IngressBatch, PacketHook, TunnelParameters, Verdict};
use crate::stats::WorkerStats;

pub use setup::Setup;
pub(super) use setup::places;

/// What is done beside packets in a turn, in entries of the table.
const WORK: u32 = 256;

/// A worker's gate and its share of the link.
pub struct GateHook {
    clock: Box<dyn FnMut() -> u64 + Send>,
    now: u64,
    key: HashKey,
    gate: Gate,
    link: Link<u32>,
    kept: Kept,
    /// Places for all but requests.
    others: usize,
    tunnels: TunnelParameters,
    /// The keys of sealed tunnels, by their ends, and the numbers of this worker's packets.
    keys: Reader<TunnelKeys>,
    /// Some tunnel is sealed, as of the beginning of the turn.
    is_sealing: bool,
    stream: Stream,
    /// What TCP may announce over IPv4, if it is held to that; 20 bytes less over IPv6.
    clamp: Option<u16>,
    steering: Option<Steering>,
    replies: Replies,
    asker: Asker,
    /// Cookies have been let go before the link.
    cookies_first: bool,
    ends: Ends,
    /// A list in the making: the question's number, the next entry, flows still to be told.
    listing: Option<(u32, usize, u32)>,
    last: Last,
    sampler: Sampler,
    tally: Arc<Tally>,
    leave: Option<(u32, Arc<Mutex<Vec<u8>>>)>,
    /// The kernel drops packets of declined flows.
    early: bool,
    /// It was not told what it had to be.
    early_lost: bool,
    red_dropped: u64,
    clamped: u64,
    incoming: Vec<Frame>,
    /// The part that is judged: what the gate is told, each one's frame, what it says.
    packets: Vec<Packet>,
    flows: Vec<Frame>,
    verdicts: Vec<Judged>,
}

impl PacketHook for GateHook {
    fn begin_turn(&mut self) {
        self.now = (self.clock)();
        self.is_sealing = !self.keys.current().is_empty();
        self.take_decisions();
        self.gate.run_maintenance(self.now, WORK);
        self.talk();
    }

    fn handles_port(&self, ingress: usize) -> bool {
        ingress == FRONT || ingress == BACK && self.clamp.is_some()
    }

    fn process_ingress(&mut self, mut batch: IngressBatch<'_>) {
        match batch.ingress {
            FRONT => self.judge(batch),
            _ => self.clamp(&mut batch),
        }
    }

    fn dequeue_egress(&mut self, room: usize, egress: &mut Vec<EgressPacket>) {
        self.dequeue(room, egress);
    }

    fn tunnel_parameters(&self) -> TunnelParameters {
        self.tunnels
    }

    fn seal(&mut self, header: &Header, inner: &[u8]) -> Option<PrivateData> {
        let key = self.keys.current().of(header)?;
        self.stream.seal(key, header, self.now, inner)
    }

    fn report_too_big(
        &mut self,
        arena: &mut Arena,
        frame: &Frame,
        mtu: u32,
        granted: bool,
        stats: &WorkerStats,
    ) {
        if self.replies.too_big(arena, frame, mtu, granted, self.now) {
            stats.originated();
        }
    }

    fn end_turn(&mut self, idle: bool) {
        if idle {
            self.gate.idle();
            self.keys.idle();
        }
        self.tally.show(&Sight {
            counts: self.gate.counts(),
            table: self.gate.table(),
            link: &self.link,
            answered: self.replies.sent,
            unanswered: self.replies.spared,
            cookies_sent: self.asker.sent,
            cookies_failed: self.asker.unsent,
            clamped: self.clamped,
            red_dropped: self.red_dropped,
            displaced: self.gate.displaced(),
        });
    }

    fn has_pending_work(&self) -> bool {
        self.listing.is_some() || !self.ends.questions.is_empty() || self.gate.is_walking()
    }

    fn queued(&self) -> usize {
        self.kept.len() + self.replies.len() + self.asker.len()
    }

    fn drop_queued(&mut self, arena: &mut Arena, stats: &WorkerStats) {
        while let Some(waits) = self.kept.pop() {
            arena.free(waits.frame);
            stats.ended(Verdict::LinkFull, 1);
        }
        while let Some(reply) = self.replies.next().or_else(|| self.asker.next()) {
            arena.free(reply.frame);
            stats.ended(Verdict::LinkFull, 1);
        }
        PacketHook::end_turn(self, true);
    }

    fn close(&mut self, arena: &mut Arena, stats: &WorkerStats) {
        PacketHook::drop_queued(self, arena, stats);
        // Once: a worker ends a second time when it is dropped.
        if let Some((worker, left)) = self.leave.take() {
            let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
            let table = self.gate.table();
            for (_, entry) in table.within(0..table.capacity()) {
                retained::put(&mut left, worker, &entry.flow(), entry.record());
            }
        }
    }
}
