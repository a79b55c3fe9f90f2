//! Hold: queues for packets whose next hop is known but not yet resolved to a MAC address.
//!
//! ```text
//!   forward ─ unresolved ─► │ oldest │ … │ newest │   HELD at most, a queue a port
//!       ▲                        │
//!       └── looked up again ◄────┘ at every turn, before the packets that the port has received
//! ```
//!
//! The first packets to a neighbor arrive before its MAC address is known (RFC 1122, 2.3.2.2 asks a
//! host to keep at least one; RFC 4861, 7.2.2 a small queue). They wait here unchanged. The worker
//! requests the resolution from the control plane (`want.rs`); once the control plane has published
//! the adjacency, they leave.
//!
//! A held packet keeps its destination and no hop, because routes may change and hops may be
//! reassigned while it waits. It is looked up again with every batch of its port, in the tables and
//! adjacencies of that batch, and is sent before the batch. So it takes the path that a packet
//! received now would take, and no packet overtakes it.
//!
//! It ends as `Unresolved` when [`TICKS`] ticks of the worker's clock have passed, when the queue
//! is full and it is the oldest, or when the worker stops. Every port has a queue of its own, so
//! that a scan that arrives on one port does not displace the packets of the others.

use std::collections::VecDeque;

use fib::Hop;
use port::Frame;

use super::ingress::FrameIngress;
use super::want::{Key, REPEAT_INTERVAL};

/// The maximum number of held packets of each port.
pub const HELD: usize = 128;
/// The number of ticks that a packet waits: a second, because it may have arrived at any time
/// within the first tick.
const TICKS: u64 = 10;

/// The state of a held packet.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    /// The tick of its arrival.
    pub(super) since: u64,
    /// The hop that was last requested for it, and the tick of that request.
    requested: Option<(Hop, u64)>,
}

impl Wait {
    /// Makes the state of a packet that arrives at tick `now`.
    pub(super) fn new(now: u64) -> Self {
        Self { since: now, requested: None }
    }

    /// Returns whether to request `hop`; if so, the request counts as sent.
    pub(super) fn request_is_due(&mut self, hop: Hop, now: u64) -> bool {
        let lately =
            self.requested.is_some_and(|(of, when)| of == hop && now - when < REPEAT_INTERVAL);
        if !lately {
            self.requested = Some((hop, now));
        }
        !lately
    }
}

/// A held packet.
pub(super) struct Held {
    pub(super) frame: Frame,
    pub(super) key: Key,
    pub(super) wait: Wait,
    /// How it arrived: on the queue's port, or on a VLAN device over it.
    pub(super) ingress: FrameIngress,
    /// This machine has originated it: its TTL is not decremented.
    pub(super) own: bool,
}

/// The held packets of one port, the oldest first.
pub(super) struct Hold {
    queue: VecDeque<Held>,
}

impl Hold {
    pub(super) fn new() -> Self {
        Self { queue: VecDeque::with_capacity(HELD) }
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Iterates over the packets, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.queue.iter()
    }

    /// Appends a packet, and returns the oldest one if there was no room.
    pub(super) fn push(&mut self, held: Held) -> Option<Held> {
        let oldest = if self.queue.len() < HELD { None } else { self.queue.pop_front() };
        self.queue.push_back(held);
        oldest
    }

    /// Removes the oldest packet.
    pub(super) fn pop(&mut self) -> Option<Held> {
        self.queue.pop_front()
    }

    /// Removes the oldest packet if it has waited too long.
    pub(super) fn expired(&mut self, now: u64) -> Option<Held> {
        let late = self.queue.front().is_some_and(|held| now - held.wait.since >= TICKS);
        if late { self.queue.pop_front() } else { None }
    }
}
