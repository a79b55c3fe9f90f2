//! Ingress: parses and hashes received packets, and has the gate decide about them.
//!
//! ```text
//!   received ─► flow, hash ─┬─ own flow ──────► │ packets │ frames │   a part of PART, by index
//!      │                    └─ another worker's ─► its ring, with the hash   ▼
//!      └ no flow ─► stays in the batch                 the gate ─► verdicts ─► queue.rs
//! ```
//!
//! Each packet is parsed and hashed once, by the worker whose port received it. A packet that another
//! worker handed over (`steering.rs`) was parsed there and carries its hash: only its addresses are
//! read.
//!
//! A batch is processed in parts: the metadata of one part, a hundred bytes a packet, is still in the
//! nearest cache when its packets are queued. A packet with an address of this machine as its source
//! is forged and dropped here: these addresses change with the interfaces, and not with the policy.
//! Packets of no flow stay in the batch, which handles them. They may move before packets of flows in
//! the batch, but packets of one flow keep their order.

use std::vec::Drain;

use gate::flow::{Flow, Pair};
use gate::gate::{GROUP, Gate, Packet, Verdict as GateVerdict};
use port::Frame;
use wire::{ethernet, ipv4, ipv6, mss};

use super::GateHook;
use super::queue::Placement;
use crate::recent_drops::RecentDrops;
use crate::rings::WorkerRings;
use crate::sampler::Sampler;
use datapath::{
    IngressBatch, Locals, Parsed, TunnelParameters, Verdict, parse, source_v4, source_v6,
};

/// The packets of a part: two groups of the gate.
pub(super) const PART: usize = 2 * GROUP;
/// The prefetch distance before the parser, in frames.
const AHEAD: usize = 8;

impl GateHook {
    /// Processes the packets of the front interface.
    pub(super) fn process_front(&mut self, batch: &mut IngressBatch<'_>) {
        std::mem::swap(batch.frames, &mut self.incoming);
        let mut incoming = std::mem::take(&mut self.incoming);
        let mut frames = incoming.drain(..);
        while frames.len() > 0 {
            self.read_part(&mut frames, batch);
            self.process_part(batch);
        }
        drop(frames);
        self.incoming = incoming;
    }

    /// Parses and hashes frames until a part is full, and hands over those of other workers' flows.
    fn read_part(&mut self, frames: &mut Drain<'_, Frame>, batch: &mut IngressBatch<'_>) {
        let Self {
            gate, key, steering, packets, tunnels, recent_drops, now, sampler, rings, ..
        } = self;
        let part = &mut self.frames;
        let &mut IngressBatch { handed, mac, locals, .. } = batch;
        packets.clear();
        while part.len() < PART
            && let Some(frame) = frames.next()
        {
            if let Some(ahead) = frames.as_slice().get(AHEAD) {
                batch.arena.prefetch(ahead);
            }
            let bytes = batch.arena.bytes(&frame);
            let flow = if handed { flow_of_parsed(bytes) } else { flow(bytes, mac, locals) };
            let Some(flow) = flow else {
                batch.frames.push(frame);
                continue;
            };
            let hash = if handed { frame.mark() } else { key.hash(&flow) };
            if !handed && is_own(&flow, tunnels, locals) {
                let packet = Packet { flow, hash, bytes: bytes.len() as u32 };
                let verdict = drop_own(gate, sampler, rings, recent_drops, packet, *now);
                batch.take(frame.len());
                batch.end(frame, verdict);
                continue;
            }
            if let Some(steering) = steering
                && !handed
                && let Some(accepted) = steering.hand_over(hash, bytes)
            {
                if accepted {
                    batch.arena.free(frame);
                } else {
                    batch.take(frame.len());
                    batch.end(frame, Verdict::HandoverFull);
                }
                continue;
            }
            gate.fetch(hash);
            packets.push(Packet { flow, hash, bytes: frame.len() as u32 });
            part.push(frame);
        }
        if let Some(steering) = steering {
            steering.notify();
        }
    }

    /// Has the gate decide about the part, and queues or drops its packets.
    fn process_part(&mut self, batch: &mut IngressBatch<'_>) {
        let (packets, frames) = (&self.packets[..], &self.frames[..]);
        let verdicts = &mut self.verdicts[..packets.len()];
        let arena = &*batch.arena;
        let bytes = |at: usize| {
            frames.get(at).and_then(|frame| arena.bytes(frame).get(ethernet::LEN..)).unwrap_or(&[])
        };
        self.gate.process_with(self.now, packets, bytes, verdicts);
        self.sampler.sample(self.now, packets, verdicts, &mut self.rings.samples);
        let packets = std::mem::take(&mut self.packets);
        let verdicts = std::mem::take(&mut self.verdicts);
        let mut frames = std::mem::take(&mut self.frames);
        for ((frame, packet), verdict) in frames.drain(..).zip(&packets).zip(&verdicts) {
            let len = frame.len();
            if let &GateVerdict::Ask { cookie } = verdict {
                let IngressBatch { arena, mac, locals, .. } = batch;
                if self.syn_cookies.answer(arena, &frame, cookie, *mac, locals) {
                    batch.originate();
                }
            }
            match self.enqueue(frame, packet, verdict) {
                Placement::Batch(frame) => {
                    batch.frames.push(frame);
                    continue;
                }
                Placement::Queued => {}
                Placement::Dropped(frame, hash, verdict) => {
                    self.recent_drops.record(hash, verdict, self.now);
                    batch.end(frame, verdict);
                }
            }
            batch.take(len);
        }
        (self.packets, self.frames, self.verdicts) = (packets, frames, verdicts);
    }

    /// Lowers the MSS of SYNs from the back network to what fits the tunnel.
    pub(super) fn clamp_mss(&mut self, batch: &mut IngressBatch<'_>) {
        let Some(most) = self.clamp else { return };
        for frame in batch.frames.iter() {
            let bytes = batch.arena.bytes_mut(frame);
            let Some(packet) = bytes.get_mut(ethernet::LEN..) else { continue };
            let six = packet.first().is_some_and(|first| first >> 4 == 6);
            let most = if six { most.saturating_sub(20) } else { most };
            // The parser handles a packet that cannot be read.
            self.clamped += u64::from(mss::clamp(packet, most).unwrap_or(false));
        }
    }
}

/// Returns the flow of a frame that a router may forward, or `None`.
#[inline(always)]
fn flow(bytes: &[u8], mac: [u8; 6], locals: &Locals) -> Option<Flow> {
    match parse(bytes, mac, locals) {
        Parsed::V4(dst) => Some(Flow::v4(source_v4(bytes), dst)),
        Parsed::V6(dst) => Some(Flow::v6(source_v6(bytes), dst)),
        Parsed::Done(_) => None,
    }
}

/// Returns whether a flow's source is an address of this machine, which no other host has.
#[inline(always)]
fn is_own(flow: &Flow, tunnels: &TunnelParameters, locals: &Locals) -> bool {
    match flow.pair() {
        Pair::V4 { src, .. } => src == tunnels.from4 || locals.holds_v4(src),
        Pair::V6 { src, .. } => src == tunnels.from6 || locals.holds_v6(src),
    }
}

/// Counts a packet whose source is an address of this machine.
#[cold]
fn drop_own(
    gate: &mut Gate,
    sampler: &mut Sampler,
    rings: &mut WorkerRings,
    recent_drops: &mut RecentDrops,
    packet: Packet,
    now: u64,
) -> Verdict {
    let verdict = gate.drop_forged(packet.bytes);
    sampler.sample(now, &[packet], &[verdict], &mut rings.samples);
    recent_drops.record(packet.hash, Verdict::Forged, now);
    Verdict::Forged
}

/// Returns the flow of a frame that another worker has parsed already.
#[inline]
fn flow_of_parsed(bytes: &[u8]) -> Option<Flow> {
    let packet = bytes.get(ethernet::LEN..)?;
    if packet.first()? >> 4 == 6 {
        let view = ipv6::View::parse(packet).ok()?;
        Some(Flow::v6(view.src(), view.dst()))
    } else {
        let view = ipv4::View::parse(packet).ok()?;
        Some(Flow::v4(view.src(), view.dst()))
    }
}
