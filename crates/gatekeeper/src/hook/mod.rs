//! The gate's packet hook: a worker's gate and its share of the protected link.
//!
//! ```text
//!   ingress   parse ─► flow, hash ─► Gate::process, a part at a time ─► verdicts
//!               request, granted, back ─► QueuedFrames, by number ─► Link
//!               front, no flow ─────────► stays in the batch
//!               the rest ───────────────► dropped, counted
//!   egress    ICMP errors first, then SYN cookies and the Link's packets in turn, each with a
//!             disposition, which the worker applies
//! ```
//!
//! The clock is read once a turn. The worker's link is its share of the configured bandwidth. A packet
//! that finds its queue full counts as `low_priority` if it is a request, and as `link_full` otherwise.
//!
//! **The hash** of a flow is computed here, once a packet, with a key that all workers share. Workers
//! share no flow state, so that all packets of an address pair must come to one worker, whatever their
//! ports: a card with several queues does that, or `steering.rs`.
//!
//! Packets from the back network are routed like any others. With `clamp_mss`, the hook lowers the MSS
//! in their SYNs, because a server's MSS is what its client sends through the tunnel.
//!
//! | file | content |
//! |---|---|
//! | `setup` | the hook's parameters and memory |
//! | `decisions` | decisions, at the beginning of a turn |
//! | `queries` | queries about flows, at the beginning of a turn |
//! | `ingress` | received packets: parsed, hashed, given to the gate |
//! | `queue` | each packet's place after its verdict, and the packets that leave next |

mod decisions;
mod ingress;
mod queries;
mod queue;
mod setup;

use std::sync::{Arc, Mutex, PoisonError};

use fib::Reader;
use gate::flow::Key as HashKey;
use gate::gate::{Gate, Packet, Verdict as GateVerdict};
use gate::limit::link::Link;
use gate::tunnel::{PrivateData, Stream, TunnelKeys};
use port::af_xdp::{HostEgressShare, HostTraffic};
use port::{Arena, Frame};
use wire::tunnel::Header;

use super::config::{BACK, FRONT};
use super::counter_snapshot::{CounterSnapshot, CounterSources};
use super::hook_state;
use super::icmp_errors::IcmpErrorResponder;
use super::recent_drops::RecentDrops;
use super::rings::WorkerRings;
use super::sampler::Sampler;
use super::saved_flows;
use super::steering::SoftwareSteering;
use super::syn_cookies::SynCookieResponder;
use datapath::capture::Point;
use datapath::stats::WorkerStats;
use datapath::{
    EgressBatch, IngressBatch, OversizedPacket, PacketHook, TunnelParameters, TunnelSealer, Verdict,
};

use queries::FlowList;
use queue::QueuedFrames;
pub use setup::HookSetup;
pub(super) use setup::queue_slots;

/// Table entries that a turn examines beside its packets.
const MAINTENANCE: u32 = 256;

/// A worker's gate and its share of the link.
pub struct GateHook {
    clock: Box<dyn FnMut() -> u64 + Send>,
    now: u64,
    key: HashKey,
    gate: Gate,
    link: Link<u32>,
    /// This worker's share of what the host itself sends by the link; `None`: not counted (before Linux 6.6).
    host: Option<HostEgressShare>,
    queued: QueuedFrames,
    /// Slots for all packets but requests.
    other_slots: usize,
    tunnels: TunnelParameters,
    /// The keys of sealed tunnels by their ends: they state which packets are sealed.
    keys: Reader<TunnelKeys>,
    /// A tunnel is sealed, as of the beginning of the turn.
    is_sealing: bool,
    /// The MSS limit for IPv4, if TCP is clamped; 20 bytes less for IPv6.
    clamp: Option<u16>,
    steering: Option<SoftwareSteering>,
    icmp_errors: IcmpErrorResponder,
    syn_cookies: SynCookieResponder,
    /// A cookie left before the link's packet in this round.
    cookies_first: bool,
    rings: WorkerRings,
    /// The list of flows that is being sent.
    listing: Option<FlowList>,
    recent_drops: RecentDrops,
    sampler: Sampler,
    counters: Arc<CounterSnapshot>,
    /// Where the flows are saved at the end, with the worker's number.
    save_to: Option<(u32, Arc<Mutex<Vec<u8>>>)>,
    /// The XDP program drops packets of declined flows.
    reports_declined: bool,
    /// An update for the XDP program was lost, so that its map has to be cleared.
    must_clear_declined: bool,
    red_dropped: u64,
    clamped: u64,
    incoming: Vec<Frame>,
    /// The part in work: the gate's input, the frames and the gate's verdicts, by index.
    packets: Vec<Packet>,
    frames: Vec<Frame>,
    verdicts: Vec<GateVerdict>,
}

impl PacketHook for GateHook {
    fn begin_turn(&mut self) -> u64 {
        self.now = (self.clock)();
        if let Some(host) = &mut self.host {
            let HostTraffic { packets, bytes } = host.take();
            self.link.charge_host(packets, bytes);
        }
        self.is_sealing = !self.keys.current().is_empty();
        self.apply_decisions();
        self.gate.run_maintenance(self.now, MAINTENANCE);
        self.answer_queries();
        self.now
    }

    fn handles_port(&self, ingress: usize) -> bool {
        ingress == FRONT || ingress == BACK && self.clamp.is_some()
    }

    fn process_ingress(&mut self, batch: &mut IngressBatch<'_>) {
        match batch.ingress {
            FRONT => self.process_front(batch),
            _ => self.clamp_mss(batch),
        }
    }

    fn dequeue_egress(&mut self, mut batch: EgressBatch<'_>) {
        for &OversizedPacket { ref frame, mtu, granted } in batch.oversized {
            if self.icmp_errors.report_too_big(batch.arena, frame, mtu, granted, self.now) {
                batch.originate();
            }
        }
        self.dequeue(batch.room, batch.packets);
    }

    fn end_turn(&mut self, idle: bool) {
        if idle {
            self.gate.idle();
            self.keys.idle();
        }
        self.counters.publish(&CounterSources {
            counts: self.gate.counts(),
            table: self.gate.table(),
            link: &self.link,
            icmp_sent: self.icmp_errors.sent,
            icmp_rate_limited: self.icmp_errors.rate_limited,
            cookies_sent: self.syn_cookies.sent,
            cookies_failed: self.syn_cookies.failed,
            clamped: self.clamped,
            red_dropped: self.red_dropped,
            displaced: self.gate.displaced(),
        });
    }

    fn has_pending_work(&self) -> bool {
        self.listing.is_some() || !self.rings.queries.is_empty() || self.gate.is_walking()
    }

    fn queued(&self) -> usize {
        self.queued.len() + self.icmp_errors.len() + self.syn_cookies.len()
    }

    fn drop_queued(&mut self, arena: &mut Arena, stats: &WorkerStats) {
        while let Some(packet) = self.queued.pop() {
            stats.end(arena, packet.frame, Verdict::LinkFull, Point::Ingress(FRONT as u16));
        }
        while let Some(answer) = self.icmp_errors.next().or_else(|| self.syn_cookies.next()) {
            stats.end(arena, answer.frame, Verdict::LinkFull, Point::Ingress(FRONT as u16));
        }
        PacketHook::end_turn(self, true);
    }

    fn export(&mut self, worker: usize) -> Vec<u8> {
        // Decisions that were acknowledged, and that no turn has applied yet.
        while !self.rings.decisions.is_empty() {
            let before = self.rings.decisions.slots();
            self.apply_decisions();
            if self.rings.decisions.slots() == before {
                break;
            }
        }
        let decisions: Vec<_> = self.gate.prefix_decisions(self.now).collect();
        let mut state = hook_state::begin(&decisions);
        self.append_flows(&mut state, worker as u32);
        state
    }

    fn close(&mut self, arena: &mut Arena, stats: &WorkerStats) {
        PacketHook::drop_queued(self, arena, stats);
        // `take`: a worker is closed a second time when it is dropped.
        if let Some((worker, saved)) = self.save_to.take() {
            let mut saved = saved.lock().unwrap_or_else(PoisonError::into_inner);
            self.append_flows(&mut saved, worker);
        }
    }
}

impl GateHook {
    /// Appends the flows of the table to those of a flow file.
    fn append_flows(&self, out: &mut Vec<u8>, worker: u32) {
        let table = self.gate.table();
        for (_, entry) in table.within(0..table.capacity()) {
            saved_flows::append(out, worker, &entry.flow(), entry.record());
        }
    }
}

/// Seals the packets that a worker sends by tunnels.
struct GateSealer {
    keys: Reader<TunnelKeys>,
    /// The numbers of this worker's sealed packets.
    stream: Stream,
}

impl TunnelSealer for GateSealer {
    fn seal(&mut self, now: u64, header: &Header, inner: &[u8]) -> Option<PrivateData> {
        let key = self.keys.current().of(header)?;
        self.stream.seal(key, header, now, inner)
    }

    fn release(&mut self) {
        self.keys.idle();
    }
}
