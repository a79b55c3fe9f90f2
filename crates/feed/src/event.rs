//! Events of BGP sessions as a file records them.

use crate::best::{Change, Peer, Rank};

/// One event of a BGP session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The time in microseconds since 1970 (UTC), in whole seconds if the format has no finer
    /// resolution.
    pub time: u64,
    /// The peer that sent it.
    pub peer: Peer,
    /// The path identifier (RFC 7911), 0 if there is none.
    pub path: u32,
    /// The rank of an announced path.
    pub rank: Rank,
    /// Its kind, with the route.
    pub kind: EventKind,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// An IPv4 route was announced or withdrawn.
    V4(Change<u32>),
    /// An IPv6 route was announced or withdrawn.
    V6(Change<u128>),
    /// The session with the peer was established.
    Up,
    /// The session with the peer ended; its routes are gone.
    Down,
}
