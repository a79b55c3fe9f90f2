//! The egress of a hook: looks up, encapsulates or rewrites, and sends the packets that it
//! dequeues.
//!
//! A packet is encapsulated after the lookup, because only then its link's MTU is known
//! (`hook.rs`). The worker calls this once a turn, after the batch of received packets.

use fib::Hop;
use port::{Arena, Frame};
use wire::tunnel::Header;
use wire::{ethernet, ipv4, ipv6};

use super::batch::SIZE;
use super::turn::{Punts, Turn, rewrite};
use super::want::Key;
use super::worker::{FEW, MARKING};
use super::{
    Adjacencies, Disposition, EgressPacket, Lookup, PacketHook, Parsed, Rewritten, SEAL_LEN,
    Verdict, Worker, flow_v4, flow_v6, originate, rewrite_v4, rewrite_v6,
};

/// The number of packets that are dequeued at a time: their metadata stays in the L1 cache.
const PART: usize = 64;
/// The prefetch distance, in packets.
const AHEAD: usize = 4;
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
