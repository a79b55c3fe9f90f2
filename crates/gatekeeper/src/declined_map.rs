//! The kernel's map of declined flows, whose packets the XDP program drops before a worker sees them.
//!
//! ```text
//!   worker applies a decision ─► ring ─► still protected? ─► map of the front interface's program
//!                                                              │ drops, counts
//!   counters and metrics ◄── added to the workers' counters ───┘
//! ```
//!
//! Workers report the decisions that they applied, so that a late decision, or one about an unknown
//! flow, has no effect on the kernel. A flow that is granted later is removed within milliseconds, or
//! the time that a sleeping worker takes to wake up. A prefix decision that does not decline, and
//! another policy, clear the map: flows are inserted again when they are declined again.
//!
//! The entries are stored here too, so that they can be removed, and so that there are never more of
//! them than the map holds.

use std::collections::HashMap;
use std::net::IpAddr;

use fib::Reader;
use gate::flow::{Flow, Pair};
use gate::policy::{Action, Policy};
use nix::time::{ClockId, clock_gettime};
use port::af_xdp::Interface;
use rtrb::Consumer;

use super::rings::DeclinedUpdate;

const SECOND: u64 = 1_000_000_000;

/// Writes declined flows to the map of the front interface's XDP program.
#[derive(Debug)]
pub(super) struct DeclinedMap {
    rings: Vec<Consumer<DeclinedUpdate>>,
    policy: Reader<Policy>,
    front: Option<Interface>,
    /// The flows in the map and their expiry, by the monotonic clock.
    written: HashMap<Flow, u64>,
    most: usize,
    /// Updates that the kernel refused.
    errors: u64,
    /// The next time to remove expired flows: not at each decline of a flood.
    sweep_at: u64,
}

/// Returns the kernel's monotonic time, which XDP programs use.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC);
    time.map_or(0, |time| time.tv_sec() as u64 * SECOND + time.tv_nsec() as u64)
}

fn addresses(flow: &Flow) -> (IpAddr, IpAddr) {
    match flow.pair() {
        Pair::V4 { src, dst } => (IpAddr::V4(src.into()), IpAddr::V4(dst.into())),
        Pair::V6 { src, dst } => (IpAddr::V6(src.into()), IpAddr::V6(dst.into())),
    }
}

impl DeclinedMap {
    /// Makes a writer of at most `most` flows, which the workers report by these rings.
    pub(super) fn new(
        rings: Vec<Consumer<DeclinedUpdate>>,
        policy: Reader<Policy>,
        most: u32,
    ) -> Self {
        let (written, most) = (HashMap::new(), most as usize);
        Self { rings, policy, front: None, written, most, errors: 0, sweep_at: 0 }
    }

    /// Sets the interface whose program drops the flows.
    pub(super) fn set_front(&mut self, front: Interface) {
        self.front = Some(front);
    }

    /// Applies the updates of the workers; returns whether there were any.
    pub(super) fn apply_updates(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.rings.len() {
            while let Ok(update) = self.rings[at].pop() {
                any = true;
                match update {
                    DeclinedUpdate::Insert(flow, seconds) => self.insert(flow, seconds),
                    DeclinedUpdate::Remove(flow) => self.remove(&flow),
                    DeclinedUpdate::Clear => self.clear(),
                }
            }
        }
        self.policy.idle();
        any
    }

    fn insert(&mut self, flow: Flow, seconds: u32) {
        let policy = self.policy.current();
        let protected = matches!(policy.action(&flow), Some(Action::Grantors(_)));
        let is_protected = protected && policy.source(&flow).is_none();
        let now = now();
        if self.written.len() >= self.most && now >= self.sweep_at {
            self.sweep_at = now + SECOND;
            self.written.retain(|_, until| *until > now);
        }
        let has_room = self.written.len() < self.most || self.written.contains_key(&flow);
        let Some(front) = &self.front else { return };
        if !is_protected || !has_room {
            return;
        }
        let until = now + u64::from(seconds) * SECOND;
        let (src, dst) = addresses(&flow);
        match front.decline(src, dst, Some(until)) {
            Ok(()) => _ = self.written.insert(flow, until),
            Err(_) => self.errors += 1,
        }
    }

    fn remove(&mut self, flow: &Flow) {
        if let (Some(_), Some(front)) = (self.written.remove(flow), &self.front) {
            let (src, dst) = addresses(flow);
            self.errors += u64::from(front.decline(src, dst, None).is_err());
        }
    }

    /// Forgives all.
    pub(super) fn clear(&mut self) {
        let all: Vec<Flow> = self.written.keys().copied().collect();
        all.iter().for_each(|flow| self.remove(flow));
    }

    /// Returns whether packets of a flow are dropped now.
    pub(super) fn contains(&self, flow: &Flow) -> bool {
        self.written.get(flow).is_some_and(|until| *until > now())
    }

    /// Returns the packets that were dropped and their bytes.
    pub(super) fn dropped(&self) -> (u64, u64) {
        let Some(front) = &self.front else { return (0, 0) };
        let packets =
            front.counts().map(|counts| counts[port::af_xdp::steer::SteeringOutcome::Declined]);
        (packets.unwrap_or(0), front.declined_bytes().unwrap_or(0))
    }

    /// Returns the number of flows in the map and of updates that the kernel refused.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.written.len() as u64, self.errors)
    }
}
