//! The queues of egress interfaces: the rate that the workers of an interface share, and the counters of
//! each worker.
//!
//! ```text
//!   [[egress_queue]] ─► EgressQueues ─► a PortQueue for each worker and interface
//!                           └─► `show egress-queues`, metrics: the sum over the workers
//! ```
//!
//! New workers count in the counters of those that they replace, so that no counter goes back.

use std::sync::Arc;
use std::time::Instant;

use crate::plane::Ports;
use api::{EgressQueue, EgressQueueClass};
use config::{Config, EgressQueueConfig};
use datapath::{DeviceQueue, PortQueue, PortQueues};
use qos::{EgressQueueParameters, Pacer, QueueCounters, QueueCounts, TrafficClass};

/// The queues of all workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct EgressQueues(Vec<InterfaceQueue>);

/// The queues of one interface.
#[derive(Clone, Debug)]
struct InterfaceQueue {
    config: EgressQueueConfig,
    pacer: Option<Arc<Pacer>>,
    /// The counters by worker, past workers included.
    counters: Vec<Arc<QueueCounters>>,
}

impl EgressQueues {
    /// Makes the queues of a configuration, which continue the counters of the `past` ones.
    pub(crate) fn of(config: &Config, past: &Self) -> Self {
        let queue = |queue: &EgressQueueConfig| {
            let same = |past: &&InterfaceQueue| past.config.interface == queue.interface;
            let past = past.0.iter().find(same).map(|past| past.counters.clone());
            let mut counters = past.unwrap_or_default();
            let workers = counters.len().max(config.daemon.cores.len());
            counters.resize_with(workers, Arc::default);
            let pacer = queue.bandwidth.map(|rate| Arc::new(Pacer::new(rate, queue.overhead)));
            InterfaceQueue { config: queue.clone(), pacer, counters }
        };
        Self(config.egress_queues.iter().map(queue).collect())
    }

    /// Makes the queues of a worker, in the order of the interfaces; `epoch` is the beginning of the
    /// time of all workers.
    pub(crate) fn of_worker(&self, config: &Config, worker: usize, epoch: Instant) -> PortQueues {
        let by_port = config.interfaces.iter().map(|interface| {
            let own = self.0.iter().find(|queue| queue.config.interface == interface.name);
            // Numbered as `Plane::set_egress_queues` does.
            let over =
                (1..).zip(&self.0).filter(|(_, queue)| queue.config.over.contains(&interface.name));
            let stacked: Vec<_> =
                over.map(|(number, queue)| (number, queue.of_worker(worker))).collect();
            if own.is_none() && stacked.is_empty() {
                return None;
            }
            let own = own.map_or_else(without_limit, |own| own.of_worker(worker));
            Some(PortQueue { own, stacked })
        });
        let clock = Box::new(move || epoch.elapsed().as_nanos() as u64);
        PortQueues { by_port: by_port.collect(), clock }
    }

    /// Reads the counters of each interface, summed over the workers.
    pub(crate) fn items(&self, ports: &Ports) -> Vec<EgressQueue> {
        self.0.iter().map(|queue| queue.item(ports)).collect()
    }
}

/// Returns the queue of a port that has none in the configuration, but devices over it that have.
fn without_limit() -> DeviceQueue {
    DeviceQueue {
        parameters: EgressQueueParameters::default(),
        pacer: None,
        requests_to: Arc::default(),
        counters: Arc::default(),
    }
}

impl InterfaceQueue {
    fn of_worker(&self, worker: usize) -> DeviceQueue {
        DeviceQueue {
            parameters: self.config.parameters,
            pacer: self.pacer.clone(),
            requests_to: Arc::clone(&self.config.requests_to),
            counters: self.counters.get(worker).cloned().unwrap_or_default(),
        }
    }

    fn item(&self, ports: &Ports) -> EgressQueue {
        let mut sum = QueueCounts::default();
        for counters in &self.counters {
            for (sum, more) in sum.iter_mut().zip(counters.snapshot()) {
                *sum += more;
            }
        }
        let class = |(class, counts): (TrafficClass, qos::ClassCounts)| EgressQueueClass {
            class: class.name().to_owned(),
            packets: counts.packets,
            bytes: counts.bytes,
            dropped_full: counts.full,
            dropped_delay: counts.delayed,
            marked: counts.marked,
            waiting: counts.waiting,
            waiting_bytes: counts.waiting_bytes,
            delay_microseconds: counts.delay / 1000,
        };
        EgressQueue {
            interface: self.config.interface.clone(),
            over: self.config.over.clone(),
            is_port: ports.all().any(|(_, port)| port.name == self.config.interface),
            bandwidth: self.config.bandwidth,
            classes: TrafficClass::ALL.into_iter().zip(sum).map(class).collect(),
        }
    }
}
