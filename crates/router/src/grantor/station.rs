//! A worker's station in a grantor: packets out of their tunnel, and those that ask set aside.
//!
//! ```text
//!   outer source no gate of ours ─► spoofed          CE on what does not know ECN ─► link_full
//!   DSCP 0, 1 ────────────────────► stays in the batch, decapsulated
//!   DSCP 2 … ─► kept, copied to the ring ─► answer: forwarded, or `declined`
//! ```
//!
//! Decapsulation is in place: the frame begins later, with a new Ethernet header. What is not
//! for the end of a tunnel stays as it is and is routed like any packet. A packet that asks
//! is copied for the policy (few do), so that the frame need not leave the worker.

use gate::grantor::{Closed, open_with};
use gate::policy::Address;
use port::{Arena, Frame};
use rtrb::{Consumer, Producer};
use wire::{BadHeader, ethernet, ipv4, ipv6, udp};

use crate::datapath::{self, Key, Leaving, SIZE, Sifting, Verdict, Way};
use crate::stats::WorkerStats;

/// Requests that a worker keeps.
pub(super) const PLACES: usize = 512;
/// The most bytes of a packet that asks.
const MOST: usize = 2048;

/// A packet that asks, for the policy.
#[derive(Clone)]
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
pub(super) struct Tunnels {
    pub(super) ends: Vec<Address>,
    pub(super) gates: Vec<Address>,
    /// Packets in UDP to this port are taken too.
    pub(super) port: Option<u16>,
}

/// A worker's station.
pub(super) struct Station {
    tunnels: Tunnels,
    asks: Producer<Ask>,
    answers: Consumer<Answer>,
    kept: Box<[Option<(Frame, Key)>]>,
    free: Vec<u32>,
    incoming: Vec<Frame>,
}

/// What becomes of a packet.
enum Settled {
    Stays(Frame),
    Kept,
    Ended(Frame, Verdict),
}

impl Station {
    pub(super) fn new(tunnels: Tunnels, asks: Producer<Ask>, answers: Consumer<Answer>) -> Self {
        Self {
            tunnels,
            asks,
            answers,
            kept: (0..PLACES).map(|_| None).collect(),
            free: (0..PLACES as u32).rev().collect(),
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
        let tunnelled = match protocol {
            wire::tunnel::IPV4_IN_IP | wire::tunnel::IPV6_IN_IP => true,
            udp::PROTOCOL => self.tunnels.port.is_some(),
            _ => false,
        };
        tunnelled && self.tunnels.ends.contains(&to)
    }

    fn settle(&mut self, arena: &mut Arena, mut frame: Frame) -> Settled {
        if !self.ends_here(arena.bytes(&frame)) {
            return Settled::Stays(frame);
        }
        let packet = arena.bytes_mut(&frame).get_mut(ethernet::LEN..).unwrap_or_default();
        let opened = match open_with(packet, self.tunnels.port) {
            Ok(opened) => opened,
            Err(Closed::Header(BadHeader::Checksum)) => {
                return Settled::Ended(frame, Verdict::BadChecksum);
            }
            // A header is wrong: what parses packets says which.
            Err(Closed::Header(_)) => return Settled::Stays(frame),
            Err(Closed::Congested) => return Settled::Ended(frame, Verdict::LinkFull),
        };
        if !self.tunnels.gates.contains(&opened.gate) {
            return Settled::Ended(frame, Verdict::Spoofed);
        }
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
        let Some(number) = self.free.pop() else {
            return Settled::Ended(frame, Verdict::LowPriority);
        };
        let mut ask = Ask {
            number,
            gate: opened.gate,
            dscp: opened.dscp,
            congested: opened.congested,
            len: inner.len() as u16,
            bytes: [0; MOST],
        };
        ask.bytes[..inner.len()].copy_from_slice(inner);
        if self.asks.push(ask).is_err() {
            self.free.push(number);
            return Settled::Ended(frame, Verdict::LowPriority);
        }
        self.kept[number as usize] = Some((frame, key));
        Settled::Kept
    }
}

impl datapath::Station for Station {
    fn begin(&mut self) {}

    fn guards(&self, _ingress: usize) -> bool {
        true
    }

    fn sift(&mut self, sifting: Sifting<'_>) {
        let Sifting { arena, frames, stats, .. } = sifting;
        std::mem::swap(frames, &mut self.incoming);
        let mut incoming = std::mem::take(&mut self.incoming);
        let (mut taken, mut bytes) = (0, 0);
        for frame in incoming.drain(..) {
            let len = frame.len() as u64;
            match self.settle(arena, frame) {
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
        if taken > 0 {
            stats.received(taken, bytes);
        }
    }

    fn leave(&mut self, room: usize, leaving: &mut Vec<Leaving>) {
        for _ in 0..room {
            let Ok(Answer { number, deliver }) = self.answers.pop() else { return };
            let Some((frame, key)) = self.take(number) else { return };
            let way = if deliver { Way::Forwarded } else { Way::Dropped(Verdict::Declined) };
            leaving.push(Leaving { frame, key, way });
        }
    }

    /// None begins here.
    fn tunnels(&self) -> datapath::Tunnels {
        datapath::Tunnels::default()
    }

    fn too_big(&mut self, _: &mut Arena, _: &Frame, _: u32, _: &WorkerStats) {}

    fn end(&mut self, _idle: bool) {}

    fn is_busy(&self) -> bool {
        !self.answers.is_empty()
    }

    fn waiting(&self) -> usize {
        PLACES - self.free.len()
    }

    fn close(&mut self, arena: &mut Arena, stats: &WorkerStats) {
        for kept in &mut self.kept {
            if let Some((frame, _)) = kept.take() {
                arena.free(frame);
                stats.ended(Verdict::LowPriority, 1);
            }
        }
        self.free.clear();
        self.free.extend((0..PLACES as u32).rev());
    }
}
