//! What came in, in one pass: parsed, hashed, its own judged and settled, the rest handed over.
//!
//! ```text
//!   received ─► flow, hash ─┬─ mine ─────► │ packets │ flows │   a part of PART, side by side
//!      │                    └─ another's ─► his ring, with hash        ▼
//!      └ of no flow ─► stays in the batch                    the gate ─► verdicts ─► settled
//! ```
//!
//! Each packet is parsed and hashed once, by the worker that its port brought it to. What another
//! worker has handed over (`steering.rs`) brings its hash along, and was parsed: only its addresses
//! are read.
//!
//! A batch is gone through in parts: what is known of one, a hundred bytes a packet, is still in
//! the nearest cache when its packets are settled. A packet with an address of this machine as its
//! source is forged and ends here: these addresses change with the interfaces, and not with the
//! policy. Packets of no flow stay in the batch, which handles them; they move before packets of
//! flows that stay, but packets of one flow keep their order.

use std::vec::Drain;

use gate::flow::{Flow, Pair};
use gate::gate::{GROUP, Gate, Packet, Verdict as Judged};
use port::Frame;
use wire::{ethernet, ipv4, ipv6, mss};

use super::GateHook;
use super::settle::Settled;
use crate::datapath::{
    IngressBatch, Locals, Parsed, TunnelParameters, Verdict, parse, source_v4, source_v6,
};
use crate::vantage::last::Last;
use crate::vantage::rings::Ends;
use crate::vantage::sampler::Sampler;

/// Packets of a part: two groups of the gate's.
pub(super) const PART: usize = 2 * GROUP;
/// How far ahead of the parser packets are fetched into the cache, in frames.
const AHEAD: usize = 8;

/// Packets and bytes that do not stay in the batch.
#[derive(Default)]
struct Taken {
    packets: u64,
    bytes: u64,
}

impl Taken {
    #[inline(always)]
    fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

impl GateHook {
    /// Judges what came in on the front interface.
    pub(super) fn judge(&mut self, mut batch: IngressBatch<'_>) {
        std::mem::swap(batch.frames, &mut self.incoming);
        let mut incoming = std::mem::take(&mut self.incoming);
        let mut taken = Taken::default();
        let mut frames = incoming.drain(..);
        while frames.len() > 0 {
            self.read(&mut frames, &mut batch, &mut taken);
            self.judge_part(&mut batch, &mut taken);
        }
        drop(frames);
        self.incoming = incoming;
        if taken.packets > 0 {
            batch.stats.received(taken.packets, taken.bytes);
        }
    }

    /// Parses and hashes what came in until a part is full, and hands over what is others'.
    fn read(
        &mut self,
        frames: &mut Drain<'_, Frame>,
        batch: &mut IngressBatch<'_>,
        taken: &mut Taken,
    ) {
        let Self { gate, key, steering, packets, flows, tunnels, last, now, sampler, ends, .. } =
            self;
        let &mut IngressBatch { ref mut arena, handed, mac, locals, stats, .. } = batch;
        packets.clear();
        while flows.len() < PART
            && let Some(frame) = frames.next()
        {
            if let Some(ahead) = frames.as_slice().get(AHEAD) {
                arena.prefetch(ahead);
            }
            let bytes = arena.bytes(&frame);
            let flow = if handed { flow_of_parsed(bytes) } else { flow(bytes, mac, locals) };
            let Some(flow) = flow else {
                batch.frames.push(frame);
                continue;
            };
            let hash = if handed { frame.mark() } else { key.hash(&flow) };
            if !handed && is_own(&flow, tunnels, locals) {
                let packet = Packet { flow, hash, bytes: bytes.len() as u32 };
                let verdict = drop_own(gate, sampler, ends, last, packet, *now);
                taken.add(bytes.len());
                stats.ended(verdict, 1);
                arena.free(frame);
                continue;
            }
            if let Some(steering) = steering
                && !handed
                && let Some(given) = steering.hand_over(hash, bytes)
            {
                if !given {
                    taken.add(bytes.len());
                    stats.ended(Verdict::HandoverFull, 1);
                }
                arena.free(frame);
                continue;
            }
            gate.fetch(hash);
            packets.push(Packet { flow, hash, bytes: frame.len() as u32 });
            flows.push(frame);
        }
        if let Some(steering) = steering {
            steering.ring();
        }
    }

    /// Has the gate judge the part in hand, and settles it.
    fn judge_part(&mut self, batch: &mut IngressBatch<'_>, taken: &mut Taken) {
        let (packets, flows) = (&self.packets[..], &self.flows[..]);
        let verdicts = &mut self.verdicts[..packets.len()];
        let arena = &*batch.arena;
        let bytes = |at: usize| {
            flows.get(at).and_then(|frame| arena.bytes(frame).get(ethernet::LEN..)).unwrap_or(&[])
        };
        self.gate.process_with(self.now, packets, bytes, verdicts);
        self.sampler.look(self.now, packets, verdicts, &mut self.ends.samples);
        let packets = std::mem::take(&mut self.packets);
        let verdicts = std::mem::take(&mut self.verdicts);
        let mut flows = std::mem::take(&mut self.flows);
        for ((frame, packet), verdict) in flows.drain(..).zip(&packets).zip(&verdicts) {
            let len = frame.len();
            if let &Judged::Ask { cookie } = verdict {
                let IngressBatch { arena, mac, locals, .. } = batch;
                if self.asker.answer(arena, &frame, cookie, *mac, locals) {
                    batch.stats.originated();
                }
            }
            match self.settle(frame, packet, verdict) {
                Settled::Stays(frame) => {
                    batch.frames.push(frame);
                    continue;
                }
                Settled::Kept => {}
                Settled::Ended(frame, hash, verdict) => {
                    self.last.note(hash, verdict, self.now);
                    batch.arena.free(frame);
                    batch.stats.ended(verdict, 1);
                }
            }
            taken.add(len);
        }
        (self.packets, self.flows, self.verdicts) = (packets, flows, verdicts);
    }

    /// Holds TCP to what fits the tunnel, in SYNs that come from the back network.
    pub(super) fn clamp(&mut self, batch: &mut IngressBatch<'_>) {
        let Some(most) = self.clamp else { return };
        for frame in batch.frames.iter() {
            let bytes = batch.arena.bytes_mut(frame);
            let Some(packet) = bytes.get_mut(ethernet::LEN..) else { continue };
            let six = packet.first().is_some_and(|first| first >> 4 == 6);
            let most = if six { most.saturating_sub(20) } else { most };
            // What cannot be read is the parser's to judge.
            self.clamped += u64::from(mss::clamp(packet, most).unwrap_or(false));
        }
    }
}

/// Returns the flow of a frame that a router may forward.
#[inline(always)]
fn flow(bytes: &[u8], mac: [u8; 6], locals: &Locals) -> Option<Flow> {
    match parse(bytes, mac, locals) {
        Parsed::V4(dst) => Some(Flow::v4(source_v4(bytes), dst)),
        Parsed::V6(dst) => Some(Flow::v6(source_v6(bytes), dst)),
        Parsed::Done(_) => None,
    }
}

/// Returns whether a packet has an address of this machine as its source: no other host has it.
#[inline(always)]
fn is_own(flow: &Flow, tunnels: &TunnelParameters, locals: &Locals) -> bool {
    match flow.pair() {
        Pair::V4 { src, .. } => src == tunnels.from4 || locals.holds_v4(src),
        Pair::V6 { src, .. } => src == tunnels.from6 || locals.holds_v6(src),
    }
}

/// Counts a packet with an address of this machine for its source.
#[cold]
fn drop_own(
    gate: &mut Gate,
    sampler: &mut Sampler,
    ends: &mut Ends,
    last: &mut Last,
    packet: Packet,
    now: u64,
) -> Verdict {
    let verdict = gate.drop_forged(packet.bytes);
    sampler.look(now, &[packet], &[verdict], &mut ends.samples);
    last.note(packet.hash, Verdict::Forged, now);
    Verdict::Forged
}

/// Returns the flow of a frame that another worker has parsed, and found to be of one.
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
