//! The turn: sends, holds, punts or drops the packets of one batch once their hops are known.
//!
//! ```text
//!   frame, hop ─► resolve ─► rewrite ─► staged on its egress, sent with the others
//!                               │ unresolved ─────► held, and a request to resolve
//!                               └ other verdict ──► sent as fragments, punted, or dropped
//! ```
//!
//! Packets that wait (`hold.rs`) precede the batch: they are processed in order, and those that
//! still wait are queued again in order, before the batch itself.

use fib::Hop;
use port::{Arena, Frame, Port};
use wire::{ethernet, ipv4, ipv6};

use super::batch::{Kind, SIZE};
use super::exit::{Exit, move_front};
use super::flow::{FlowHash, flow};
use super::hold::{HELD, Held, Hold, Wait};
use super::icmp_errors::{Admission, IcmpErrors, Pending, link_mtu};
use super::ingress::FrameIngress;
use super::punt::{Policer, Punt, may_fragment};
use super::queueing::Queueing;
use super::rewrite::HostTask;
use super::vlan::forwarding_priority;
use super::want::Key;
use super::{
    Adjacencies, Adjacency, Batch, Class, Rewritten, Verdict, WantSender, flow_v4, flow_v6,
    originate, rewrite_v4, rewrite_v6,
};
use crate::capture::Point;
use crate::stats::WorkerStats;

/// The most frames that are staged on a lane: a batch and all held packets may leave by one lane.
pub(super) const LANE_ROOM: usize = SIZE + HELD;

/// A port, the frames that are staged for it during one batch, and the held packets that arrived on
/// it.
pub(super) struct Lane {
    pub(super) port: Box<dyn Port>,
    /// The port that its packets arrived on: this port, unless it is a further queue of another
    /// port or other workers hand its packets over.
    pub(super) ingress: usize,
    /// Other workers hand its packets over.
    pub(super) handed: bool,
    pub(super) mac: [u8; 6],
    pub(super) staged: Vec<Frame>,
    pub(super) staged_bytes: u64,
    /// Where frames wait if the link is slower than what comes.
    pub(super) queueing: Option<Box<Queueing>>,
    pub(super) hold: Hold,
}

/// Prepares a packet, which is behind `tags` bytes of tags, for transmission by the adjacency of its hop,
/// unless `host` returns that the host has a task with it.
#[inline(always)]
pub(super) fn rewrite<'a>(
    bytes: &mut [u8],
    tags: usize,
    kind: Kind,
    hop: Hop,
    adjacencies: &'a Adjacencies,
    host: impl FnMut(HostTask) -> bool,
) -> Rewritten<'a> {
    match kind {
        Kind::V4 => {
            let exit = adjacencies.exit(hop, |hash| flow_v4(untagged(bytes, tags), hash));
            rewrite_v4(bytes, tags, exit, host)
        }
        Kind::V6 => {
            let exit = adjacencies.exit(hop, |hash| flow_v6(untagged(bytes, tags), hash));
            rewrite_v6(bytes, tags, exit, host)
        }
        Kind::Done(verdict) => Err(verdict),
        // The worker sets such a frame aside.
        Kind::Deferred => Err(Verdict::NoRoute),
    }
}

/// Returns a frame without its tags.
fn untagged(bytes: &[u8], tags: usize) -> &[u8] {
    bytes.get(tags..).unwrap_or_default()
}

/// The context for a packet of a batch that is not simply sent. It is constructed for each such
/// packet: a value that lived through the loop would keep all of its fields in memory, which costs
/// a tenth of the packet rate (`fingerpost-bench datapath`).
pub(super) struct Turn<'w> {
    pub(super) arena: &'w mut Arena,
    pub(super) lanes: &'w mut [Lane],
    pub(super) stats: &'w WorkerStats,
    pub(super) adjacencies: &'w Adjacencies,
    pub(super) wants: &'w mut WantSender,
    /// How the packet arrived.
    pub(super) ingress: FrameIngress,
    /// The port with its queue: that of `ingress`, or the port below a VLAN device.
    pub(super) lane: usize,
    /// The number of the port's table.
    pub(super) table: usize,
    /// The punts that the port allows.
    pub(super) punts: Punts<'w>,
    pub(super) now: u64,
}

/// The punts that are allowed for one port.
pub(super) struct Punts<'w> {
    pub(super) policer: &'w mut Policer,
    /// The host continues with other tables where this one has no route.
    pub(super) further: bool,
    /// For IPv4 and for IPv6: the host would look packets up in another table, so it forwards and
    /// answers none.
    pub(super) isolated: [bool; 2],
    /// For IPv4 and for IPv6: the router itself sends ICMP errors.
    pub(super) answers: [bool; 2],
    pub(super) errors: &'w mut IcmpErrors,
}

impl Turn<'_> {
    /// Sends or ends those held packets of the batch that no longer have to wait; `belongs` returns
    /// whether packets of a port are in the batch.
    #[cold]
    pub(super) fn release(&mut self, batch: &Batch, belongs: impl Fn(u16) -> bool) {
        let Some(lane) = self.lanes.get(self.lane) else { return };
        let (mut v4, mut v6) = (batch.waiting_v4(), batch.waiting_v6());
        for _ in 0..lane.hold.len() {
            let Some(lane) = self.lanes.get_mut(self.lane) else { return };
            let Some(held) = lane.hold.pop() else { return };
            if !belongs(held.ingress.port) {
                // All are popped, so the order stays.
                lane.hold.push(held);
                continue;
            }
            let Held { frame, key, wait, ingress, own } = held;
            self.ingress = ingress;
            let (kind, hop) = match key {
                Key::V4(_) => (Kind::V4, v4.next()),
                Key::V6(_) => (Kind::V6, v6.next()),
            };
            let hop = hop.unwrap_or(Hop::NONE);
            let bytes = self.arena.bytes_mut(&frame);
            let rewritten = match (own, kind) {
                (false, _) => rewrite(bytes, 0, kind, hop, self.adjacencies, |_| false),
                (true, Kind::V6) => {
                    let to = self.adjacencies.exit(hop, |hash| flow_v6(bytes, hash));
                    originate(bytes, to)
                }
                (true, _) => {
                    let to = self.adjacencies.exit(hop, |hash| flow_v4(bytes, hash));
                    originate(bytes, to)
                }
            };
            match rewritten {
                Ok((exit, len)) => {
                    // Linux gives no priority to what it originates.
                    let from = FrameIngress::untagged(ingress.port);
                    let from = if own { from } else { ingress.behind_tags() };
                    let staged =
                        stage(self.arena, self.lanes, self.adjacencies, frame, from, exit, len);
                    if let Err(frame) = staged {
                        self.finish(frame, kind, hop, Verdict::NoRoute, own);
                    }
                }
                Err(Verdict::Unresolved) => self.hold(frame, kind, hop, wait, own),
                Err(verdict) => self.finish(frame, kind, hop, verdict, own),
            }
        }
    }

    /// Ends a packet of this machine's own that is not sent, or holds it.
    pub(super) fn hold_or_finish_own(
        mut self,
        frame: Frame,
        kind: Kind,
        hop: Hop,
        verdict: Verdict,
    ) {
        match verdict {
            Verdict::Unresolved => self.hold(frame, kind, hop, Wait::new(self.now), true),
            verdict => self.finish(frame, kind, hop, verdict, true),
        }
    }

    /// Ends a packet that is not sent, or holds it.
    pub(super) fn hold_or_finish(mut self, frame: Frame, kind: Kind, hop: Hop, verdict: Verdict) {
        match verdict {
            Verdict::Unresolved => self.hold(frame, kind, hop, Wait::new(self.now), false),
            verdict => self.finish(frame, kind, hop, verdict, false),
        }
    }

    /// Holds a packet until its next hop is resolved, and requests the resolution.
    #[cold]
    fn hold(&mut self, frame: Frame, kind: Kind, hop: Hop, mut wait: Wait, own: bool) {
        let bytes = self.arena.bytes(&frame);
        let packet = bytes.get(ethernet::LEN..).unwrap_or_default();
        let (key, hop) = match kind {
            Kind::V4 => (
                ipv4::View::parse(packet).map(|packet| Key::V4(packet.dst())),
                self.adjacencies.member(hop, |hash| flow_v4(bytes, hash)),
            ),
            _ => (
                ipv6::View::parse(packet).map(|packet| Key::V6(packet.dst())),
                self.adjacencies.member(hop, |hash| flow_v6(bytes, hash)),
            ),
        };
        // The packet has a valid header, so its destination can be read.
        let (Ok(key), Some(lane)) = (key, self.lanes.get_mut(self.lane)) else {
            return self.drop(frame, Verdict::Unresolved);
        };
        if wait.request_is_due(hop, self.now) {
            self.wants.request(hop, self.table, key, self.now);
        }
        let ingress = self.ingress;
        if let Some(oldest) = lane.hold.push(Held { frame, key, wait, ingress, own }) {
            self.drop(oldest.frame, Verdict::Unresolved);
        }
    }

    /// Ends a packet that is not sent as it is: it is sent as fragments, its sender gets an ICMP error, or
    /// it is punted or dropped. A packet of this machine's own is never punted to its host, which would
    /// send it past the gate, or back to itself.
    #[cold]
    fn finish(&mut self, frame: Frame, kind: Kind, hop: Hop, verdict: Verdict, own: bool) {
        if own {
            let punted = verdict.class() == Class::Punted;
            return self.drop(frame, if punted { Verdict::NoRoute } else { verdict });
        }
        let bytes = self.arena.bytes(&frame);
        if verdict == Verdict::TooBig && may_fragment(bytes) {
            return self.send_fragments(frame, hop);
        }
        let Punts { further, answers, errors, .. } = &mut self.punts;
        let six = bytes.get(ethernet::LEN).is_some_and(|first| first >> 4 == 6);
        let is_hosts = verdict == Verdict::NoRoute && *further;
        if answers[usize::from(six)] && !is_hosts {
            let mtu = || link_mtu(bytes, kind, hop, self.adjacencies);
            match errors.admit(bytes, verdict, mtu, self.now, self.stats) {
                Admission::Host => {}
                Admission::Silent => return self.drop(frame, verdict),
                Admission::Answer { reason, to } => {
                    let (ingress, lane) = (self.ingress, self.lane);
                    let pending = Pending { frame, verdict, ingress, lane, reason, to };
                    if let Err(frame) = errors.push(pending) {
                        self.drop(frame, verdict);
                    }
                    return;
                }
            }
        }
        self.punt_or_drop(frame, verdict);
    }

    /// Punts a packet to the host of the port that it arrived on, or drops it.
    pub(super) fn punt_or_drop(&mut self, mut frame: Frame, verdict: Verdict) {
        let Punts { further, isolated, .. } = self.punts;
        let bytes = self.arena.bytes(&frame);
        let six = bytes.get(ethernet::LEN).is_some_and(|first| first >> 4 == 6);
        let Some(punt) = Punt::of(verdict, further, self.punts.errors.is_on()) else {
            return self.drop(frame, verdict);
        };
        if isolated[usize::from(six)] && !punt.is_local() {
            return self.drop(frame, punt.refused);
        }
        if punt.class.is_some_and(|class| !self.punts.policer.take(class)) {
            return self.drop(frame, punt.limited);
        }
        // The host receives it on the port below a VLAN device.
        if !self.arena.grow_front(&mut frame, self.ingress.tags()) {
            return self.drop(frame, punt.refused);
        }
        let Some(lane) = self.lanes.get_mut(self.lane) else {
            return self.drop(frame, punt.refused);
        };
        let taken = lane.port.punt(self.arena, &frame);
        self.drop(frame, if taken { punt.taken } else { punt.refused });
    }

    /// Ends a packet that is dropped, or that the host has a copy of.
    pub(super) fn drop(&mut self, frame: Frame, verdict: Verdict) {
        self.stats.end(self.arena, frame, verdict, Point::Ingress(self.ingress.port));
    }
}

/// Stages a frame, whose packet is rewritten and behind the tags of its `ingress`, on the lane of its exit, with
/// the tags of that. Without tags it has `len` bytes.
///
/// # Errors
///
/// The frame, if the worker has no such port.
#[inline(always)]
pub(super) fn stage(
    arena: &mut Arena,
    lanes: &mut [Lane],
    adjacencies: &Adjacencies,
    mut frame: Frame,
    ingress: FrameIngress,
    exit: &Exit,
    len: usize,
) -> Result<(), Frame> {
    let tags = ingress.tags();
    let Some(lane) = lanes.get_mut(exit.lane()) else {
        return stage_stacked(arena, lanes, adjacencies, frame, ingress, exit.adjacency(), len);
    };
    if tags != exit.tags() {
        frame = exit.replace_tags(arena, frame, tags)?;
    }
    lane.stage(arena, frame, exit.tags() + len);
    Ok(())
}

/// Stages a frame like [`stage`], on the lane and with the tags that a stacked device has for its packet.
fn stage_stacked(
    arena: &mut Arena,
    lanes: &mut [Lane],
    adjacencies: &Adjacencies,
    mut frame: Frame,
    ingress: FrameIngress,
    adjacency: Adjacency,
    len: usize,
) -> Result<(), Frame> {
    let tags = ingress.tags();
    let Some(device) = adjacencies.stacked(adjacency.number()) else { return Err(frame) };
    let port = device.port(|| {
        flow(
            untagged(arena.bytes(&frame), tags),
            &FlowHash::with_seed(adjacencies.flow_hash().seed),
        )
    });
    let Some(lane) = lanes.get_mut(usize::from(port)) else { return Err(frame) };
    if !move_front(arena, &mut frame, tags, device.len()) {
        return Err(frame);
    }
    let (bytes, keeps) = (arena.bytes_mut(&frame), adjacencies.keeps_priority());
    let priority = forwarding_priority(bytes, device.len(), ingress.priority(), keeps);
    device.write(bytes, adjacency.macs(), priority);
    if device.queue() != 0
        && let Some(queueing) = &mut lane.queueing
    {
        queueing.note(lane.staged.len(), device.queue());
    }
    lane.stage(arena, frame, device.len() + len);
    Ok(())
}

impl Lane {
    /// Makes a lane and allocates all the memory that it uses.
    pub(super) fn new(port: Box<dyn Port>, ingress: usize) -> Self {
        let staged = Vec::with_capacity(LANE_ROOM);
        let (handed, hold) = (false, Hold::new());
        let (mac, staged_bytes, queueing) = (port.mac(), 0, None);
        Self { mac, port, ingress, handed, staged, staged_bytes, queueing, hold }
    }

    /// Makes the lane of packets that other workers hand over, as if they had arrived on `ingress`.
    pub(super) fn handed(port: Box<dyn Port>, ingress: usize) -> Self {
        Self { handed: true, ..Self::new(port, ingress) }
    }

    /// Stages a frame for transmission here, and sets its length to `len` bytes.
    #[inline(always)]
    pub(super) fn stage(&mut self, arena: &Arena, mut frame: Frame, len: usize) {
        if len != frame.len() {
            arena.resize(&mut frame, len);
        }
        self.staged_bytes += len as u64;
        self.staged.push(frame);
    }

    /// Sends the staged frames, counts them, and drops those that the port refuses twice; or queues them.
    pub(super) fn send(&mut self, arena: &mut Arena, stats: &WorkerStats) {
        if let Some(queueing) = &mut self.queueing {
            queueing.enqueue(arena, &mut self.staged, stats);
            self.staged_bytes = 0;
            return;
        }
        let port = self.ingress as u16;
        stats.recorder().sent(arena, &self.staged, port);
        let staged = self.staged.len();
        self.port.transmit(arena, &mut self.staged);
        if !self.staged.is_empty() {
            self.port.flush(arena);
            self.port.transmit(arena, &mut self.staged);
        }
        let refused = self.staged.len();
        for frame in self.staged.drain(..) {
            self.staged_bytes -= frame.len() as u64;
            stats.end(arena, frame, Verdict::TxFull, Point::Egress(port));
        }
        stats.ended(Verdict::Sent, (staged - refused) as u64);
        stats.sent_bytes(self.staged_bytes);
        self.staged_bytes = 0;
    }
}
