//! Answers: sends the ICMP errors about the packets of a batch that could not be forwarded.
//!
//! ```text
//!   pending ─► lookup of the sender ─► member, source address ─► error in place ─► staged, or held
//!                  └ not behind a port, no source address ─────► punted: the host answers
//! ```
//!
//! `icmp_errors.rs` has selected the packets and applied the limits. A packet ends here with its own
//! verdict; the error in its frame is a packet that this machine originates.

use fib::{Hop, Reader};
use port::Arena;
use wire::icmp_error::Reason;
use wire::{ethernet, ipv4, ipv6};

use super::batch::Kind;
use super::icmp_errors::{IcmpErrors, Pending, counter};
use super::ingress::FrameIngress;
use super::punt::Policer;
use super::turn::{Lane, Punts, Turn, stage};
use super::want::Key;
use super::{Adjacencies, Ingresses, Lookup, Verdict, WantSender, flow_v4, flow_v6, originate};
use crate::capture::Point;
use crate::stats::WorkerStats;

/// The parts of a worker that send ICMP errors.
pub(super) struct AnswerContext<'w, L> {
    pub(super) arena: &'w mut Arena,
    pub(super) lanes: &'w mut [Lane],
    pub(super) tables: &'w mut L,
    pub(super) adjacencies: &'w mut Reader<Adjacencies>,
    pub(super) ingresses: &'w mut Reader<Ingresses>,
    pub(super) wants: &'w mut WantSender,
    pub(super) stats: &'w WorkerStats,
    pub(super) policer: &'w mut Policer,
    pub(super) errors: &'w mut IcmpErrors,
    pub(super) now: u64,
}

impl<L: Lookup> AnswerContext<'_, L> {
    /// Sends or holds an error about each pending packet, or punts the packet.
    pub(super) fn send(mut self) {
        let mut list = self.errors.take();
        for pending in list.drain(..) {
            self.answer(pending);
        }
        self.errors.restore(list);
        for lane in self.lanes.iter_mut().filter(|lane| !lane.staged.is_empty()) {
            lane.send(self.arena, self.stats);
        }
    }

    fn answer(&mut self, pending: Pending) {
        let Self { arena, lanes, tables, adjacencies, ingresses, .. } = self;
        let Self { wants, stats, policer, errors, now, .. } = self;
        let Pending { mut frame, mut verdict, ingress, lane, mut reason, to } = pending;
        let terms = ingresses.current().get(ingress.port.into());
        let mut is_hosts = false;
        if reason == Reason::TimeExceeded {
            // As by Linux, which looks the destination up before it checks the TTL.
            let hop = destination(arena.bytes(&frame))
                .map_or(Hop::NONE, |destination| look_up(&mut **tables, terms.table, destination));
            (verdict, reason) = match refusal(adjacencies.current(), hop) {
                Some(Verdict::NoRoute) => (Verdict::NoRoute, Reason::NoRoute),
                Some(Verdict::UnreachableRoute) => {
                    (Verdict::UnreachableRoute, Reason::UnreachableRoute)
                }
                Some(Verdict::ProhibitRoute) => (Verdict::ProhibitRoute, Reason::Prohibited),
                Some(Verdict::HostRoute) => (Verdict::HostRoute, reason),
                Some(Verdict::Blackhole) => {
                    stats.end(arena, frame, Verdict::Blackhole, Point::Ingress(ingress.port));
                    return;
                }
                _ => (verdict, reason),
            };
            is_hosts =
                verdict == Verdict::HostRoute || (verdict == Verdict::NoRoute && terms.further);
        }
        let (kind, table) = match to {
            Key::V4(_) => (Kind::V4, terms.answers[0]),
            Key::V6(_) => (Kind::V6, terms.answers[1]),
        };
        let hop = table.map_or(Hop::NONE, |table| look_up(&mut **tables, table, to));
        stats.looked_up(u64::from(kind == Kind::V4), u64::from(kind == Kind::V6));
        // After the tables: these adjacencies contain every hop of those tables.
        let adjacencies = adjacencies.current();
        let bytes = arena.bytes(&frame);
        let member = adjacencies.member(hop, |hash| match kind {
            Kind::V6 => flow_v6(bytes, hash),
            _ => flow_v4(bytes, hash),
        });
        let exit = adjacencies.get_exit(member);
        // A held packet is looked up again in the table of its port.
        let waits =
            exit.adjacency().port() == Err(Verdict::Unresolved) && table == Some(terms.table);
        let inbound = &*terms.answer_sources;
        let source = match to {
            _ if is_hosts || (exit.adjacency().port().is_err() && !waits) => None,
            Key::V4(to) => {
                let inbound = Some(inbound).filter(|own| !own.v4.is_empty());
                // A route of several next hops may prefer a source itself.
                let own = inbound.or_else(|| adjacencies.own_sources(hop));
                let own = own.or_else(|| adjacencies.own_sources(member));
                own.and_then(|own| own.v4(to)).map(Key::V4)
            }
            Key::V6(to) => inbound.v6(to).map(Key::V6),
        };
        let mtu = if waits { u16::MAX } else { exit.adjacency().mtu() };
        let point = Point::Ingress(ingress.port);
        let end = |packet: &[u8]| stats.count_end(verdict, point, packet);
        let written =
            source.is_some_and(|source| errors.write(arena, &mut frame, reason, source, mtu, end));
        let (further, isolated) = (terms.further, terms.isolated);
        let punts = Punts { policer, further, isolated, answers: [false; 2], errors };
        let (table, now) = (table.unwrap_or(terms.table), *now);
        if !written {
            let mut turn =
                Turn { arena, lanes, stats, adjacencies, wants, ingress, lane, table, punts, now };
            return turn.punt_or_drop(frame, verdict);
        }
        stats.originated();
        stats.icmp(counter(reason));
        let verdict = match originate(arena.bytes_mut(&frame), exit) {
            Ok((exit, len)) => {
                let from = FrameIngress::untagged(ingress.port);
                match stage(arena, lanes, adjacencies, frame, from, exit, len) {
                    Ok(()) => return,
                    Err(refused) => {
                        frame = refused;
                        Verdict::NoRoute
                    }
                }
            }
            Err(verdict) => verdict,
        };
        Turn { arena, lanes, stats, adjacencies, wants, ingress, lane, table, punts, now }
            .hold_or_finish_own(frame, kind, hop, verdict);
    }
}

/// Looks up one address.
fn look_up(tables: &mut impl Lookup, table: usize, address: Key) -> Hop {
    let mut hop = [Hop::NONE];
    match address {
        Key::V4(address) => tables.lookup_v4(table, &[address], &mut hop),
        Key::V6(address) => tables.lookup_v6(table, &[address], &mut hop),
    }
    let [hop] = hop;
    hop
}

/// Returns the destination of a packet.
fn destination(frame: &[u8]) -> Option<Key> {
    let packet = frame.get(ethernet::LEN..)?;
    if packet.first()? >> 4 == 6 {
        ipv6::View::parse(packet).ok().map(|packet| Key::V6(packet.dst()))
    } else {
        ipv4::View::parse(packet).ok().map(|packet| Key::V4(packet.dst()))
    }
}

/// Returns the verdict of packets of a hop, if they are not sent or wait.
fn refusal(adjacencies: &Adjacencies, hop: Hop) -> Option<Verdict> {
    // A group has next hops.
    let is_group = adjacencies.group(hop).is_some();
    adjacencies.get(hop).port().err().filter(|_| !is_group)
}
