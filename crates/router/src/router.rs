//! The router: a configuration brought to life, and taken down again.
//!
//! ```text
//!   Config ─► interfaces there? ─► routes, tables ─► interfaces taken over
//!                                                     ─► a socket a queue ─► workers
//! ```
//!
//! What can fail without touching the system comes first: names, files, tables.
//! Whatever fails later gives back what was taken before it: an interface's program
//! goes with the value that holds it, and a worker's threads with theirs. A router
//! that did not start leaves no trace.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use fib::{Publisher, Reader};
use port::af_xdp::{self, Interface, RingSizes, Socket};
use port::handover::Handed;
use port::{Arena, Host, Port, PortStats};

use crate::config::{self, Config, Target};
use crate::control::links;
use crate::control::routes::{Routes, RoutesError};
use crate::control::workers::Workers;
use crate::datapath::{
    Adjacencies, HELD, Ingress, Ingresses, SIZE, Station, Tables, Want, WantReceiver, Worker,
    WorkerSetup, wants,
};
use crate::stats::{Snapshot, WorkerStats};

/// The largest MTU whose frames fit the smaller of the two frame sizes: 2048 bytes
/// less the headroom and the Ethernet header.
const SMALL_FRAME_MTU: usize = 2048 - port::HEADROOM as usize - 14;

/// Says why the router did not start.
#[derive(Debug)]
pub enum StartError {
    /// Interfaces that are not there.
    NoInterface {
        /// Their names.
        names: Vec<String>,
    },
    /// The routes.
    Routes(RoutesError),
    /// The kernel's routes cannot be followed.
    Feed(feed::netlink::Error),
    /// An engine cannot be made.
    Full(fib::Full),
    /// The configuration has routes of its own, and those of the kernel are to be followed.
    StaticRoutes,
    /// The control socket.
    Control {
        /// Its path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The metrics.
    Metrics {
        /// Where they were to be.
        listen: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Tunnels over a family have nowhere to begin.
    NoTunnelEnd {
        /// The back interface.
        interface: String,
        /// The family.
        family: &'static str,
    },
    /// An interface, its queue or the permission for it.
    Port(af_xdp::Error),
    /// Anything else of the system.
    System {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInterface { names } => write!(
                f,
                "{}: no such interface in this network namespace (see `ip link`)",
                names.join(", ")
            ),
            Self::Routes(error) => error.fmt(f),
            Self::Feed(error) => error.fmt(f),
            Self::Full(error) => error.fmt(f),
            Self::StaticRoutes => f.write_str(
                "the configuration has [[nexthop]], [[routes]] or [[route]], and `run` takes its \
                 routes from the kernel (take them out, or use `fingerpost forward`)",
            ),
            Self::Control { path, source } => {
                write!(f, "{}: no control socket: {source}", path.display())
            }
            Self::Metrics { listen, source } => {
                write!(f, "cannot listen for metrics at {listen} (`[metrics] listen`): {source}")
            }
            Self::NoTunnelEnd { interface, family } => write!(
                f,
                "{interface} has no {family} address, and grantors are reached by {family}: give \
                 it one, or name one (`[back] address4`, `address6`)"
            ),
            Self::Port(error) => error.fmt(f),
            Self::System { doing, source } => write!(f, "cannot {doing}: {source}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoInterface { .. } => None,
            Self::Routes(error) => Some(error),
            Self::Feed(error) => Some(error),
            Self::Full(error) => Some(error),
            Self::StaticRoutes | Self::NoTunnelEnd { .. } => None,
            Self::Port(error) => Some(error),
            Self::System { source, .. }
            | Self::Control { source, .. }
            | Self::Metrics { source, .. } => Some(source),
        }
    }
}

impl From<RoutesError> for StartError {
    fn from(error: RoutesError) -> Self {
        Self::Routes(error)
    }
}

impl From<feed::netlink::Error> for StartError {
    fn from(error: feed::netlink::Error) -> Self {
        Self::Feed(error)
    }
}

impl From<fib::Full> for StartError {
    fn from(error: fib::Full) -> Self {
        Self::Full(error)
    }
}

impl From<af_xdp::Error> for StartError {
    fn from(error: af_xdp::Error) -> Self {
        Self::Port(error)
    }
}

/// Starts routers.
#[derive(Debug)]
pub struct Router;

/// One port of one worker, as it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The interface.
    pub name: String,
    /// The worker, and the interface's queue, from 0.
    pub worker: usize,
    /// How packets cross, such as `AF_XDP copy`.
    pub mode: &'static str,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// The largest packet in bytes.
    pub mtu: usize,
    /// Why it is not in a better mode, where the driver said so.
    pub fallback: Option<String>,
}

impl Router {
    /// Starts a router in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing is left behind then.
    pub fn start(config: Config) -> Result<Running, StartError> {
        present(&config)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let routes = Routes::load(&config, threads)?;

        let system = |doing| move |source| StartError::System { doing, source };
        let addresses = links::addresses().map_err(system("list the addresses"))?;
        let locals = Arc::new(links::locals(&addresses));
        let steered: af_xdp::Locals = addresses.into_iter().collect();
        let interfaces = open(&config, &steered, Vec::new())?;
        let links: Vec<_> = interfaces.iter().map(|link| (link.mac(), link.mtu())).collect();
        let adjacencies = Publisher::new(routes.adjacencies(&config, &links));
        let ingresses = Publisher::new(Ingresses::alike(Ingress { locals, ..Ingress::default() }));

        let readers = || Readers {
            tables: Tables::one(routes.v4.reader(), routes.v6.reader()),
            adjacencies: adjacencies.reader(),
            ingresses: ingresses.reader(),
        };
        let Started { workers, ports, wanted, .. } =
            start(&config, &interfaces, None, readers, Vec::new(), None)?;
        Ok(Running { workers, ports, routes, adjacencies, ingresses, wanted, config, interfaces })
    }
}

/// What a worker reads of what the control side publishes.
pub(crate) struct Readers {
    pub(crate) tables: Tables,
    pub(crate) adjacencies: Reader<Adjacencies>,
    pub(crate) ingresses: Reader<Ingresses>,
}

/// Makes the station of a worker, by its number.
pub(crate) type MakeStation<'a> = dyn FnMut(usize, &[Interface]) -> Box<dyn Station> + 'a;

/// What makes workers those of a gate.
pub(crate) struct Stations<'a> {
    /// Frames that a station may keep.
    pub(crate) frames: u32,
    /// Makes their stations.
    pub(crate) make: &'a mut MakeStation<'a>,
    /// What they receive from each other, of those packets that came in on the first
    /// interface; empty where they hand nothing over.
    pub(crate) handed: Vec<Handed>,
}

/// Workers that were started.
pub(crate) struct Started {
    pub(crate) workers: Workers,
    pub(crate) ports: Vec<PortInfo>,
    /// What each of them asks for.
    pub(crate) wanted: Vec<WantReceiver>,
    /// Where each of them counts, and where others did before them.
    pub(crate) stats: Vec<Arc<WorkerStats>>,
}

/// Refuses interfaces that are not there.
pub(crate) fn present(config: &Config) -> Result<(), StartError> {
    let missing = config.interfaces.iter().map(|interface| &interface.name);
    let names: Vec<_> = missing.filter(|name| !links::exists(name)).cloned().collect();
    if names.is_empty() { Ok(()) } else { Err(StartError::NoInterface { names }) }
}

/// Takes the interfaces over, the addresses of `steered` being the host's own; those in
/// `held` have been.
pub(crate) fn open(
    config: &Config,
    steered: &af_xdp::Locals,
    mut held: Vec<Interface>,
) -> Result<Vec<Interface>, StartError> {
    let mut interfaces = Vec::new();
    for wanted in &config.interfaces {
        let at = held.iter().position(|one| one.name() == wanted.name);
        interfaces.push(match at {
            Some(at) => adjust(held.swap_remove(at), wanted, steered)?,
            None => open_one(config, wanted, steered)?,
        });
    }
    Ok(interfaces)
}

/// Takes one interface over.
pub(crate) fn open_one(
    config: &Config,
    wanted: &config::Interface,
    steered: &af_xdp::Locals,
) -> Result<Interface, StartError> {
    let queues = config.cores.len() as u32;
    let (name, mode) = (&wanted.name, wanted.mode);
    let interface = match wanted.guard {
        Some(early) => Interface::open_guarding(name, queues, steered, mode, early)?,
        None => Interface::open(name, queues, steered, mode)?,
    };
    adjust(interface, wanted, steered)
}

/// Tells the steering program of an interface what it goes by.
fn adjust(
    interface: Interface,
    wanted: &config::Interface,
    steered: &af_xdp::Locals,
) -> Result<Interface, StartError> {
    let doing = "tell the steering program of an interface";
    let told = interface.set_locals(steered).and_then(|()| interface.observe(wanted.observe));
    told.map_err(|source| StartError::System { doing, source })?;
    Ok(interface)
}

/// Starts a worker on each core, with a queue of every interface and readers of its own;
/// packets that are the host's after all go to `host`. They count where those before them
/// did, in `stats`.
pub(crate) fn start(
    config: &Config,
    interfaces: &[Interface],
    host: Option<&Host>,
    readers: impl Fn() -> Readers,
    mut stats: Vec<Arc<WorkerStats>>,
    mut stations: Option<Stations<'_>>,
) -> Result<Started, StartError> {
    let system = |doing| move |source| StartError::System { doing, source };
    let sizes = RingSizes::default();
    let widest = interfaces.iter().map(Interface::mtu).max().unwrap_or(0);
    let frame_size = if widest > SMALL_FRAME_MTU { 4096 } else { 2048 };
    let frames = interfaces.len() as u32 * (sizes.frames() + HELD as u32) + 2 * SIZE as u32;
    let frames = frames + stations.as_ref().map_or(0, |stations| stations.frames);
    let mut workers = Vec::new();
    let mut ports = Vec::new();
    let mut wanted = Vec::new();
    for (number, &core) in config.cores.iter().enumerate() {
        let mut arena = Arena::new(frames, frame_size).map_err(system("get memory for packets"))?;
        let mut mine: Vec<Box<dyn Port>> = Vec::new();
        for interface in interfaces {
            let mut socket = Socket::bind(interface, number as u32, &mut arena, sizes)?;
            if let Some(host) = host {
                socket.set_host(host.clone());
            }
            ports.push(PortInfo {
                name: interface.name().to_owned(),
                worker: number,
                mode: socket.mode(),
                mac: interface.mac(),
                mtu: interface.mtu(),
                fallback: interface.fallback().map(ToString::to_string),
            });
            mine.push(Box::new(socket));
        }
        let Readers { tables, adjacencies, ingresses } = readers();
        let (wants, want) = wants();
        wanted.push(want);
        if stats.len() == number {
            stats.push(Arc::new(WorkerStats::new()));
        }
        let stats = Arc::clone(&stats[number]);
        let setup =
            WorkerSetup { arena, ports: mine, tables, adjacencies, ingresses, wants, stats };
        let mut worker = Worker::new(setup);
        if let Some(stations) = &mut stations {
            worker = worker.with_station((stations.make)(number, interfaces));
            if let (false, Some(first)) = (stations.handed.is_empty(), interfaces.first()) {
                let handed = stations.handed.remove(0).behind(first.mac(), first.mtu());
                worker = worker.with_handed(Box::new(handed), 0);
            }
        }
        workers.push((worker, core));
    }
    let workers = Workers::start(workers).map_err(system("start the workers"))?;
    Ok(Started { workers, ports, wanted, stats })
}

/// A router at work, until it is stopped or dropped.
#[derive(Debug)]
pub struct Running {
    // Before the interfaces: sockets close before the program goes.
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

    /// Returns what the hops mean, to be published anew. Who retires a list takes it
    /// back ([`Publisher::reclaim`]).
    pub fn adjacencies(&mut self) -> &mut Publisher<Adjacencies> {
        &mut self.adjacencies
    }

    /// Returns what holds for packets of each port, to be published anew.
    pub fn ingresses(&mut self) -> &mut Publisher<Ingresses> {
        &mut self.ingresses
    }

    /// Takes the next hops that packets wait for; the same one may come several times.
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

    /// Says whether every worker is at work.
    pub fn alive(&self) -> bool {
        self.workers.alive()
    }

    /// Stops the workers; the counters are final afterwards, and
    /// [`Snapshot::balanced`] holds. Says whether all workers ended as they should.
    /// The interfaces are given back when this value is dropped.
    pub fn stop(&mut self) -> bool {
        self.workers.stop()
    }
}
