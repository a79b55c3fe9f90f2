//! The start of a router: interfaces, sockets and workers from a configuration.
//!
//! ```text
//!   Config ─► interfaces exist? ─► routes, tables ─► interfaces opened
//!                                                     ─► a socket per queue ─► workers
//! ```
//!
//! Steps that can fail without an effect on the system come first: names, files, tables. If a later
//! step fails, the earlier ones are undone by the drop of their values: the steering programs are
//! detached, and the threads of the workers stop. A failed start leaves no trace.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use fib::Reader;
use port::af_xdp::bpf::StoredLink;
use port::af_xdp::steer::Steering;
use port::af_xdp::{self, Interface, InterfaceHandover, RingSizes, Socket};
use port::{Arena, Host, PlaceholderPort, Port};

use crate::egress_queues::EgressQueues;
use crate::links;
use crate::plan::{self, PlannedInterface, WorkerPlan, receiving_only};
use crate::plane::Ports;
use crate::routes::RoutesError;
use crate::sysctls::Sysctls;
use crate::workers::Workers;
use config::Config;
use datapath::stats::WorkerStats;
use datapath::{
    AccessLists, Adjacencies, Hook, Ingresses, Tables, WantReceiver, Worker, WorkerSetup, wants,
};

/// The error of a start.
#[derive(Debug)]
pub enum StartError {
    /// Interfaces that do not exist.
    NoInterface {
        /// Their names.
        names: Vec<String>,
    },
    /// Interfaces whose kind cannot be a port.
    Unfit {
        /// The reason for each.
        reasons: Vec<String>,
    },
    /// The routes cannot be loaded.
    Routes(RoutesError),
    /// The kernel's routes cannot be followed.
    Feed(feed::netlink::Error),
    /// An engine cannot be made.
    Full(fib::Full),
    /// The configuration has static routes, but the router follows the kernel's.
    StaticRoutes,
    /// The configuration has keys that have no effect with static routes.
    NotStatic {
        /// The keys.
        keys: Vec<&'static str>,
    },
    /// The control thread does not answer.
    NoAnswer,
    /// The control socket cannot be opened.
    Control {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The block lists are not in force.
    BlockLists(String),
    /// The metrics listener cannot be opened.
    Metrics {
        /// Its address and port.
        listen: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// Tunnels over an address family have no local address.
    NoTunnelEnd {
        /// The back interface.
        interface: String,
        /// The family.
        family: &'static str,
    },
    /// An interface, its queue or the permission for it.
    Port(af_xdp::Error),
    /// The predecessor does not hand over.
    Predecessor(String),
    /// Any other error of the system.
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
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
            Self::Unfit { reasons } => f.write_str(&reasons.join("; ")),
            Self::Routes(error) => error.fmt(f),
            Self::Feed(error) => error.fmt(f),
            Self::Full(error) => error.fmt(f),
            Self::StaticRoutes => f.write_str(
                "the configuration has [[nexthop]], [[routes]] or [[route]], and `run` takes its \
                 routes from the kernel (take them out, or use `fingerpost forward`)",
            ),
            Self::NotStatic { keys } => write!(
                f,
                "{}: not available with static routes (take the key out, or use `fingerpost run`)",
                keys.join(", ")
            ),
            Self::NoAnswer => f.write_str("the control thread does not answer"),
            Self::Control { path, source } => {
                write!(f, "{}: no control socket: {source}", path.display())
            }
            Self::BlockLists(reason) => write!(f, "block lists: {reason}"),
            Self::Metrics { listen, source } => {
                write!(f, "cannot listen for metrics at {listen} (`[metrics] listen`): {source}")
            }
            Self::NoTunnelEnd { interface, family } => write!(
                f,
                "{interface} has no {family} address, and grantors are reached by {family}: give \
                 it one, or name one (`[back] address4`, `address6`)"
            ),
            Self::Predecessor(reason) => f.write_str(reason),
            Self::Port(error) => error.fmt(f),
            Self::System { doing, source } => write!(f, "cannot {doing}: {source}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NoInterface { .. } | Self::Unfit { .. } => None,
            Self::Routes(error) => Some(error),
            Self::Feed(error) => Some(error),
            Self::Full(error) => Some(error),
            Self::StaticRoutes
            | Self::BlockLists(_)
            | Self::NotStatic { .. }
            | Self::NoAnswer
            | Self::Predecessor(_)
            | Self::NoTunnelEnd { .. } => None,
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

/// One port of one worker, as it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortInfo {
    /// The interface.
    pub name: String,
    /// The index of its device; 0 where it could not be served.
    pub index: u32,
    /// The worker, from 0.
    pub worker: usize,
    /// The interface's queue, from 0.
    pub queue: u32,
    /// The receive mode, such as `AF_XDP copy`.
    pub mode: &'static str,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// The largest packet in bytes.
    pub mtu: usize,
    /// The reason that it is not in a better mode, if the driver reported one.
    pub fallback: Option<String>,
}

/// The readers of a worker, for the state that the control side publishes.
pub struct Readers {
    /// The tables.
    pub tables: Tables,
    /// The adjacencies of hops.
    pub adjacencies: Reader<Adjacencies>,
    /// The ports' addresses, tables and source checks.
    pub ingresses: Reader<Ingresses>,
    /// The access lists of the ports.
    pub access_lists: Reader<AccessLists>,
}

/// The hook of one worker.
pub struct WorkerHook {
    /// The hook.
    pub hook: Hook,
    /// The port on which other workers hand over packets of the first interface, with software
    /// steering.
    pub handed: Option<Box<dyn Port>>,
}

/// Makes the hook of the worker with this number; `None` if that fails.
pub type MakeHook<'a> = dyn FnMut(usize, &[Interface]) -> Option<WorkerHook> + 'a;

/// Makes the hooks of workers, for a gate or a grantor.
pub struct HookFactory<'a> {
    /// Frames that a hook may queue.
    pub frames: u32,
    /// Makes the hook of a worker.
    pub make: &'a mut MakeHook<'a>,
}

/// The effect on a start if an interface cannot be served.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unserved {
    /// The start fails.
    Refuse,
    /// The start continues without the interface.
    Skip,
}

/// The counters of workers, which those that replace them continue.
#[derive(Clone, Debug, Default)]
pub struct WorkerCounters {
    /// The counters by worker number, those of past workers included.
    pub stats: Vec<Arc<WorkerStats>>,
    /// The queues of egress interfaces.
    pub(crate) queues: EgressQueues,
}

/// Workers that were started.
pub struct Started {
    /// Their threads.
    pub workers: Workers,
    /// Their ports.
    pub ports: Vec<PortInfo>,
    /// The receiver of each worker's requests for next hops.
    pub wanted: Vec<WantReceiver>,
    /// Their counters.
    pub counters: WorkerCounters,
    /// The largest MTU, in bytes, whose packets fit their frames.
    pub mtu: usize,
}

/// Refuses interfaces that do not exist, or whose kind cannot be a port; with `bonds`, members of bonds
/// can.
pub fn present(
    config: &Config,
    bonds: bool,
    index_of: &dyn Fn(&str) -> io::Result<u32>,
) -> Result<(), StartError> {
    let names = config.interfaces.iter().map(|interface| interface.name.as_str());
    let missing = names.clone().filter(|name| index_of(name).is_err());
    let missing: Vec<_> = missing.map(str::to_owned).collect();
    if !missing.is_empty() {
        return Err(StartError::NoInterface { names: missing });
    }
    let reasons = links::unfit_among(names, bonds)?;
    if reasons.is_empty() { Ok(()) } else { Err(StartError::Unfit { reasons }) }
}

/// Finds the device of a name.
pub fn by_name(name: &str) -> io::Result<u32> {
    Ok(nix::net::if_::if_nametoindex(name)?)
}

/// Opens the interfaces of `ports`; `steered` has the host's own addresses, `held` the interfaces that are already
/// open, and `stored` the link of a gate that has ended.
pub fn open(
    config: &Config,
    ports: &Ports,
    steered: &af_xdp::Locals,
    mut held: Vec<Interface>,
    stored: &mut Option<StoredLink>,
) -> Result<Vec<Interface>, StartError> {
    let mut interfaces = Vec::new();
    for (wanted, port) in config.interfaces.iter().zip(ports.iter()) {
        let at = held.iter().position(|one| one.index() == port.interface);
        interfaces.push(match at {
            Some(at) => adjust(config, held.swap_remove(at), wanted, steered)?,
            None => open_one(config, wanted, steered, stored)?,
        });
    }
    Ok(interfaces)
}

/// Opens one interface; a gate's takes the `stored` link, if that is of its device.
pub fn open_one(
    config: &Config,
    wanted: &config::Interface,
    steered: &af_xdp::Locals,
    stored: &mut Option<StoredLink>,
) -> Result<Interface, StartError> {
    let (name, mode) = (&wanted.name, wanted.mode);
    let open = || {
        let queues = wanted_queues(config, wanted)?;
        match wanted.guard {
            Some(early) => Interface::open_for_gate(name, queues, steered, mode, early, stored),
            None if wanted.follows_kernel => {
                Interface::open_for_router(name, queues, steered, mode)
            }
            None => Interface::open(name, queues, steered, mode),
        }
    };
    let interface = Interface::with_queue_setup(name, wanted.queue_setup, open)?;
    adjust(config, interface, wanted, steered)
}

/// Prepares to take over one interface from a predecessor, by its description and its link.
pub(crate) fn succeed_one(
    config: &Config,
    wanted: &config::Interface,
    steered: &af_xdp::Locals,
    handover: InterfaceHandover,
    link: OwnedFd,
) -> Result<Interface, StartError> {
    let queues = handover.queues;
    let load = |mac| match wanted.guard {
        Some(early) => Steering::for_gate(mac, queues, steered, early),
        None if wanted.follows_kernel => Steering::for_router(mac, queues, steered),
        None => Steering::new(mac, queues, steered),
    };
    let interface = Interface::succeed(&wanted.name, handover, link, load)?;
    adjust(config, interface, wanted, steered)
}

/// Returns the number of queues of an interface to open: the configured number, else all; at least
/// one for each worker, so that the open fails if the device has fewer.
pub fn wanted_queues(config: &Config, wanted: &config::Interface) -> Result<u32, af_xdp::Error> {
    let queues = wanted.queues.map_or_else(|| af_xdp::queues(&wanted.name), Ok)?;
    Ok(queues.max(config.daemon.cores.len() as u32))
}

/// Configures the steering program of an interface.
fn adjust(
    config: &Config,
    interface: Interface,
    wanted: &config::Interface,
    steered: &af_xdp::Locals,
) -> Result<Interface, StartError> {
    let doing = "configure the steering program of an interface";
    interface.set_driver_path(None)?;
    let result = interface.set_locals(steered).and_then(|()| interface.observe(wanted.observe));
    let result = result.and_then(|()| interface.set_stall(config.daemon.stall));
    result.map_err(|source| StartError::System { doing, source })?;
    Ok(interface)
}

/// Starts a worker on each core, with readers of its own and its share of the queues of every
/// interface: worker 0 of two has the queues 0, 2, 4, … and sends on queue 0. Received packets that
/// belong to the host go to `host`. The workers continue the counters of `past` workers.
pub fn start(
    config: &Config,
    interfaces: &[Interface],
    host: Option<&Host>,
    readers: impl Fn() -> Readers,
    past: WorkerCounters,
    mut hooks: Option<HookFactory<'_>>,
    unserved: Unserved,
) -> Result<Started, StartError> {
    let system = |doing| move |source| StartError::System { doing, source };
    let sizes = RingSizes::default();
    let WorkerCounters { mut stats, queues: past } = past;
    let mut queues = EgressQueues::of(config, &past);
    queues.count_host(interfaces);
    let epoch = Instant::now();
    let of_worker = |number| queues.of_worker(config, number, epoch);
    let more = of_worker(0).frames() + hooks.as_ref().map_or(0, |hooks| hooks.frames);
    let planned = |interface: &Interface| PlannedInterface {
        mtu: interface.mtu().min(af_xdp::longest_mtu()),
        queues: interface.queues(),
    };
    let planned: Vec<_> = interfaces.iter().map(planned).collect();
    let plan = plan::workers(config, &planned, more);
    let mtu = plan.first().map_or(0, WorkerPlan::mtu);
    let mut parts = Vec::new();
    let mut workers = Vec::new();
    let mut ports = Vec::new();
    let mut wanted = Vec::new();
    for (number, worker) in plan.into_iter().enumerate() {
        let WorkerPlan { core, first, further, frames, frame_size, long_frames } = worker;
        let receiving = receiving_only(further.len() as u32);
        let mut arena = Arena::with_long_frames(frames, frame_size, long_frames)
            .map_err(system("get memory for packets"))?;
        let mut bind = |interface: &Interface, queue, sizes| -> Result<Box<dyn Port>, StartError> {
            let (name, mac, mtu) = (interface.name(), interface.mac(), interface.mtu());
            let gone = || af_xdp::Error::NoInterface { interface: name.clone() };
            let attached = interface.is_attached().then_some(()).ok_or_else(gone);
            let bound = attached
                .and_then(|()| Socket::bind(interface, queue, &mut arena, sizes))
                .map_err(StartError::from);
            let bound = bound.and_then(|mut socket| {
                if let Some(host) = host {
                    let registered = socket.set_host(host.clone());
                    registered.map_err(system("let packets go back to the kernel (tc)"))?;
                }
                Ok(socket)
            });
            let (port, index, fallback): (Box<dyn Port>, _, _) = match (bound, unserved) {
                (Ok(socket), _) => (Box::new(socket), interface.index(), interface.fallback()),
                (Err(why), Unserved::Skip) => {
                    let absent = PlaceholderPort::new(&*name, mac, mtu);
                    let absent = absent.map_err(system("make a descriptor"))?;
                    (Box::new(absent), 0, Some(why.to_string()))
                }
                (Err(why), Unserved::Refuse) => return Err(why),
            };
            let (worker, mode) = (number, port.mode());
            ports.push(PortInfo { name, index, worker, queue, mode, mac, mtu, fallback });
            Ok(port)
        };
        let mine = interfaces.iter().map(|interface| bind(interface, first, sizes));
        let mine = mine.collect::<Result<Vec<_>, _>>()?;
        let mut others = Vec::new();
        for (at, queue) in further {
            others.push((bind(&interfaces[at], queue, receiving)?, at));
        }
        parts.push((core, arena, mine, others));
    }
    // No interface can fail from here on, so that no hook is lost.
    for (number, (core, arena, mine, others)) in parts.into_iter().enumerate() {
        let Readers { tables, adjacencies, ingresses, access_lists } = readers();
        let (wants, want) = wants();
        wanted.push(want);
        if stats.len() == number {
            stats.push(Arc::new(WorkerStats::new()));
        }
        let stats = Arc::clone(&stats[number]);
        let setup =
            WorkerSetup { arena, ports: mine, tables, adjacencies, ingresses, wants, stats };
        let mut worker = Worker::new(setup)
            .with_access_lists(access_lists, number)
            .with_egress_queues(of_worker(number));
        for (port, at) in others {
            worker = worker.with_queue(port, at);
        }
        if host.is_some() {
            let workers = config.daemon.cores.len();
            worker = worker.with_punts(config.daemon.punts.share(workers));
            if config.interfaces.iter().all(|interface| interface.follows_kernel) {
                worker = worker.with_icmp_errors(Sysctls::read().share(workers).icmp_limits);
            }
        }
        if let Some(hooks) = &mut hooks {
            let Some(WorkerHook { hook, handed }) = (hooks.make)(number, interfaces) else {
                let lost = io::Error::other("the worker before it has died");
                return Err(system("give a worker its flows")(lost));
            };
            worker = worker.with_hook(hook);
            if let Some(handed) = handed {
                worker = worker.with_handed(handed, 0);
            }
        }
        workers.push((worker, core));
    }
    let workers = Workers::start(workers).map_err(system("start the workers"))?;
    let counters = WorkerCounters { stats, queues };
    Ok(Started { workers, ports, wanted, counters, mtu })
}
