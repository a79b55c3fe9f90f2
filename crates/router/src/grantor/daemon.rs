//! A grantor brought to life: a daemon whose workers have hooks, and threads beside them.
//!
//! The policies and the post start first, so that what is wrong with a policy is told before an
//! interface is touched; they end after the workers, which may still hand them something.

use std::io;
use std::sync::Arc;

use port::af_xdp::Interface;

use super::config::Config;
use super::hook::{GrantorHook, PLACES, TunnelEndpoints};
use super::panel::Panel;
use super::told::GrantorTold;
use crate::control::progress::Progress;
use crate::daemon::{Daemon, Guard};
use crate::distribution::{self, Agent};
use crate::role::Role;
use crate::router::{HookFactory, PortInfo, StartError, WorkerHook, by_name, present};
use crate::stats::Snapshot;

/// A grantor, until it is stopped or dropped.
#[derive(Debug)]
pub struct Grantor {
    // Ends before what it changes.
    agent: Option<Agent>,
    // Before the threads that its workers ask.
    daemon: Daemon,
    panel: Arc<Panel>,
}

impl Grantor {
    /// Starts a grantor by `config` in the network namespace of the calling thread. Where it names
    /// a distribution, the last bundle that is sound is in force.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing is left behind then.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        let router = config.router();
        present(&router, &by_name)?;
        let sound = |bundle: &Arc<distribution::Bundle>| {
            let over = Config::load_over(&config.path, Some(bundle));
            let over = over.map_err(|error| error.to_string())?;
            over.try_policies().map(|()| over)
        };
        let wrong =
            |doing| move |what| StartError::System { doing, source: io::Error::other(what) };
        let settings = config.fixed.distribution.as_ref();
        let initial = settings.map(|settings| distribution::start(settings, sound));
        let initial = initial.transpose().map_err(wrong("begin with the bundles that are kept"))?;
        let (initial, over, said) = match initial {
            Some((initial, over, said)) => (Some(initial), over, said),
            None => (None, None, Vec::new()),
        };
        if over.is_none() {
            config.try_policies().map_err(wrong("load the policies"))?;
        }
        let config = over.as_ref().unwrap_or(config);
        let doing = "start the policies, the record and the post";
        let (panel, mut ends) =
            Panel::start(config).map_err(|source| StartError::System { doing, source })?;
        let panel = Arc::new(panel);
        let fixed = &config.fixed;
        let tunnels = TunnelEndpoints {
            ends: fixed.ends.clone(),
            gates: fixed.gates.clone(),
            port: fixed.udp_port(),
            ports: fixed.tunnel_ports(),
            sealed: fixed.sealed,
        };
        let mut make = |_: usize, _: &[Interface]| -> Option<WorkerHook> {
            let hook = Box::new(GrantorHook::new(tunnels.clone(), ends.remove(0)));
            Some(WorkerHook { hook, handed: None })
        };
        let hooks = HookFactory { frames: PLACES as u32, make: &mut make };
        let role = Role::Grantor(Arc::clone(&panel));
        let daemon = Daemon::start_guarded(router, Guard { role, hooks })?;
        let agent = match (settings, initial, panel.agent_status()) {
            (Some(settings), Some(initial), Some(agent_status)) => {
                agent_status.queue_messages(said);
                let (member, status) = (Arc::clone(&panel), Arc::clone(agent_status));
                let agent = Agent::start(settings, initial, member, status, daemon.asker().clone());
                let doing = "start who takes bundles over";
                Some(agent.map_err(|source| StartError::System { doing, source })?)
            }
            _ => None,
        };
        Ok(Self { agent, daemon, panel })
    }

    /// Does what clients want done; to be called from time to time. Returns what an operator
    /// should know.
    pub fn attend(&mut self) -> Vec<String> {
        self.daemon.attend();
        let mut told = self.panel.news();
        told.extend(self.daemon.news());
        told.extend(
            self.panel.agent_status().map(|status| status.drain_messages()).unwrap_or_default(),
        );
        told
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

    /// Returns what the progress of its threads is seen by.
    pub fn progress(&self) -> Progress {
        self.daemon.progress().with(self.panel.turns())
    }

    /// Returns why interfaces do not work as ports, of each that does not.
    pub fn problems(&self) -> Vec<String> {
        self.daemon.problems()
    }

    /// Says whether all threads are at work.
    pub fn alive(&self) -> bool {
        self.daemon.alive() && self.panel.alive()
    }

    /// Stops everything but what shows the counters, which are final afterwards; says
    /// whether all ended as they should.
    pub fn stop(&mut self) -> bool {
        self.agent = None;
        self.daemon.stop()
    }
}
