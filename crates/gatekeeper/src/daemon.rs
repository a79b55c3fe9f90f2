//! The gate daemon: starts a router daemon whose workers have a gate's hook.
//!
//! ```text
//!   Config ─► addresses ─► policy, rings, sockets ─► Daemon: interfaces, routes, workers
//!                                                      └ a GateHook each
//! ```
//!
//! If a step of the start fails, the steps before it are undone, as the router does.
//!
//! The addresses of both interfaces are read at the start: those of the back interface are the
//! tunnels' sources, and those of the front interface the sources of ICMP errors. After a change of
//! these addresses the gate has to be restarted.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use fib::Publisher;
use gate::cookie::{Secret, Secrets};
use gate::flow::Key;
use gate::policy::Address;
use gate::random;
use gate::tunnel::TunnelKeys;
use nix::ifaddrs::getifaddrs;
use port::Port;
use port::af_xdp::bpf::StoredLink;
use port::af_xdp::{HostEgressShare, Interface};
use port::handover::{self, HandoverPort};

use super::config::{BACK, Config, FRONT, SteeredBy};
use super::controller::GateController;
use super::counter_snapshot::CounterSnapshot;
use super::decision_receiver::{DecisionReceiver, ListenConfig, Session};
use super::declined_map::{self, DeclinedMap};
use super::hook::{GateHook, HookSetup, queue_slots};
use super::hook_state::HookState;
use super::program_store::ProgramStore;
use super::rings::rings;
use super::saved_flows;
use super::steering::SoftwareSteering;
use super::succession::GateSuccession;
use bundle::{Agent, MemberConfig, Startup};
use control::Predecessor;
use control::daemon::{Daemon, Guard};
use control::progress::Progress;
use control::service::Service;
use control::start::{HookFactory, PortInfo, StartError, WorkerHook, by_name, present};
use dashboard::{SampleSource, Web};
use datapath::stats::Snapshot;

/// A gate, until it is stopped or dropped.
#[derive(Debug)]
pub struct GateDaemon {
    // Declared, and so dropped, before the controller that it changes.
    agent: Option<Agent>,
    daemon: Daemon,
    controller: Arc<GateController>,
    /// The flow file, and the flows that the workers save.
    saved_flows: Option<(PathBuf, Arc<Mutex<Vec<u8>>>)>,
    restored: Option<io::Result<usize>>,
    fails_open: bool,
}

impl GateDaemon {
    /// Starts a gate by `config` in the network namespace of the calling thread, which takes over from a
    /// predecessor if there is one. The front interface's program replaces that of the `stored` link, which a gate that
    /// has ended left attached. If the configuration has a distribution, the last valid bundle is applied.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing is left behind then.
    pub fn start(
        config: &Config,
        mut predecessor: Option<Predecessor>,
        stored: Option<StoredLink>,
    ) -> Result<Self, StartError> {
        let system = |doing| move |source| StartError::System { doing, source };
        present(&config.router(), false, &by_name)?;
        let validate = |bundle: &Arc<bundle::Bundle>| {
            Config::load_over(&config.path, Some(bundle)).map_err(|error| error.to_string())
        };
        let startup = Startup::open(config.fixed.distribution.as_ref(), validate);
        let (startup, over) =
            startup.map_err(io::Error::other).map_err(system("apply the stored bundles"))?;
        let config = over.as_ref().unwrap_or(config);
        let fixed = &config.fixed;
        let back = addresses(&fixed.back.name).map_err(system("list the addresses"))?;
        let front = addresses(&fixed.front.name).map_err(system("list the addresses"))?;
        let from4 = fixed.address4.or_else(|| back.iter().find_map(v4));
        let from6 = fixed.address6.or_else(|| back.iter().find_map(v6));
        let has_grantor = |six: bool| {
            config.rules.grantors().any(|grantor| matches!(grantor, Address::V6(_)) == six)
        };
        for (missing, family) in [
            (has_grantor(false) && from4.is_none(), "IPv4"),
            (has_grantor(true) && from6.is_none(), "IPv6"),
        ] {
            if missing {
                return Err(StartError::NoTunnelEnd { interface: fixed.back.name.clone(), family });
            }
        }
        let policy = config.rules.policy(1).map_err(|bad| StartError::System {
            doing: "build the policy",
            source: io::Error::other(bad),
        })?;
        let policy = Publisher::new(policy);
        let workers = fixed.daemon.cores.len();
        let software = workers > 1 && fixed.steering == SteeredBy::Software;
        let (mut worker_rings, mut decisions, mut queries) = (Vec::new(), Vec::new(), Vec::new());
        let (mut declined, mut samples) = (Vec::new(), Vec::new());
        for (control, worker) in (0..workers).map(|_| rings()) {
            decisions.push(control.decisions);
            declined.push(control.declined);
            queries.push(control.queries);
            samples.push(control.samples);
            worker_rings.push(worker);
        }
        let listen: Vec<IpAddr> = [
            from4.map(|address| IpAddr::V4(address.into())),
            from6.map(|address| IpAddr::V6(address.into())),
        ]
        .into_iter()
        .flatten()
        .collect();
        let keys = Publisher::new(TunnelKeys::default());
        let mut key_readers: Vec<_> = (0..workers).map(|_| keys.reader()).collect();
        let session = Session { number: random::word().max(1), keys };
        let declined = DeclinedMap::new(declined, policy.reader(), fixed.xdp_declined_flows);
        let programs = Publisher::new(config.programs.clone());
        let mut program_readers: Vec<_> = (0..workers).map(|_| programs.reader()).collect();
        let (store, inbox) =
            ProgramStore::start(programs, config).map_err(system("start the verifier's thread"))?;
        let is_successor = predecessor.is_some();
        let sockets = predecessor.as_mut().map(Predecessor::take_sockets).unwrap_or_default();
        let listen = ListenConfig {
            addresses: listen,
            interface: fixed.back.name.clone(),
            inherited: sockets.into_iter().map(UdpSocket::from).collect(),
        };
        let decisions =
            DecisionReceiver::start(listen, &config.trust, decisions, declined, inbox, session)
                .map_err(system("listen for decisions"))?;
        let counters: Vec<_> = (0..workers).map(|_| Arc::new(CounterSnapshot::default())).collect();
        let mut readers: Vec<_> = (0..workers).map(|_| policy.reader()).collect();
        let secrets = Publisher::new(Secrets::new(Secret::random()));
        let mut secret_readers: Vec<_> = (0..workers).map(|_| secrets.reader()).collect();
        let controller =
            GateController::new(config, policy, store, counters.clone(), queries, decisions)
                .map_err(io::Error::other)
                .map_err(system("build the candidate policy"))?;
        let controller = Arc::new(controller.with_samples(samples).with_secrets(secrets));

        let key = Key::random();
        let saved = fixed.keep.as_ref().map(|_| Arc::<Mutex<Vec<u8>>>::default());
        let known = RefCell::new(vec![HookState::default(); workers]);
        let succession = GateSuccession {
            controller: &controller,
            trust: &config.trust,
            workers,
            steers_in_software: software,
            known: &known,
        };
        // The flows of a running predecessor are newer than those of the file.
        let file = fixed.keep.as_ref().filter(|_| predecessor.is_none());
        let restored = file
            .map(|path| saved_flows::read(path, workers).map(|flows| succession.set_flows(flows)));
        let overhead = fixed.encapsulation_len() + if has_grantor(true) { 40 } else { 20 };
        let sharing =
            if software { handover::channels(workers, handover::RING_BYTES) } else { Ok(vec![]) };
        let (mut givers, mut handed): (VecDeque<_>, VecDeque<_>) =
            sharing.map_err(system("create the handover rings"))?.into_iter().unzip();
        let mut make = |worker: usize, interfaces: &[Interface]| -> Option<WorkerHook> {
            let link =
                interfaces.get(BACK).map_or(1500, |interface| interface.mtu().min(u16::MAX.into()));
            let hook = GateHook::install(HookSetup {
                fixed,
                workers,
                from4: from4.unwrap_or(0),
                from6: from6.unwrap_or(0),
                front4: front.iter().find_map(v4),
                front6: front.iter().find_map(v6),
                mtu: fixed.mtu.min(link as u16),
                overhead,
                key: key.clone(),
                seed: random::word(),
                secrets: secret_readers.remove(0),
                policy: readers.remove(0),
                keys: key_readers.remove(0),
                stream: worker as u16,
                programs: program_readers.remove(0),
                rings: worker_rings.remove(0),
                steering: givers
                    .pop_front()
                    .map(|giver| SoftwareSteering::new(worker, workers, giver)),
                host: interfaces
                    .get(BACK)
                    .and_then(|back| back.count_host_egress().ok())
                    .map(|counter| HostEgressShare::new(counter, workers as u32)),
                counters: Arc::clone(&counters[worker]),
                restored: std::mem::take(&mut known.borrow_mut()[worker]),
                save_to: saved.as_ref().map(|saved| (worker as u32, Arc::clone(saved))),
                clock: Box::new(declined_map::now),
            });
            let behind = |first: &Interface| (first.mac(), first.mtu());
            let (mac, mtu) = interfaces.get(FRONT).map_or(([0; 6], 1500), behind);
            let handed = handed.pop_front().map(|port: HandoverPort| port.with_link(mac, mtu));
            Some(WorkerHook { hook, handed: handed.map(|port| Box::new(port) as Box<dyn Port>) })
        };
        let hooks = HookFactory { frames: queue_slots(fixed) as u32, make: &mut make };
        let role = Arc::clone(&controller) as _;
        let guard = Guard { role, hooks, succession: Some(&succession), stored };
        let samples = Arc::clone(&controller);
        let daemon =
            Daemon::start_guarded(config.router(), guard, predecessor, &move |query, metrics| {
                let gate = Arc::clone(&samples) as Arc<dyn SampleSource>;
                Ok(Arc::new(Web::start(query, metrics, Some(gate))?))
            })?;
        controller.decision_receiver().resume();
        // The gate runs, and the file is out of date from now on.
        let restored = restored.map(|restored| {
            let path = fixed.keep.as_deref().filter(|_| matches!(restored, Ok(1..)));
            path.map_or(Ok(()), std::fs::remove_file).and(restored)
        });
        controller.set_block_lists(daemon.block_lists());
        // A successor has prepared its front interface.
        if !is_successor && let Some(front) = daemon.interfaces().get(FRONT) {
            controller.set_front(front);
        }
        let agent = startup.zip(controller.agent_status()).map(|(startup, status)| {
            startup.start_agent(Arc::clone(&controller) as _, status, daemon.event_publisher())
        });
        let agent = agent.transpose().map_err(system("start the distribution thread"))?;
        let saved_flows = fixed.keep.clone().zip(saved);
        let fails_open = fixed.fail_open;
        Ok(Self { agent, daemon, controller, saved_flows, restored, fails_open })
    }

    /// Returns the ports, those of the first worker first.
    pub fn ports(&self) -> Vec<PortInfo> {
        self.daemon.ports()
    }

    /// Returns the counters, summed over the workers.
    pub fn stats(&self) -> Snapshot {
        self.daemon.stats()
    }

    /// Returns the status of the gate.
    pub fn status(&self) -> api::GateStatus {
        self.controller.status()
    }

    /// Returns the number of flows restored from the flow file, or the error; `None` without a file.
    pub fn restored(&self) -> Option<&io::Result<usize>> {
        self.restored.as_ref()
    }

    /// Writes the flow file once the gate has stopped, and returns the number of flows; `None` without
    /// a file.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn save_flows(&mut self) -> Option<io::Result<usize>> {
        let (path, saved) = self.saved_flows.take()?;
        let flows = saved.lock().unwrap_or_else(PoisonError::into_inner);
        Some(saved_flows::write(&path, &flows))
    }
}

impl Service for GateDaemon {
    fn is_alive(&self) -> bool {
        self.daemon.alive() && self.controller.is_alive()
    }

    fn progress(&self) -> Progress {
        self.daemon.progress().with([self.controller.turns()])
    }

    fn log_events(&mut self) {
        self.daemon.poll();
        self.controller.evaluate_candidate();
        self.controller.rotate_secrets(Instant::now());
        self.controller.monitor_grantors();
        let mut lines = self.controller.drain_program_messages();
        lines.extend(self.daemon.drain_notices());
        lines.extend(
            self.controller.agent_status().into_iter().flat_map(|status| status.drain_messages()),
        );
        lines.iter().for_each(|line| log::info!("{line}"));
    }

    fn problems(&self) -> Vec<String> {
        self.daemon.problems()
    }

    fn successor(&self) -> Option<u32> {
        self.daemon.successor()
    }

    fn guarded_interface(&self) -> Option<Interface> {
        let interfaces = self.daemon.interfaces();
        interfaces.get(FRONT).filter(|_| !self.fails_open).cloned()
    }

    fn has_clients(&self) -> bool {
        self.daemon.has_clients()
    }

    fn reload(&mut self) -> Result<String, String> {
        self.controller.reload()
    }

    fn stop(&mut self) -> bool {
        self.agent = None;
        self.daemon.stop()
    }
}

/// Lists the addresses of an interface except link-local ones.
fn addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    let entries = getifaddrs()?.filter(|entry| entry.interface_name == name);
    let all = entries.filter_map(|entry| entry.address).filter_map(|address| {
        let four = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        four.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    });
    let is_link_local = |address: &IpAddr| match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    Ok(all.filter(|address| !is_link_local(address)).collect())
}

fn v4(address: &IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(address) => Some(u32::from(*address)),
        IpAddr::V6(_) => None,
    }
}

fn v6(address: &IpAddr) -> Option<u128> {
    match address {
        IpAddr::V6(address) => Some(u128::from(*address)),
        IpAddr::V4(_) => None,
    }
}
