//! Events of BGP sessions as a file records them.

use crate::best::{Change, Peer, Rank};

/// One event of a BGP session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in microseconds since 1970 (UTC); whole seconds where the format
    /// has no finer.
    pub time: u64,
    /// The peer that sent it.
    pub peer: Peer,
    /// The path identifier (RFC 7911), 0 where there is none.
    pub path: u32,
    /// The rank of an announced path.
    pub rank: Rank,
    /// Its kind, with the route.
    pub kind: EventKind,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// An IPv4 route came or went.
    V4(Change<u32>),
    /// An IPv6 route came or went.
    V6(Change<u128>),
    /// The session with the peer was established.
    Up,
    /// The session with the peer ended; its routes are gone.
    Down,
}
