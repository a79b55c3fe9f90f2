//! The grantor daemon: starts a router daemon whose workers have a grantor's hook, and threads beside
//! them.
//!
//! The policies and the decision sender start first, so that an error in a policy is reported before an
//! interface is touched. They end after the workers, which may still send them requests.

use std::io;
use std::sync::Arc;

use port::af_xdp::Interface;

use super::config::Config;
use super::controller::GrantorController;
use super::hook::{GrantorHook, SLOTS, TunnelEndpoints};
use api::GrantorStatus;
use bundle::Agent;
use control::daemon::{Daemon, Guard};
use control::progress::Progress;
use control::start::{HookFactory, PortInfo, StartError, WorkerHook, by_name, present};
use dashboard::Web;
use datapath::stats::Snapshot;

/// A grantor, until it is stopped or dropped.
#[derive(Debug)]
pub struct GrantorDaemon {
    // Declared, and so dropped, before the controller that it changes.
    agent: Option<Agent>,
    // Dropped before the threads that its workers use.
    daemon: Daemon,
    controller: Arc<GrantorController>,
}

impl GrantorDaemon {
    /// Starts a grantor by `config` in the network namespace of the calling thread. If the
    /// configuration has a distribution, the last valid bundle is applied.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing is left behind then.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        let router = config.router();
        present(&router, &by_name)?;
        let validate = |bundle: &Arc<bundle::Bundle>| {
            let over = Config::load_over(&config.path, Some(bundle));
            let over = over.map_err(|error| error.to_string())?;
            over.try_policies().map(|()| over)
        };
        let failed =
            |doing| move |what| StartError::System { doing, source: io::Error::other(what) };
        let settings = config.fixed.distribution.as_ref();
        let initial = settings.map(|settings| bundle::start(settings, validate));
        let initial = initial.transpose().map_err(failed("apply the stored bundles"))?;
        let (initial, over, messages) = match initial {
            Some((initial, over, messages)) => (Some(initial), over, messages),
            None => (None, None, Vec::new()),
        };
        if over.is_none() {
            config.try_policies().map_err(failed("load the policies"))?;
        }
        let config = over.as_ref().unwrap_or(config);
        let doing = "start the policies, the recorder and the decision sender";
        let (controller, mut rings) = GrantorController::start(config)
            .map_err(|source| StartError::System { doing, source })?;
        let controller = Arc::new(controller);
        let fixed = &config.fixed;
        let tunnels = TunnelEndpoints {
            ends: fixed.ends.clone(),
            gates: fixed.gates.clone(),
            port: fixed.udp_port(),
            ports: fixed.tunnel_ports(),
            sealed: fixed.sealed,
        };
        let mut make = |_: usize, _: &[Interface]| -> Option<WorkerHook> {
            let hook = GrantorHook::install(tunnels.clone(), rings.remove(0));
            Some(WorkerHook { hook, handed: None })
        };
        let hooks = HookFactory { frames: SLOTS as u32, make: &mut make };
        let guard = Guard { role: Arc::clone(&controller) as _, hooks };
        let daemon = Daemon::start_guarded(router, guard, &|query, metrics| {
            Ok(Arc::new(Web::start(query, metrics, None)?))
        })?;
        let agent = match (settings, initial, controller.agent_status()) {
            (Some(settings), Some(initial), Some(agent_status)) => {
                agent_status.queue_messages(messages);
                let (member, status) = (Arc::clone(&controller), Arc::clone(agent_status));
                let publish = daemon.event_publisher();
                let agent = Agent::start(settings, initial, member, status, publish);
                let doing = "start the distribution thread";
                Some(agent.map_err(|source| StartError::System { doing, source })?)
            }
            _ => None,
        };
        Ok(Self { agent, daemon, controller })
    }

    /// Carries out clients' commands; to be called several times a second. Returns messages for the
    /// log.
    pub fn run_pending(&mut self) -> Vec<String> {
        self.daemon.poll();
        let mut messages = self.controller.drain_messages();
        messages.extend(self.daemon.drain_notices());
        messages.extend(
            self.controller
                .agent_status()
                .map(|status| status.drain_messages())
                .unwrap_or_default(),
        );
        messages
    }

    /// Reads the policy, the candidate, the lists and the programs again, and applies them.
    ///
    /// # Errors
    ///
    /// The first problem; the policy before stays in force.
    pub fn reload(&self) -> Result<String, String> {
        self.controller.reload()
    }

    /// Returns the ports, those of the first worker first.
    pub fn ports(&self) -> Vec<PortInfo> {
        self.daemon.ports()
    }

    /// Returns the counters, summed over the workers.
    pub fn stats(&self) -> Snapshot {
        self.daemon.stats()
    }

    /// Returns the status of the grantor.
    pub fn status(&self) -> GrantorStatus {
        self.controller.status()
    }

    /// Returns the turn counters of all threads, for a watchdog.
    pub fn progress(&self) -> Progress {
        self.daemon.progress().with(self.controller.turns())
    }

    /// Returns the error of each interface that does not work as a port.
    pub fn problems(&self) -> Vec<String> {
        self.daemon.problems()
    }

    /// Returns whether all threads run.
    pub fn is_alive(&self) -> bool {
        self.daemon.alive() && self.controller.is_alive()
    }

    /// Stops all threads but those that serve the counters, which are final afterwards; returns
    /// whether all ended without an error.
    pub fn stop(&mut self) -> bool {
        self.agent = None;
        self.daemon.stop()
    }
}
