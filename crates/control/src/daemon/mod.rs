//! The daemon: a router that follows the kernel's routes as they change, or has those of its
//! configuration.
//!
//! ```text
//!   interfaces exist? ─► kernel dumped into the plane ─► tables published
//!      ─► interfaces opened, workers started ─► control thread ─► control socket: ready
//! ```
//!
//! With the kernel's routes the router receives no packet before it publishes the first full table:
//! until the steering program is attached, and from the moment it is detached, however the process
//! ends, Linux forwards by the same routes itself. With FRR's routes by FPM there is no table
//! before FRR connects: until its routes arrive, packets have no route and are dropped, so the
//! router should get interfaces only when FRR runs. With an image of the tables (`image.rs`) the
//! router receives packets before it dumps the kernel's routes, and forwards them by the image
//! until the dump is complete. With static routes ([`Daemon::start_static`], `static_routes.rs`) the
//! tables are built from files, and the kernel reports links and own addresses only. A start that
//! fails releases everything that it had acquired.
//!
//! While it runs, the daemon can change to another configuration (`reload.rs`), and can leave an
//! interface's packets to the kernel or receive them again.

mod control;
mod flows;
mod image;
mod orders;
mod reload;
mod remake;
mod static_routes;
mod succession;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use feed::fpm::Fpm;
use feed::netlink::{Kernel, KernelOptions};
use port::Host;
use port::af_xdp::Interface;
use port::af_xdp::bpf::StoredLink;
use threads::Task;

use crate::allowed_hosts::AllowedHosts;
use crate::audit::auditor;
use crate::block_lists::{BlockListHandle, BlockListThread, BlockState};
use crate::devices::{DeviceStates, Devices};
use crate::driver_choice::forward_in_driver;
use crate::handle::{self, ControlHandle, ControlRequests};
use crate::http::Http;
use crate::http_message::RequestHandler;
use crate::kernel_sync::KernelSync;
use crate::links;
use crate::plane::{ActiveList, Plane, PlanePort, Ports, StaticFollower, WithoutRoutes};
use crate::progress::{Progress, Turns};
use crate::query::QueryHandle;
use crate::requests::ServerHandles;
use crate::role::{PlainRouter, Role, StaticRouter};
use crate::route_source::RouteSource;
use crate::server::Server;
use crate::start::{
    HookFactory, PortInfo, Readers, StartError, Started, Unserved, WorkerCounters, by_name,
    present, start,
};
use crate::succession::Predecessor;
use crate::sysctls::Sysctls;
use crate::view::{Seen, View};
use crate::workers::Workers;
use api::EventKind;
use config::{self, Config, Metrics};
use control::Control;
use datapath::SuspendedState;
use datapath::stats::Snapshot;
use flows::{Flows, LISTEN_BGP};
use image::Saves;
use remake::Remaking;
use succession::{HandOver, control_socket, metrics_listener, prepare_interfaces, take_over};

pub use image::{ImageStart, SaveError, Saved};
pub use reload::{ReloadError, Reloaded};

/// The TAP device through which packets return to the kernel.
const HOST: &str = "fingerpost";
const TAP: &str = "make the TAP device `fingerpost`";

/// A running router. Dropping it stops it.
#[derive(Debug)]
pub struct Daemon {
    // In the order in which they end, so that no thread queries one that has ended.
    server: Option<Server>,
    metrics: Option<Http>,
    page: Option<Arc<dyn Page>>,
    auditor: Option<Task>,
    workers: Workers,
    control: Option<Control>,
    turns: Turns,
    handle: ControlHandle<KernelSync>,
    /// The commands of the control socket's clients.
    orders: Option<ControlRequests<Self>>,
    view: Arc<View>,
    config: Config,
    origin: RouteOrigin,
    /// The warnings of the routes' files that the operator has not seen yet.
    warnings: Vec<String>,
    /// `None` with static routes: no packet returns to the kernel.
    host: Option<Host>,
    image_start: ImageStart,
    saves: Saves,
    /// The time of the last check for changes of the kernel's rules.
    rules_looked: Instant,
    /// The number of consecutive checks that found changed rules and applied them.
    rules_tried: u32,
    role: Arc<dyn Role>,
    /// Frames that each worker's hook may queue; `None` if workers have no hook.
    hook_frames: Option<u32>,
    /// The state that the last workers left to their successors, by their number.
    suspended: Vec<SuspendedState>,
    remaking: Remaking,
    flows: Flows,
    block_lists: Option<BlockListThread>,
    block_handle: BlockListHandle,
    /// The program, which an upgrade starts.
    program: PathBuf,
    /// The sender of orders, for a server that starts again.
    orderer: ControlHandle<Self>,
    hand_over: Option<HandOver>,
    /// The process that has taken over.
    successor: Option<u32>,
}

/// The origin of a daemon's routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RouteOrigin {
    /// The kernel, or FRR if the configuration says so.
    Kernel,
    /// The configuration.
    Static,
}

/// The page of a daemon, with its API and the metrics: it answers the requests that the HTTP server
/// receives.
pub trait Page: RequestHandler + fmt::Debug {
    /// Stops the background work of the page.
    fn end(&self);

    /// Takes the messages for the operator's log.
    fn drain_notices(&self) -> Vec<String>;
}

/// Starts the page of a daemon with its `[metrics]` section; without one the page only logs.
pub type PageFactory = dyn Fn(QueryHandle, Option<&Metrics>) -> io::Result<Arc<dyn Page>>;

/// The role and the worker hooks of a gate or a grantor.
pub struct Guard<'a> {
    /// The role.
    pub role: Arc<dyn Role>,
    /// The factory of the workers' hooks.
    pub hooks: HookFactory<'a>,
    /// The guard's part in taking over from a predecessor.
    pub succession: Option<&'a dyn GuardSuccession>,
    /// The link of the front interface's program, which has stayed attached since another process ended.
    pub stored: Option<StoredLink>,
}

/// A guard that takes over from a predecessor. The hooks are made afterwards.
pub trait GuardSuccession {
    /// Prepares the programs of the interfaces, which replace those of the predecessor next.
    fn prepare(&self, interfaces: &[Interface]);

    /// Takes the state of the predecessor's role, and those of its workers' hooks.
    ///
    /// # Errors
    ///
    /// A message for the operator: the predecessor continues.
    fn inherit(&self, role: &serde_json::Value, hooks: Vec<Vec<u8>>) -> Result<(), String>;
}

impl Daemon {
    /// Starts a router with `config` in the network namespace of the calling thread, which takes over from a
    /// predecessor if there is one. When this function returns, the router forwards.
    ///
    /// # Errors
    ///
    /// [`StartError`]; the failed start leaves nothing behind.
    pub fn start(
        config: Config,
        predecessor: Option<Predecessor>,
        page: &PageFactory,
    ) -> Result<Self, StartError> {
        Self::begin(config, RouteOrigin::Kernel, None, predecessor, page)
    }

    /// Starts a router with the static routes of `config` in the network namespace of the calling
    /// thread. When this function returns, the router forwards.
    ///
    /// # Errors
    ///
    /// [`StartError`]; the failed start leaves nothing behind.
    pub fn start_static(
        config: Config,
        predecessor: Option<Predecessor>,
        page: &PageFactory,
    ) -> Result<Self, StartError> {
        Self::begin(config, RouteOrigin::Static, None, predecessor, page)
    }

    /// Starts a router whose workers have hooks, which takes over from a predecessor if there is one.
    pub fn start_guarded(
        config: Config,
        guard: Guard<'_>,
        predecessor: Option<Predecessor>,
        page: &PageFactory,
    ) -> Result<Self, StartError> {
        Self::begin(config, RouteOrigin::Kernel, Some(guard), predecessor, page)
    }

    fn begin(
        config: Config,
        origin: RouteOrigin,
        guard: Option<Guard<'_>>,
        mut predecessor: Option<Predecessor>,
        page: &PageFactory,
    ) -> Result<Self, StartError> {
        let begun = Self::begin_after(&mut predecessor, config, origin, guard, page);
        if let (Err(error), Some(predecessor)) = (&begun, predecessor) {
            predecessor.fail(&error.to_string());
        }
        begun
    }

    /// Starts a daemon that takes over from a predecessor, if there is one.
    fn begin_after(
        predecessor: &mut Option<Predecessor>,
        config: Config,
        origin: RouteOrigin,
        guard: Option<Guard<'_>>,
        page: &PageFactory,
    ) -> Result<Self, StartError> {
        let is_static = origin == RouteOrigin::Static;
        let (role, hooks, succession, stored) = match guard {
            None if is_static => (Arc::new(StaticRouter) as Arc<dyn Role>, None, None, None),
            None => (Arc::new(PlainRouter) as Arc<dyn Role>, None, None, None),
            Some(Guard { role, hooks, succession, stored }) => {
                (role, Some(hooks), succession, stored)
            }
        };
        let hook_frames = hooks.as_ref().map(|hooks| hooks.frames);
        let began = Instant::now();
        present(&config, role.forwards_stacked(), &by_name)?;
        // Before the kernel's dump, so that the dump contains the device.
        let host = match predecessor.as_mut().and_then(Predecessor::take_host) {
            Some(host) => Some(host).filter(|_| origin.has_host()),
            None => origin.has_host().then(|| Host::open(HOST)).transpose().map_err(system(TAP))?,
        };
        let Prepared { mut plane, mut kernel, warnings } =
            prepare(&config, origin, &*role, &by_name)?;
        let mut flows = Flows::default();
        flows.follow(config.flowspec.as_ref()).map_err(system(LISTEN_BGP))?;
        plane.set_active_lists(compile(&config, &flows, &[])?);
        let source = match config.fpm.clone() {
            _ if is_static => RouteSource::Static,
            None => RouteSource::Kernel,
            Some(options) => {
                let fpm = Fpm::listen(options).map_err(system("listen for FRR (`[feed] fpm`)"))?;
                RouteSource::Fpm(Box::new(fpm))
            }
        };
        // A running predecessor has newer routes than its last image, and forwards by them until the dump is complete.
        let (adopted, mut image_start) = match predecessor {
            Some(_) => (None, ImageStart::NotConfigured),
            None => image::adopt(&config, &mut plane, &mut kernel, began)?,
        };
        let locals = match &adopted {
            Some(adopted) => adopted.locals.clone(),
            None => {
                dump(&config, origin, &mut plane, &mut kernel)?;
                plane.locals().into_iter().collect()
            }
        };
        let before = predecessor.as_mut();
        let interfaces = prepare_interfaces(&config, plane.ports(), &locals, before, stored)?;
        let its = || readers(&plane);
        let unserved = Unserved::Refuse;
        let host_of = host.as_ref();
        let view = Arc::new(View::default());
        let block_state = config.block.as_ref().map(|c| BlockState::load(c, Arc::clone(&view)));
        let block_lists = block_state.transpose()?;
        let block_lists = block_lists.map(|state| BlockListThread::start(state, &interfaces));
        let block_lists = block_lists.transpose()?;
        let block_handle = BlockListHandle::default();
        block_handle.set(block_lists.as_ref());
        let mut past = WorkerCounters::default();
        if let Some(predecessor) = predecessor {
            let inherited =
                take_over(&config, &interfaces, plane.active_lists(), predecessor, succession)?;
            view.continue_closed(inherited.closed);
            past = inherited.counters;
        }
        let started = start(&config, &interfaces, host_of, its, past, hooks, unserved)?;
        let Started { workers, ports, wanted, counters, mtu } = started;
        if let Some(adopted) = adopted {
            image_start = adopted.finish(&config, &mut plane, &mut kernel, began)?;
            let locals = plane.locals().into_iter().collect();
            for interface in &interfaces {
                interface.set_locals(&locals).map_err(system("publish the own addresses"))?;
            }
        }

        let (handle, requests) = handle::channel().map_err(system("make a wake-up descriptor"))?;
        let (orderer, orders) = handle::channel().map_err(system("make a wake-up descriptor"))?;
        let states = DeviceStates::default();
        let (table, devices) = (table(&plane), states.clone());
        view.show(Seen { counters, ports, interfaces: interfaces.clone(), table, devices });
        let devices = Devices::new(interfaces, states, role.is_guard());
        let following = KernelSync::new(plane, kernel, source, devices, wanted);
        let turns = Turns::default();
        let control = control::start(following, requests, &turns);
        let control = control.map_err(system("start the control thread"))?;
        let mut daemon = Self {
            server: None,
            metrics: None,
            page: None,
            auditor: None,
            workers,
            control: Some(control),
            turns,
            handle,
            orders: Some(orders),
            view,
            config,
            origin,
            warnings,
            host,
            image_start,
            saves: Saves::default(),
            rules_looked: began,
            rules_tried: 0,
            role,
            hook_frames,
            suspended: Vec::new(),
            remaking: Remaking::new(mtu),
            flows,
            block_lists,
            block_handle,
            program: succession::program(),
            orderer,
            hand_over: None,
            successor: None,
        };
        let path = daemon.config.daemon.control.clone();
        let control = control_socket(path.as_deref(), predecessor.as_mut())?;
        // The kernel has no static routes to compare with.
        if !is_static {
            let auditor = auditor::start(daemon.handle.clone(), Arc::clone(&daemon.view));
            daemon.auditor = Some(auditor.map_err(system("start the auditor"))?);
        }
        let metrics = daemon.config.daemon.metrics.clone();
        // A gate without a page logs attacks, too.
        if metrics.is_some() || daemon.role.is_guard() {
            let page = page(daemon.query_handle(), metrics.as_ref());
            daemon.page = Some(page.map_err(system("start the recorder"))?);
        }
        let listener = metrics_listener(metrics.as_ref(), predecessor.as_mut())?;
        // Clients see no count before that of the predecessor.
        if let Some(predecessor) = predecessor.take() {
            predecessor.release(&daemon.view.interfaces());
        }
        if let (Some(path), Some(socket)) = (path, control) {
            let server = Server::start(socket, daemon.server_handles());
            daemon.server = Some(server.map_err(|source| StartError::Control { path, source })?);
        }
        if let (Some(Metrics { listen, allowed_hosts, .. }), Some(page), Some(listener)) =
            (metrics, &daemon.page, listener)
        {
            let handler: Arc<dyn RequestHandler> = page.clone();
            let http = Http::start(listener, AllowedHosts::new(&allowed_hosts), handler);
            let failed = |source| StartError::Metrics { listen, source };
            daemon.metrics = Some(http.map_err(failed)?);
        }
        Ok(daemon)
    }

    /// Makes the handles of the control socket's server.
    fn server_handles(&self) -> ServerHandles<Self> {
        ServerHandles {
            query: self.query_handle(),
            orders: self.orderer.clone(),
            comparing: Arc::default(),
            captures: Arc::default(),
        }
    }

    /// Returns the access to the block lists.
    pub fn block_lists(&self) -> BlockListHandle {
        self.block_handle.clone()
    }

    fn query_handle(&self) -> QueryHandle {
        let (control, view) = (self.handle.clone(), Arc::clone(&self.view));
        let flowspec = self.flows.status();
        let block_lists = self.block_handle.clone();
        QueryHandle { control, view, role: Arc::clone(&self.role), flowspec, block_lists }
    }

    /// Executes the commands of the control socket's clients, saves the image when it is time,
    /// replaces workers that have panicked or whose device has been replaced, and changes the tables when the kernel's
    /// rules have changed, which it reports; the thread that started the router must call it from
    /// time to time.
    pub fn poll(&mut self) -> Option<Result<Reloaded, ReloadError>> {
        self.save_sometimes();
        if let Some(orders) = self.orders.take() {
            orders.serve(self);
            self.orders = Some(orders);
        }
        self.follow_successor();
        if self.successor.is_none() {
            self.replace_panicked();
        }
        // The plan of a successor that is preparing must stay true.
        if self.hand_over.is_some() || self.successor.is_some() {
            return None;
        }
        self.follow_devices();
        self.follow_flows();
        self.follow_rules()
    }

    /// Takes the new lines on the page and the interfaces for the operator's log; the caller polls
    /// this.
    pub fn drain_notices(&mut self) -> Vec<String> {
        let mut notices = self.page.as_ref().map(|page| page.drain_notices()).unwrap_or_default();
        notices.extend(self.remaking.drain_notices());
        notices.extend(self.flows.drain_notices());
        notices
    }

    /// Takes the warnings of the routes' files.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Returns the reason for each interface that does not work as a port: none if the router is
    /// ready.
    pub fn problems(&self) -> Vec<String> {
        self.view.devices().into_iter().filter_map(|device| device.problem).collect()
    }

    /// With `only`, leaves the packets of an interface to the kernel and counts those that the
    /// router would have received; otherwise receives them again. A reload restores the configured
    /// value.
    ///
    /// # Errors
    ///
    /// An unknown interface, with the names of the known ones; the system's error.
    pub fn observe(&mut self, name: &str, only: bool) -> Result<(), String> {
        let interfaces = self.view.interfaces();
        let configured = self.config.interfaces.iter().position(|wanted| wanted.name == name);
        let known = interfaces.iter().position(|interface| interface.name() == name);
        let Some(at) = known.or(configured) else {
            let names: Vec<_> = interfaces.iter().map(Interface::name).collect();
            return Err(format!("{name}: no interface of this router ({})", names.join(", ")));
        };
        let observed = interfaces[at].observe(only);
        observed.map_err(|error| format!("{name}: {error}"))?;
        self.config.interfaces[at].observe = only;
        Ok(())
    }

    /// Returns the current configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the counters, summed over the workers.
    pub fn stats(&self) -> Snapshot {
        self.view.stats()
    }

    /// Returns a function that publishes an event to the clients of the control socket.
    pub fn event_publisher(&self) -> impl Fn(EventKind) + Send + 'static {
        let control = self.handle.clone();
        // Fails only while the process ends.
        move |event| {
            let _ = control.call(move |sync| sync.subscribers().publish(event));
        }
    }

    /// Returns the handle for queries to the control thread.
    pub fn control_handle(&self) -> &ControlHandle<KernelSync> {
        &self.handle
    }

    /// Returns the ports, those of the first worker first.
    pub fn ports(&self) -> Vec<PortInfo> {
        self.view.ports()
    }

    /// Returns the interfaces, in the order of the configuration.
    pub fn interfaces(&self) -> Vec<Interface> {
        self.view.interfaces()
    }

    /// Returns whether the threads of the workers and the control thread run.
    pub fn alive(&self) -> bool {
        self.workers.alive() && self.control.as_ref().is_some_and(Control::is_alive)
    }

    /// Returns the turns of its threads, by which an observer detects a stall.
    pub fn progress(&self) -> Progress {
        Progress::new(Arc::clone(&self.view), Arc::clone(&self.turns))
    }

    /// Stops all threads, and saves the image; the counters can still be read, and are final.
    /// Returns whether all threads ended without a panic. The kernel gets the interfaces back when
    /// this value is dropped.
    pub fn stop(&mut self) -> bool {
        self.server = None;
        self.metrics = None;
        if let Some(page) = &self.page {
            page.end();
        }
        self.auditor = None;
        let well = self.workers.stop();
        let Some(control) = self.control.take() else { return well };
        let Ok((following, _)) = control.stop() else { return false };
        self.save_last(&following);
        well
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}

fn system(doing: &'static str) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::System { doing, source }
}

/// Returns the routing table of the first interface.
fn table(plane: &Plane) -> u32 {
    plane.ports().iter().next().map_or(config::MAIN, |port| port.table)
}

/// Finds the device of a name in the configuration.
type IndexOf<'a> = dyn Fn(&str) -> io::Result<u32> + 'a;

/// A plane before the kernel has reported to it.
struct Prepared {
    plane: Plane,
    kernel: Kernel,
    /// The warnings of the routes' files.
    warnings: Vec<String>,
}

/// Makes a plane, fills it from the kernel and publishes its tables. The caller must still report
/// FRR's routes to it.
fn learn(
    config: &Config,
    origin: RouteOrigin,
    role: &dyn Role,
    index: &IndexOf<'_>,
) -> Result<Prepared, StartError> {
    let mut prepared = prepare(config, origin, role, index)?;
    dump(config, origin, &mut prepared.plane, &mut prepared.kernel)?;
    Ok(prepared)
}

/// Makes a plane that has no routes but static ones, and the kernel feed that will fill it.
fn prepare(
    config: &Config,
    origin: RouteOrigin,
    role: &dyn Role,
    index: &IndexOf<'_>,
) -> Result<Prepared, StartError> {
    if origin == RouteOrigin::Kernel && config.has_static_routes() {
        return Err(StartError::StaticRoutes);
    }
    let ports = config.interfaces.iter().map(|interface| port(interface, origin, index));
    let ports = ports.collect::<Result<Vec<_>, _>>();
    let ports = Ports::new(ports.map_err(system("look an interface up"))?);
    if origin == RouteOrigin::Static {
        let (plane, warnings) = static_routes::build(config, ports)?;
        let options = KernelOptions { routes: false, ..KernelOptions::default() };
        return Ok(Prepared { plane, kernel: Kernel::open_with(options)?, warnings });
    }
    // Tables that share their memory cannot be saved one by one.
    let together = config.image.is_none();
    let mut plane = Plane::new(ports, config.engine_v4, config.engine_v6, together)?;
    forward_in_driver(&mut plane, config, role)?;
    plane.set_sysctls(&Sysctls::read().share(config.daemon.cores.len()));
    plane.set_checks_input(config.interfaces.iter().all(|i| i.follows_kernel));
    plane.set_egress_queues(config.egress_queues.iter().map(|q| q.interface.clone()).collect());
    plane.set_forwards_stacked(role.forwards_stacked());
    Ok(Prepared { plane, kernel: Kernel::open()?, warnings: Vec::new() })
}

/// Dumps the kernel's state into the plane and publishes its tables, which replace an image.
fn dump(
    config: &Config,
    origin: RouteOrigin,
    plane: &mut Plane,
    kernel: &mut Kernel,
) -> Result<(), StartError> {
    if origin == RouteOrigin::Static {
        kernel.start(&mut StaticFollower(plane))?;
        plane.set_locals(links::addresses().map_err(system("list the addresses"))?);
    } else if config.fpm.is_some() {
        kernel.start(&mut WithoutRoutes(plane))?;
    } else {
        kernel.start(plane)?;
        plane.retire();
    }
    publish(plane)
}

/// Compiles the access lists of a configuration and its flow specifications, which replace those of `before`.
fn compile(
    config: &Config,
    flows: &Flows,
    before: &[ActiveList],
) -> Result<Vec<ActiveList>, StartError> {
    let lists = flows::configured(config, flows);
    Ok(ActiveList::compile(&lists, before, config.daemon.cores.len())?)
}

/// Publishes the state of the plane.
fn publish(plane: &mut Plane) -> Result<(), StartError> {
    plane.commit();
    plane.full().map_or(Ok(()), |(_, full)| Err(full.into()))
}

/// Makes readers of the published state of the plane, for a worker.
fn readers(plane: &Plane) -> Readers {
    Readers {
        tables: plane.readers(),
        adjacencies: plane.adjacencies(),
        ingresses: plane.ingresses(),
        access_lists: plane.access_lists(),
    }
}

/// Finds the interface of a port; the kernel reports its other properties later.
fn port(
    interface: &config::Interface,
    origin: RouteOrigin,
    index: &IndexOf<'_>,
) -> io::Result<PlanePort> {
    Ok(PlanePort {
        table: interface.table.unwrap_or(config::MAIN),
        follows_rules: origin == RouteOrigin::Kernel && interface.table.is_none(),
        sources: interface.sources,
        ..PlanePort::new(index(&interface.name)?, &interface.name)
    })
}
