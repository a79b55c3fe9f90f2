//! The router under demonstration: one worker on one core.
//!
//! ```text
//!   Routes ─► Rib ─► Updater ─► Reader ─┐
//!                                       ▼
//!   in ═ Socket ─► ┌──────────────── Worker ──┐ ─► Socket ═ out-a
//!                  │ one arena, three ports   │ ─► Socket ═ out-b
//!                  └──────────────────────────┘
//! ```
//!
//! The interfaces are opened, the sockets are bound and the worker's thread is started inside the
//! router's namespace. The worker polls without sleeping, as a router on its own core does. At the
//! stop flag it first forwards the frames that are still in the rings.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use datapath::stats::{Snapshot, WorkerStats};
use datapath::{self, Adjacencies, Adjacency, Ingress, Ingresses, Locals, Worker, WorkerSetup};
use fib::{Choice, Family, Hop, Prefix, Publisher, Rib, Updater};
use port::af_xdp::{Interface, ModeChoice, RingSizes, Socket};
use port::{Arena, Port, PortStats};
use threads::{Rights, Stop, Task};

use super::driver::{self, DriverArrays, DriverTables};
use super::network::{self, EXITS, INGRESS, MTU};
use super::placement::{self, Placement};
use super::routes::{self, Routes};
use crate::namespace::Namespace;

/// The rings count as empty after this time without a packet.
const SILENCE: Duration = Duration::from_millis(30);
/// Slots of each ring, and spare frames for the current batch.
const RING: u32 = 2048;
const SPARE: u32 = 512;
/// The pause of a worker that shares its CPU with the driver's path, when it has nothing to do.
const PAUSE: Duration = Duration::from_micros(200);

/// The tables of both families.
#[derive(Debug)]
pub(super) struct Tables {
    v4: Updater<u32>,
    v6: Updater<u128>,
    /// The time to build them.
    pub(super) build_time: Duration,
}

/// The size of one table.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) struct TableSize {
    /// IPv4 or IPv6.
    pub(super) family: &'static str,
    /// The engine's name.
    pub(super) engine: String,
    /// Number of routes.
    pub(super) routes: usize,
    /// Bytes that lookups may touch.
    pub(super) bytes: usize,
}

impl Tables {
    /// Builds both tables on all CPUs.
    pub(super) fn build(routes: &Routes) -> Result<Self> {
        let start = Instant::now();
        let v4 = build(&routes.v4).context("the IPv4 table")?;
        let v6 = build(&routes.v6).context("the IPv6 table")?;
        Ok(Self { v4, v6, build_time: start.elapsed() })
    }

    /// Returns the sizes of both.
    pub(super) fn sizes(&self) -> [TableSize; 2] {
        fn size<A: Family>(family: &'static str, table: &Updater<A>) -> TableSize {
            let (engine, bytes) = (table.fib().name(), table.fib().footprint());
            TableSize { family, engine, routes: table.rib().len(), bytes }
        }
        [size("IPv4", &self.v4), size("IPv6", &self.v6)]
    }

    fn readers(&self) -> datapath::Tables {
        datapath::Tables::single(self.v4.reader(), self.v6.reader())
    }
}

fn build<A: Family>(routes: &[(Prefix<A>, Hop)]) -> Result<Updater<A>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let rib = Rib::from_sorted(routes.iter().copied());
    Ok(Updater::new(rib, Choice::Auto, threads)?)
}

/// Returns a worker of an arena and its ports: the ingress, then the exits.
pub(super) fn worker(
    arena: Arena,
    ports: Vec<Box<dyn Port>>,
    tables: &Tables,
    stats: &Arc<WorkerStats>,
) -> Worker<datapath::Tables> {
    let mut adjacencies = Adjacencies::new();
    for hop in routes::hops() {
        let sink = routes::sink_of(hop);
        let exit = &EXITS[usize::from(sink)];
        let port = 1 + u16::from(sink);
        adjacencies.set(hop, Adjacency::new(port, exit.dst_mac, exit.src_mac, MTU));
    }
    let nets = 0..=EXITS.len();
    let locals = Locals::new(
        nets.clone().map(|net| network::ipv4(net, 1)),
        nets.map(|net| network::ipv6(net, 1)),
    );
    let ingress = Ingress { locals: Arc::new(locals), ..Ingress::default() };
    Worker::new(WorkerSetup {
        arena,
        ports,
        tables: tables.readers(),
        adjacencies: Publisher::new(adjacencies).reader(),
        ingresses: Publisher::new(Ingresses::alike(ingress)).reader(),
        wants: datapath::wants().0,
        stats: Arc::clone(stats),
    })
}

/// The mode and the counters of a port at its end.
#[derive(Clone, Debug)]
pub(super) struct PortReport {
    /// The mode of packet I/O.
    pub(super) mode: &'static str,
    /// Its counters.
    pub(super) stats: PortStats,
}

/// The running router; stops when dropped.
#[derive(Debug)]
pub(super) struct Forwarder {
    stats: Arc<WorkerStats>,
    /// The ingress, then the exits.
    interfaces: Vec<Interface>,
    thread: Task<Result<Vec<PortReport>>>,
}

impl Forwarder {
    /// Opens the ports in `namespace` and starts to forward on the router's CPU, and with `driver` in the driver.
    pub(super) fn start(
        namespace: &Namespace,
        tables: &Tables,
        driver: Option<&DriverTables>,
        placement: Placement,
    ) -> Result<Self> {
        let in_driver = driver.is_some();
        let driver = driver.map(DriverTables::arrays);
        let (arena, ports, interfaces) = namespace.run(move || open(driver))?;
        let stats = Arc::new(WorkerStats::new());
        let mut worker = worker(arena, ports, tables, &stats);
        let run = move |stop: &Stop| -> Result<Vec<PortReport>> {
            placement::pin(placement.router)?;
            placement::schedule(placement.router_urgency())?;
            while !stop.is_set() {
                if worker.poll() == 0 && in_driver {
                    std::thread::sleep(PAUSE);
                }
            }
            let mut last = Instant::now();
            while last.elapsed() < SILENCE {
                if worker.poll() > 0 {
                    last = Instant::now();
                }
            }
            let report = |port: &dyn Port| PortReport { mode: port.mode(), stats: port.stats() };
            Ok(worker.ports().map(report).collect())
        };
        let thread = Task::start("forward", Rights::Inherited, run)?;
        Ok(Self { stats, interfaces, thread })
    }

    /// Returns whether it still forwards; if not, [`Forwarder::stop`] returns the reason.
    pub(super) fn is_running(&self) -> bool {
        self.thread.is_alive()
    }

    /// Forwards the frames in the rings, closes the ports and returns the counters.
    pub(super) fn stop(self) -> Result<(Snapshot, Vec<PortReport>)> {
        let ports = self.thread.stop().context("the router")??;
        Ok((self.stats.snapshot() + driver::forwarded(&self.interfaces)?, ports))
    }
}

/// The arena, the ports and their interfaces.
type Opened = (Arena, Vec<Box<dyn Port>>, Vec<Interface>);

/// Opens the ports; runs inside the router's namespace.
fn open(driver: Option<DriverArrays>) -> Result<Opened> {
    let nets = 0..=EXITS.len();
    let own4 = nets.clone().map(|net| Ipv4Addr::from(network::ipv4(net, 1)).into());
    let own6 = nets.map(|net| Ipv6Addr::from(network::ipv6(net, 1)).into());
    let locals: port::af_xdp::Locals = own4.chain(own6).collect();
    let sizes = RingSizes::all(RING);
    let names: Vec<&str> = [INGRESS].into_iter().chain(EXITS.map(|exit| exit.egress)).collect();
    let mut arena = Arena::new(names.len() as u32 * sizes.frames() + SPARE, 2048)
        .context("cannot make the arena of frames")?;
    let mut ports: Vec<Box<dyn Port>> = Vec::new();
    let mut interfaces = Vec::new();
    let mode = if driver.is_some() { ModeChoice::Xdp } else { ModeChoice::Auto };
    for name in names {
        let interface = Interface::open(name, 1, &locals, mode)?;
        ports.push(Box::new(Socket::bind(&interface, 0, &mut arena, sizes)?));
        interfaces.push(interface);
    }
    if let Some(driver) = driver {
        driver.attach(&interfaces)?;
    }
    Ok((arena, ports, interfaces))
}
