//! A gate brought to life: a daemon whose workers have hooks.
//!
//! ```text
//!   Config ─► addresses ─► policy, rings, sockets ─► Daemon: interfaces, routes, workers
//!                                                      └ a GateHook each
//! ```
//!
//! What fails on the way up gives back what was taken before it, as the router does.
//!
//! The addresses of both interfaces are read at the start: tunnels begin at those of the
//! back interface, and ICMP errors come from those of the front one. Who renumbers
//! restarts the gate.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
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
use port::af_xdp::Interface;
use port::handover::{self, Handed};

use super::config::{BACK, Config, FRONT, SteeredBy};
use super::decisions::{Decisions, Session};
use super::early::{self, Writer};
use super::hook::{GateHook, Setup, places};
use super::panel::{Panel, Unchanged};
use super::retained::{self, Retained};
use super::rings::rings;
use super::shelf::Shelf;
use super::steering::Steering;
use super::tally::Tally;
use crate::control::progress::Progress;
use crate::daemon::{Daemon, Guard};
use crate::distribution::{self, Agent};
use crate::role::Role;
use crate::router::{HookFactory, PortInfo, StartError, WorkerHook, by_name, present};
use crate::stats::Snapshot;

/// A gate, until it is stopped or dropped.
#[derive(Debug)]
pub struct Vantage {
    // Ends before what it changes.
    agent: Option<Agent>,
    daemon: Daemon,
    panel: Arc<Panel>,
    /// Where flows are kept, and what workers leave.
    keep: Option<(PathBuf, Arc<Mutex<Vec<u8>>>)>,
    restored: Option<io::Result<usize>>,
}

impl Vantage {
    /// Starts a gate by `config` in the network namespace of the calling thread. Where it names a
    /// distribution, the last bundle that is sound is in force.
    ///
    /// # Errors
    ///
    /// [`StartError`]; nothing is left behind then.
    pub fn start(config: &Config) -> Result<Self, StartError> {
        let system = |doing| move |source| StartError::System { doing, source };
        let router = config.router();
        present(&router, &by_name)?;
        let sound = |bundle: &Arc<distribution::Bundle>| {
            Config::load_over(&config.path, Some(bundle)).map_err(|error| error.to_string())
        };
        let settings = config.fixed.distribution.as_ref();
        let initial = settings.map(|settings| distribution::start(settings, sound));
        let initial = initial.transpose().map_err(io::Error::other);
        let initial = initial.map_err(system("begin with the bundles that are kept"))?;
        let (initial, over, said) = match initial {
            Some((initial, over, said)) => (Some(initial), over, said),
            None => (None, None, Vec::new()),
        };
        let config = over.as_ref().unwrap_or(config);
        let fixed = &config.fixed;
        let back = addresses(&fixed.back.name).map_err(system("list the addresses"))?;
        let front = addresses(&fixed.front.name).map_err(system("list the addresses"))?;
        let from4 = fixed.address4.or_else(|| back.iter().find_map(v4));
        let from6 = fixed.address6.or_else(|| back.iter().find_map(v6));
        let has = |six: bool| {
            config.rules.grantors().any(|grantor| matches!(grantor, Address::V6(_)) == six)
        };
        for (missing, family) in
            [(has(false) && from4.is_none(), "IPv4"), (has(true) && from6.is_none(), "IPv6")]
        {
            if missing {
                return Err(StartError::NoTunnelEnd { interface: fixed.back.name.clone(), family });
            }
        }
        let policy = config.rules.policy(1).map_err(|bad| StartError::System {
            doing: "make the policy",
            source: io::Error::other(bad),
        })?;
        let policy = Publisher::new(policy);
        let workers = fixed.cores.len();
        let software = workers > 1 && fixed.steering == SteeredBy::Software;
        let (mut ends, mut decide, mut talks) = (Vec::new(), Vec::new(), Vec::new());
        let (mut tellers, mut samples) = (Vec::new(), Vec::new());
        for (its, theirs) in (0..workers).map(|_| rings()) {
            decide.push(its.decisions);
            tellers.push(its.early);
            talks.push(its.talk);
            samples.push(its.samples);
            ends.push(theirs);
        }
        let listen: Vec<IpAddr> = [
            from4.map(|address| IpAddr::V4(address.into())),
            from6.map(|address| IpAddr::V6(address.into())),
        ]
        .into_iter()
        .flatten()
        .collect();
        let name = &fixed.back.name;
        let keys = Publisher::new(TunnelKeys::default());
        let mut key_readers: Vec<_> = (0..workers).map(|_| keys.reader()).collect();
        let session = Session { number: random::word().max(1), keys };
        let writer = Writer::new(tellers, policy.reader(), fixed.early);
        let programs = Publisher::new(config.programs.clone());
        let mut program_readers: Vec<_> = (0..workers).map(|_| programs.reader()).collect();
        let (shelf, desk) =
            Shelf::start(programs, config).map_err(system("start the verifier's thread"))?;
        let decisions =
            Decisions::start(listen, name, &config.trust, decide, writer, desk, session)
                .map_err(system("listen for decisions"))?;
        let tallies: Vec<_> = (0..workers).map(|_| Arc::new(Tally::default())).collect();
        let mut readers: Vec<_> = (0..workers).map(|_| policy.reader()).collect();
        let secrets = Publisher::new(Secrets::new(Secret::random()));
        let mut secret_readers: Vec<_> = (0..workers).map(|_| secrets.reader()).collect();
        let panel = Panel::new(config, policy, shelf, tallies.clone(), talks, decisions);
        let panel = panel.map_err(io::Error::other).map_err(system("make the candidate"))?;
        let panel = Arc::new(panel.with_samples(samples).with_secrets(secrets));

        let key = Key::random();
        let left = fixed.keep.as_ref().map(|_| Arc::<Mutex<Vec<u8>>>::default());
        let read = fixed.keep.as_ref().map(|path| retained::read(path, workers));
        let (mut known, restored) = match read {
            None => (vec![Vec::new(); workers], None),
            Some(Ok(mut known)) => {
                // Of a sender that is gone nothing is left.
                let known_sender = |flow: &Retained| {
                    let sender = flow.1.stamp().sender;
                    sender == 0 || config.trust.senders.iter().any(|(id, _)| *id == sender)
                };
                known.iter_mut().for_each(|known| known.retain(known_sender));
                let count = known.iter().map(Vec::len).sum::<usize>();
                // Another key, other owners: each takes its own out of all.
                let known = if software { vec![known.concat(); workers] } else { known };
                (known, Some(Ok(count)))
            }
            Some(Err(error)) => (vec![Vec::new(); workers], Some(Err(error))),
        };
        let overhead = fixed.between() + if has(true) { 40 } else { 20 };
        let sharing = if software { handover::ends(workers, handover::BYTES) } else { Ok(vec![]) };
        let (mut givers, mut handed): (VecDeque<_>, VecDeque<_>) =
            sharing.map_err(system("make what workers hand packets over by"))?.into_iter().unzip();
        let mut make = |worker: usize, interfaces: &[Interface]| -> Option<WorkerHook> {
            let link = interfaces.get(BACK).map_or(1500, |it| it.mtu().min(u16::MAX.into()));
            let hook = Box::new(GateHook::new(Setup {
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
                ends: ends.remove(0),
                steering: givers.pop_front().map(|giver| Steering::new(worker, workers, giver)),
                tally: Arc::clone(&tallies[worker]),
                retained: std::mem::take(&mut known[worker]),
                leave: left.as_ref().map(|left| (worker as u32, Arc::clone(left))),
                clock: Box::new(early::now),
            }));
            let behind = |first: &Interface| (first.mac(), first.mtu());
            let (mac, mtu) = interfaces.get(FRONT).map_or(([0; 6], 1500), behind);
            let handed = handed.pop_front().map(|port: Handed| port.behind(mac, mtu));
            Some(WorkerHook { hook, handed: handed.map(|port| Box::new(port) as Box<dyn Port>) })
        };
        let hooks = HookFactory { frames: places(fixed) as u32, make: &mut make };
        let role = Role::Gate(Arc::clone(&panel));
        let guard = Guard { role, hooks };
        let daemon = Daemon::start_guarded(router, guard)?;
        // At work: what is in the file from now on would be out of date.
        let restored = restored.map(|restored| {
            let path = fixed.keep.as_deref().filter(|_| matches!(restored, Ok(1..)));
            path.map_or(Ok(()), std::fs::remove_file).and(restored)
        });
        if let Some(front) = daemon.interfaces().get(FRONT) {
            panel.set_front(front);
        }
        let agent = match (settings, initial, panel.agent_status()) {
            (Some(settings), Some(initial), Some(agent_status)) => {
                agent_status.queue_messages(said);
                let (member, status) = (Arc::clone(&panel), Arc::clone(agent_status));
                let agent = Agent::start(settings, initial, member, status, daemon.asker().clone());
                Some(agent.map_err(system("start who takes bundles over"))?)
            }
            _ => None,
        };
        Ok(Self { agent, daemon, panel, keep: fixed.keep.clone().zip(left), restored })
    }

    /// Does what clients want done, and looks after the grantors; to be called some times a
    /// second. Returns what an operator should know.
    pub fn attend(&mut self) -> Vec<String> {
        self.daemon.attend();
        self.panel.compare();
        self.panel.rotate_secrets(Instant::now());
        self.panel.look_after_grantors();
        let mut lines = self.panel.news_of_programs();
        lines.extend(self.daemon.news());
        lines.extend(
            self.panel.agent_status().map(|status| status.drain_messages()).unwrap_or_default(),
        );
        lines
    }

    /// Reads the configuration again, and goes over to the policy and the senders in it.
    ///
    /// # Errors
    ///
    /// [`Unchanged`]: what there was before is in force.
    pub fn reload(&self) -> Result<String, Unchanged> {
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

    /// Describes the gate.
    pub fn told(&self) -> super::told::GateTold {
        self.panel.gate()
    }

    /// Returns why interfaces do not work as ports, of each that does not.
    pub fn problems(&self) -> Vec<String> {
        self.daemon.problems()
    }

    /// Says whether all threads are at work.
    pub fn alive(&self) -> bool {
        self.daemon.alive() && self.panel.alive()
    }

    /// Returns what the progress of its threads is seen by.
    pub fn progress(&self) -> Progress {
        self.daemon.progress().with([self.panel.turns()])
    }

    /// Says how many flows there were from before, or why none; nothing where none are kept.
    pub fn restored(&self) -> Option<&io::Result<usize>> {
        self.restored.as_ref()
    }

    /// Keeps the flows in their file, the gate being stopped; says how many.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn keep(&mut self) -> Option<io::Result<usize>> {
        let (path, left) = self.keep.take()?;
        let flows = left.lock().unwrap_or_else(PoisonError::into_inner);
        Some(retained::write(&path, &flows))
    }

    /// Stops everything but what shows the counters, which are final afterwards; says
    /// whether all ended as they should.
    pub fn stop(&mut self) -> bool {
        self.agent = None;
        self.daemon.stop()
    }
}

/// Lists the addresses of an interface that others can reach.
fn addresses(name: &str) -> io::Result<Vec<IpAddr>> {
    let mine = getifaddrs()?.filter(|it| it.interface_name == name);
    let all = mine.filter_map(|it| it.address).filter_map(|address| {
        let four = address.as_sockaddr_in().map(|it| IpAddr::V4(it.ip()));
        four.or_else(|| address.as_sockaddr_in6().map(|it| IpAddr::V6(it.ip())))
    });
    let link_local = |it: &IpAddr| match it {
        IpAddr::V4(it) => it.is_link_local(),
        IpAddr::V6(it) => it.is_unicast_link_local(),
    };
    Ok(all.filter(|it| !link_local(it)).collect())
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
