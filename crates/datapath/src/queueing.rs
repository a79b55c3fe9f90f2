//! Queueing: packets that wait for an egress port whose link is slower than what comes.
//!
//! ```text
//!   staged frames ─► class by DSCP and destination ─► EgressQueue ─► marked? ─► ready ─► port
//!                                                        │ full, or delayed for too long
//!                                                        ▼
//!                                                      dropped
//! ```
//!
//! A port without a queue sends what is staged at once, and drops what it has no room for. A port with
//! one queues the staged frames, and once a turn sends as many as the rate of its link permits, or, without
//! a rate, as many as the port takes. Packets that the port refuses stay `ready` and leave first in
//! the next turn.
//!
//! The rate is that of the port, for all workers together ([`Pacer`]); a worker has a queue of its own.
//! Packets of the host itself are not queued here: the kernel sends them past the workers.
//!
//! Classes: packets with DSCP CS6 or CS7 are control packets (RFC 4594, section 3.1); packets with DSCP 3
//! or higher to one of `requests_to` are requests of a gate (`gate/src/priority.rs`).

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use acl::Addresses;
use port::{Arena, Frame, Port};
use qos::{
    EgressQueue, EgressQueueParameters, Offer, Pacer, QueueCounters, TrafficClass, frames_of,
};
use wire::{ethernet, ipv4, ipv6, vlan};

use super::batch::SIZE;
use crate::Verdict;
use crate::stats::WorkerStats;

/// The DSCPs from this one on are control packets': CS6 and CS7.
const CONTROL_DSCP: u8 = 48;
/// The lowest DSCP of requests: 0 is for other packets, 1 and 2 for granted ones.
const REQUEST_DSCP: u8 = 3;

/// The parts that a port's queue is made from.
#[derive(Clone, Debug)]
pub struct PortQueue {
    /// The parameters of the queue of this worker.
    pub parameters: EgressQueueParameters,
    /// The rate of the link; `None`: that at which the port takes packets.
    pub pacer: Option<Arc<Pacer>>,
    /// Packets with the DSCP of a request to one of these are requests.
    pub requests_to: Arc<Addresses>,
    /// The counters of this worker's queue.
    pub counters: Arc<QueueCounters>,
}

impl PortQueue {
    /// Returns the most frames of an arena that a queue holds.
    pub fn frames(parameters: &EgressQueueParameters) -> u32 {
        // Those that are ready are in addition.
        (frames_of(parameters.places) + SIZE) as u32
    }
}

/// The queues of a worker, and its clock.
pub struct PortQueues {
    /// The queue of each port, in the order of the port numbers; ports beyond the end have none.
    pub by_port: Vec<Option<PortQueue>>,
    /// Returns the time in nanoseconds, which all workers have in common.
    pub clock: Box<dyn Fn() -> u64 + Send>,
}

impl fmt::Debug for PortQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortQueues").field("by_port", &self.by_port).finish_non_exhaustive()
    }
}

/// The queue of a port.
pub(super) struct Queueing {
    /// The time of this turn, in nanoseconds.
    now: u64,
    queue: EgressQueue<Frame>,
    setup: PortQueue,
    /// Frames that have left the queue and that the port has not taken yet.
    ready: Vec<Frame>,
}

/// The fields of a packet that its class depends on.
struct Fields {
    /// The offset of the IP header in the frame.
    at: usize,
    /// DSCP and ECN (RFC 2474, RFC 3168).
    traffic_class: u8,
    to: IpAddr,
}

impl Queueing {
    /// Makes an empty queue and allocates all of its memory.
    pub(super) fn new(setup: PortQueue) -> Self {
        let queue = EgressQueue::new(setup.parameters);
        Self { now: 0, queue, setup, ready: Vec::with_capacity(SIZE) }
    }

    /// Begins a turn at `now`, in nanoseconds.
    pub(super) fn begin_turn(&mut self, now: u64) {
        self.now = now;
    }

    /// Queues staged frames.
    pub(super) fn enqueue(
        &mut self,
        arena: &mut Arena,
        staged: &mut Vec<Frame>,
        stats: &WorkerStats,
    ) {
        for frame in staged.drain(..) {
            let offer = self.classify(arena, frame);
            let class = offer.class;
            if let Some(dropped) = self.queue.offer(offer, self.now) {
                arena.free(dropped.item);
                stats.ended(Verdict::EgressQueueFull, 1);
                self.setup.counters.full(class);
            }
        }
    }

    fn classify(&self, arena: &Arena, frame: Frame) -> Offer<Frame> {
        let bytes = frame.len() as u32;
        let fields = Fields::parse(arena.bytes(&frame));
        let traffic_class = fields.as_ref().map_or(0, |fields| fields.traffic_class);
        let (dscp, ecn) = (traffic_class >> 2, traffic_class & 3);
        let is_request = dscp >= REQUEST_DSCP
            && fields.is_some_and(|fields| contains(&self.setup.requests_to, fields.to));
        let class = match dscp {
            _ if is_request => TrafficClass::Requests,
            CONTROL_DSCP.. => TrafficClass::Control,
            _ => TrafficClass::Default,
        };
        Offer { item: frame, bytes, class, dscp, is_ecn_capable: ecn != 0 }
    }

    /// Sends what may leave in this turn, and returns the number of packets that the port has taken.
    pub(super) fn transmit(
        &mut self,
        arena: &mut Arena,
        port: &mut dyn Port,
        stats: &WorkerStats,
    ) -> usize {
        let Self { queue, setup: PortQueue { pacer, counters, .. }, ready, now } = self;
        let now = *now;
        if queue.is_empty() && ready.is_empty() {
            return 0;
        }
        let mut sent = offer_to(port, arena, ready, stats);
        let mut dropped = 0;
        while ready.is_empty() {
            while ready.len() < SIZE && pacer.as_ref().is_none_or(|pacer| pacer.is_free(now)) {
                let next = queue.next(now, |frame| {
                    arena.free(frame);
                    dropped += 1;
                });
                let Some(departure) = next else { break };
                if let Some(pacer) = pacer {
                    pacer.take(now, departure.bytes);
                }
                if departure.is_marked {
                    mark(arena.bytes_mut(&departure.item));
                }
                let (class, waited) = (departure.class, departure.waited);
                counters.left(class, departure.bytes, waited, departure.is_marked);
                ready.push(departure.item);
            }
            if ready.is_empty() {
                break;
            }
            sent += offer_to(port, arena, ready, stats);
        }
        if dropped > 0 {
            stats.ended(Verdict::EgressQueueDelay, dropped);
            counters.delayed(dropped);
        }
        for class in TrafficClass::ALL {
            counters.waits(class, queue.backlog(class));
        }
        sent
    }

    /// Empties the queue: the port gets what it takes, at any rate, and the rest is dropped.
    pub(super) fn close(&mut self, arena: &mut Arena, port: &mut dyn Port, stats: &WorkerStats) {
        loop {
            while self.ready.len() < SIZE
                && let Some(frame) = self.queue.pop()
            {
                self.ready.push(frame);
            }
            if self.ready.is_empty() || offer_to(port, arena, &mut self.ready, stats) == 0 {
                break;
            }
            port.flush(arena);
        }
        let rest = self.ready.drain(..).chain(std::iter::from_fn(|| self.queue.pop()));
        for frame in rest {
            arena.free(frame);
            stats.ended(Verdict::EgressQueueFull, 1);
        }
        for class in TrafficClass::ALL {
            self.setup.counters.waits(class, (0, 0));
        }
    }

    /// Counts the packets that wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len() + self.ready.len()
    }
}

/// Returns whether an address is within one of the prefixes.
fn contains(prefixes: &Addresses, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => prefixes.v4.iter().any(|one| one.contains(address.to_bits())),
        IpAddr::V6(address) => prefixes.v6.iter().any(|one| one.contains(address.to_bits())),
    }
}

/// Offers frames to a port, twice as a port without a queue does, counts those that it takes, and
/// returns their number.
fn offer_to(
    port: &mut dyn Port,
    arena: &mut Arena,
    ready: &mut Vec<Frame>,
    stats: &WorkerStats,
) -> usize {
    if ready.is_empty() {
        return 0;
    }
    let all = ready.len();
    let bytes = |ready: &[Frame]| ready.iter().map(|frame| frame.len() as u64).sum::<u64>();
    let before = bytes(ready);
    port.transmit(arena, ready);
    if !ready.is_empty() {
        port.flush(arena);
        port.transmit(arena, ready);
    }
    let taken = all - ready.len();
    stats.ended(Verdict::Sent, taken as u64);
    stats.sent_bytes(before - bytes(ready));
    taken
}

impl Fields {
    /// Reads the fields of a frame that leaves: an IP packet behind at most two tags.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut at = ethernet::LEN;
        let mut kind = u16::from_be_bytes(*bytes.get(12..)?.first_chunk()?);
        for _ in 0..vlan::MAX_TAGS {
            if !vlan::is_tag(kind) {
                break;
            }
            kind = u16::from_be_bytes(*bytes.get(at + 2..)?.first_chunk()?);
            at += vlan::LEN;
        }
        let packet = bytes.get(at..)?;
        let (traffic_class, to) = match kind {
            ethernet::IPV4 => {
                let view = ipv4::View::parse(packet).ok()?;
                (view.tos(), IpAddr::V4(view.dst().into()))
            }
            ethernet::IPV6 => {
                let view = ipv6::View::parse(packet).ok()?;
                (view.traffic_class(), IpAddr::V6(view.dst().into()))
            }
            _ => return None,
        };
        Some(Self { at, traffic_class, to })
    }
}

/// Marks a packet as Congestion Experienced (RFC 3168, section 5).
fn mark(bytes: &mut [u8]) {
    let Some(Fields { at, traffic_class, .. }) = Fields::parse(bytes) else { return };
    let Some(packet) = bytes.get_mut(at..) else { return };
    if packet.first().is_some_and(|first| first >> 4 == 6) {
        if let Ok(mut view) = ipv6::View::parse(packet) {
            view.set_traffic_class(traffic_class | 3);
        }
    } else if let Ok(mut view) = ipv4::View::parse(packet) {
        view.set_tos(traffic_class | 3);
    }
}
