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

use api::{EgressQueue, EgressQueueClass};
use config::{Config, EgressQueueConfig};
use datapath::{PortQueue, PortQueues};
use qos::{Pacer, QueueCounters, QueueCounts, TrafficClass};

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

    /// Returns the most frames that the queues of a worker hold.
    pub(crate) fn frames(&self) -> u32 {
        self.0.iter().map(|queue| PortQueue::frames(&queue.config.parameters)).sum()
    }

    /// Makes the queues of a worker, in the order of the interfaces; `epoch` is the beginning of the
    /// time of all workers.
    pub(crate) fn of_worker(&self, config: &Config, worker: usize, epoch: Instant) -> PortQueues {
        let by_port = config.interfaces.iter().map(|interface| {
            let queue = self.0.iter().find(|queue| queue.config.interface == interface.name)?;
            Some(PortQueue {
                parameters: queue.config.parameters,
                pacer: queue.pacer.clone(),
                requests_to: Arc::clone(&queue.config.requests_to),
                counters: Arc::clone(queue.counters.get(worker)?),
            })
        });
        let clock = Box::new(move || epoch.elapsed().as_nanos() as u64);
        PortQueues { by_port: by_port.collect(), clock }
    }

    /// Reads the counters of each interface, summed over the workers.
    pub(crate) fn items(&self) -> Vec<EgressQueue> {
        self.0.iter().map(InterfaceQueue::item).collect()
    }
}

impl InterfaceQueue {
    fn item(&self) -> EgressQueue {
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
            bandwidth: self.config.bandwidth,
            classes: TrafficClass::ALL.into_iter().zip(sum).map(class).collect(),
        }
    }
}
