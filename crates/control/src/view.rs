//! The view: what others may look at while the router works.
//!
//! Counters of the workers, the ports as they were opened, the interfaces. A reload may
//! put others in their place, so whoever looks holds nothing; the counters go on, because
//! the workers that come after others count where those did.

use std::sync::{Arc, PoisonError, RwLock};

use port::af_xdp::Interface;
use port::af_xdp::steer::SteeringOutcome;

use crate::devices::{DeviceState, DeviceStates};
use crate::start::PortInfo;
use datapath::Verdict;
use datapath::stats::{Snapshot, WorkerStats};

/// What there is to see at the moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Of each worker that there has been, by its number.
    pub(crate) stats: Vec<Arc<WorkerStats>>,
    pub(crate) ports: Vec<PortInfo>,
    pub(crate) interfaces: Vec<Interface>,
    /// The kernel's table that is meant where none is said.
    pub(crate) table: u32,
    /// The known state of the interfaces' devices.
    pub(crate) devices: DeviceStates,
}

/// What others may look at.
#[derive(Debug, Default)]
pub struct View(RwLock<Seen>);

impl View {
    fn with<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows something else from now on.
    pub(crate) fn show(&self, seen: Seen) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    /// Returns the counters, summed over the workers and with the packets that the kernel dropped.
    pub fn stats(&self) -> Snapshot {
        let mut stats: Snapshot = self.worker_stats().into_iter().sum();
        // What the kernel drops for a gate is counted as if a worker had dropped it.
        for interface in self.interfaces() {
            let counts = interface.counts().unwrap_or_default();
            // Packets that no socket received belong to no worker either.
            let undelivered = interface.stats().map_or(0, |stats| stats.undelivered);
            stats.received += undelivered;
            stats.verdicts[Verdict::Undelivered] += undelivered;
            for (steered, bytes, verdict) in [
                (SteeringOutcome::Blocked, interface.blocked_bytes(), Verdict::Blocked),
                (SteeringOutcome::Declined, interface.declined_bytes(), Verdict::Declined),
                (SteeringOutcome::Forged, interface.forged_bytes(), Verdict::Forged),
                // Their bytes are not counted.
                (SteeringOutcome::Unserved, Ok(0), Verdict::Unserved),
            ] {
                stats.received += counts[steered];
                stats.received_bytes += bytes.unwrap_or(0);
                stats.verdicts[verdict] += counts[steered];
            }
        }
        stats
    }

    /// Returns the counters of each worker that there has been, by its number.
    pub fn worker_stats(&self) -> Vec<Snapshot> {
        self.with(|seen| seen.stats.iter().map(|stats| stats.snapshot()).collect())
    }

    /// Returns where each worker counts.
    pub fn counting(&self) -> Vec<Arc<WorkerStats>> {
        self.with(|seen| seen.stats.clone())
    }

    /// Returns the interfaces, in the order of the configuration.
    pub fn interfaces(&self) -> Vec<Interface> {
        self.with(|seen| seen.interfaces.clone())
    }

    /// Returns the ports, those of the first worker first.
    pub fn ports(&self) -> Vec<PortInfo> {
        self.with(|seen| seen.ports.clone())
    }

    /// Returns how packets cross on the port of an interface's index.
    pub fn mode(&self, index: u32) -> &'static str {
        self.with(|seen| {
            seen.ports.iter().find(|port| port.index == index).map_or("", |port| port.mode)
        })
    }

    /// Returns where the control thread keeps what is known of the interfaces' devices.
    pub(crate) fn device_states(&self) -> DeviceStates {
        self.with(|seen| seen.devices.clone())
    }

    /// Returns what is known of the interfaces' devices, in their order.
    pub fn devices(&self) -> Vec<DeviceState> {
        self.with(|seen| seen.devices.get())
    }

    /// Returns the number of the table that a request without a table means.
    pub fn table(&self) -> u32 {
        self.with(|seen| seen.table)
    }
}
