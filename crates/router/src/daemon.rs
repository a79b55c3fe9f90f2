//! The daemon: a router whose routes are the kernel's, followed as they change.
//!
//! ```text
//!   interfaces there? ─► kernel dumped into the plane ─► tables published
//!      ─► interfaces taken over, workers ─► control thread ─► control socket: ready
//! ```
//!
//! Where FRR's routes are followed by FPM there is no table before FRR connects: until its
//! routes come, packets have none and are dropped, so interfaces should be given to the
//! router when FRR is at work. By the kernel's routes,
//! no packet is taken before the first full table is published: until the steering
//! program is attached, and again from the moment it goes, whichever way the process
//! ends, Linux forwards by the same routes itself. What fails on the way up gives back
//! what was taken before it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use feed::fpm::{self, Fpm};
use feed::netlink::Kernel;
use port::Host;
use port::af_xdp::Interface;

use crate::config::{self, Config};
use crate::control::asks::{self, Asker};
use crate::control::kernel::{Following, follow};
use crate::control::plane::{ButRoutes, Plane, PlanePort, Ports};
use crate::control::server::{Server, Sources};
use crate::control::workers::{Workers, WorkersView};
use crate::router::{PortInfo, Readers, StartError, Started, open, present, start};
use crate::stats::Snapshot;

/// The TUN device by which packets go back to the kernel.
const HOST: &str = "fingerpost";

/// What others may look at while the router works.
#[derive(Debug)]
pub(crate) struct View {
    workers: WorkersView,
    ports: Vec<PortInfo>,
    interfaces: Vec<Interface>,
}

impl View {
    pub(crate) fn stats(&self) -> Snapshot {
        self.workers.snapshots().into_iter().sum()
    }

    pub(crate) fn worker_stats(&self) -> Vec<Snapshot> {
        self.workers.snapshots()
    }

    pub(crate) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Returns how packets cross on a port.
    pub(crate) fn mode(&self, name: &str) -> &'static str {
        self.ports.iter().find(|port| port.name == name).map_or("", |port| port.mode)
    }
}

/// A router that follows the kernel, until it is stopped or dropped.
#[derive(Debug)]
pub struct Daemon {
    // In the order in which they end: nobody asks what is gone.
    server: Option<Server>,
    workers: Workers,
    stop: Arc<AtomicBool>,
    control: Option<JoinHandle<()>>,
    asker: Asker<Following>,
    view: Arc<View>,
    _host: Host,
}

impl Daemon {
    /// Starts a router by `config` in the network namespace of the calling thread. It
    /// forwards when this returns.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing is left behind then.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        present(config)?;
        if !config.next_hops.is_empty()
            || !config.files.is_empty()
            || !config.routes_v4.is_empty()
            || !config.routes_v6.is_empty()
        {
            return Err(StartError::StaticRoutes);
        }
        let system = |doing| move |source| StartError::System { doing, source };
        let ports = config.interfaces.iter().map(port).collect::<Result<Vec<_>, _>>();
        let ports = Ports::new(ports.map_err(system("look an interface up"))?);
        let table = config.interfaces.first().map_or(config::MAIN, |interface| interface.table);
        let mut plane = Plane::new(ports, config.engine_v4, config.engine_v6)?;
        // Before the kernel is asked, so that the device is known when it tells.
        let host = Host::open(HOST).map_err(system("make the TUN device `fingerpost`"))?;
        let listen = |listen| Fpm::listen(fpm::Settings { listen, ..fpm::Settings::default() });
        let fpm = config.fpm.map(listen).transpose();
        let fpm = fpm.map_err(system("listen for FRR (`[feed] fpm`)"))?;
        let mut kernel = Kernel::open()?;
        if fpm.is_some() {
            kernel.start(&mut ButRoutes(&mut plane))?;
        } else {
            kernel.start(&mut plane)?;
        }
        plane.commit();
        if let Some((_, full)) = plane.full() {
            return Err(full.into());
        }

        let interfaces = open(config, &plane.locals().into_iter().collect())?;
        let readers = || Readers {
            tables: plane.readers(),
            adjacencies: plane.adjacencies(),
            ingresses: plane.ingresses(),
        };
        let Started { workers, ports, wanted } = start(config, &interfaces, Some(&host), readers)?;
        let view = View { workers: workers.view(), ports, interfaces: interfaces.clone() };
        let view = Arc::new(view);

        let (asker, asked) = asks::pair().map_err(system("make a wake-up descriptor"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (following, ending) =
            (Following::new(plane, kernel, fpm, interfaces, wanted), Arc::clone(&stop));
        let control = Builder::new()
            .name("control".into())
            .spawn(move || follow(following, &asked, &ending))
            .map_err(system("start the control thread"))?;
        let mut daemon =
            Self { server: None, workers, stop, control: Some(control), asker, view, _host: host };
        if let Some(path) = &config.control {
            daemon.server = Some(daemon.serve(path, table)?);
        }
        Ok(daemon)
    }

    fn serve(&self, path: &Path, table: u32) -> Result<Server, StartError> {
        let (control, view) = (self.asker.clone(), Arc::clone(&self.view));
        Server::start(path, Sources { control, view, table })
            .map_err(|source| StartError::Control { path: path.into(), source })
    }

    /// Returns the counters, summed over the workers.
    pub fn stats(&self) -> Snapshot {
        self.view.stats()
    }

    /// Returns who answers questions about routes.
    pub fn asker(&self) -> &Asker<Following> {
        &self.asker
    }

    /// Walks the ports, those of the first worker first.
    pub fn ports(&self) -> &[PortInfo] {
        &self.view.ports
    }

    /// Returns the interfaces, in the order of the configuration.
    pub fn interfaces(&self) -> &[Interface] {
        &self.view.interfaces
    }

    /// Says whether the workers and the control thread are at work.
    pub fn alive(&self) -> bool {
        self.workers.alive() && self.control.as_ref().is_some_and(|control| !control.is_finished())
    }

    /// Stops everything but what shows the counters, which are final afterwards; says
    /// whether all ended as they should. The interfaces are the kernel's again when this
    /// value is dropped.
    pub fn stop(&mut self) -> bool {
        self.server = None;
        let well = self.workers.stop();
        self.stop.store(true, Ordering::Relaxed);
        let control = self.control.take();
        control.is_none_or(|control| control.join().is_ok()) && well
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Finds the interface of a port; what else is to be known of it the kernel will say.
fn port(interface: &config::Interface) -> std::io::Result<PlanePort> {
    Ok(PlanePort {
        interface: nix::net::if_::if_nametoindex(interface.name.as_str())?,
        name: interface.name.clone(),
        mac: [0; 6],
        mtu: 0,
        up: false,
        table: interface.table,
        sources: interface.sources,
    })
}
