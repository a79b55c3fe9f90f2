//! The router with static routes: it uses the routes of its configuration, not the kernel's.

use std::sync::Arc;

use config::{Config, Target};
use control::links;
use control::routes::Routes;
use control::start::{
    PortInfo, Readers, StartError, Started, Unserved, by_name, open_one, present, start,
};
use control::workers::Workers;
use datapath::stats::Snapshot;
use datapath::{Adjacencies, Ingress, Ingresses, Tables, Want, WantReceiver};
use fib::Publisher;
use port::PortStats;
use port::af_xdp::{self, Interface};

/// Starts routers.
#[derive(Debug)]
pub struct Router;

impl Router {
    /// Starts a router in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`StartError`]; the failed start leaves nothing behind.
    pub fn start(config: Config) -> Result<Running, StartError> {
        present(&config, &by_name)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let routes = Routes::load(&config, threads)?;

        let system = |doing| move |source| StartError::System { doing, source };
        let addresses = links::addresses().map_err(system("list the addresses"))?;
        let locals = Arc::new(links::locals(&addresses));
        let steered: af_xdp::Locals = addresses.into_iter().collect();
        let each = config.interfaces.iter().map(|wanted| open_one(&config, wanted, &steered));
        let interfaces = each.collect::<Result<Vec<_>, _>>()?;
        let links: Vec<_> = interfaces.iter().map(|link| (link.mac(), link.mtu())).collect();
        let adjacencies = Publisher::new(routes.adjacencies(&config, &links));
        let ingresses = Publisher::new(Ingresses::alike(Ingress { locals, ..Ingress::default() }));

        let readers = || Readers {
            tables: Tables::single(routes.v4.reader(), routes.v6.reader()),
            adjacencies: adjacencies.reader(),
            ingresses: ingresses.reader(),
        };
        let Started { workers, ports, wanted, .. } =
            start(&config, &interfaces, None, readers, Vec::new(), None, Unserved::Refuse)?;
        Ok(Running { workers, ports, routes, adjacencies, ingresses, wanted, config, interfaces })
    }
}

/// A running router. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    // Before the interfaces, so that the sockets close before the steering program is detached.
    workers: Workers,
    ports: Vec<PortInfo>,
    routes: Routes,
    adjacencies: Publisher<Adjacencies>,
    ingresses: Publisher<Ingresses>,
    wanted: Vec<WantReceiver>,
    config: Config,
    interfaces: Vec<Interface>,
}

impl Running {
    /// Returns the counters, summed over the workers.
    pub fn stats(&self) -> Snapshot {
        self.workers.view().snapshots().into_iter().sum()
    }

    /// Returns the counters of each worker.
    pub fn worker_stats(&self) -> Vec<Snapshot> {
        self.workers.view().snapshots()
    }

    /// Walks the ports with their counters, those of the first worker first.
    pub fn ports(&self) -> impl Iterator<Item = (&PortInfo, PortStats)> {
        self.ports.iter().zip(self.workers.port_stats().into_iter().flatten())
    }

    /// Returns the routes and their tables.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Returns the routes, to be changed and committed.
    pub fn routes_mut(&mut self) -> &mut Routes {
        &mut self.routes
    }

    /// Returns the publisher of the adjacencies. A caller that publishes a new list must reclaim
    /// the retired one ([`Publisher::reclaim`]).
    pub fn adjacencies(&mut self) -> &mut Publisher<Adjacencies> {
        &mut self.adjacencies
    }

    /// Returns the publisher of the ports' addresses, tables and source checks.
    pub fn ingresses(&mut self) -> &mut Publisher<Ingresses> {
        &mut self.ingresses
    }

    /// Takes the next hops for which packets wait; one may occur several times.
    pub fn wants(&mut self) -> impl Iterator<Item = Want> {
        self.wanted.iter_mut().flat_map(WantReceiver::drain)
    }

    /// Walks the next hops with the number of their routes, those with most first.
    pub fn next_hops(&self) -> impl Iterator<Item = (&str, u64)> {
        self.routes.hops.iter().map(|(_, target, count)| match *target {
            Target::NextHop(at) => (&*self.config.next_hops[at].name, count),
            Target::Blackhole => ("blackhole", count),
        })
    }

    /// Returns the configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the interfaces, in the order of the configuration.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Returns whether every worker's thread runs.
    pub fn alive(&self) -> bool {
        self.workers.alive()
    }

    /// Stops the workers; the counters are final afterwards, and [`Snapshot::balanced`] holds.
    /// Returns whether all workers ended without a panic. The kernel gets the interfaces back when
    /// this value is dropped.
    pub fn stop(&mut self) -> bool {
        self.workers.stop()
    }
}
