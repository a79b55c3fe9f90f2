//! The kernel's map of blocked sources, whose packets the XDP program drops before a worker sees them.
//!
//! ```text
//!   rules ─► SourceLists ─┬─► policy of the workers
//!                     └─► map of the front interface's program ─► drops, counts
//!   counters and metrics ◄── added to the workers' counters ──────┘
//! ```
//!
//! With another list, the workers change first and the map follows, prefix by prefix: a source for
//! which both lists agree has no other verdict in between (`port/src/af_xdp/steer/blocked.rs`). The
//! workers drop the packets of prefixes for which the map has no room.

use std::net::IpAddr;
use std::sync::{Mutex, OnceLock, PoisonError};

use gate::policy::sources::{SourceClass, SourceLists};
use port::af_xdp::Interface;
use port::af_xdp::steer::{self, InstalledPrefixes, SteeringOutcome};

/// Writes blocked and allowed sources to the map of the front interface's XDP program.
#[derive(Debug, Default)]
pub(super) struct BlockedMap {
    front: OnceLock<Interface>,
    /// The prefixes in the map, and the updates that the kernel refused. Not locked during an update.
    written: Mutex<(InstalledPrefixes, u64)>,
}

impl BlockedMap {
    /// Sets the interface whose program drops the packets.
    pub(super) fn set_front(&self, front: Interface) {
        // A gate has one front interface as long as it runs.
        let _ = self.front.set(front);
    }

    /// Replaces the contents of the map.
    pub(super) fn replace(&self, sources: &SourceLists) {
        let Some(front) = self.front.get() else { return };
        let v4 = sources.drop_list_v4().map(|(prefix, verdict)| {
            source(IpAddr::V4(prefix.addr().into()), prefix.len(), verdict)
        });
        let v6 = sources.drop_list_v6().map(|(prefix, verdict)| {
            source(IpAddr::V6(prefix.addr().into()), prefix.len(), verdict)
        });
        let list: Vec<steer::SourcePrefix> = v4.chain(v6).collect();
        let result = front.set_blocked(&list);
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        written.1 += u64::from(result.is_err());
        // After a failure the program drops no packet.
        written.0 = result.unwrap_or(InstalledPrefixes { installed: 0, omitted: list.len() });
    }

    /// Returns whether the XDP program drops packets of a source.
    pub(super) fn blocks(&self, source: IpAddr) -> bool {
        self.front.get().is_some_and(|front| front.blocks(source).unwrap_or(false))
    }

    /// Returns the packets that were dropped and their bytes.
    pub(super) fn dropped(&self) -> (u64, u64) {
        let Some(front) = self.front.get() else { return (0, 0) };
        let packets = front.counts().map_or(0, |counts| counts[SteeringOutcome::Blocked]);
        (packets, front.blocked_bytes().unwrap_or(0))
    }

    /// Returns the prefixes in the map, and the number of updates that the kernel refused.
    pub(super) fn counts(&self) -> (InstalledPrefixes, u64) {
        *self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn source(address: IpAddr, len: u32, verdict: SourceClass) -> steer::SourcePrefix {
    steer::SourcePrefix { address, len: len as u8, drops: verdict == SourceClass::Blocked }
}
