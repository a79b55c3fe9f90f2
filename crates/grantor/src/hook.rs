//! The grantor's packet hook: decapsulates packets, and queues requests for the policy.
//!
//! ```text
//!   on an interface not in [tunnel] interfaces ─► tunnel_interface
//!   outer source is no gate ─► spoofed          CE on a packet without ECN ─► link_full
//!   no seal, or a wrong one ─► tunnel_untagged, tunnel_key, tunnel_forged, tunnel_replayed
//!   DSCP 0, 1 ────────────────────► stays in the batch, decapsulated
//!   DSCP 2 … ─► queued, copied ─► queue, by priority ─► ring ─► answer: forwarded, or `declined`
//! ```
//!
//! Decapsulation is in place: the frame begins later, with a new Ethernet header. A packet that is not
//! for a tunnel's end is routed unchanged. A request is copied for the policy, so that the frame stays
//! with the worker; requests are few.
//!
//! **The queue** is the request queue of a gate's link (`gate/src/limit/request_queue.rs`): the highest DSCP
//! is decided first, and if all slots are taken, a higher request displaces the lowest one, which counts
//! as `low_priority`. Renewals of grants come before all other requests. The ring to the policy holds
//! only [`RING`] requests, so that most of them wait where they are sorted.

use std::time::Instant;

use fib::Reader;
use gate::grantor::{DecapsulationError, decapsulate_checked};
use gate::limit::bucket::Bucket;
use gate::limit::request_queue::{Request, RequestQueue};
use gate::policy::Address;
use gate::priority::HIGHEST_DSCP;
use gate::tunnel::{GateKeys, TunnelError, TunnelVerifier};
use port::{Arena, Frame};
use rtrb::{Consumer, Producer};
use wire::{BadHeader, ethernet, ipv4, ipv6, udp};

use datapath::capture::Point;
use datapath::stats::WorkerStats;
use datapath::{
    Disposition, EgressBatch, EgressPacket, Hook, IngressBatch, Key, PacketHook, SIZE, Tunnels,
    Verdict,
};

/// The maximum number of queued requests of a worker.
pub(super) const SLOTS: usize = 512;
/// The capacity of the ring to the policy: twice a batch.
pub(super) const RING: usize = 64;
/// The DSCP of packets that request a renewal.
const RENEWAL: u8 = 2;
/// The maximum length of a request.
const MAX_PACKET: usize = 2048;

/// A copy of a request for the policy.
#[derive(Clone, Debug)]
pub(super) struct RequestPacket {
    pub(super) number: u32,
    pub(super) gate: Address,
    pub(super) dscp: u8,
    pub(super) congested: bool,
    len: u16,
    bytes: [u8; MAX_PACKET],
}

impl RequestPacket {
    pub(super) fn packet(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// The policy's answer to the request with this number.
#[derive(Clone, Copy, Debug)]
pub(super) struct PolicyAnswer {
    pub(super) number: u32,
    pub(super) deliver: bool,
}

/// The ends of the tunnels, and their settings.
#[derive(Clone, Debug, Default)]
pub(super) struct TunnelEndpoints {
    pub(super) ends: Vec<Address>,
    pub(super) gates: Vec<Address>,
    /// The UDP port of tunnels, if they may use UDP.
    pub(super) port: Option<u16>,
    /// The indexes of the ports on which they may arrive.
    pub(super) ports: Vec<usize>,
    /// Packets have to be sealed.
    pub(super) sealed: bool,
}

/// Returns the source of a packet.
fn source(packet: &[u8]) -> Option<Address> {
    if packet.first()? >> 4 == 6 {
        return ipv6::View::parse(packet).ok().map(|ip| Address::V6(ip.src()));
    }
    ipv4::View::parse(packet).ok().map(|ip| Address::V4(ip.src()))
}

/// The hook's ends of the rings to its policy's thread, and the keys of sealed tunnels.
pub(super) struct HookRings {
    pub(super) requests: Producer<RequestPacket>,
    pub(super) answers: Consumer<PolicyAnswer>,
    pub(super) keys: Reader<GateKeys>,
}

/// A worker's packet hook in a grantor.
pub(super) struct GrantorHook {
    tunnels: TunnelEndpoints,
    requests: Producer<RequestPacket>,
    answers: Consumer<PolicyAnswer>,
    queued: Box<[Option<(Frame, Key)>]>,
    free: Vec<u32>,
    /// The copy of each queued packet, by number.
    copies: Box<[RequestPacket]>,
    /// The requests that were not sent to the policy yet.
    queue: RequestQueue<u32>,
    incoming: Vec<Frame>,
    keys: Reader<GateKeys>,
    checker: TunnelVerifier,
    start: Instant,
    now: u64,
}

/// The result of [`GrantorHook::decapsulate`].
#[derive(Debug)]
enum Decapsulation {
    /// The frame is forwarded by its destination.
    Routed(Frame),
    /// The frame waits for the policy.
    Queued,
    /// This frame, or one that it displaced, is dropped with this verdict.
    Dropped(Frame, Verdict),
}

impl GrantorHook {
    /// Makes a hook without tunnels: none begins at a grantor.
    pub(super) fn install(tunnels: TunnelEndpoints, rings: HookRings) -> Hook {
        Hook { packets: Box::new(Self::new(tunnels, rings)), tunnels: Tunnels::default() }
    }

    fn new(tunnels: TunnelEndpoints, rings: HookRings) -> Self {
        let HookRings { requests, answers, keys } = rings;
        let blank = RequestPacket {
            number: 0,
            gate: Address::V4(0),
            dscp: 0,
            congested: false,
            len: 0,
            bytes: [0; MAX_PACKET],
        };
        Self {
            keys,
            checker: TunnelVerifier::new(tunnels.gates.iter().copied()),
            start: Instant::now(),
            now: 0,
            tunnels,
            requests,
            answers,
            queued: (0..SLOTS).map(|_| None).collect(),
            free: (0..SLOTS as u32).rev().collect(),
            copies: vec![blank; SLOTS].into(),
            // The queue has no rate limit: requests leave as fast as the policy takes them.
            queue: RequestQueue::new(SLOTS, Bucket::new(0, 0, 0)),
            incoming: Vec::with_capacity(SIZE),
        }
    }

    fn take(&mut self, number: u32) -> Option<(Frame, Key)> {
        let packet = self.queued.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(packet)
    }

    /// Returns whether a frame is for the end of a tunnel.
    fn is_for_tunnel_end(&self, bytes: &[u8]) -> bool {
        let Some((ether, packet)) = bytes.split_first_chunk::<{ ethernet::LEN }>() else {
            return false;
        };
        let (to, protocol) = match u16::from_be_bytes([ether[12], ether[13]]) {
            ethernet::IPV4 => match ipv4::View::parse(packet) {
                Ok(ip) => (Address::V4(ip.dst()), ip.protocol()),
                Err(_) => return false,
            },
            ethernet::IPV6 => match ipv6::View::parse(packet) {
                Ok(ip) => (Address::V6(ip.dst()), ip.next_header()),
                Err(_) => return false,
            },
            _ => return false,
        };
        let tunneled = match protocol {
            wire::tunnel::IPV4_IN_IP | wire::tunnel::IPV6_IN_IP => true,
            udp::PROTOCOL => self.tunnels.port.is_some(),
            _ => false,
        };
        tunneled && self.tunnels.ends.contains(&to)
    }

    /// Decapsulates a frame of a tunnel, and queues it if it is a request.
    fn decapsulate(&mut self, arena: &mut Arena, mut frame: Frame, port: usize) -> Decapsulation {
        if !self.is_for_tunnel_end(arena.bytes(&frame)) {
            return Decapsulation::Routed(frame);
        }
        if !self.tunnels.ports.contains(&port) {
            return Decapsulation::Dropped(frame, Verdict::TunnelInterface);
        }
        let packet = arena.bytes_mut(&frame).get_mut(ethernet::LEN..).unwrap_or_default();
        if !source(packet).is_some_and(|gate| self.tunnels.gates.contains(&gate)) {
            return Decapsulation::Dropped(frame, Verdict::Spoofed);
        }
        let Self { keys, checker, now, tunnels, .. } = self;
        let opened =
            decapsulate_checked(packet, tunnels.port, |packet, outer| match tunnels.sealed {
                true => checker.check(keys.current(), packet, outer, *now),
                false => Ok(outer.dscp),
            });
        let opened = match opened {
            Ok(opened) => opened,
            Err(DecapsulationError::Refused(refused)) => {
                let verdict = match refused {
                    TunnelError::Untagged => Verdict::TunnelUntagged,
                    TunnelError::Key => Verdict::TunnelKey,
                    TunnelError::Forged => Verdict::TunnelForged,
                    TunnelError::Replayed => Verdict::TunnelReplayed,
                };
                return Decapsulation::Dropped(frame, verdict);
            }
            Err(DecapsulationError::Header(BadHeader::Checksum)) => {
                return Decapsulation::Dropped(frame, Verdict::BadChecksum);
            }
            // The parser reports which header is wrong.
            Err(DecapsulationError::Header(_)) => return Decapsulation::Routed(frame),
            Err(DecapsulationError::Congested) => {
                return Decapsulation::Dropped(frame, Verdict::LinkFull);
            }
        };
        let mut ether = [0; ethernet::LEN];
        ether.copy_from_slice(&arena.bytes(&frame)[..ethernet::LEN]);
        if !arena.resize(&mut frame, ethernet::LEN + opened.end)
            || !arena.shrink_front(&mut frame, opened.offset)
        {
            return Decapsulation::Dropped(frame, Verdict::Truncated);
        }
        let Some((front, inner)) =
            arena.bytes_mut(&frame).split_first_chunk_mut::<{ ethernet::LEN }>()
        else {
            return Decapsulation::Dropped(frame, Verdict::Truncated);
        };
        let six = inner.first().is_some_and(|first| first >> 4 == 6);
        let kind = if six { ethernet::IPV6 } else { ethernet::IPV4 };
        ether[12..].copy_from_slice(&kind.to_be_bytes());
        *front = ether;
        if !opened.requests_renewal() {
            return Decapsulation::Routed(frame);
        }
        let key = match six {
            true => ipv6::View::parse(&*inner).map(|ip| Key::V6(ip.dst())),
            false => ipv4::View::parse(&*inner).map(|ip| Key::V4(ip.dst())),
        };
        let Ok(key) = key else { return Decapsulation::Dropped(frame, Verdict::Truncated) };
        if inner.len() > MAX_PACKET {
            return Decapsulation::Dropped(frame, Verdict::TooBig);
        }
        let class = if opened.dscp == RENEWAL { HIGHEST_DSCP } else { opened.dscp };
        let mut displaced = None;
        if self.free.is_empty()
            && let Some(lowest) = self.queue.displace(class)
        {
            displaced = self.take(lowest.packet);
        }
        let Some(number) = self.free.pop() else {
            return Decapsulation::Dropped(frame, Verdict::LowPriority);
        };
        let copy = &mut self.copies[number as usize];
        copy.number = number;
        (copy.gate, copy.dscp, copy.congested) = (opened.gate, opened.dscp, opened.congested);
        copy.len = inner.len() as u16;
        copy.bytes[..inner.len()].copy_from_slice(inner);
        // The queue has a slot for each number.
        let _ = self.queue.offer(Request { packet: number, dscp: class, bytes: 0 });
        self.queued[number as usize] = Some((frame, key));
        match displaced {
            Some((frame, _)) => Decapsulation::Dropped(frame, Verdict::LowPriority),
            None => Decapsulation::Queued,
        }
    }

    /// Sends queued requests to the policy, the highest priority first, as far as the ring has room.
    fn send_requests(&mut self) {
        while !self.requests.is_full()
            && let Some(Request { packet: number, .. }) = self.queue.pop()
        {
            // The ring has room: no other thread fills it.
            let _ = self.requests.push(self.copies[number as usize].clone());
        }
    }

    /// Appends at most `room` packets that the policy has answered.
    fn dequeue(&mut self, room: usize, egress: &mut Vec<EgressPacket>) {
        for _ in 0..room {
            let Ok(PolicyAnswer { number, deliver }) = self.answers.pop() else { return };
            let Some((frame, key)) = self.take(number) else { return };
            let disposition =
                if deliver { Disposition::Forward } else { Disposition::Drop(Verdict::Declined) };
            egress.push(EgressPacket { frame, key, disposition });
        }
    }
}

impl PacketHook for GrantorHook {
    fn begin_turn(&mut self) -> u64 {
        self.now = self.start.elapsed().as_nanos() as u64;
        self.send_requests();
        self.now
    }

    fn handles_port(&self, _ingress: usize) -> bool {
        true
    }

    fn process_ingress(&mut self, batch: &mut IngressBatch<'_>) {
        std::mem::swap(batch.frames, &mut self.incoming);
        let mut incoming = std::mem::take(&mut self.incoming);
        for frame in incoming.drain(..) {
            let len = frame.len();
            match self.decapsulate(batch.arena, frame, batch.ingress) {
                Decapsulation::Routed(frame) => {
                    batch.frames.push(frame);
                    continue;
                }
                Decapsulation::Queued => {}
                Decapsulation::Dropped(frame, verdict) => batch.end(frame, verdict),
            }
            batch.take(len);
        }
        self.incoming = incoming;
        self.send_requests();
    }

    /// None of its packets enters a tunnel, so that none comes back as too long.
    fn dequeue_egress(&mut self, batch: EgressBatch<'_>) {
        self.dequeue(batch.room, batch.packets);
    }

    fn end_turn(&mut self, idle: bool) {
        if idle {
            self.keys.idle();
        }
    }

    fn has_pending_work(&self) -> bool {
        !self.answers.is_empty() || !self.queue.is_empty() && !self.requests.is_full()
    }

    fn queued(&self) -> usize {
        SLOTS - self.free.len()
    }

    fn close(&mut self, arena: &mut Arena, stats: &WorkerStats) {
        self.drop_queued(arena, stats);
    }

    fn drop_queued(&mut self, arena: &mut Arena, stats: &WorkerStats) {
        for slot in &mut self.queued {
            if let Some((frame, _)) = slot.take() {
                stats.end(arena, frame, Verdict::LowPriority, Point::Ingress(0));
            }
        }
        while self.queue.pop().is_some() {}
        self.free.clear();
        self.free.extend((0..SLOTS as u32).rev());
    }
}

#[cfg(test)]
mod tests {
    use rtrb::RingBuffer;
    use wire::tunnel::{Ends, Header};

    use super::*;

    const GATE: u32 = 0x0a02_0001;
    const END: u32 = 0x0a09_0164;

    /// Returns a frame with a request or renewal in the gate's tunnel.
    fn tunneled(arena: &mut Arena, src: u32, dscp: u8) -> Frame {
        let mut inner = [0; 40];
        let header =
            ipv4::Header { total_len: 40, protocol: 6, ttl: 9, src, dst: 7, ..Default::default() };
        header.emit(&mut inner).unwrap();
        let ends = Ends::V4 { src: GATE, dst: END };
        let outer = Header { ends, dscp, hop_limit: 64, udp: None };
        let mut bytes = [&[0; 34][..], &inner].concat();
        outer.emit(&mut bytes[14..]).unwrap();
        bytes[12..14].copy_from_slice(&ethernet::IPV4.to_be_bytes());
        let mut frame = arena.alloc().unwrap();
        assert!(arena.resize(&mut frame, bytes.len()));
        arena.bytes_mut(&frame).copy_from_slice(&bytes);
        frame
    }

    fn source(request: &RequestPacket) -> u32 {
        ipv4::View::parse(request.packet()).unwrap().src()
    }

    #[test]
    fn full_queue_drops_the_lowest_priority_and_serves_the_highest_first() {
        let mut arena = Arena::new(2 * SLOTS as u32, 2048).unwrap();
        let (requests, mut queue) = RingBuffer::new(RING);
        let (mut answer, answers) = RingBuffer::new(SLOTS);
        let tunnels = TunnelEndpoints {
            ends: vec![Address::V4(END)],
            gates: vec![Address::V4(GATE)],
            port: None,
            ports: vec![0],
            sealed: false,
        };
        let keys = fib::Publisher::new(GateKeys::default()).reader();
        let mut hook = GrantorHook::new(tunnels, HookRings { requests, answers, keys });
        let mut receive = |hook: &mut GrantorHook, src, dscp| {
            let frame = tunneled(&mut arena, src, dscp);
            match hook.decapsulate(&mut arena, frame, 0) {
                Decapsulation::Queued => None,
                Decapsulation::Dropped(frame, verdict) => {
                    let src = ipv4::View::parse(&arena.bytes(&frame)[14..]).unwrap().src();
                    arena.free(frame);
                    Some((src, verdict))
                }
                Decapsulation::Routed(frame) => panic!("{frame:?} is no request"),
            }
        };
        // A flood of first packets takes all slots, some of them in the ring to the policy.
        for src in 0..SLOTS as u32 {
            assert_eq!(receive(&mut hook, src, 41), None);
            hook.send_requests();
        }
        assert_eq!(receive(&mut hook, 9999, 41), Some((9999, Verdict::LowPriority)));
        // A request of higher priority and a renewal displace the youngest packets of the flood.
        let youngest = SLOTS as u32 - 1;
        let low = Verdict::LowPriority;
        assert_eq!(receive(&mut hook, 10_001, 43), Some((youngest, low)));
        assert_eq!(receive(&mut hook, 10_002, 2), Some((youngest - 1, low)));
        assert_eq!(receive(&mut hook, 10_003, 30), Some((10_003, low)));
        // The policy gets the requests in the ring, and then the highest priority first.
        let mut order = Vec::new();
        while let Ok(request) = queue.pop() {
            order.push(source(&request));
            answer.push(PolicyAnswer { number: request.number, deliver: true }).unwrap();
            hook.send_requests();
        }
        assert_eq!(order.len(), SLOTS);
        let sent_at_once = RING as u32;
        assert!(order.iter().take(RING).copied().eq(0..sent_at_once));
        assert_eq!(order[RING..RING + 3], [10_002, 10_001, sent_at_once]);
        // Each request is answered once, and all numbers are free again.
        let mut egress = Vec::new();
        hook.dequeue(2 * SLOTS, &mut egress);
        assert_eq!((egress.len(), PacketHook::queued(&hook)), (SLOTS, 0));
    }
}
