//! Declined flows that end in the kernel, before a worker has any work with them.
//!
//! ```text
//!   worker decides ─► ring ─► protected still? ─► map of the front interface's program
//!                                                    │ drops, counts
//!   who tells of counters ◄── as if the worker had ──┘
//! ```
//!
//! Workers say what a decision came to, so that what is late, or about nobody, is not told to
//! the kernel. A flow that is granted after all is forgiven there within milliseconds, or what a
//! sleeping worker takes to wake. Decisions about prefixes that do not decline, and another
//! policy, clear all: the flows in question are told anew when they are declined again.
//!
//! What is written down is remembered here too, so that it can be cleared, and so that there
//! is never more of it than the map holds.

use std::collections::HashMap;
use std::net::IpAddr;

use fib::Reader;
use gate::flow::{Flow, Pair};
use gate::policy::{Action, Policy};
use nix::time::{ClockId, clock_gettime};
use port::af_xdp::Interface;
use rtrb::Consumer;

use super::rings::Early;

const SECOND: u64 = 1_000_000_000;

/// Who writes declined flows down for the kernel.
#[derive(Debug)]
pub(super) struct Writer {
    rings: Vec<Consumer<Early>>,
    policy: Reader<Policy>,
    front: Option<Interface>,
    /// Until when each is dropped, by the monotonic clock.
    written: HashMap<Flow, u64>,
    most: usize,
    /// Times that the kernel refused.
    troubles: u64,
    /// When expired ones are searched for next: not with each decline of a flood.
    sweep_at: u64,
}

/// Returns the kernel's monotonic time, which its programs go by.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC);
    time.map_or(0, |it| it.tv_sec() as u64 * SECOND + it.tv_nsec() as u64)
}

fn addresses(flow: &Flow) -> (IpAddr, IpAddr) {
    match flow.pair() {
        Pair::V4 { src, dst } => (IpAddr::V4(src.into()), IpAddr::V4(dst.into())),
        Pair::V6 { src, dst } => (IpAddr::V6(src.into()), IpAddr::V6(dst.into())),
    }
}

impl Writer {
    /// Writes at most so many flows down, for workers with these rings.
    pub(super) fn new(rings: Vec<Consumer<Early>>, policy: Reader<Policy>, most: u32) -> Self {
        let (written, most) = (HashMap::new(), most as usize);
        Self { rings, policy, front: None, written, most, troubles: 0, sweep_at: 0 }
    }

    /// Writes them down for this interface from now on.
    pub(super) fn set_front(&mut self, front: Interface) {
        self.front = Some(front);
    }

    /// Takes what workers have said; says whether that was anything.
    pub(super) fn turn(&mut self) -> bool {
        let mut any = false;
        for at in 0..self.rings.len() {
            while let Ok(early) = self.rings[at].pop() {
                any = true;
                match early {
                    Early::Decline(flow, seconds) => self.decline(flow, seconds),
                    Early::Forgive(flow) => self.forgive(&flow),
                    Early::Clear => self.clear(),
                }
            }
        }
        self.policy.idle();
        any
    }

    fn decline(&mut self, flow: Flow, seconds: u32) {
        let policy = self.policy.current();
        let protected = matches!(policy.action(&flow), Some(Action::Grantors(_)));
        let concerned = protected && policy.source(&flow).is_none();
        let now = now();
        if self.written.len() >= self.most && now >= self.sweep_at {
            self.sweep_at = now + SECOND;
            self.written.retain(|_, until| *until > now);
        }
        let room = self.written.len() < self.most || self.written.contains_key(&flow);
        let Some(front) = &self.front else { return };
        if !concerned || !room {
            return;
        }
        let until = now + u64::from(seconds) * SECOND;
        let (src, dst) = addresses(&flow);
        match front.decline(src, dst, Some(until)) {
            Ok(()) => _ = self.written.insert(flow, until),
            Err(_) => self.troubles += 1,
        }
    }

    fn forgive(&mut self, flow: &Flow) {
        if let (Some(_), Some(front)) = (self.written.remove(flow), &self.front) {
            let (src, dst) = addresses(flow);
            self.troubles += u64::from(front.decline(src, dst, None).is_err());
        }
    }

    /// Forgives all.
    pub(super) fn clear(&mut self) {
        let all: Vec<Flow> = self.written.keys().copied().collect();
        all.iter().for_each(|flow| self.forgive(flow));
    }

    /// Says whether packets of a flow are dropped now.
    pub(super) fn has(&self, flow: &Flow) -> bool {
        self.written.get(flow).is_some_and(|until| *until > now())
    }

    /// Returns the packets that were dropped and their bytes.
    pub(super) fn dropped(&self) -> (u64, u64) {
        let Some(front) = &self.front else { return (0, 0) };
        let packets = front.counts().map(|counts| counts[port::af_xdp::steer::Steered::Declined]);
        (packets.unwrap_or(0), front.declined_bytes().unwrap_or(0))
    }

    /// Counts the flows that are written down, and the times that the kernel refused.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.written.len() as u64, self.troubles)
    }
}
