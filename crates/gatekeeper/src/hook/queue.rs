//! The packets between the gate's verdict and the link: queued by the verdict, dequeued by the link.
//!
//! ```text
//!   verdict ─► front ──────────────► stays in the batch
//!           ─► dropped, no route ──► dropped, recorded by the flow's hash
//!           ─► the rest ─► a slot in QueuedFrames, a number in the Link ─► queued
//!                            └ no slot ──► dropped, or another packet in its place
//!
//!   ICMP errors ─► then SYN cookies and the Link's packets in turn ─► EgressPacket, Disposition
//! ```
//!
//! The queues of [`gate::limit::link::Link`] hold small numbers, which are `Copy`. A frame is not, so
//! that exactly one place owns it: the slot with its number in [`QueuedFrames`], with what its
//! transmission needs.
//!
//! A packet that finds no slot counts as `low_priority` if it is a request, and as `link_full`
//! otherwise. The rate limit of ICMP errors keeps them few, so that they leave first. SYN cookies and
//! the packets of the link alternate: neither a SYN flood nor a full link starves the other.

use gate::flow::{Flow, Pair};
use gate::gate::{Packet, Verdict as GateVerdict};
use gate::limit::link::DequeuedPacket;
use gate::policy::Address;
use gate::tunnel::OVERHEAD;
use port::Frame;
use wire::{ipv4, ipv6, udp};

use super::GateHook;
use datapath::{Disposition, EgressPacket, Key, Verdict};

/// Where a packet goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// To its destination, unchanged.
    Destination(Key),
    /// To a grantor, in a tunnel.
    Grantor(Address),
    /// To the next hop toward the grantor, without a tunnel.
    Direct(Address),
}

/// A packet in a queue.
#[derive(Debug)]
pub(super) struct QueuedFrame {
    pub(super) frame: Frame,
    pub(super) target: Target,
    pub(super) dscp: u8,
    /// The flow's hash.
    pub(super) hash: u32,
}

/// A fixed number of slots for frames.
#[derive(Debug)]
pub(super) struct QueuedFrames {
    slots: Box<[Option<QueuedFrame>]>,
    free: Vec<u32>,
}

impl QueuedFrames {
    /// Allocates `slots` slots.
    pub(super) fn new(slots: usize) -> Self {
        let free = (0..slots as u32).rev().collect();
        Self { slots: (0..slots).map(|_| None).collect(), free }
    }

    /// Stores a packet and returns its number, or returns the packet if all slots are taken.
    pub(super) fn insert(&mut self, packet: QueuedFrame) -> Result<u32, QueuedFrame> {
        let Some(number) = self.free.pop() else { return Err(packet) };
        match self.slots.get_mut(number as usize) {
            Some(slot) => {
                *slot = Some(packet);
                Ok(number)
            }
            None => Err(packet),
        }
    }

    /// Removes and returns the packet with this number.
    pub(super) fn take(&mut self, number: u32) -> Option<QueuedFrame> {
        let packet = self.slots.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(packet)
    }

    /// Removes and returns any packet.
    pub(super) fn pop(&mut self) -> Option<QueuedFrame> {
        let number = self.slots.iter().position(Option::is_some)?;
        self.take(number as u32)
    }

    /// Returns the number of packets.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

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

    /// Appends at most `room` packets that leave now.
    pub(super) fn dequeue(&mut self, room: usize, egress: &mut Vec<EgressPacket>) {
        for _ in 0..room {
            if let Some(error) = self.icmp_errors.next() {
                egress.push(error);
                continue;
            }
            self.cookies_first = !self.cookies_first;
            if self.cookies_first
                && let Some(cookie) = self.syn_cookies.next()
            {
                egress.push(cookie);
                continue;
            }
            let packet = self.link.next(self.now).and_then(|released| match released {
                DequeuedPacket::Operational(number)
                | DequeuedPacket::Request(number, _)
                | DequeuedPacket::Granted(number) => self.queued.take(number),
            });
            match packet {
                Some(packet) => egress.push(self.egress_packet(packet)),
                None => match self.syn_cookies.next() {
                    Some(cookie) => egress.push(cookie),
                    None => return,
                },
            }
        }
    }

    /// Returns the key and the disposition of a packet that the link has released.
    #[inline(always)]
    fn egress_packet(&mut self, packet: QueuedFrame) -> EgressPacket {
        let QueuedFrame { frame, target, dscp, hash } = packet;
        let (grantor, direct) = match target {
            Target::Destination(key) => {
                return EgressPacket { frame, key, disposition: Disposition::Forward };
            }
            Target::Grantor(grantor) => (grantor, false),
            Target::Direct(grantor) => (grantor, true),
        };
        let key = match grantor {
            Address::V4(address) => Key::V4(address),
            Address::V6(address) => Key::V6(address),
        };
        let sealed = self.is_sealed(grantor);
        EgressPacket { frame, key, disposition: Disposition::Tunnel { dscp, hash, direct, sealed } }
    }

    /// Returns whether packets to this grantor are sealed. If no tunnel is sealed, there is no lookup.
    #[inline(always)]
    fn is_sealed(&mut self, grantor: Address) -> bool {
        self.is_sealing && self.keys.current().find(grantor).is_some()
    }

    /// Returns the bytes that a packet to this target gains on the link: its outer headers.
    #[inline(always)]
    pub(super) fn outer_len(&mut self, target: Target) -> usize {
        let Target::Grantor(grantor) = target else { return 0 };
        let outer = match grantor {
            Address::V4(_) => ipv4::LEN,
            Address::V6(_) => ipv6::LEN,
        };
        let between = match (self.is_sealed(grantor), self.tunnels.udp) {
            (true, _) => udp::LEN + OVERHEAD,
            (false, Some(_)) => udp::LEN,
            (false, None) => 0,
        };
        outer + between
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
