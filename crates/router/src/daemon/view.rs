//! The view: what others may look at while the router works.
//!
//! Counters of the workers, the ports as they were opened, the interfaces. A reload may
//! put others in their place, so whoever looks holds nothing; the counters go on, because
//! the workers that come after others count where those did.

use std::sync::{Arc, PoisonError, RwLock};

use port::af_xdp::Interface;
use port::af_xdp::steer::Steered;

use crate::datapath::Verdict;
use crate::router::PortInfo;
use crate::stats::{Snapshot, WorkerStats};

/// What there is to see at the moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Of each worker that there has been, by its number.
    pub(crate) stats: Vec<Arc<WorkerStats>>,
    pub(crate) ports: Vec<PortInfo>,
    pub(crate) interfaces: Vec<Interface>,
    /// The kernel's table that is meant where none is said.
    pub(crate) table: u32,
}

/// What others may look at.
#[derive(Debug, Default)]
pub(crate) struct View(RwLock<Seen>);

impl View {
    fn with<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows something else from now on.
    pub(super) fn show(&self, seen: Seen) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    pub(crate) fn stats(&self) -> Snapshot {
        let mut stats: Snapshot = self.worker_stats().into_iter().sum();
        // What the kernel drops for a gate is counted as if a worker had dropped it.
        for interface in self.interfaces() {
            let counts = interface.counts().unwrap_or_default();
            for (steered, bytes, verdict) in [
                (Steered::Blocked, interface.blocked_bytes(), Verdict::Blocked),
                (Steered::Declined, interface.declined_bytes(), Verdict::Declined),
            ] {
                stats.received += counts[steered];
                stats.received_bytes += bytes.unwrap_or(0);
                stats.verdicts[verdict as usize] += counts[steered];
            }
        }
        stats
    }

    pub(crate) fn worker_stats(&self) -> Vec<Snapshot> {
        self.with(|seen| seen.stats.iter().map(|stats| stats.snapshot()).collect())
    }

    /// Returns where each worker counts.
    pub(crate) fn counting(&self) -> Vec<Arc<WorkerStats>> {
        self.with(|seen| seen.stats.clone())
    }

    pub(crate) fn interfaces(&self) -> Vec<Interface> {
        self.with(|seen| seen.interfaces.clone())
    }

    pub(crate) fn ports(&self) -> Vec<PortInfo> {
        self.with(|seen| seen.ports.clone())
    }

    /// Returns how packets cross on a port.
    pub(crate) fn mode(&self, name: &str) -> &'static str {
        self.with(|seen| {
            seen.ports.iter().find(|port| port.name == name).map_or("", |port| port.mode)
        })
    }

    pub(crate) fn table(&self) -> u32 {
        self.with(|seen| seen.table)
    }
}
