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
use super::punt::Policer;
use super::turn::{Lane, Punts, Turn, stage};
use super::want::Key;
use super::{
    Adjacencies, Ingress, Ingresses, Lookup, Verdict, WantSender, flow_v4, flow_v6, originate,
};
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
            let hop = look_up_destination(arena.bytes(&frame), terms.table, &mut **tables);
            // A group of next hops is a route.
            let adjacencies = adjacencies.current();
            let is_group = adjacencies.group(hop).is_some();
            let by_route = adjacencies.get(hop).port().err().filter(|_| !is_group);
            (verdict, reason) = match by_route {
                Some(Verdict::NoRoute) => (Verdict::NoRoute, Reason::NoRoute),
                Some(Verdict::UnreachableRoute) => {
                    (Verdict::UnreachableRoute, Reason::UnreachableRoute)
                }
                Some(Verdict::ProhibitRoute) => (Verdict::ProhibitRoute, Reason::Prohibited),
                Some(Verdict::HostRoute) => (Verdict::HostRoute, reason),
                Some(Verdict::Blackhole) => {
                    arena.free(frame);
                    stats.ended(Verdict::Blackhole, 1);
                    return;
                }
                _ => (verdict, reason),
            };
            is_hosts =
                verdict == Verdict::HostRoute || (verdict == Verdict::NoRoute && terms.further);
        }
        let (table, kind, hop) = look_up(terms, &mut **tables, to);
        stats.looked_up(u64::from(kind == Kind::V4), u64::from(kind == Kind::V6));
        // After the tables: these adjacencies contain every hop of those tables.
        let adjacencies = adjacencies.current();
        let bytes = arena.bytes(&frame);
        let member = adjacencies.member(hop, |seed| match kind {
            Kind::V6 => flow_v6(bytes, seed),
            _ => flow_v4(bytes, seed),
        });
        let exit = adjacencies.get(member);
        // A held packet is looked up again in the table of its port.
        let waits = exit.port() == Err(Verdict::Unresolved) && table == Some(terms.table);
        // A route of several next hops may prefer a source itself.
        let own = adjacencies.own_sources(hop).or_else(|| adjacencies.own_sources(member));
        let own = own.filter(|_| !is_hosts).filter(|_| exit.port().is_ok() || waits);
        let source = own.and_then(|own| match to {
            Key::V4(to) => match &terms.answer_sources {
                Some(inbound) => inbound.v4(to).map(Key::V4),
                None => own.v4(to).map(Key::V4),
            },
            Key::V6(to) => own.v6(to).map(Key::V6),
        });
        let mtu = if waits { u16::MAX } else { exit.mtu() };
        let written =
            source.is_some_and(|source| errors.write(arena, &mut frame, reason, source, mtu));
        let (further, isolated) = (terms.further, terms.isolated);
        let punts = Punts { policer, further, isolated, answers: [false; 2], errors };
        let (table, now) = (table.unwrap_or(terms.table), *now);
        if !written {
            let mut turn =
                Turn { arena, lanes, stats, adjacencies, wants, ingress, lane, table, punts, now };
            return turn.punt_or_drop(frame, verdict);
        }
        stats.ended(verdict, 1);
        stats.originated();
        stats.icmp(counter(reason));
        let verdict = match originate(arena.bytes_mut(&frame), exit) {
            Ok((exit, len)) => match stage(arena, lanes, adjacencies, frame, 0, exit, len) {
                Ok(()) => return,
                Err(refused) => {
                    frame = refused;
                    Verdict::NoRoute
                }
            },
            Err(verdict) => verdict,
        };
        Turn { arena, lanes, stats, adjacencies, wants, ingress, lane, table, punts, now }
            .hold_or_finish_own(frame, kind, hop, verdict);
    }
}

/// Looks up the destination of a packet.
fn look_up_destination(frame: &[u8], table: usize, tables: &mut impl Lookup) -> Hop {
    let mut hop = [Hop::NONE];
    let packet = frame.get(ethernet::LEN..).unwrap_or_default();
    if packet.first().is_some_and(|first| first >> 4 == 6) {
        if let Ok(packet) = ipv6::View::parse(packet) {
            tables.lookup_v6(table, &[packet.dst()], &mut hop);
        }
    } else if let Ok(packet) = ipv4::View::parse(packet) {
        tables.lookup_v4(table, &[packet.dst()], &mut hop);
    }
    let [hop] = hop;
    hop
}

/// Looks up the destination of an error about a packet of a port; returns the table too, if this
/// machine sends such errors.
fn look_up(terms: &Ingress, tables: &mut impl Lookup, to: Key) -> (Option<usize>, Kind, Hop) {
    let mut hop = [Hop::NONE];
    let (table, kind) = match to {
        Key::V4(to) => {
            let table = terms.answers[0];
            if let Some(table) = table {
                tables.lookup_v4(table, &[to], &mut hop);
            }
            (table, Kind::V4)
        }
        Key::V6(to) => {
            let table = terms.answers[1];
            if let Some(table) = table {
                tables.lookup_v6(table, &[to], &mut hop);
            }
            (table, Kind::V6)
        }
    };
    let [hop] = hop;
    (table, kind, hop)
}
