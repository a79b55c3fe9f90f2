//! The view: the state that other threads may read while the router runs.
//!
//! It has the counters of the workers, the ports as they were opened, and the interfaces. A reload
//! may replace them, so each access reads them again. The counters continue, because new workers
//! count in the counters of the workers that they replace.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use port::af_xdp::Interface;
use port::af_xdp::steer::SteeringOutcome;

use crate::devices::{DeviceState, DeviceStates};
use crate::plane::Ports;
use crate::start::{PortInfo, WorkerCounters};
use datapath::Verdict;
use datapath::stats::{Snapshot, WorkerStats};

/// The current state of the view.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) counters: WorkerCounters,
    pub(crate) ports: Vec<PortInfo>,
    pub(crate) interfaces: Vec<Interface>,
    /// The kernel's routing table that a request without a table means.
    pub(crate) table: u32,
    /// The known state of the interfaces' devices.
    pub(crate) devices: DeviceStates,
}

/// Shared access to the state that other threads may read.
#[derive(Debug, Default)]
pub struct View {
    seen: RwLock<Seen>,
    /// The counters of interfaces that were closed.
    closed: Mutex<Snapshot>,
}

impl View {
    fn with<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the state.
    pub(crate) fn show(&self, seen: Seen) {
        *self.seen.write().unwrap_or_else(PoisonError::into_inner) = seen;
    }

    /// Returns the counters, summed over the workers and with the packets that steering programs dropped or
    /// forwarded.
    pub fn stats(&self) -> Snapshot {
        let closed = self.closed();
        let steered = self.interfaces().iter().map(steered).sum();
        self.worker_stats().into_iter().chain([closed, steered]).sum()
    }

    /// Detaches the steering program of an interface that is closed for good, and keeps its counters.
    pub(crate) fn close(&self, interface: &Interface) {
        interface.detach();
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        *closed = *closed + steered(interface);
    }

    /// Returns the counters of interfaces that were closed.
    pub(crate) fn closed(&self) -> Snapshot {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues the counters of interfaces that a predecessor has closed.
    pub(crate) fn continue_closed(&self, counts: Snapshot) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    /// Returns the counters of each worker, past workers included, by its number.
    pub fn worker_stats(&self) -> Vec<Snapshot> {
        self.with(|seen| seen.counters.stats.iter().map(|stats| stats.snapshot()).collect())
    }

    /// Returns the live counters of each worker.
    pub fn counting(&self) -> Vec<Arc<WorkerStats>> {
        self.with(|seen| seen.counters.stats.clone())
    }

    /// Returns the counters of the workers, which those that replace them continue.
    pub fn counters(&self) -> WorkerCounters {
        self.with(|seen| seen.counters.clone())
    }

    /// Returns the queues of egress interfaces, with their counters.
    pub fn egress_queues(&self, ports: &Ports) -> Vec<api::EgressQueue> {
        self.with(|seen| seen.counters.queues.items(ports))
    }

    /// Returns the interfaces, in the order of the configuration.
    pub fn interfaces(&self) -> Vec<Interface> {
        self.with(|seen| seen.interfaces.clone())
    }

    /// Returns the ports, those of the first worker first.
    pub fn ports(&self) -> Vec<PortInfo> {
        self.with(|seen| seen.ports.clone())
    }

    /// Returns the receive mode of the port of the interface with this index.
    pub fn mode(&self, index: u32) -> String {
        self.with(|seen| {
            let port = seen.ports.iter().find(|port| port.index == index);
            let mode = port.map_or("", |port| port.mode);
            let interface = seen.interfaces.iter().find(|interface| interface.index() == index);
            match interface.is_some_and(Interface::forwards_in_driver) {
                true => format!("XDP, {mode}"),
                false => mode.to_owned(),
            }
        })
    }

    /// Returns the shared states of the interfaces' devices, which the control thread updates.
    pub(crate) fn device_states(&self) -> DeviceStates {
        self.with(|seen| seen.devices.clone())
    }

    /// Returns the states of the interfaces' devices, in the order of the interfaces.
    pub fn devices(&self) -> Vec<DeviceState> {
        self.with(|seen| seen.devices.get())
    }

    /// Returns the number of the table that a request without a table means.
    pub fn table(&self) -> u32 {
        self.with(|seen| seen.table)
    }
}

/// Returns the verdict by which packets with an outcome count; `None` if the host or a worker gets them, or if they are
/// not for the router.
pub(crate) fn verdict_of(outcome: SteeringOutcome) -> Option<Verdict> {
    match outcome {
        SteeringOutcome::Forwarded => Some(Verdict::Sent),
        SteeringOutcome::Blocked => Some(Verdict::Blocked),
        SteeringOutcome::Declined => Some(Verdict::Declined),
        SteeringOutcome::Forged => Some(Verdict::Forged),
        SteeringOutcome::Unserved => Some(Verdict::Unserved),
        _ => None,
    }
}

/// Returns the packets that no worker received: those that a steering program dropped or forwarded count as if a
/// worker had done so.
fn steered(interface: &Interface) -> Snapshot {
    let mut stats = Snapshot::default();
    let counts = interface.counts().unwrap_or_default();
    let port::PortStats { undelivered, tx_refused, .. } = interface.stats().unwrap_or_default();
    stats.received += undelivered;
    stats.verdicts[Verdict::Undelivered] += undelivered;
    let forwarded_bytes = interface.forwarded_bytes().unwrap_or(0);
    stats.sent_bytes += forwarded_bytes;
    for (outcome, count) in counts.iter() {
        let Some(verdict) = verdict_of(outcome) else { continue };
        let bytes = match outcome {
            SteeringOutcome::Forwarded => Ok(forwarded_bytes),
            SteeringOutcome::Blocked => interface.blocked_bytes(),
            SteeringOutcome::Declined => interface.declined_bytes(),
            SteeringOutcome::Forged => interface.forged_bytes(),
            // The bytes of others are not counted.
            _ => Ok(0),
        };
        stats.received += count;
        stats.received_bytes += bytes.unwrap_or(0);
        stats.verdicts[verdict] += count;
    }
    // Frames may have been forwarded and refused since the counts were read.
    let tx_refused = tx_refused.min(counts[SteeringOutcome::Forwarded]);
    stats.verdicts[Verdict::Sent] -= tx_refused;
    stats.verdicts[Verdict::TxRefused] += tx_refused;
    stats
}
