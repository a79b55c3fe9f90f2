//! The packet hook: lets a gate or a grantor take packets out of a batch and send others.
//!
//! ```text
//!   receive ─► process_ingress ─► parse ─► lookup ─► rewrite ─► port     forwarded packets
//!               │ dropped, counted
//!               ▼ queued
//!             queues ─► dequeue_egress ─► lookup of the tunnel's end ─► encapsulate ─► port
//!                                     └─► lookup of the destination ──► rewrite ─────► port
//! ```
//!
//! A worker has no flow state. It passes the packets that a port with a hook received to
//! [`PacketHook::process_ingress`], which leaves in the batch the packets that are routed like any
//! other. After the batch the worker calls [`PacketHook::dequeue_egress`], looks all of those packets
//! up together and sends them. Packets in the hook's queues count as held, so that the sum of the
//! verdicts always equals the packets received.
//!
//! A packet is encapsulated after the lookup, because only then its link's MTU is known. A packet that
//! is too long for the link is still in its original form, so that its sender gets an ICMP error.
//! A packet that enters a tunnel is never punted: the host's stack would forward it past the gate.

use fib::Hop;
use port::{Arena, Frame};
use wire::tunnel::{Ends, Header, Ports};
use wire::{ethernet, ipv4, ipv6};

use super::batch::SIZE;
use super::turn::{Punts, Turn, rewrite};
use super::want::Key;
use super::worker::{FEW, MARKING};
use super::{
    Adjacencies, Locals, Lookup, Parsed, Rewritten, Verdict, Worker, flow_v4, flow_v6, originate,
    rewrite_v4, rewrite_v6,
};
use crate::stats::WorkerStats;

/// Length of the private data that seals a tunnel packet, in bytes.
pub const SEAL_LEN: usize = 36;

/// The private data that seals a tunnel packet.
pub type Seal = [u8; SEAL_LEN];

/// The packets that a port received, for a hook.
#[derive(Debug)]
pub struct IngressBatch<'w> {
    /// The arena that owns the frames.
    pub arena: &'w mut Arena,
    /// The frames in order of arrival; the hook leaves those that are routed by destination.
    pub frames: &'w mut Vec<Frame>,
    /// The index of the port.
    pub ingress: usize,
    /// Another worker handed the frames over: they belong to this worker's flows, and each
    /// frame's mark is its flow's hash.
    pub handed: bool,
    /// The port's MAC address.
    pub mac: [u8; 6],
    /// This machine's own addresses.
    pub locals: &'w Locals,
    /// The counters for frames that the hook takes out.
    pub stats: &'w WorkerStats,
}

/// A packet that a hook sends.
#[derive(Debug)]
pub struct EgressPacket {
    /// The frame.
    pub frame: Frame,
    /// The address that is looked up.
    pub key: Key,
    /// The worker's next step for the packet.
    pub disposition: Disposition,
}

/// The worker's next step for a packet of a hook.
#[derive(Clone, Copy, Debug)]
pub enum Disposition {
    /// Forwarded as it is.
    Forward,
    /// Send it as a packet of this machine, with its TTL unchanged.
    Originate,
    /// Send it unchanged, Ethernet header included, on this port: an answer to a received packet.
    Return {
        /// The port.
        port: u16,
    },
    /// Drop it with this verdict.
    Drop(Verdict),
    /// Encapsulate it to the tunnel's end, which is the address that is looked up.
    Tunnel {
        /// The DSCP of the outer header.
        dscp: u8,
        /// The flow's hash.
        hash: u32,
        /// Send it to the next hop of the tunnel's end without an outer header, if that neighbor
        /// is resolved.
        direct: bool,
        /// Seal it ([`PacketHook::seal`]).
        sealed: bool,
    },
}

/// The parameters that all tunnels of a worker share.
///
/// The outer header is built from them when its packet is sent. A list of finished headers would have
/// twice the size of an [`EgressPacket`], and those of one batch would fill the nearest cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct TunnelParameters {
    /// The source address of tunnels over IPv4.
    pub from4: u32,
    /// The source address of tunnels over IPv6.
    pub from6: u128,
    /// The UDP destination port, if tunnels use UDP.
    pub udp: Option<u16>,
    /// The UDP port of sealed tunnels, which always use UDP.
    pub sealed: u16,
    /// The secret from which flow labels and source ports are derived.
    pub secret: u64,
    /// The maximum length of an encapsulated packet, outer header included.
    pub mtu: u16,
}

impl TunnelParameters {
    /// Returns the outer header of a packet to `end`, of the flow with this hash.
    #[inline(always)]
    fn header(&self, end: Key, dscp: u8, hash: u32, sealed: bool) -> Header {
        let ends = match end {
            Key::V4(dst) => Ends::V4 { src: self.from4, dst },
            Key::V6(dst) => Ends::V6 { src: self.from6, dst, flow_label: self.label(hash) },
        };
        let port = if sealed { Some(self.sealed) } else { self.udp };
        let udp = port.map(|port| Ports::of(self.label(hash) >> 6, port));
        Header { ends, dscp, hop_limit: HOPS, udp }
    }

    /// Returns the flow label of a flow. It is not the hash itself, which is secret.
    fn label(&self, hash: u32) -> u32 {
        ((u64::from(hash) ^ self.secret >> 32).wrapping_mul(self.secret | 1) >> 44) as u32
    }
}

/// Packet processing of a gate or a grantor inside a worker.
///
/// Like the rest of the datapath, a hook neither allocates nor blocks.
pub trait PacketHook: Send {
    /// Begins a turn: reads the clock and applies the decisions that arrived since the last turn.
    fn begin_turn(&mut self);

    /// Returns whether the hook processes the packets of this port.
    fn handles_port(&self, ingress: usize) -> bool;

    /// Takes out the frames that are not routed by destination, and counts them.
    fn process_ingress(&mut self, batch: IngressBatch<'_>);

    /// Appends at most `room` packets that leave now.
    fn dequeue_egress(&mut self, room: usize, egress: &mut Vec<EgressPacket>);

    /// Returns the parameters of its tunnels.
    fn tunnel_parameters(&self) -> TunnelParameters;

    /// Returns the private data of a sealed packet with this outer header (`gate::tunnel`), or `None`
    /// if the packet cannot be sealed: no key, or no sequence numbers left.
    fn seal(&mut self, header: &Header, inner: &[u8]) -> Option<Seal>;

    /// Handles a packet that is too long for its tunnel: queues an ICMP error that reports `mtu`,
    /// the longest inner packet that fits. `granted` says whether its flow is granted.
    fn report_too_big(
        &mut self,
        arena: &mut Arena,
        frame: &Frame,
        mtu: u32,
        granted: bool,
        stats: &WorkerStats,
    );

    /// Ends a turn; `idle` if no packet was sent in it.
    fn end_turn(&mut self, idle: bool);

    /// Returns whether the hook has work to do in the next turn even if no packet arrives.
    fn has_pending_work(&self) -> bool;

    /// Returns the number of packets in its queues.
    fn queued(&self) -> usize;

    /// Drops all queued packets, whose frames belong to `arena`. The hook continues with another
    /// worker and another arena.
    fn drop_queued(&mut self, arena: &mut Arena, stats: &WorkerStats);

    /// Drops all queued packets and releases the hook's state.
    fn close(&mut self, arena: &mut Arena, stats: &WorkerStats);
}

/// Packets that are dequeued at a time: their metadata stays in the nearest cache.
const PART: usize = 64;
/// The prefetch distance, in packets.
const AHEAD: usize = 4;
/// The outer TTL and hop limit (RFC 2003, 3.1; RFC 2473, 6.3).
const HOPS: u8 = 64;
/// The DSCP of granted packets.
const GRANTED: u8 = 1;
/// The highest DSCP of granted packets: those that request a renewal.
const RENEWAL: u8 = 2;

impl<L: Lookup> Worker<L> {
    /// Sends the hook's egress packets and returns their number.
    pub(super) fn transmit_egress(&mut self) -> usize {
        let Self { arena, lanes, tables, adjacencies, ingresses, batch, egress, .. } = self;
        let (wants, stats, now) = (&mut self.wants, &*self.stats, self.now);
        let policer = &mut self.punts;
        let Some(hook) = self.hook.as_deref_mut() else { return 0 };
        // Packets to an unresolved neighbor are held with those of the hook's first port.
        let ingress = (0..lanes.len()).find(|&port| hook.handles_port(port)).unwrap_or(0);
        let terms = ingresses.current().get(ingress);
        let (table, further, isolated) = (terms.table, terms.further, terms.isolated);
        let tunnels = hook.tunnel_parameters();
        let mut sent = 0;
        while sent < SIZE {
            hook.dequeue_egress(PART, egress);
            if egress.is_empty() {
                break;
            }
            sent += egress.len();
            batch.clear();
            for EgressPacket { key, .. } in &*egress {
                batch.push(match *key {
                    Key::V4(key) => Parsed::V4(key),
                    Key::V6(key) => Parsed::V6(key),
                });
            }
            batch.seal();
            let (v4, v6) = batch.lookup(tables, table);
            if egress.len() < FEW || now % MARKING == 1 {
                batch.mark(wants);
            }
            stats.looked_up(v4 as u64, v6 as u64);
            let adjacencies = adjacencies.current();
            let (mut each, mut outcomes) = (egress.drain(..), batch.outcomes());
            while let (Some(EgressPacket { mut frame, key, disposition }), Some((kind, hop))) =
                (each.next(), outcomes.next())
            {
                if let Some(ahead) = each.as_slice().get(AHEAD) {
                    arena.prefetch(&ahead.frame);
                }
                let rewritten = match disposition {
                    Disposition::Forward => {
                        rewrite(arena.bytes_mut(&frame), kind, hop, adjacencies)
                    }
                    Disposition::Originate => rewrite_originated(arena, &frame, hop, adjacencies),
                    Disposition::Return { port } => Ok((port, frame.len())),
                    Disposition::Drop(verdict) => Err(verdict),
                    Disposition::Tunnel { direct: true, .. }
                        if adjacencies.get(adjacencies.member(hop, |_| 0)).port().is_ok() =>
                    {
                        let (rewritten, mtu) = rewrite_direct(arena, &frame, hop, adjacencies);
                        if rewritten == Err(Verdict::TooBig) {
                            hook.report_too_big(arena, &frame, mtu, true, stats);
                        }
                        rewritten
                    }
                    Disposition::Tunnel { dscp, hash, sealed, .. } => {
                        let header = tunnels.header(key, dscp, hash, sealed);
                        let most = tunnels.mtu;
                        let mut sealer: Option<&mut dyn PacketHook> = None;
                        if sealed {
                            sealer = Some(&mut *hook);
                        }
                        match encapsulate(
                            arena,
                            &mut frame,
                            hop,
                            adjacencies,
                            &header,
                            most,
                            sealer,
                        ) {
                            Encapsulation::Done => {
                                rewrite_originated(arena, &frame, hop, adjacencies)
                            }
                            Encapsulation::Refused(verdict) => Err(verdict),
                            Encapsulation::TooBig(mtu) => {
                                hook.report_too_big(arena, &frame, mtu, dscp <= RENEWAL, stats);
                                Err(Verdict::TooBig)
                            }
                        }
                    }
                };
                let verdict = match rewritten {
                    Ok((egress, len)) => match lanes.get_mut(usize::from(egress)) {
                        Some(lane) => {
                            lane.stage(arena, frame, len);
                            continue;
                        }
                        None => Verdict::NoRoute,
                    },
                    Err(verdict) => verdict,
                };
                let (arena, lanes, wants) = (&mut *arena, &mut **lanes, &mut *wants);
                let punts = Punts { policer: &mut *policer, further, isolated };
                let turn =
                    Turn { arena, lanes, stats, adjacencies, wants, ingress, table, punts, now };
                match disposition {
                    Disposition::Forward => turn.stay(frame, kind, hop, verdict),
                    Disposition::Originate
                    | Disposition::Return { .. }
                    | Disposition::Drop(_)
                    | Disposition::Tunnel { .. } => turn.stay_own(frame, kind, hop, verdict),
                }
            }
        }
        if sent == 0 {
            hook.end_turn(true);
            return 0;
        }
        for lane in lanes.iter_mut().filter(|lane| !lane.staged.is_empty()) {
            lane.send(arena, stats);
        }
        hook.end_turn(false);
        sent
    }
}

/// The result of an encapsulation.
enum Encapsulation {
    /// The packet has its outer header.
    Done,
    /// The packet is unchanged and is to be dropped with this verdict.
    Refused(Verdict),
    /// The packet is unchanged: with the outer header it exceeds the MTU. The longest inner packet
    /// that fits has this many bytes.
    TooBig(u32),
}

/// Encapsulates a packet in place, if its link is usable and the result fits its MTU.
fn encapsulate(
    arena: &mut Arena,
    frame: &mut Frame,
    hop: Hop,
    adjacencies: &Adjacencies,
    header: &Header,
    most: u16,
    sealer: Option<&mut dyn PacketHook>,
) -> Encapsulation {
    let len = if sealer.is_some() { header.len_with(SEAL_LEN) } else { header.len() };
    let bytes = arena.bytes(frame);
    let packet = bytes.get(ethernet::LEN..).unwrap_or_default();
    let (inner, link) = if packet.first().is_some_and(|first| first >> 4 == 6) {
        let Ok(view) = ipv6::View::parse(packet) else {
            return Encapsulation::Refused(Verdict::Truncated);
        };
        let link = adjacencies.resolve(hop, |seed| flow_v6(bytes, seed));
        (ipv6::LEN + usize::from(view.payload_len()), link)
    } else {
        let Ok(view) = ipv4::View::parse(packet) else {
            return Encapsulation::Refused(Verdict::Truncated);
        };
        let link = adjacencies.resolve(hop, |seed| flow_v4(bytes, seed));
        (usize::from(view.total_len()), link)
    };
    match link.port() {
        Ok(_) => {
            let most = usize::from(most.min(link.mtu()));
            if inner + len > most {
                return Encapsulation::TooBig(most.saturating_sub(len) as u32);
            }
        }
        // The MTU is checked when the neighbor is resolved and the packet is sent.
        Err(Verdict::Unresolved) => {}
        Err(verdict) => return Encapsulation::Refused(verdict),
    }
    // Ethernet padding is not part of the inner packet.
    if !arena.resize(frame, ethernet::LEN + inner) || !arena.grow_front(frame, len) {
        return Encapsulation::Refused(Verdict::TooBig);
    }
    let bytes = arena.bytes_mut(frame);
    let Some((ether, packet)) = bytes.split_first_chunk_mut::<{ ethernet::LEN }>() else {
        return Encapsulation::Refused(Verdict::Runt);
    };
    let kind = if header.is_v6() { ethernet::IPV6 } else { ethernet::IPV4 };
    ether[12..].copy_from_slice(&kind.to_be_bytes());
    // A parsed packet can always be encapsulated, unless the result exceeds 64 KiB.
    let emitted = match sealer {
        None => header.emit(packet),
        Some(hook) => match hook.seal(header, packet.get(len..).unwrap_or_default()) {
            Some(private) => header.emit_with(&private, packet),
            None => return Encapsulation::Refused(Verdict::NoGrantor),
        },
    };
    match emitted {
        Ok(_) => Encapsulation::Done,
        Err(_) => Encapsulation::Refused(Verdict::TooBig),
    }
}

/// Rewrites a granted packet for the next hop toward its grantor, without an outer header: only the
/// DSCP is set to that of granted packets. Returns the link's MTU too.
fn rewrite_direct(
    arena: &mut Arena,
    frame: &Frame,
    hop: Hop,
    adjacencies: &Adjacencies,
) -> (Rewritten, u32) {
    let bytes = arena.bytes_mut(frame);
    let link = adjacencies.get(adjacencies.member(hop, |_| 0));
    let packet = bytes.get_mut(ethernet::LEN..).unwrap_or_default();
    let rewritten = if packet.first().is_some_and(|first| first >> 4 == 6) {
        if let Ok(mut view) = ipv6::View::parse(packet) {
            view.set_traffic_class(GRANTED << 2 | view.traffic_class() & 3);
        }
        rewrite_v6(bytes, link)
    } else {
        if let Ok(mut view) = ipv4::View::parse(packet) {
            view.set_tos(GRANTED << 2 | view.tos() & 3);
        }
        rewrite_v4(bytes, link)
    };
    (rewritten, link.mtu().into())
}

/// Rewrites a packet that this machine originates or has encapsulated.
fn rewrite_originated(
    arena: &mut Arena,
    frame: &Frame,
    hop: Hop,
    adjacencies: &Adjacencies,
) -> Rewritten {
    let bytes = arena.bytes_mut(frame);
    let link = match bytes.get(ethernet::LEN).map(|first| first >> 4) {
        Some(6) => adjacencies.resolve(hop, |seed| flow_v6(bytes, seed)),
        _ => adjacencies.resolve(hop, |seed| flow_v4(bytes, seed)),
    };
    originate(bytes, link)
}
