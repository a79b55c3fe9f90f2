//! The daemon as a predecessor and as a successor (`crate::succession`).
//!
//! ```text
//!   upgrade ─► the program at this process's path starts ─► Hello, Ready ─► workers suspended ─► Running ─► handed over
//!                                                  └ failed: programs put back, workers start again ┘
//! ```
//!
//! The daemon forwards and answers while the successor prepares: `poll` looks for its messages. From the suspension
//! of the workers on it waits for the successor, some milliseconds. A daemon that has handed over must exit without
//! dropping anything: its interfaces and listeners are the successor's, too.

use std::env;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use port::af_xdp::bpf::StoredLink;
use port::af_xdp::{self, Interface};

use super::{Daemon, GuardSuccession, RouteOrigin};
use crate::egress_queues::EgressQueues;
use crate::plane::{ActiveList, Ports};
use crate::requests::UpgradeResult;
use crate::server::ServerSocket;
use crate::start::{StartError, WorkerCounters, open, succeed_one};
use crate::succession::{
    AccessListCounts, Event, Predecessor, Successor, Suspended, Welcome, WorkerCounts, state_file,
};
use config::{BlockConfig, Config, Metrics};
use datapath::stats::{Snapshot, WorkerStats};

/// The hand-over to a successor that has been started.
#[derive(Debug)]
pub(super) struct HandOver {
    successor: Successor,
    /// The interfaces, in the order of the welcome.
    interfaces: Vec<Interface>,
    result: Sender<UpgradeResult>,
}

/// The path of the program of this process when it started: the file may be replaced later.
pub(super) fn program() -> PathBuf {
    env::current_exe().unwrap_or_default()
}

impl Daemon {
    /// Starts the program at the path of this process, which takes over; returns the receiver of the result.
    ///
    /// # Errors
    ///
    /// A message for the operator: the daemon cannot hand over, or another upgrade is under way.
    pub(crate) fn upgrade(&mut self) -> Result<Receiver<UpgradeResult>, String> {
        let remedy = "restart the service instead";
        if self.hand_over.is_some() || self.successor.is_some() {
            return Err("another upgrade is under way".to_owned());
        }
        if !self.role.hands_over() {
            return Err(format!("a {} does not hand over yet: {remedy}", self.role.name()));
        }
        let blocks_by_bgp = self.config.block.as_ref().is_some_and(BlockConfig::has_flowspec);
        for (has, key) in [
            (self.config.fpm.is_some(), "[feed] fpm"),
            (self.config.flowspec.is_some(), "[flowspec]"),
            (blocks_by_bgp, "[block] flowspec"),
        ] {
            if has {
                return Err(format!("a daemon with `{key}` does not hand over yet: {remedy}"));
            }
        }
        let started = Successor::start(&self.program);
        let successor =
            started.map_err(|error| format!("cannot start {}: {error}", self.program.display()))?;
        log::info!("upgrade: started {}", self.program.display());
        let (result, receiver) = mpsc::channel();
        let interfaces = self.view.interfaces();
        self.hand_over = Some(HandOver { successor, interfaces, result });
        Ok(receiver)
    }

    /// Returns whether this process runs the program at its path: no other file has replaced it.
    pub(crate) fn is_current(&self) -> bool {
        let file = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
        let running = file(Path::new("/proc/self/exe"));
        running.is_some() && running == file(&self.program)
    }

    /// Returns the number of the process that has taken over: this one must exit at once, without dropping
    /// anything.
    pub fn successor(&self) -> Option<u32> {
        self.successor
    }

    /// Returns whether a client of the control socket is being served.
    pub fn has_clients(&self) -> bool {
        self.server.as_ref().is_some_and(crate::server::Server::has_clients)
    }

    /// Follows the successor that is preparing, and hands over when it is ready.
    pub(super) fn follow_successor(&mut self) {
        let Some(mut hand_over) = self.hand_over.take() else { return };
        let outcome = match hand_over.successor.poll(self.role.name()) {
            None => {
                self.hand_over = Some(hand_over);
                return;
            }
            Some(Event::Hello) => match self.welcome(&mut hand_over) {
                Ok(()) => {
                    self.hand_over = Some(hand_over);
                    return;
                }
                Err(reason) => Err(reason),
            },
            Some(Event::Ready) => self.hand_over_to(&mut hand_over),
            Some(Event::Failed(reason)) => Err(reason),
        };
        let pid = hand_over.successor.pid();
        let outcome = match outcome {
            Ok(pause) => {
                self.successor = Some(pid);
                let ms = pause.as_secs_f64() * 1e3;
                let report = format!("process {pid} has taken over; no worker ran for {ms:.1} ms");
                log::info!("upgrade: {report}");
                Ok(report)
            }
            Err(reason) => {
                log::error!("upgrade: process {pid} does not take over: {reason}");
                Err(format!("no upgrade, the running program continues: {reason}"))
            }
        };
        // A client that has disconnected needs no result.
        let _ = hand_over.result.send(outcome);
    }

    /// Answers the successor's hello.
    fn welcome(&self, hand_over: &mut HandOver) -> Result<(), String> {
        let failed = |error: io::Error| error.to_string();
        let mut interfaces = Vec::new();
        let mut descriptors: Vec<OwnedFd> = Vec::new();
        for interface in &hand_over.interfaces {
            let handed = interface.hand_over().map_err(failed)?;
            let absent = || format!("{} is not served at the moment", interface.name());
            let (description, link) = handed.ok_or_else(absent)?;
            interfaces.push(description);
            descriptors.push(link);
        }
        let host = self.host.as_ref().map(port::Host::hand_over).transpose().map_err(failed)?;
        let host = host.map(|(description, device)| {
            descriptors.push(device);
            description
        });
        let mut add = |listener: &dyn AsFd| -> Result<(), String> {
            descriptors.push(listener.as_fd().try_clone_to_owned().map_err(failed)?);
            Ok(())
        };
        if let Some(server) = &self.server {
            add(server)?;
        }
        let mut metrics = None;
        if let Some(http) = &self.metrics {
            metrics = Some(http.listener().local_addr().map_err(failed)?);
            add(http.listener())?;
        }
        let control = self.server.as_ref().map(|server| server.path().to_owned());
        let sockets = self.role.sockets().map_err(failed)?;
        let role_sockets = sockets.len();
        descriptors.extend(sockets);
        let welcome = Welcome { format: 1, interfaces, host, control, metrics, role_sockets };
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        hand_over.successor.welcome(welcome, &borrowed)
    }

    /// Stops the workers, and lets the successor start its own; returns the time without workers.
    fn hand_over_to(&mut self, hand_over: &mut HandOver) -> Result<Duration, String> {
        let same = self.view.interfaces();
        let unchanged = same.len() == hand_over.interfaces.len()
            && same.iter().zip(&hand_over.interfaces).all(|(now, then)| now.is_same(then));
        if !unchanged {
            return Err("the interfaces have changed meanwhile: try again".to_owned());
        }
        // Further clients wait for the successor.
        if let Some(server) = &mut self.server {
            server.suspend();
        }
        self.role.suspend();
        // The workers forward what they have received until they end; that time counts, too.
        let begin = Instant::now();
        self.suspended = self.workers.suspend();
        let suspended = Suspended {
            workers: self.view.worker_stats().iter().map(WorkerCounts::from).collect(),
            closed: WorkerCounts::from(&self.view.closed()),
            egress_queues: self.view.counters().queues.counts(),
            access_lists: self
                .active_lists()
                .iter()
                .map(|list| AccessListCounts::read(&list.config.name, &list.installed))
                .collect(),
            role: self.role.state(),
        };
        let states = self.hook_states();
        let taken_over = states.and_then(|states| {
            let states: Vec<_> = states.iter().map(AsFd::as_fd).collect();
            hand_over.successor.take_over(suspended, &states)
        });
        match taken_over {
            Ok(()) => {
                let pause = begin.elapsed();
                // The last packets that passed through the programs of this process.
                af_xdp::synchronize_rcu();
                let counts = |interface: &Interface| interface.final_counts().unwrap_or_default();
                hand_over.successor.release(hand_over.interfaces.iter().map(counts).collect());
                Ok(pause)
            }
            Err(reason) => {
                // It may have bound the queues.
                hand_over.successor.kill();
                Err(match self.resume(hand_over) {
                    None => reason,
                    Some(error) => {
                        format!("{reason}; and the workers do not start again: {error}")
                    }
                })
            }
        }
    }

    /// Writes the states of the suspended hooks to files, by worker.
    fn hook_states(&mut self) -> Result<Vec<OwnedFd>, String> {
        let hooks = self.suspended.iter_mut().enumerate();
        let hooks =
            hooks.filter_map(|(worker, suspended)| Some((worker, suspended.hook.as_mut()?)));
        let files = hooks.map(|(worker, hook)| state_file(&hook.packets.export(worker)));
        files.collect::<io::Result<_>>().map_err(|error| format!("the state of a hook: {error}"))
    }

    /// Forwards again after a successor that has failed; returns the error if that fails, too.
    fn resume(&mut self, hand_over: &HandOver) -> Option<String> {
        let mut errors = Vec::new();
        for interface in &hand_over.interfaces {
            errors.extend(interface.resume().err().map(|error| error.to_string()));
        }
        if let Err(error) = self.restart_workers() {
            errors.push(error.to_string());
            // No worker forwards any more: the service must end, and reports that.
            self.control = None;
        }
        self.role.resume();
        if let Some(mut server) = self.server.take() {
            let accepts = server.accept(self.server_handles());
            errors.extend(accepts.err().map(|error| error.to_string()));
            self.server = Some(server);
        }
        (!errors.is_empty()).then(|| errors.join("; "))
    }
}

/// The state of a predecessor that workers continue.
pub(super) struct Inherited {
    pub(super) counters: WorkerCounters,
    pub(super) closed: Snapshot,
}

/// Prepares the interfaces of a configuration: those of the predecessor, whose programs stay attached, or else new ones.
/// A stored link that is of none of them is detached.
pub(super) fn prepare_interfaces(
    config: &Config,
    ports: &Ports,
    locals: &af_xdp::Locals,
    predecessor: Option<&mut Predecessor>,
    mut stored: Option<StoredLink>,
) -> Result<Vec<Interface>, StartError> {
    let Some(predecessor) = predecessor else {
        let interfaces = open(config, ports, locals, Vec::new(), &mut stored)?;
        if let Some(stored) = stored {
            stored.detach();
        }
        return Ok(interfaces);
    };
    let differ = |name: &str| {
        let reason = format!(
            "{name}: the running program has another configuration of this interface (`fingerpost reload` first)"
        );
        StartError::Predecessor(reason)
    };
    let mut interfaces = Vec::new();
    for (wanted, port) in config.interfaces.iter().zip(ports.iter()) {
        let (handover, link) =
            predecessor.take_interface(port.interface).ok_or_else(|| differ(&wanted.name))?;
        let queues = crate::start::wanted_queues(config, wanted)?;
        if (handover.choice, handover.queue_setup, handover.queues)
            != (wanted.mode, wanted.queue_setup, queues)
        {
            return Err(differ(&wanted.name));
        }
        interfaces.push(succeed_one(config, wanted, locals, handover, link)?);
    }
    match predecessor.has_no_interface_left() {
        true => Ok(interfaces),
        false => Err(StartError::Predecessor(
            "the running program has further interfaces (`fingerpost reload` first)".to_owned(),
        )),
    }
}

/// Takes the interfaces over from the predecessor, whose workers stop; returns their counters.
pub(super) fn take_over(
    config: &Config,
    interfaces: &[Interface],
    lists: &[ActiveList],
    predecessor: &mut Predecessor,
    guard: Option<&dyn GuardSuccession>,
) -> Result<Inherited, StartError> {
    if let Some(guard) = guard {
        guard.prepare(interfaces);
    }
    let (suspended, hooks) = predecessor.suspend().map_err(StartError::Predecessor)?;
    if let Some(guard) = guard {
        guard.inherit(&suspended.role, hooks).map_err(StartError::Predecessor)?;
    }
    let snapshot =
        |counts: &WorkerCounts| Snapshot::try_from(counts).map_err(StartError::Predecessor);
    let stats = suspended.workers.iter().map(|counts| {
        let counts = snapshot(counts)?;
        Ok(WorkerStats::continuing(&counts).into())
    });
    let stats = stats.collect::<Result<Vec<_>, StartError>>()?;
    let closed = snapshot(&suspended.closed)?;
    let queues = EgressQueues::continuing(config, &suspended.egress_queues);
    for list in lists {
        let past = suspended.access_lists.iter().find(|past| past.name == list.config.name);
        past.into_iter().for_each(|past| past.continue_in(&list.installed));
    }
    for interface in interfaces {
        interface.take_over()?;
    }
    Ok(Inherited { counters: WorkerCounters { stats, queues }, closed })
}

/// Returns the socket for the control socket's server: that of the predecessor, or else a new one.
pub(super) fn control_socket(
    path: Option<&Path>,
    predecessor: Option<&mut Predecessor>,
) -> Result<Option<ServerSocket>, StartError> {
    let Some(path) = path else { return Ok(None) };
    let inherited = predecessor.and_then(|before| before.take_control(path));
    let socket = match inherited {
        Some(listener) => Ok(ServerSocket::inherited(path, listener)),
        None => ServerSocket::bind(path),
    };
    socket.map(Some).map_err(|source| StartError::Control { path: path.into(), source })
}

/// Returns the listener of the metrics: that of the predecessor, or else a new one.
pub(super) fn metrics_listener(
    metrics: Option<&Metrics>,
    predecessor: Option<&mut Predecessor>,
) -> Result<Option<TcpListener>, StartError> {
    let Some(Metrics { listen, .. }) = metrics else { return Ok(None) };
    let inherited = predecessor.and_then(|before| before.take_metrics(*listen));
    let listener = inherited.map_or_else(|| TcpListener::bind(listen), Ok);
    listener.map(Some).map_err(|source| StartError::Metrics { listen: *listen, source })
}

impl RouteOrigin {
    /// Returns whether packets return to the kernel.
    pub(super) fn has_host(self) -> bool {
        self == Self::Kernel
    }
}
