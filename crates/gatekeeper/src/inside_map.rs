//! The kernel's map of the prefixes behind the gate: the front interface's XDP program drops packets
//! for this host with such a source.
//!
//! ```text
//!   Rules ─► prefixes with grantors, back prefixes, tunnel ends ─► map of the program ─► drops, counts
//! ```
//!
//! The workers check the sources of all other packets (`gate/src/policy/forged.rs`). Packets for the
//! host never reach a worker, and the host would answer them to their source.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use port::af_xdp::Interface;
use port::af_xdp::steer::SteeringOutcome;

use super::config::Rules;

/// Writes the prefixes behind the gate to the map of the front interface's XDP program.
#[derive(Debug, Default)]
pub(super) struct InsideMap {
    front: OnceLock<Interface>,
    failures: AtomicU64,
}

impl InsideMap {
    /// Sets the interface whose program drops the packets.
    pub(super) fn set_front(&self, front: Interface) {
        // A gate has one front interface as long as it runs.
        let _ = self.front.set(front);
    }

    /// Replaces the prefixes with those of the rules; logs and counts a failure.
    pub(super) fn replace(&self, rules: &Rules) {
        let Some(front) = self.front.get() else { return };
        if let Err(error) = front.set_protected(&rules.behind()) {
            self.failures.fetch_add(1, Ordering::Relaxed);
            log::error!(
                "the kernel refused a prefix behind the gate: {error}: packets for this host whose \
                 source is in it are answered"
            );
        }
    }

    /// Returns the packets that were dropped and their bytes.
    pub(super) fn dropped(&self) -> (u64, u64) {
        let Some(front) = self.front.get() else { return (0, 0) };
        let packets = front.counts().map_or(0, |counts| counts[SteeringOutcome::Forged]);
        (packets, front.forged_bytes().unwrap_or(0))
    }

    /// Returns the number of failures.
    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}
