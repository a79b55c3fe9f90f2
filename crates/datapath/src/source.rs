//! Sources: may a packet come from where it says, by this port?
//!
//! Unicast reverse path forwarding (RFC 3704, RFC 8704): the source is looked up in the
//! table that the destination is looked up in, in the same batch, and its route is held
//! against the port that the packet came in on. Asked only of ports that have it on; the
//! others pay nothing.
//!
//! | check | passes |
//! |---|---|
//! | `Off` | everything |
//! | `Loose` | sources that have a route (RFC 3704, 2.4) |
//! | `Strict` | sources whose route leaves by this port (2.2) |
//!
//! The route of a source may be a group: then every member's port is right, also that of
//! a member that is down for now (feasible paths: RFC 3704, 2.3, RFC 8704, 3.2). A next
//! hop is right by its port whether its MAC is known or not.
//!
//! Neither passes a source whose route is a black hole: with that, dropping by
//! destination drops by source too (RFC 5635, 4). Nor one of the router's own addresses,
//! which nobody else has. A route to the host passes `Loose`, and `Strict` where it is
//! behind the port ([`Adjacency::behind`](super::Adjacency::behind)).
//!
//! What cannot be a source at all, whatever the routes, has ended in `parse.rs` on every
//! port: unspecified, loopback, multicast, reserved, link-local. Packets for the router
//! itself and what it does not forward are not asked here: the host asks.
//!
//! At a gate a hook takes packets out of what a port received before they are a batch. There the
//! check is a pass of its own before the hook ([`drop_spoofed`]): no packet that it refuses is
//! ever judged, remembered or sent to a grantor.
//!
//! Limits: a default route is a route, and makes `Loose` pass nearly everything; the
//! variant that leaves it out (RFC 3704, 2.5) is not there.

use fib::{Hop, Reader};
use port::{Arena, Frame};

use super::batch::Kind;
use super::ingress::{Ingress, ReversePathFilter};
use super::{Adjacencies, Batch, Lookup, Verdict, parse};
use crate::stats::WorkerStats;

impl ReversePathFilter {
    /// Judges a packet that came in on `port`, whose source has the hop `hop` and is
    /// one of the router's own addresses or not.
    ///
    /// # Errors
    ///
    /// [`Verdict::Spoofed`].
    #[inline]
    pub fn judge(
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

/// The ingress interface of a port's packets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival<'w> {
    /// The port's number.
    pub(super) port: usize,
    /// Its address.
    pub(super) mac: [u8; 6],
    /// The settings for its packets.
    pub(super) terms: &'w Ingress,
}

/// Drops the packets among `frames`, at most a batch, that their port's check refuses.
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
    batch.add_sources(frames.iter().map(|frame| arena.bytes(frame)));
    batch.lookup(tables, terms.table);
    // After the tables: every hop of theirs means something in these.
    let adjacencies = adjacencies.current();
    let mut outcomes = batch.outcomes();
    let (mut sources_v4, mut sources_v6) = (batch.sources_v4(), batch.sources_v6());
    let mut is_spoofed = || {
        let (own, hop) = match outcomes.next()?.0 {
            Kind::V4 => sources_v4.next().map(|(from, hop)| (locals.holds_v4(from), hop)),
            Kind::V6 => sources_v6.next().map(|(from, hop)| (locals.holds_v6(from), hop)),
            Kind::Done(_) => None,
        }?;
        terms.sources.judge(adjacencies, hop, port, own).err()
    };
    let (mut dropped, mut bytes) = (0, 0);
    for frame in frames.extract_if(.., |_| is_spoofed().is_some()) {
        dropped += 1;
        bytes += frame.len() as u64;
        arena.free(frame);
    }
    if dropped > 0 {
        stats.received(dropped, bytes);
        stats.ended(Verdict::Spoofed, dropped);
    }
}
