//! Enqueue: carries out the gate's verdict about a packet.
//!
//! ```text
//!   front ──────────────► stays in the batch
//!   dropped, no route ──► dropped, recorded by the flow's hash
//!   the rest ─► a slot in QueuedFrames, a number in the Link ─► queued
//!                 └ no slot ──► dropped, or another packet in its place
//! ```
//!
//! A packet that finds no slot counts as `low_priority` if it is a request, and as `link_full`
//! otherwise.

use gate::flow::{Flow, Pair};
use gate::gate::{Packet, Verdict as GateVerdict};
use port::Frame;

use super::GateHook;
use crate::queued_frames::{QueuedFrame, Target};
use datapath::{Key, Verdict};

/// Where a packet is after the gate's verdict was carried out.
pub(super) enum Placement {
    /// It stays in the batch and is routed by its destination.
    Batch(Frame),
    /// It waits for the link.
    Queued,
    /// A packet of the flow with this hash, this one or a displaced one, is dropped.
    Dropped(Frame, u32, Verdict),
}

impl GateHook {
    /// Leaves a packet in the batch, queues it or drops it, by the gate's verdict.
    pub(super) fn enqueue(
        &mut self,
        frame: Frame,
        packet: &Packet,
        verdict: &GateVerdict,
    ) -> Placement {
        let &Packet { ref flow, hash, .. } = packet;
        let dropped = |frame, verdict| Placement::Dropped(frame, hash, verdict);
        let (target, dscp) = match *verdict {
            GateVerdict::Front => return Placement::Batch(frame),
            GateVerdict::NoRoute => return dropped(frame, Verdict::NoRoute),
            GateVerdict::Ask { .. } => return dropped(frame, Verdict::SynCookie),
            GateVerdict::Drop(reason) => return dropped(frame, reason),
            GateVerdict::Back => (Target::Destination(key(flow)), 0),
            GateVerdict::Granted { grantor, renew } => {
                (Target::Grantor(grantor), 1 + u8::from(renew))
            }
            GateVerdict::Allowed { grantor } => (Target::Grantor(grantor), 1),
            GateVerdict::Direct { grantor } => (Target::Direct(grantor), 1),
            GateVerdict::Request { grantor, dscp } => (Target::Grantor(grantor), dscp),
        };
        let is_request = matches!(verdict, GateVerdict::Request { .. });
        let refused = if is_request { Verdict::LowPriority } else { Verdict::LinkFull };
        // Requests have slots of their own.
        let is_full = self.queued.len() - self.link.requests().len() >= self.other_slots;
        let bytes = (frame.len() + self.outer_len(target)) as u32;
        if is_full && !is_request {
            self.red_dropped += 1;
            return dropped(frame, refused);
        }
        let number = match self.queued.insert(QueuedFrame { frame, target, dscp, hash }) {
            Ok(number) => number,
            Err(packet) => return dropped(packet.frame, refused),
        };
        let rejected = match verdict {
            GateVerdict::Request { .. } => self.link.enqueue_request(number, dscp, bytes),
            GateVerdict::Granted { .. }
            | GateVerdict::Allowed { .. }
            | GateVerdict::Direct { .. } => {
                let rejected =
                    self.link.enqueue_granted(number, destination(flow), bytes, self.now);
                self.red_dropped += u64::from(rejected.is_some());
                rejected
            }
            _ => self.link.enqueue_operational(number, bytes),
        };
        // The rejected packet may be another one, which this one displaced.
        match rejected.and_then(|number| self.queued.take(number)) {
            Some(packet) => Placement::Dropped(packet.frame, packet.hash, refused),
            None => Placement::Queued,
        }
    }
}

fn key(flow: &Flow) -> Key {
    match flow.pair() {
        Pair::V4 { dst, .. } => Key::V4(dst),
        Pair::V6 { dst, .. } => Key::V6(dst),
    }
}

/// Returns the value by which a granted packet's queue is chosen.
fn destination(flow: &Flow) -> u128 {
    match flow.pair() {
        Pair::V4 { dst, .. } => dst.into(),
        Pair::V6 { dst, .. } => dst,
    }
}
