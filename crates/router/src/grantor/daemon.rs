//! A grantor brought to life: a daemon whose workers have stations, and threads beside them.
//!
//! The policies and the post start first, so that what is wrong with a policy is told before an
//! interface is touched; they end after the workers, which may still hand them something.

use std::sync::Arc;

use port::af_xdp::Interface;

use super::config::Config;
use super::panel::Panel;
use super::station::{PLACES, Station, Tunnels};
use super::told::GrantorTold;
use crate::daemon::{Daemon, Guard};
use crate::datapath;
use crate::role::Role;
use crate::router::{PortInfo, StartError, Stations, present};
use crate::stats::Snapshot;

/// A grantor, until it is stopped or dropped.
#[derive(Debug)]
pub struct Grantor {
    // Before the threads that its workers ask.
    daemon: Daemon,
    panel: Arc<Panel>,
}

impl Grantor {
    /// Starts a grantor by `config` in the network namespace of the calling thread.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing is left behind then.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        let router = config.router();
        present(&router)?;
        let doing = "start the policies, the record and the post";
        let (panel, mut ends) =
            Panel::start(config).map_err(|source| StartError::System { doing, source })?;
        let panel = Arc::new(panel);
        let fixed = &config.fixed;
        let (ends_at, gates, port) = (fixed.ends.clone(), fixed.gates.clone(), fixed.port);
        let tunnels = Tunnels { ends: ends_at, gates, port };
        let mut make = |_: usize, _: &[Interface]| -> Box<dyn datapath::Station> {
            let (asks, answers) = ends.remove(0);
            Box::new(Station::new(tunnels.clone(), asks, answers))
        };
        let stations = Stations { frames: PLACES as u32, make: &mut make };
        let role = Role::Grantor(Arc::clone(&panel));
        let daemon = Daemon::start_guarded(router, Guard { role, stations })?;
        Ok(Self { daemon, panel })
    }

    /// Does what clients want done; to be called from time to time. Returns what an operator
    /// should know.
    pub fn attend(&mut self) -> Vec<String> {
        self.daemon.attend();
        self.panel.news()
    }

    /// Reads the policy, the candidate, the lists and the programs again, and goes over to them.
    ///
    /// # Errors
    ///
    /// What is wrong; what there was before is in force then.
    pub fn reload(&self) -> Result<String, String> {
        self.panel.reload()
    }

    /// Returns the ports, those of the first worker first.
    pub fn ports(&self) -> Vec<PortInfo> {
        self.daemon.ports()
    }

    /// Returns the counters, summed over the workers.
    pub fn stats(&self) -> Snapshot {
        self.daemon.stats()
    }

    /// Describes the grantor.
    pub fn told(&self) -> GrantorTold {
        self.panel.told()
    }

    /// Says whether all threads are at work.
    pub fn alive(&self) -> bool {
        self.daemon.alive() && self.panel.alive()
    }

    /// Stops everything but what shows the counters, which are final afterwards; says
    /// whether all ended as they should.
    pub fn stop(&mut self) -> bool {
        self.daemon.stop()
    }
}
