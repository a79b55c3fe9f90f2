//! Hold: packets whose next hop is known and its MAC is not yet.
//!
//! ```text
//!   forward ─ unresolved ─► │ oldest │ … │ newest │   HELD at most, a queue a port
//!       ▲                        │
//!       └── looked up again ◄────┘ at every turn, before what the port has received
//! ```
//!
//! The first packets to a neighbor come before its MAC does (RFC 1122, 2.3.2.2 asks to
//! keep at least one; RFC 4861, 7.2.2 a small queue). They wait here, as they came:
//! nothing of a held frame has been changed. The control side is told (`want.rs`); when
//! it has published what is missing, they leave.
//!
//! A held packet keeps its destination and no hop: routes may change and hops get other
//! meanings while it waits. It is looked up again with every batch of its port, in that
//! batch's tables and adjacencies, and goes before the batch: so it takes the way that a
//! packet received now would take, and none overtakes it.
//!
//! It ends as `Unresolved` when [`TICKS`] ticks of the worker's clock are over, when the
//! queue is full and it is the oldest, or when the worker stops. A queue a port, so that
//! one with a scan behind it does not cost the others their packets.

use std::collections::VecDeque;

use fib::Hop;
use port::Frame;

use super::want::{AGAIN, Key};

/// The most packets that wait, for each port.
pub const HELD: usize = 128;
/// How many ticks a packet waits: a second, for it may have come at any time within the
/// first.
const TICKS: u64 = 10;

/// What is remembered of a packet's waiting.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    /// The tick that it came in.
    pub(super) since: u64,
    /// What was asked for it, and when.
    asked: Option<(Hop, u64)>,
}

impl Wait {
    /// Of a packet that comes in now.
    pub(super) fn new(now: u64) -> Self {
        Self { since: now, asked: None }
    }

    /// Says whether `hop` is to be asked for, and takes it for asked.
    pub(super) fn asks(&mut self, hop: Hop, now: u64) -> bool {
        let lately = self.asked.is_some_and(|(of, when)| of == hop && now - when < AGAIN);
        if !lately {
            self.asked = Some((hop, now));
        }
        !lately
    }
}

/// A packet that waits.
pub(super) struct Held {
    pub(super) frame: Frame,
    pub(super) key: Key,
    pub(super) wait: Wait,
    /// This machine has sent it: it has passed no hop yet.
    pub(super) own: bool,
}

/// The packets of one port that wait, the oldest first.
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

    /// Walks the destinations.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.queue.iter().map(|held| held.key)
    }

    /// Appends a packet, and returns the oldest if there was no room.
    pub(super) fn push(&mut self, held: Held) -> Option<Held> {
        let oldest = if self.queue.len() < HELD { None } else { self.queue.pop_front() };
        self.queue.push_back(held);
        oldest
    }

    /// Takes the oldest.
    pub(super) fn pop(&mut self) -> Option<Held> {
        self.queue.pop_front()
    }

    /// Takes the oldest if it has waited too long.
    pub(super) fn expired(&mut self, now: u64) -> Option<Held> {
        let late = self.queue.front().is_some_and(|held| now - held.wait.since >= TICKS);
        if late { self.queue.pop_front() } else { None }
    }
}
