//! The reverse path filter: drops packets whose source has no route, or none by their port.
//!
//! Unicast reverse path forwarding (RFC 3704, RFC 8704): the source is looked up in the table of
//! the destination, in the same batch, and its route is compared with the port that the packet
//! arrived on. Only packets of ports with the filter are checked; the others cost nothing.
//!
//! | check | passes |
//! |---|---|
//! | `Off` | everything |
//! | `Loose` | sources that have a route (RFC 3704, 2.4) |
//! | `Strict` | sources whose route leaves by this port (2.2) |
//!
//! If the route of a source is a group, every member's port is accepted, including that of a member
//! that is down at present (feasible paths: RFC 3704, 2.3, RFC 8704, 3.2). A next hop counts by its
//! port, whether its MAC address is known or not.
//!
//! Neither `Loose` nor `Strict` passes a source whose route is a blackhole, so dropping by
//! destination drops by source too (RFC 5635, 4). Nor do they pass the router's own addresses,
//! which no other host has. A route to the host passes `Loose`, and `Strict` if it is behind the
//! port ([`Adjacency::behind`](super::Adjacency::behind)).
//!
//! Addresses that are never valid sources, whatever the routes, have ended in `parse.rs` on every
//! port: unspecified, loopback, multicast, reserved, link-local. Packets for the router itself and
//! packets that it does not forward are not checked here: the host checks them. A packet whose TTL is
//! used up is checked, so that a spoofed one causes no ICMP error, as in Linux.
//!
//! At a gate a hook takes packets out of the received frames before they are a batch. There the
//! check is a pass of its own before the hook ([`drop_spoofed`]): no packet that it refuses is ever
//! classified, recorded or sent to a grantor.
//!
//! Limits: a default route is a route, and makes `Loose` pass nearly everything; the variant that
//! ignores it (RFC 3704, 2.5) is not implemented.

use fib::{Hop, Reader};
use port::{Arena, Frame};

use super::batch::Source;
use super::ingress::{Ingress, ReversePathFilter};
use super::refusals::Refusals;
use super::{Adjacencies, Batch, Lookup, Verdict, parse};
use crate::capture::Point;
use crate::stats::WorkerStats;

impl ReversePathFilter {
    /// Checks a packet that arrived on `port`. `hop` is the hop of its source; `own` states whether
    /// the source is one of the router's own addresses.
    ///
    /// # Errors
    ///
    /// [`Verdict::Spoofed`] if the filter refuses the source.
    #[inline]
    pub fn check(
        self,
        adjacencies: &Adjacencies,
        hop: Hop,
        port: usize,
        own: bool,
    ) -> Result<(), Verdict> {
        let right = |&hop: &Hop| {
            let adjacency = adjacencies.get(hop);
            match self {
                Self::Off => true,
                Self::Loose => adjacency.leads(),
                Self::Strict => adjacency.exit().is_some_and(|exit| usize::from(exit) == port),
            }
        };
        let passes = match adjacencies.group(hop) {
            Some(group) => group.members().iter().any(right),
            None => right(&hop),
        };
        if self == Self::Off || passes && !own { Ok(()) } else { Err(Verdict::Spoofed) }
    }
}

/// Returns the verdict of a packet that arrived on `port`, if the filter of its settings refuses its source.
fn refusal(
    source: Source,
    port: u16,
    adjacencies: &Adjacencies,
    terms: &Ingress,
) -> Option<Verdict> {
    let [v4, v6] = terms.sources;
    let (filter, own, hop) = match source {
        Source::V4(from, hop) => (v4, terms.locals.holds_v4(from), hop),
        Source::V6(from, hop) => (v6, terms.locals.holds_v6(from), hop),
    };
    filter.check(adjacencies, hop, port.into(), own).err()
}

/// Refuses the frames of a batch whose sources the filter of their settings refuses; `ports` are those
/// that they arrived on.
pub(super) fn refuse_spoofed(
    batch: &Batch,
    adjacencies: &Adjacencies,
    terms: &Ingress,
    ports: impl Iterator<Item = u16>,
    refusals: &mut Refusals,
) {
    for (at, (source, port)) in batch.sources().zip(ports).enumerate() {
        if let Some(verdict) = source.and_then(|source| refusal(source, port, adjacencies, terms)) {
            refusals.refuse(at, verdict);
        }
    }
}

/// The ingress interface of a port's packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival<'w> {
    /// The port's number.
    pub(super) port: usize,
    /// The port's MAC address.
    pub(super) mac: [u8; 6],
    /// The settings for the port's packets.
    pub(super) terms: &'w Ingress,
}

/// Drops the packets among `frames`, at most a batch, that the filter of their port refuses.
pub(super) fn drop_spoofed(
    arena: &mut Arena,
    frames: &mut Vec<Frame>,
    batch: &mut Batch,
    tables: &mut impl Lookup,
    adjacencies: &mut Reader<Adjacencies>,
    arrival: Arrival<'_>,
    stats: &WorkerStats,
) {
    let Arrival { port, mac, terms } = arrival;
    let locals = &*terms.locals;
    batch.clear();
    frames.iter().for_each(|frame| batch.push(parse(arena.bytes(frame), mac, locals)));
    batch.seal();
    batch.add_sources(frames.iter().map(|frame| arena.bytes(frame)), terms.filtered());
    batch.lookup(tables, terms.table);
    // After the tables: these adjacencies contain every hop of those tables.
    let adjacencies = adjacencies.current();
    let mut sources = batch.sources();
    let mut is_spoofed =
        || sources.next()?.and_then(|source| refusal(source, port as u16, adjacencies, terms));
    let (mut dropped, mut bytes) = (0, 0);
    for frame in frames.extract_if(.., |_| is_spoofed().is_some()) {
        dropped += 1;
        bytes += frame.len() as u64;
        stats.end(arena, frame, Verdict::Spoofed, Point::Ingress(port as u16));
    }
    if dropped > 0 {
        stats.received(dropped, bytes);
    }
}
