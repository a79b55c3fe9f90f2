//! Blocked sources that end in the kernel, before a worker has any work with them.
//!
//! ```text
//!   rules ─► Sources ─┬─► policy of the workers
//!                     └─► map of the front interface's program ─► drops, counts
//!   who tells of counters ◄── as if a worker had ──┘
//! ```
//!
//! The workers go over to another list first and the map follows, prefix by prefix: what both say alike
//! of a source is so all the while (`port/src/af_xdp/steer/blocked.rs`). Prefixes that the map has no
//! room for are the workers'.

use std::net::IpAddr;
use std::sync::{Mutex, OnceLock, PoisonError};

use gate::policy::sources::{SourceClass, SourceLists};
use port::af_xdp::Interface;
use port::af_xdp::steer::{self, Steered, Written};

/// Who writes blocked sources down for the kernel.
#[derive(Debug, Default)]
pub(super) struct Writer {
    front: OnceLock<Interface>,
    /// What is written down, and how often the kernel refused. Not held while it is written.
    told: Mutex<(Written, u64)>,
}

impl Writer {
    /// Writes them down for this interface from now on.
    pub(super) fn set_front(&self, front: Interface) {
        // There is one as long as a gate works.
        let _ = self.front.set(front);
    }

    /// Goes over to what is said of sources.
    pub(super) fn go_over(&self, sources: &SourceLists) {
        let Some(front) = self.front.get() else { return };
        let v4 = sources
            .drop_list_v4()
            .map(|(prefix, said)| source(IpAddr::V4(prefix.addr().into()), prefix.len(), said));
        let v6 = sources
            .drop_list_v6()
            .map(|(prefix, said)| source(IpAddr::V6(prefix.addr().into()), prefix.len(), said));
        let list: Vec<steer::Source> = v4.chain(v6).collect();
        let done = front.set_blocked(&list);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.1 += u64::from(done.is_err());
        // Where it failed none is dropped.
        told.0 = done.unwrap_or(Written { there: 0, left: list.len() });
    }

    /// Says whether packets of a source are dropped in the kernel.
    pub(super) fn has(&self, source: IpAddr) -> bool {
        self.front.get().is_some_and(|front| front.blocks(source).unwrap_or(false))
    }

    /// Returns the packets that were dropped and their bytes.
    pub(super) fn dropped(&self) -> (u64, u64) {
        let Some(front) = self.front.get() else { return (0, 0) };
        let packets = front.counts().map_or(0, |counts| counts[Steered::Blocked]);
        (packets, front.blocked_bytes().unwrap_or(0))
    }

    /// Returns what is written down, and how often the kernel refused.
    pub(super) fn counts(&self) -> (Written, u64) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn source(address: IpAddr, len: u32, said: SourceClass) -> steer::Source {
    steer::Source { address, len: len as u8, drops: said == SourceClass::Blocked }
}
