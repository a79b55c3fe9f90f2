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
use bundle::{Agent, MemberConfig, Startup};
use control::daemon::{Daemon, Guard};
use control::progress::Progress;
use control::service::Service;
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
        present(&router, false, &by_name)?;
        let validate = |bundle: &Arc<bundle::Bundle>| {
            let over = Config::load_over(&config.path, Some(bundle));
            let over = over.map_err(|error| error.to_string())?;
            over.try_policies().map(|()| over)
        };
        let failed =
            |doing| move |what| StartError::System { doing, source: io::Error::other(what) };
        let startup = Startup::open(config.fixed.distribution.as_ref(), validate);
        let (startup, over) = startup.map_err(failed("apply the stored bundles"))?;
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
        let role = Arc::clone(&controller) as _;
        let guard = Guard { role, hooks, succession: None, stored: None };
        let daemon = Daemon::start_guarded(router, guard, None, &|query, metrics| {
            Ok(Arc::new(Web::start(query, metrics, None)?))
        })?;
        let agent = startup.zip(controller.agent_status()).map(|(startup, status)| {
            startup.start_agent(Arc::clone(&controller) as _, status, daemon.event_publisher())
        });
        let agent = agent.transpose().map_err(|source| StartError::System {
            doing: "start the distribution thread",
            source,
        })?;
        Ok(Self { agent, daemon, controller })
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
}

impl Service for GrantorDaemon {
    fn is_alive(&self) -> bool {
        self.daemon.alive() && self.controller.is_alive()
    }

    fn progress(&self) -> Progress {
        self.daemon.progress().with(self.controller.turns())
    }

    fn log_events(&mut self) {
        self.daemon.poll();
        let mut lines = self.controller.drain_messages();
        lines.extend(self.daemon.drain_notices());
        lines.extend(
            self.controller.agent_status().into_iter().flat_map(|status| status.drain_messages()),
        );
        lines.iter().for_each(|line| log::info!("{line}"));
    }

    fn problems(&self) -> Vec<String> {
        self.daemon.problems()
    }

    fn reload(&mut self) -> Result<String, String> {
        self.controller.reload()
    }

    fn stop(&mut self) -> bool {
        self.agent = None;
        self.daemon.stop()
    }
}
