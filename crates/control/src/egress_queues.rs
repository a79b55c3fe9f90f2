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
use crate::succession::InterfaceQueueCounts;
use api::{EgressQueue, EgressQueueClass};
use config::{Config, EgressQueueConfig};
use datapath::{DeviceQueue, PortQueue, PortQueues};
use port::af_xdp::{HostEgress, Interface};
use qos::{EgressQueueParameters, QueueCounters, QueueCounts, SharedPacer, TrafficClass};

/// The queues of all workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct EgressQueues(Vec<InterfaceQueue>);

/// The queues of one interface.
#[derive(Clone, Debug)]
struct InterfaceQueue {
    config: EgressQueueConfig,
    pacer: Option<Arc<SharedPacer>>,
    /// The counter of what the host itself sends by the interface, if that takes a part of its rate.
    host: Option<Arc<HostEgress>>,
    /// The counters by worker, past workers included, and of each worker by the interfaces below: a
    /// worker has a queue of a bond for each member.
    counters: Vec<Arc<QueueCounters>>,
}

impl EgressQueues {
    /// Makes the queues of a configuration, which continue the counters of the `past` ones.
    pub(crate) fn of(config: &Config, past: &Self) -> Self {
        let queue = |queue: &EgressQueueConfig| {
            let same = |past: &&InterfaceQueue| past.config.interface == queue.interface;
            let past = past.0.iter().find(same).map(|past| past.counters.clone());
            let mut counters = past.unwrap_or_default();
            let count = config.daemon.cores.len() * queue.over.len().max(1);
            counters.resize_with(count.max(counters.len()), Arc::default);
            let pacer =
                queue.bandwidth.map(|rate| Arc::new(SharedPacer::new(rate, queue.overhead, count)));
            InterfaceQueue { config: queue.clone(), pacer, host: None, counters }
        };
        Self(config.egress_queues.iter().map(queue).collect())
    }

    /// Returns the counters, for a successor.
    pub(crate) fn counts(&self) -> Vec<InterfaceQueueCounts> {
        let read = |queue: &InterfaceQueue| {
            InterfaceQueueCounts::read(&queue.config.interface, queue.counters.iter().map(|c| &**c))
        };
        self.0.iter().map(read).collect()
    }

    /// Makes the queues of a configuration, without rates, that have the counters of a predecessor.
    pub(crate) fn continuing(config: &Config, counts: &[InterfaceQueueCounts]) -> Self {
        let queue = |queue: &EgressQueueConfig| {
            let past = counts.iter().find(|past| past.interface == queue.interface)?;
            let counters = past.counters().map(Arc::new).collect();
            Some(InterfaceQueue { config: queue.clone(), pacer: None, host: None, counters })
        };
        Self(config.egress_queues.iter().filter_map(queue).collect())
    }

    /// Counts what the host sends by these interfaces, where they have a rate. Before Linux 6.6 that is not
    /// possible, and the host's packets are in addition to the rate.
    pub(crate) fn count_host(&mut self, interfaces: &[Interface]) {
        for queue in self.0.iter_mut().filter(|queue| queue.pacer.is_some()) {
            let own = interfaces.iter().find(|port| port.name() == queue.config.interface);
            queue.host = own.and_then(|interface| interface.count_host_egress().ok());
        }
    }

    /// Makes the queues of a worker, in the order of the interfaces; `epoch` is the beginning of the
    /// time of all workers.
    pub(crate) fn of_worker(&self, config: &Config, worker: usize, epoch: Instant) -> PortQueues {
        let by_port = config.interfaces.iter().map(|interface| {
            let own = self.0.iter().find(|queue| queue.config.interface == interface.name);
            // Numbered as `Plane::set_egress_queues` does.
            let stacked = (1..).zip(&self.0).filter_map(|(number, queue)| {
                let member = queue.config.over.iter().position(|below| *below == interface.name)?;
                Some((
                    number,
                    DeviceQueue { within: self.around(queue), ..queue.of_worker(worker, member) },
                ))
            });
            let stacked: Vec<_> = stacked.collect();
            if own.is_none() && stacked.is_empty() {
                return None;
            }
            // The workers share the rate, so one of them takes its time for all.
            let host = own.filter(|_| worker == 0).and_then(|own| own.host.clone());
            let own = own.map_or_else(without_limit, |own| own.of_worker(worker, 0));
            Some(PortQueue { own, stacked, host })
        });
        let clock = Box::new(move || epoch.elapsed().as_nanos() as u64);
        PortQueues { by_port: by_port.collect(), clock }
    }

    /// Returns the number of the queue whose rate a queue is within.
    fn around(&self, queue: &InterfaceQueue) -> Option<u16> {
        let name = queue.config.within.as_ref()?;
        let mut numbers = (1..).zip(&self.0);
        numbers.find_map(|(number, queue)| (queue.config.interface == *name).then_some(number))
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
        worker: 0,
        within: None,
        weight: 1,
        requests_to: Arc::default(),
        counters: Arc::default(),
    }
}

impl InterfaceQueue {
    /// Makes the queue of a worker over one of the interfaces below.
    fn of_worker(&self, worker: usize, member: usize) -> DeviceQueue {
        let at = worker * self.config.over.len().max(1) + member;
        DeviceQueue {
            parameters: self.config.parameters,
            pacer: self.pacer.clone(),
            worker: at,
            within: None,
            weight: self.config.weight,
            requests_to: Arc::clone(&self.config.requests_to),
            counters: self.counters.get(at).cloned().unwrap_or_default(),
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
        let host = self.host.as_ref().map(|host| host.traffic());
        EgressQueue {
            interface: self.config.interface.clone(),
            over: self.config.over.clone(),
            within: self.config.within.clone(),
            weight: self.config.weight,
            is_port: ports.all().any(|(_, port)| port.name == self.config.interface),
            bandwidth: self.config.bandwidth,
            host_packets: host.map(|host| host.packets),
            host_bytes: host.map(|host| host.bytes),
            classes: TrafficClass::ALL.into_iter().zip(sum).map(class).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        let interfaces = "interface = [{ name = 'a' }, { name = 'b' }, { name = 'c' }]\n";
        let workers = "[workers]\ncores = [0, 1]\n";
        Config::parse(&format!("{interfaces}{text}{workers}"), Path::new("run.toml")).unwrap()
    }

    const TEXT: &str = "[[egress_queue]]\ninterface = 'c'\nbandwidth = '1mbit'\n\
                        [[egress_queue]]\ninterface = 'bond0'\nover = ['a', 'b']\nbandwidth = '2mbit'\n";

    fn ports(queues: &EgressQueues, config: &Config, worker: usize) -> Vec<Option<PortQueue>> {
        queues.of_worker(config, worker, Instant::now()).by_port
    }

    #[test]
    fn bond_has_one_rate_and_counters_for_each_worker_and_member() {
        let config = config(TEXT);
        let queues = EgressQueues::of(&config, &EgressQueues::default());
        let mut pacers = Vec::new();
        for worker in [0, 1] {
            let [Some(a), Some(b), Some(c)] = &ports(&queues, &config, worker)[..] else {
                panic!("each has a queue")
            };
            assert!(a.own.pacer.is_none() && c.own.pacer.is_some() && c.stacked.is_empty());
            for port in [a, b] {
                let [(number, queue)] = &port.stacked[..] else { panic!("one device") };
                assert_eq!(*number, 2);
                pacers.push(queue.pacer.clone().unwrap());
                queue.counters.full(TrafficClass::Default);
                queue.counters.waits(TrafficClass::Default, (1, 100));
            }
        }
        assert!(pacers.iter().all(|pacer| Arc::ptr_eq(pacer, &pacers[0])));
        let items = queues.items(&Ports::default());
        let default = &items[1].classes[TrafficClass::Default as usize];
        assert_eq!((&*items[1].interface, items[1].is_port), ("bond0", false));
        assert_eq!((default.dropped_full, default.waiting, default.waiting_bytes), (4, 4, 400));
    }

    #[test]
    fn new_workers_continue_the_counters() {
        let config = config(TEXT);
        let first = EgressQueues::of(&config, &EgressQueues::default());
        let Some(c) = &ports(&first, &config, 1)[2] else { panic!("a queue") };
        c.own.counters.left(TrafficClass::Control, 100, 0, false);
        let next = EgressQueues::of(&config, &first);
        let Some(c) = &ports(&next, &config, 1)[2] else { panic!("a queue") };
        c.own.counters.left(TrafficClass::Control, 50, 0, false);
        let control = &next.items(&Ports::default())[0].classes[0];
        assert_eq!((control.packets, control.bytes), (2, 150));
    }
}
