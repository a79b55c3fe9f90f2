//! A worker's hook in a grantor: packets out of their tunnel, and those that ask set aside.
//!
//! ```text
//!   on an interface not in [tunnel] interfaces ─► tunnel_interface
//!   outer source no gate of ours ─► spoofed          CE on what does not know ECN ─► link_full
//!   no seal, or no right one ─► tunnel_untagged, tunnel_key, tunnel_forged, tunnel_replayed
//!   DSCP 0, 1 ────────────────────► stays in the batch, decapsulated
//!   DSCP 2 … ─► kept, copied ─► queue, by priority ─► ring ─► answer: forwarded, or `declined`
//! ```
//!
//! Decapsulation is in place: the frame begins later, with a new Ethernet header. What is not
//! for the end of a tunnel stays as it is and is routed like any packet. A packet that asks
//! is copied for the policy (few do), so that the frame need not leave the worker.
//!
//! **The queue** is the one that a gate's link has for requests (`gate/src/limit/request_queue.rs`):
//! the highest DSCP is decided of first, and where all places are taken the lowest goes for a
//! higher one, as `low_priority`. Packets that ask for the renewal of a grant come before all
//! requests. The ring to the policy holds [`FLIGHT`] only, so that what waits waits where it is
//! sorted.

use std::time::Instant;

use fib::Reader;
use gate::grantor::{DecapsulationError, decapsulate_checked};
use gate::limit::bucket::Bucket;
use gate::limit::request_queue::{Request, RequestQueue};
use gate::policy::Address;
use gate::priority::HIGHEST_DSCP;
use gate::tunnel::{GateKeys, PrivateData, TunnelError, TunnelVerifier};
use port::{Arena, Frame};
use rtrb::{Consumer, Producer};
use wire::tunnel::Header;
use wire::{BadHeader, ethernet, ipv4, ipv6, udp};

use crate::datapath::{
    Disposition, EgressPacket, IngressBatch, Key, PacketHook, SIZE, TunnelParameters, Verdict,
};
use crate::stats::WorkerStats;

/// Requests that a worker keeps.
pub(super) const PLACES: usize = 512;
/// Packets on their way to the policy: twice a batch.
pub(super) const FLIGHT: usize = 64;
/// The DSCP of packets that ask for renewal.
const RENEWAL: u8 = 2;
/// The most bytes of a packet that asks.
const MOST: usize = 2048;

/// A packet that asks, for the policy.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) number: u32,
    pub(super) gate: Address,
    pub(super) dscp: u8,
    pub(super) congested: bool,
    len: u16,
    bytes: [u8; MOST],
}

impl Ask {
    pub(super) fn packet(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// What the policy says of the packet with this number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) number: u32,
    pub(super) deliver: bool,
}

/// Where tunnels end, and whose they are.
#[derive(Clone, Debug, Default)]
pub(super) struct TunnelEndpoints {
    pub(super) ends: Vec<Address>,
    pub(super) gates: Vec<Address>,
    /// Packets in UDP to this port are taken too.
    pub(super) port: Option<u16>,
    /// The ports that they may come in on.
    pub(super) ports: Vec<usize>,
    /// They have to be sealed.
    pub(super) sealed: bool,
}

/// Returns the source of a packet.
fn source(packet: &[u8]) -> Option<Address> {
    if packet.first()? >> 4 == 6 {
        return ipv6::View::parse(packet).ok().map(|ip| Address::V6(ip.src()));
    }
    ipv4::View::parse(packet).ok().map(|ip| Address::V4(ip.src()))
}

/// The connections of a worker's hook: its policy's thread and the post.
pub(super) struct Ends {
    pub(super) asks: Producer<Ask>,
    pub(super) answers: Consumer<Answer>,
    pub(super) keys: Reader<GateKeys>,
}

/// A worker's hook.
pub(super) struct GrantorHook {
    tunnels: TunnelEndpoints,
    asks: Producer<Ask>,
    answers: Consumer<Answer>,
    kept: Box<[Option<(Frame, Key)>]>,
    free: Vec<u32>,
    /// The request for the policy of each kept packet, by number.
    copies: Box<[Ask]>,
    /// Requests that are not sent to the policy yet.
    queue: RequestQueue<u32>,
    incoming: Vec<Frame>,
    keys: Reader<GateKeys>,
    checker: TunnelVerifier,
    start: Instant,
    now: u64,
}

/// What becomes of a packet.
#[derive(Debug)]
enum Settled {
    Stays(Frame),
    Kept,
    /// It is dropped with this verdict, or replaces another that is.
    Ended(Frame, Verdict),
}

impl GrantorHook {
    pub(super) fn new(tunnels: TunnelEndpoints, ends: Ends) -> Self {
        let Ends { asks, answers, keys } = ends;
        let blank = Ask {
            number: 0,
            gate: Address::V4(0),
            dscp: 0,
            congested: false,
            len: 0,
            bytes: [0; MOST],
        };
        Self {
            keys,
            checker: TunnelVerifier::new(tunnels.gates.iter().copied()),
            start: Instant::now(),
            now: 0,
            tunnels,
            asks,
            answers,
            kept: (0..PLACES).map(|_| None).collect(),
            free: (0..PLACES as u32).rev().collect(),
            copies: vec![blank; PLACES].into(),
            // It leaves as fast as the policy takes it: no rate is held to.
            queue: RequestQueue::new(PLACES, Bucket::new(0, 0, 0)),
            incoming: Vec::with_capacity(SIZE),
        }
    }

    fn take(&mut self, number: u32) -> Option<(Frame, Key)> {
        let kept = self.kept.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(kept)
    }

    /// Says whether a frame is for the end of a tunnel.
    fn ends_here(&self, bytes: &[u8]) -> bool {
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

    fn settle(&mut self, arena: &mut Arena, mut frame: Frame, port: usize) -> Settled {
        if !self.ends_here(arena.bytes(&frame)) {
            return Settled::Stays(frame);
        }
        if !self.tunnels.ports.contains(&port) {
            return Settled::Ended(frame, Verdict::TunnelInterface);
        }
        let packet = arena.bytes_mut(&frame).get_mut(ethernet::LEN..).unwrap_or_default();
        if !source(packet).is_some_and(|gate| self.tunnels.gates.contains(&gate)) {
            return Settled::Ended(frame, Verdict::Spoofed);
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
                return Settled::Ended(frame, verdict);
            }
            Err(DecapsulationError::Header(BadHeader::Checksum)) => {
                return Settled::Ended(frame, Verdict::BadChecksum);
            }
            // A header is wrong: what parses packets says which.
            Err(DecapsulationError::Header(_)) => return Settled::Stays(frame),
            Err(DecapsulationError::Congested) => return Settled::Ended(frame, Verdict::LinkFull),
        };
        let mut ether = [0; ethernet::LEN];
        ether.copy_from_slice(&arena.bytes(&frame)[..ethernet::LEN]);
        if !arena.resize(&mut frame, ethernet::LEN + opened.end)
            || !arena.shrink_front(&mut frame, opened.offset)
        {
            return Settled::Ended(frame, Verdict::Truncated);
        }
        let Some((front, inner)) =
            arena.bytes_mut(&frame).split_first_chunk_mut::<{ ethernet::LEN }>()
        else {
            return Settled::Ended(frame, Verdict::Truncated);
        };
        let six = inner.first().is_some_and(|first| first >> 4 == 6);
        let kind = if six { ethernet::IPV6 } else { ethernet::IPV4 };
        ether[12..].copy_from_slice(&kind.to_be_bytes());
        *front = ether;
        if !opened.asks() {
            return Settled::Stays(frame);
        }
        let key = match six {
            true => ipv6::View::parse(&*inner).map(|ip| Key::V6(ip.dst())),
            false => ipv4::View::parse(&*inner).map(|ip| Key::V4(ip.dst())),
        };
        let Ok(key) = key else { return Settled::Ended(frame, Verdict::Truncated) };
        if inner.len() > MOST {
            return Settled::Ended(frame, Verdict::TooBig);
        }
        let class = if opened.dscp == RENEWAL { HIGHEST_DSCP } else { opened.dscp };
        let mut displaced = None;
        if self.free.is_empty()
            && let Some(lowest) = self.queue.displace(class)
        {
            displaced = self.take(lowest.packet);
        }
        let Some(number) = self.free.pop() else {
            return Settled::Ended(frame, Verdict::LowPriority);
        };
        let copy = &mut self.copies[number as usize];
        copy.number = number;
        (copy.gate, copy.dscp, copy.congested) = (opened.gate, opened.dscp, opened.congested);
        copy.len = inner.len() as u16;
        copy.bytes[..inner.len()].copy_from_slice(inner);
        // There is a place for each number.
        let _ = self.queue.offer(Request { packet: number, dscp: class, bytes: 0 });
        self.kept[number as usize] = Some((frame, key));
        match displaced {
            Some((frame, _)) => Settled::Ended(frame, Verdict::LowPriority),
            None => Settled::Kept,
        }
    }

    /// Sends the policy what waits, the highest priority first, as far as there is room.
    fn feed(&mut self) {
        while !self.asks.is_full()
            && let Some(Request { packet: number, .. }) = self.queue.pop()
        {
            // It had room a moment ago, and no other thread fills it.
            let _ = self.asks.push(self.copies[number as usize].clone());
        }
    }
}

impl PacketHook for GrantorHook {
    fn begin_turn(&mut self) {
        self.now = self.start.elapsed().as_nanos() as u64;
        self.feed();
    }

    fn handles_port(&self, _ingress: usize) -> bool {
        true
    }

    fn process_ingress(&mut self, batch: IngressBatch<'_>) {
        let IngressBatch { arena, frames, stats, ingress, .. } = batch;
        std::mem::swap(frames, &mut self.incoming);
        let mut incoming = std::mem::take(&mut self.incoming);
        let (mut taken, mut bytes) = (0, 0);
        for frame in incoming.drain(..) {
            let len = frame.len() as u64;
            match self.settle(arena, frame, ingress) {
                Settled::Stays(frame) => {
                    frames.push(frame);
                    continue;
                }
                Settled::Kept => {}
                Settled::Ended(frame, verdict) => {
                    arena.free(frame);
                    stats.ended(verdict, 1);
                }
            }
            taken += 1;
            bytes += len;
        }
        self.incoming = incoming;
        self.feed();
        if taken > 0 {
            stats.received(taken, bytes);
        }
    }

    fn dequeue_egress(&mut self, room: usize, egress: &mut Vec<EgressPacket>) {
        for _ in 0..room {
            let Ok(Answer { number, deliver }) = self.answers.pop() else { return };
            let Some((frame, key)) = self.take(number) else { return };
            let disposition =
                if deliver { Disposition::Forward } else { Disposition::Drop(Verdict::Declined) };
            egress.push(EgressPacket { frame, key, disposition });
        }
    }

    /// None begins here.
    fn tunnel_parameters(&self) -> TunnelParameters {
        TunnelParameters::default()
    }

    fn seal(&mut self, _: &Header, _: &[u8]) -> Option<PrivateData> {
        None
    }

    fn report_too_big(&mut self, _: &mut Arena, _: &Frame, _: u32, _: bool, _: &WorkerStats) {}

    fn end_turn(&mut self, idle: bool) {
        if idle {
            self.keys.idle();
        }
    }

    fn has_pending_work(&self) -> bool {
        !self.answers.is_empty() || !self.queue.is_empty() && !self.asks.is_full()
    }

    fn queued(&self) -> usize {
        PLACES - self.free.len()
    }

    fn close(&mut self, arena: &mut Arena, stats: &WorkerStats) {
        self.drop_queued(arena, stats);
    }

    fn drop_queued(&mut self, arena: &mut Arena, stats: &WorkerStats) {
        for kept in &mut self.kept {
            if let Some((frame, _)) = kept.take() {
                arena.free(frame);
                stats.ended(Verdict::LowPriority, 1);
            }
        }
        while self.queue.pop().is_some() {}
        self.free.clear();
        self.free.extend((0..PLACES as u32).rev());
    }
}

#[cfg(test)]
mod tests {
    use rtrb::RingBuffer;
    use wire::tunnel::{Ends, Header};

    use super::*;

    const GATE: u32 = 0x0a02_0001;
    const END: u32 = 0x0a09_0164;

    /// A request or renewal in the gate's tunnel, as a frame.
    fn sealed(arena: &mut Arena, src: u32, dscp: u8) -> Frame {
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

    fn source(ask: &Ask) -> u32 {
        ipv4::View::parse(ask.packet()).unwrap().src()
    }

    #[test]
    fn full_queue_drops_the_lowest_priority_and_serves_the_highest_first() {
        let mut arena = Arena::new(2 * PLACES as u32, 2048).unwrap();
        let (asks, mut queue) = RingBuffer::new(FLIGHT);
        let (mut answer, answers) = RingBuffer::new(PLACES);
        let tunnels = TunnelEndpoints {
            ends: vec![Address::V4(END)],
            gates: vec![Address::V4(GATE)],
            port: None,
            ports: vec![0],
            sealed: false,
        };
        let keys = fib::Publisher::new(GateKeys::default()).reader();
        let mut hook = GrantorHook::new(tunnels, super::Ends { asks, answers, keys });
        let mut settle = |hook: &mut GrantorHook, src, dscp| {
            let frame = sealed(&mut arena, src, dscp);
            match hook.settle(&mut arena, frame, 0) {
                Settled::Kept => None,
                Settled::Ended(frame, verdict) => {
                    let src = ipv4::View::parse(&arena.bytes(&frame)[14..]).unwrap().src();
                    arena.free(frame);
                    Some((src, verdict))
                }
                Settled::Stays(frame) => panic!("{frame:?} stays"),
            }
        };
        // A flood of first packets takes all places, some of them on their way to the policy.
        for src in 0..PLACES as u32 {
            assert_eq!(settle(&mut hook, src, 41), None);
            hook.feed();
        }
        assert_eq!(settle(&mut hook, 9999, 41), Some((9999, Verdict::LowPriority)));
        // One that has been patient, and a renewal, find room: the youngest of the flood goes.
        let youngest = PLACES as u32 - 1;
        let low = Verdict::LowPriority;
        assert_eq!(settle(&mut hook, 10_001, 43), Some((youngest, low)));
        assert_eq!(settle(&mut hook, 10_002, 2), Some((youngest - 1, low)));
        assert_eq!(settle(&mut hook, 10_003, 30), Some((10_003, low)));
        // The policy has what was on its way, and then the highest first.
        let mut order = Vec::new();
        while let Ok(ask) = queue.pop() {
            order.push(source(&ask));
            answer.push(Answer { number: ask.number, deliver: true }).unwrap();
            hook.feed();
        }
        assert_eq!(order.len(), PLACES);
        let flight = FLIGHT as u32;
        assert!(order.iter().take(FLIGHT).copied().eq(0..flight));
        assert_eq!(order[FLIGHT..FLIGHT + 3], [10_002, 10_001, flight]);
        // Each is answered once, and all numbers are free again.
        let mut egress = Vec::new();
        PacketHook::dequeue_egress(&mut hook, 2 * PLACES, &mut egress);
        assert_eq!((egress.len(), PacketHook::queued(&hook)), (PLACES, 0));
    }
}
