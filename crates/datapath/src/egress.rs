//! The egress of a hook: applies the dispositions of the packets that it dequeues.
//!
//! ```text
//!   dequeue a part ─► look all of it up ─► each packet by its disposition ─► port
//!        ▲                                   └ too long ─► oversized ─┐
//!        └────────────────────────────────────────────────────────────┘
//! ```
//!
//! A packet is encapsulated after the lookup, because only then its link's MTU is known
//! (`hook.rs`). The worker does this once a turn, after the batch of received packets. A packet that
//! is too long is counted as dropped at once; its frame is kept until the hook has seen it, which is
//! before the next part.

use fib::{Hop, Reader};
use port::{Arena, Frame};
use wire::tunnel::Header;
use wire::{ethernet, ipv4, ipv6};

use super::batch::{Batch, FEW, MARKING, SIZE};
use super::icmp_errors::IcmpErrors;
use super::ingress::FrameIngress;
use super::punt::Policer;
use super::turn::{Lane, Punts, Turn, rewrite, stage};
use super::want::Key;
use super::{
    Adjacencies, Disposition, EgressBatch, EgressPacket, Hook, Ingresses, Lookup, OversizedPacket,
    Parsed, Rewritten, SEAL_LEN, TunnelSealer, Tunnels, Verdict, WantSender, flow_v4, flow_v6,
    originate, rewrite_v4, rewrite_v6,
};
use crate::capture::Point;
use crate::stats::WorkerStats;

/// The number of packets that are dequeued at a time: their metadata stays in the L1 cache.
const PART: usize = 64;
/// The prefetch distance, in packets.
const AHEAD: usize = 4;
/// The DSCP of granted packets.
const GRANTED: u8 = 1;
/// The highest DSCP of granted packets: those that request a renewal.
const RENEWAL: u8 = 2;

/// A worker's hook, and the part of its packets that is being sent.
pub(super) struct Egress {
    pub(super) hook: Hook,
    packets: Vec<EgressPacket>,
    /// Packets of the part that were too long.
    oversized: Vec<OversizedPacket>,
}

/// The parts of a worker that an egress uses.
pub(super) struct EgressContext<'w, L> {
    pub(super) arena: &'w mut Arena,
    pub(super) lanes: &'w mut [Lane],
    pub(super) tables: &'w mut L,
    pub(super) adjacencies: &'w mut Reader<Adjacencies>,
    pub(super) ingresses: &'w mut Reader<Ingresses>,
    pub(super) batch: &'w mut Batch,
    pub(super) wants: &'w mut WantSender,
    pub(super) stats: &'w WorkerStats,
    pub(super) policer: &'w mut Policer,
    pub(super) errors: &'w mut IcmpErrors,
    pub(super) now: u64,
    /// When the turn began, by the hook's clock.
    pub(super) hook_time: u64,
}

impl Egress {
    /// Allocates the memory for the hook's packets.
    pub(super) fn new(hook: Hook) -> Self {
        let (packets, oversized) = (Vec::with_capacity(PART), Vec::with_capacity(PART));
        Self { hook, packets, oversized }
    }

    /// Sends the hook's packets and returns their number.
    pub(super) fn transmit<L: Lookup>(&mut self, context: EgressContext<'_, L>) -> usize {
        let EgressContext { arena, lanes, tables, adjacencies, ingresses, batch, .. } = context;
        let EgressContext { wants, stats, policer, errors, now, hook_time, .. } = context;
        let Self { hook: Hook { packets: hook, tunnels }, packets: egress, oversized } = self;
        let Tunnels { parameters, sealer } = tunnels;
        let mut has_sealed = false;
        // Packets to an unresolved neighbor are held with those of the hook's first port.
        let ingress = (0..lanes.len()).find(|&port| hook.handles_port(port)).unwrap_or(0);
        let terms = ingresses.current().get(ingress);
        let (table, further, isolated) = (terms.table, terms.further, terms.isolated);
        let point = Point::Ingress(ingress as u16);
        let mut sent = 0;
        loop {
            let room = PART.min(SIZE - sent);
            hook.dequeue_egress(EgressBatch { arena, room, packets: egress, oversized, stats });
            for OversizedPacket { frame, .. } in oversized.drain(..) {
                arena.free(frame);
            }
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
                    Disposition::Return { port } => {
                        let len = frame.len();
                        match lanes.get_mut(usize::from(port)) {
                            Some(lane) => {
                                lane.stage(arena, frame, len);
                                continue;
                            }
                            None => Err(Verdict::NoRoute),
                        }
                    }
                    Disposition::Forward => {
                        rewrite(arena.bytes_mut(&frame), 0, kind, hop, adjacencies, |_| false)
                    }
                    Disposition::Originate => rewrite_originated(arena, &frame, hop, adjacencies),
                    Disposition::Drop(verdict) => Err(verdict),
                    Disposition::Tunnel { direct: true, .. }
                        if adjacencies.get(adjacencies.member(hop, |_| 0)).port().is_ok() =>
                    {
                        let (rewritten, mtu) = rewrite_direct(arena, &frame, hop, adjacencies);
                        if matches!(rewritten, Err(Verdict::TooBig)) {
                            stats.count_end(Verdict::TooBig, point, arena.bytes(&frame));
                            oversized.push(OversizedPacket { frame, mtu, granted: true });
                            continue;
                        }
                        rewritten
                    }
                    Disposition::Tunnel { dscp, hash, sealed, .. } => {
                        let header = parameters.header(key, dscp, hash, sealed);
                        has_sealed |= sealed;
                        let seal = sealed.then_some((&mut *sealer, hook_time));
                        let most = parameters.mtu;
                        match encapsulate(arena, &mut frame, hop, adjacencies, &header, most, seal)
                        {
                            Encapsulation::Done => {
                                rewrite_originated(arena, &frame, hop, adjacencies)
                            }
                            Encapsulation::Refused(verdict) => Err(verdict),
                            Encapsulation::TooBig(mtu) => {
                                stats.count_end(Verdict::TooBig, point, arena.bytes(&frame));
                                let granted = dscp <= RENEWAL;
                                oversized.push(OversizedPacket { frame, mtu, granted });
                                continue;
                            }
                        }
                    }
                };
                let verdict = match rewritten {
                    Ok((exit, len)) => {
                        let from = FrameIngress::untagged(ingress as u16);
                        match stage(arena, lanes, adjacencies, frame, from, exit, len) {
                            Ok(()) => continue,
                            Err(refused) => {
                                frame = refused;
                                Verdict::NoRoute
                            }
                        }
                    }
                    Err(verdict) => verdict,
                };
                let (arena, lanes, wants) = (&mut *arena, &mut *lanes, &mut *wants);
                let (errors, answers) = (&mut *errors, [false; 2]);
                let punts = Punts { policer: &mut *policer, further, isolated, answers, errors };
                let (lane, ingress) = (ingress, FrameIngress::untagged(ingress as u16));
                let turn = Turn {
                    arena,
                    lanes,
                    stats,
                    adjacencies,
                    wants,
                    ingress,
                    lane,
                    table,
                    punts,
                    now,
                };
                match disposition {
                    Disposition::Forward => turn.hold_or_finish(frame, kind, hop, verdict),
                    Disposition::Originate
                    | Disposition::Return { .. }
                    | Disposition::Drop(_)
                    | Disposition::Tunnel { .. } => {
                        turn.hold_or_finish_own(frame, kind, hop, verdict);
                    }
                }
            }
        }
        if has_sealed && let Some(sealer) = sealer {
            sealer.release();
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
    seal: Option<(&mut Option<Box<dyn TunnelSealer>>, u64)>,
) -> Encapsulation {
    let len = if seal.is_some() { header.len_with(SEAL_LEN) } else { header.len() };
    let bytes = arena.bytes(frame);
    let packet = bytes.get(ethernet::LEN..).unwrap_or_default();
    let (inner, exit) = if packet.first().is_some_and(|first| first >> 4 == 6) {
        let Ok(view) = ipv6::View::parse(packet) else {
            return Encapsulation::Refused(Verdict::Truncated);
        };
        let exit = adjacencies.exit(hop, |hash| flow_v6(bytes, hash));
        (ipv6::LEN + usize::from(view.payload_len()), exit)
    } else {
        let Ok(view) = ipv4::View::parse(packet) else {
            return Encapsulation::Refused(Verdict::Truncated);
        };
        let exit = adjacencies.exit(hop, |hash| flow_v4(bytes, hash));
        (usize::from(view.total_len()), exit)
    };
    match exit.adjacency().port() {
        Ok(_) => {
            let most = usize::from(most.min(exit.adjacency().mtu()));
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
    let emitted = match seal {
        None => header.emit(packet),
        Some((sealer, now)) => {
            let inner = packet.get(len..).unwrap_or_default();
            match sealer.as_mut().and_then(|sealer| sealer.seal(now, header, inner)) {
                Some(private) => header.emit_with(&private, packet),
                None => return Encapsulation::Refused(Verdict::NoGrantor),
            }
        }
    };
    match emitted {
        Ok(_) => Encapsulation::Done,
        Err(_) => Encapsulation::Refused(Verdict::TooBig),
    }
}

/// Rewrites a granted packet for the next hop toward its grantor, without an outer header: only the
/// DSCP is set to that of granted packets. Returns the link's MTU too.
fn rewrite_direct<'a>(
    arena: &mut Arena,
    frame: &Frame,
    hop: Hop,
    adjacencies: &'a Adjacencies,
) -> (Rewritten<'a>, u32) {
    let bytes = arena.bytes_mut(frame);
    let exit = adjacencies.get_exit(adjacencies.member(hop, |_| 0));
    let packet = bytes.get_mut(ethernet::LEN..).unwrap_or_default();
    let rewritten = if packet.first().is_some_and(|first| first >> 4 == 6) {
        if let Ok(mut view) = ipv6::View::parse(packet) {
            view.set_traffic_class(GRANTED << 2 | view.traffic_class() & 3);
        }
        rewrite_v6(bytes, 0, exit, |_| false)
    } else {
        if let Ok(mut view) = ipv4::View::parse(packet) {
            view.set_tos(GRANTED << 2 | view.tos() & 3);
        }
        rewrite_v4(bytes, 0, exit, |_| false)
    };
    (rewritten, exit.adjacency().mtu().into())
}

/// Rewrites a packet that this machine originates or has encapsulated.
fn rewrite_originated<'a>(
    arena: &mut Arena,
    frame: &Frame,
    hop: Hop,
    adjacencies: &'a Adjacencies,
) -> Rewritten<'a> {
    let bytes = arena.bytes_mut(frame);
    let exit = match bytes.get(ethernet::LEN).map(|first| first >> 4) {
        Some(6) => adjacencies.exit(hop, |hash| flow_v6(bytes, hash)),
        _ => adjacencies.exit(hop, |hash| flow_v4(bytes, hash)),
    };
    originate(bytes, exit)
}
