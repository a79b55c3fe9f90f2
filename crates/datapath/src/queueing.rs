//! Queueing: packets that wait for an egress port whose link is slower than what comes.
//!
//! ```text
//!   staged frames ─► device, and class by DSCP and destination ─► LinkQueues ─► marked? ─► ready ─► port
//!                                                                    │ full, or delayed for too long
//!                                                                    ▼
//!                                                                  dropped
//! ```
//!
//! A port without a queue sends what is staged at once, and drops what it has no room for. A port with
//! one queues the staged frames, and once a turn sends as many as the rate of its link permits, or, without
//! a rate, as many as the port takes. Packets that the port refuses stay `ready` and leave first in
//! the next turn.
//!
//! A stacked device, such as a VLAN device, may have a queue and a rate of its own over the port
//! ([`StackedDevice::with_queue`](super::StackedDevice::with_queue)).
//!
//! The rate is that of the port, for all workers together ([`SharedPacer`]); a worker has a queue of its own, and the
//! workers take turns ([`PacerShare`]).
//! Packets of the host itself are not queued here: the kernel sends them past the workers.
//!
//! Classes: packets with DSCP 48 to 63, such as CS6 and CS7, are control packets (RFC 4594, section 3.1); packets with DSCP 3
//! or higher to one of `requests_to` are requests of a gate (`gate/src/priority.rs`).

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use acl::Addresses;
use port::af_xdp::{HostEgress, HostEgressShare, HostTraffic};
use port::{Arena, Frame, Port};
use qos::{
    Departure, EgressQueueParameters, LinkDevice, LinkQueues, Offer, PacerShare, QueueCounters,
    SharedPacer, TrafficClass, frames_of,
};
use wire::{BadHeader, ethernet, ipv4, ipv6, vlan};

use super::batch::SIZE;
use crate::Verdict;
use crate::capture::Point;
use crate::stats::WorkerStats;

/// The DSCPs from this one on are control packets': CS6, CS7, and those between.
const CONTROL_DSCP: u8 = 48;
/// The lowest DSCP of requests: 0 is for other packets, 1 and 2 for granted ones.
const REQUEST_DSCP: u8 = 3;

/// The queues of a port's link.
#[derive(Clone, Debug)]
pub struct PortQueue {
    /// The queue of packets of no other device. Its rate is that of the link, for all devices together.
    pub own: DeviceQueue,
    /// The queues of stacked devices, by their numbers ([`StackedDevice::with_queue`]).
    ///
    /// [`StackedDevice::with_queue`]: super::StackedDevice::with_queue
    pub stacked: Vec<(u16, DeviceQueue)>,
    /// The counter of what the host itself sends by the port, of which this worker takes the link's time.
    pub host: Option<Arc<HostEgress>>,
}

/// The parts that the queue of a device is made from.
#[derive(Clone, Debug)]
pub struct DeviceQueue {
    /// The parameters of the queue of this worker.
    pub parameters: EgressQueueParameters,
    /// The rate of the device; `None`: no limit, apart from the rate at which the port takes packets.
    pub pacer: Option<Arc<SharedPacer>>,
    /// The number of this queue among those that the pacer was made for.
    pub worker: usize,
    /// The number of the stacked device whose rate limits these packets, too: the bond, of a VLAN device over one.
    pub within: Option<u16>,
    /// Its part of a full link, in proportion to the weights of the others.
    pub weight: u32,
    /// Packets with the DSCP of a request to one of these are requests.
    pub requests_to: Arc<Addresses>,
    /// The counters of this worker's queue.
    pub counters: Arc<QueueCounters>,
}

impl PortQueue {
    fn frames(&self) -> u32 {
        let queues = self.devices().map(|device| frames_of(device.parameters.places));
        // Those that are ready are in addition.
        (queues.sum::<usize>() + SIZE) as u32
    }

    /// Returns the queues, that of the port first.
    fn devices(&self) -> impl Iterator<Item = &DeviceQueue> {
        let stacked = self.stacked.iter().map(|(_, queue)| queue);
        std::iter::once(&self.own).chain(stacked)
    }
}

/// The queues of a worker, and its clock.
pub struct PortQueues {
    /// The queue of each port, in the order of the port numbers; ports beyond the end have none.
    pub by_port: Vec<Option<PortQueue>>,
    /// Returns the time in nanoseconds, which all workers have in common.
    pub clock: Box<dyn Fn() -> u64 + Send>,
}

impl PortQueues {
    /// Returns the most frames of an arena that the queues hold.
    pub fn frames(&self) -> u32 {
        self.by_port.iter().flatten().map(PortQueue::frames).sum()
    }
}

impl fmt::Debug for PortQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortQueues").field("by_port", &self.by_port).finish_non_exhaustive()
    }
}

/// The queue of a port.
pub(super) struct Queueing {
    /// The number of the port.
    number: u16,
    /// The time of this turn, in nanoseconds.
    now: u64,
    queues: LinkQueues<Frame>,
    /// The devices of the queues.
    devices: Box<[DeviceQueue]>,
    /// The device of each number; 0, the port, where there is none.
    by_number: Box<[u16]>,
    /// Of the staged frames, those of stacked devices, with their device.
    noted: Vec<(usize, u16)>,
    /// Counts the packets that the host has sent by the port since the last turn.
    host: Option<HostEgressShare>,
    /// Frames that have left the queue and that the port has not taken yet.
    ready: Vec<Frame>,
    /// Of these, the first ones that captures have as sent.
    recorded: usize,
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
    /// Makes empty queues of the port with this number, for a lane that stages at most `staged` frames at a time, and allocates all of
    /// their memory.
    pub(super) fn new(setup: &PortQueue, number: u16, staged: usize) -> Self {
        let share = |queue: &DeviceQueue| {
            queue.pacer.clone().map(|pacer| PacerShare::new(pacer, queue.worker))
        };
        let last = setup.stacked.iter().map(|(number, _)| usize::from(*number)).max();
        let mut by_number = vec![0; last.map_or(0, |last| last + 1)];
        for ((number, _), device) in setup.stacked.iter().zip(1..) {
            by_number[usize::from(*number)] = device;
        }
        let each = setup.devices().enumerate().map(|(at, device)| LinkDevice {
            parameters: device.parameters,
            // The rate of the port is that of the link.
            pacer: if at == 0 { None } else { share(device) },
            weight: device.weight,
            within: device.within.and_then(|number| {
                let device = by_number.get(usize::from(number)).copied().unwrap_or(0);
                (device != 0).then_some(device.into())
            }),
        });
        let queues = LinkQueues::new(share(&setup.own), each);
        let devices = setup.devices().cloned().collect();
        let (noted, ready) = (Vec::with_capacity(staged), Vec::with_capacity(SIZE));
        let host = setup.host.clone().map(|counter| HostEgressShare::new(counter, 1));
        let by_number = by_number.into();
        Self { number, now: 0, queues, devices, by_number, noted, host, ready, recorded: 0 }
    }

    /// Begins a turn at `now`, in nanoseconds.
    pub(super) fn begin_turn(&mut self, now: u64) {
        self.now = now;
        if let Some(host) = &mut self.host {
            let HostTraffic { packets, bytes } = host.take();
            if packets > 0 {
                self.queues.take_others(now, packets, bytes);
            }
        }
    }

    /// Notes that the frame that is staged next, behind so many others, is of the stacked device with this
    /// number.
    pub(super) fn note(&mut self, staged: usize, number: u16) {
        if let Some(&device @ 1..) = self.by_number.get(usize::from(number)) {
            self.noted.push((staged, device));
        }
    }

    /// Queues staged frames.
    pub(super) fn enqueue(
        &mut self,
        arena: &mut Arena,
        staged: &mut Vec<Frame>,
        stats: &WorkerStats,
    ) {
        let point = Point::Egress(self.number);
        let mut noted = self.noted.drain(..).peekable();
        for (at, frame) in staged.drain(..).enumerate() {
            let number = noted.next_if(|(noted, _)| *noted == at).map_or(0, |(_, device)| device);
            let Some(device) = self.devices.get(usize::from(number)) else {
                stats.end(arena, frame, Verdict::EgressQueueFull, point);
                continue;
            };
            let offer = device.classify(arena, frame);
            let class = offer.class;
            if let Some(dropped) = self.queues.offer(number.into(), offer, self.now) {
                stats.end(arena, dropped.item, Verdict::EgressQueueFull, point);
                device.counters.full(class);
            }
        }
    }

    /// Sends what may leave in this turn, and returns the number of packets that the port has taken.
    pub(super) fn transmit(
        &mut self,
        arena: &mut Arena,
        port: &mut dyn Port,
        stats: &WorkerStats,
    ) -> usize {
        let Self { number, recorded, queues, devices, ready, now, .. } = self;
        if queues.is_empty() && ready.is_empty() {
            return 0;
        }
        let mut sent = offer_to(port, arena, ready, (*number, recorded), stats);
        while ready.is_empty() {
            while ready.len() < SIZE {
                let next = queues.next(*now, |device, frame| {
                    stats.end(arena, frame, Verdict::EgressQueueDelay, Point::Egress(*number));
                    if let Some(device) = devices.get(device) {
                        device.counters.delayed(1);
                    }
                });
                let Some((device, departure)) = next else { break };
                if departure.is_marked {
                    mark(arena.bytes_mut(&departure.item));
                }
                let Departure { item, bytes, class, waited, is_marked } = departure;
                if let Some(device) = devices.get(device) {
                    device.counters.left(class, bytes, waited, is_marked);
                }
                ready.push(item);
            }
            if ready.is_empty() {
                break;
            }
            sent += offer_to(port, arena, ready, (*number, recorded), stats);
        }
        self.publish();
        sent
    }

    /// Empties the queues: the port gets what it takes, at any rate, and the rest is dropped.
    pub(super) fn close(&mut self, arena: &mut Arena, port: &mut dyn Port, stats: &WorkerStats) {
        loop {
            while self.ready.len() < SIZE
                && let Some(frame) = self.queues.pop()
            {
                self.ready.push(frame);
            }
            if self.ready.is_empty()
                || offer_to(port, arena, &mut self.ready, (self.number, &mut self.recorded), stats)
                    == 0
            {
                break;
            }
            port.flush(arena);
        }
        let rest = self.ready.drain(..).chain(std::iter::from_fn(|| self.queues.pop()));
        for frame in rest {
            stats.end(arena, frame, Verdict::EgressQueueFull, Point::Egress(self.number));
        }
        self.publish();
    }

    /// Publishes what waits.
    fn publish(&self) {
        for (device, queue) in self.devices.iter().zip(self.queues.queues()) {
            for class in TrafficClass::ALL {
                device.counters.waits(class, queue.backlog(class));
            }
        }
    }

    /// Counts the packets that wait.
    pub(super) fn len(&self) -> usize {
        self.queues.len() + self.ready.len()
    }
}

impl DeviceQueue {
    /// Determines the class of a packet that leaves.
    fn classify(&self, arena: &Arena, frame: Frame) -> Offer<Frame> {
        let bytes = frame.len() as u32;
        let fields = Fields::parse(arena.bytes(&frame));
        let traffic_class = fields.as_ref().map_or(0, |fields| fields.traffic_class);
        let (dscp, ecn) = (traffic_class >> 2, traffic_class & 3);
        let is_request = dscp >= REQUEST_DSCP
            && fields.is_some_and(|fields| contains(&self.requests_to, fields.to));
        let class = match dscp {
            _ if is_request => TrafficClass::Requests,
            CONTROL_DSCP.. => TrafficClass::Control,
            _ => TrafficClass::Default,
        };
        Offer { item: frame, bytes, class, dscp, is_ecn_capable: ecn != 0 }
    }
}

/// Returns whether an address is within one of the prefixes.
fn contains(prefixes: &Addresses, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => prefixes.v4.iter().any(|one| one.contains(address.to_bits())),
        IpAddr::V6(address) => prefixes.v6.iter().any(|one| one.contains(address.to_bits())),
    }
}

/// Offers frames to the port with this number, twice as a port without a queue does, counts those that
/// it takes, and returns their number. As many of them as `recorded` are in captures.
fn offer_to(
    port: &mut dyn Port,
    arena: &mut Arena,
    ready: &mut Vec<Frame>,
    (number, recorded): (u16, &mut usize),
    stats: &WorkerStats,
) -> usize {
    if ready.is_empty() {
        return 0;
    }
    stats.recorder().sent(arena, ready.get(*recorded..).unwrap_or_default(), number);
    let all = ready.len();
    let bytes = |ready: &[Frame]| ready.iter().map(|frame| frame.len() as u64).sum::<u64>();
    let before = bytes(ready);
    port.transmit(arena, ready);
    if !ready.is_empty() {
        port.flush(arena);
        port.transmit(arena, ready);
    }
    *recorded = ready.len();
    let taken = all - ready.len();
    stats.ended(Verdict::Sent, taken as u64);
    stats.sent_bytes(before - bytes(ready));
    taken
}

impl Fields {
    /// Reads the fields of a frame that leaves: an IP packet behind at most two tags.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (kind, at) = match vlan::View::parse(bytes.get(ethernet::LEN - 2..)?) {
            Ok(tags) => (tags.kind(), ethernet::LEN + tags.count() * vlan::LEN),
            Err(BadHeader::Kind) => (ethernet::View::parse(bytes).ok()?.kind(), ethernet::LEN),
            Err(_) => return None,
        };
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
