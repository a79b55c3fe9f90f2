//! The reload: from one configuration to another, without losing a packet.
//!
//! A name in the configuration means the device of that name. If there is no such device, and the
//! device that it meant until now was renamed, it goes on meaning that one: a file that was not
//! changed is as good after the renaming as before.
//!
//! What only says how a port judges its packets (`sources`, `observe`) is changed where it
//! is. For anything else a second router is made beside the first, and takes over:
//!
//! ```text
//!   new configuration ─► a plane of its own, filled by a dump of its own     (seconds)
//!   ───────────────── workers stop ── kernel forwards ── workers start ──── (milliseconds)
//!                       │ ports take no more,            │ sockets bound anew,
//!                       │ what they had is sent          │ interfaces that stay are kept
//!   the old plane goes; FRR's connection and the questions are taken over
//! ```
//!
//! While no socket is bound the steering program leaves every packet to the kernel, which
//! forwards by the same routes: that is what makes it possible to change ports, tables,
//! engines and the number of workers alike, by the path on which a router starts. Packets
//! may be overtaken by others in that moment.
//!
//! What can fail is done first where that can be. If the new workers do not start, those
//! of the old configuration do again. The counters go on.
//!
//! Limits: with FRR's routes by FPM no change is taken over while its routes are told to the
//! new plane (about a second for a full table). Where the control socket is, where
//! metrics are, and whether FRR is listened to are fixed for the life of the process.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use port::af_xdp::Interface;

use super::control::Control;
use super::{Daemon, by_name, learn, publish, readers, system, table};
use crate::devices::Devices;
use crate::kernel_sync::KernelSync;
use crate::plane::{Plane, PlanePort};
use crate::start::{StartError, Started, Unserved, open, open_one, present, wanted_queues};
use crate::view::Seen;
use config::{self, ChangedKeys, Config, ConfigError, ReloadClass};
use datapath::WantReceiver;

/// How often it is asked whether rules have changed.
const LOOK: Duration = Duration::from_secs(1);
/// The longest delay before a change of rules that did not last is tried again.
const AGAIN: Duration = Duration::from_secs(30);

/// What a reload came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Says whether the workers were replaced; if not, they went on.
    pub replaced: bool,
    /// Interfaces that are new.
    pub added: Vec<String>,
    /// Interfaces that are no longer the router's.
    pub removed: Vec<String>,
    /// Interfaces of which something else has changed.
    pub changed: Vec<String>,
    /// Keys whose new values the workers use without being replaced.
    pub applied: Vec<&'static str>,
    /// Keys whose new values need other workers.
    pub replacing: Vec<&'static str>,
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (what, names) in
            [("added", &self.added), ("removed", &self.removed), ("changed", &self.changed)]
        {
            if !names.is_empty() {
                parts.push(format!("{what} {}", names.join(", ")));
            }
        }
        if !self.applied.is_empty() {
            parts.push(format!("applied {}", self.applied.join(", ")));
        }
        match (self.replaced, &self.replacing[..]) {
            (false, _) => {}
            (true, []) => parts.push("workers replaced".to_owned()),
            (true, keys) => parts.push(format!("workers replaced ({})", keys.join(", "))),
        }
        if parts.is_empty() {
            parts.push("nothing to change".to_owned());
        }
        f.write_str(&parts.join("; "))
    }
}

/// Says why a configuration was not gone over to.
#[derive(Debug)]
pub enum ReloadError {
    /// It is not sound; what was there works on.
    Config(ConfigError),
    /// These keys cannot be changed in a router at work; what was there works on.
    Fixed {
        /// The keys.
        keys: Vec<&'static str>,
    },
    /// A router by it does not start; what was there works on.
    Start(StartError),
    /// It does not start, and what was there does not either: the router is at its end.
    Lost {
        /// What was wrong with the new one.
        new: Box<StartError>,
        /// What was wrong with the old one.
        old: Box<StartError>,
    },
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Fixed { keys } => write!(
                f,
                "{} cannot be changed while the router runs: restart it, or restore the old value",
                keys.join(", ")
            ),
            Self::Start(error) => error.fmt(f),
            Self::Lost { new, old } => {
                write!(f, "{new}; and the old configuration does not start again: {old}")
            }
        }
    }
}

impl std::error::Error for ReloadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Config(error) => Some(error),
            Self::Fixed { .. } => None,
            Self::Start(error) => Some(error),
            Self::Lost { new, .. } => Some(new),
        }
    }
}

impl Daemon {
    /// Reads the configuration's file again and goes over to what it says.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]; but for [`ReloadError::Lost`] everything is as it was.
    pub fn reload(&mut self) -> Result<Reloaded, ReloadError> {
        let config = Config::load(&self.config.path).map_err(ReloadError::Config)?;
        self.change(config)
    }

    /// Goes over to a configuration.
    ///
    /// # Errors
    ///
    /// As [`reload`](Self::reload).
    pub fn change(&mut self, config: Config) -> Result<Reloaded, ReloadError> {
        let changed = self.config.changed_keys(&config);
        let keys = changed.of(ReloadClass::NeedsRestart);
        if !keys.is_empty() {
            return Err(ReloadError::Fixed { keys });
        }
        let mut changes = compare(&self.config, &config, &changed);
        for name in self.stale(&config) {
            changes.replaced = true;
            if !changes.added.contains(&name) && !changes.changed.contains(&name) {
                changes.changed.push(name);
            }
        }
        if changes.replaced {
            self.replace(config)?;
        } else if !changes.changed.is_empty() {
            self.adjust(config).map_err(ReloadError::Start)?;
        } else {
            self.config = config;
        }
        Ok(changes)
    }

    /// Changes to the tables that the kernel's rules lead to, if they have changed; checked once a
    /// second. After a failure it tries again, after twice as long each time.
    pub(super) fn follow_rules(&mut self) -> Option<Result<Reloaded, ReloadError>> {
        let due = AGAIN.min(LOOK * 2u32.saturating_pow(self.rules_tried));
        if self.rules_looked.elapsed() < due {
            return None;
        }
        self.rules_looked = Instant::now();
        // Packets that the kernel failed to deliver are known after two reads.
        for interface in self.view.interfaces() {
            let _ = interface.stats();
        }
        let moved = self.handle.call(|it| it.plane.ports().iter().any(PlanePort::has_moved));
        if moved != Some(true) {
            self.rules_tried = 0;
            return None;
        }
        self.rules_tried += 1;
        Some(self.change(self.config.clone()))
    }

    /// Lists the interfaces whose names in `config` mean other devices than those that are
    /// held, or that the rules lead to other tables.
    fn stale(&self, config: &Config) -> Vec<String> {
        let Some(ports) = self.handle.call(|it| it.plane.ports().clone()) else {
            return Vec::new();
        };
        let held = self.view.interfaces();
        let stale = |wanted: &&config::Interface| {
            let Ok(index) = self.index_of(&wanted.name) else { return true };
            let moved = ports.get(index).is_some_and(PlanePort::has_moved);
            let served = self.view.ports().iter().any(|port| port.index == index);
            moved || !served || held.iter().all(|interface| interface.index() != index)
        };
        config.interfaces.iter().filter(stale).map(|wanted| wanted.name.clone()).collect()
    }

    /// Finds the device that a name in a configuration means: the one of that name, or else the
    /// one that it meant before and that was renamed since.
    fn index_of(&self, name: &str) -> io::Result<u32> {
        by_name(name).or_else(|error| {
            let at = self.config.interfaces.iter().position(|wanted| wanted.name == name);
            let index = at.and_then(|at| Some(self.view.interfaces().get(at)?.index()));
            let there = index.filter(|index| nix::net::if_::if_indextoname(*index).is_ok());
            there.ok_or(error)
        })
    }

    /// Changes what ports judge by, where they are.
    fn adjust(&mut self, config: Config) -> Result<(), StartError> {
        for (interface, wanted) in self.view.interfaces().iter().zip(&config.interfaces) {
            interface.observe(wanted.observe).map_err(system("observe an interface"))?;
        }
        let sources: Vec<_> = config.interfaces.iter().map(|it| it.sources).collect();
        self.handle.call(move |following| following.plane.set_sources(&sources));
        self.config = config;
        Ok(())
    }

    /// Puts a router by `config` in the place of what is there.
    fn replace(&mut self, config: Config) -> Result<(), ReloadError> {
        let index_of = |name: &str| self.index_of(name);
        present(&config, &index_of).map_err(ReloadError::Start)?;
        let (mut plane, kernel) = learn(&config, &index_of).map_err(ReloadError::Start)?;
        let locals = plane.locals().into_iter().collect();
        // Interfaces that nobody has can be taken over beside the others.
        let held = self.view.interfaces();
        let mut kept = Vec::new();
        for (wanted, port) in config.interfaces.iter().zip(plane.ports().iter()) {
            match held.iter().find(|one| one.index() == port.interface) {
                Some(one) if stays(one, wanted, &config) => kept.push(one.clone()),
                Some(_) => {}
                None => {
                    let one = open_one(&config, wanted, &locals);
                    kept.push(one.map_err(ReloadError::Start)?);
                }
            }
        }
        drop(held);

        let Some(control) = self.control.take() else { return Ok(()) };
        let Some((mut before, requests)) = control.stop() else { return Ok(()) };
        // FRR would not say again what it has said.
        if let Some(fpm) = before.fpm_feed() {
            fpm.report_routes(&mut plane);
            if let Err(error) = publish(&mut plane) {
                self.control = Control::start(before, requests, &self.turns).ok();
                return Err(ReloadError::Start(error));
            }
        }
        self.remains = self.workers.suspend();
        // Interfaces that do not stay are given back here.
        before.set_ports(Vec::new(), Vec::new());
        let devices = self.view.device_states();
        self.view.show(Seen { stats: self.view.counting(), devices, ..Seen::default() });
        let (following, result) = match self.engage(&config, &plane, kept.clone()) {
            Ok((interfaces, wanted)) => {
                self.config = config;
                let fpm = before.take_fpm();
                let guards = self.role.is_guard();
                let devices = Devices::new(interfaces, self.view.device_states(), guards);
                let mut following = KernelSync::new(plane, kernel, fpm, devices, wanted);
                // Whoever listens goes on listening.
                following.succeed(&mut before);
                (following, Ok(()))
            }
            Err(new) => {
                let old = self.config.clone();
                match self.engage(&old, &before.plane, kept) {
                    Ok((interfaces, wanted)) => {
                        before.set_ports(interfaces, wanted);
                        (before, Err(ReloadError::Start(new)))
                    }
                    Err(old) => {
                        let (new, old) = (Box::new(new), Box::new(old));
                        return Err(ReloadError::Lost { new, old });
                    }
                }
            }
        };
        let control = Control::start(following, requests, &self.turns)
            .map_err(system("start the control thread"));
        self.control = Some(control.map_err(ReloadError::Start)?);
        result
    }

    /// Opens the interfaces of `config` that are not among `kept`, and starts workers that
    /// read what `plane` publishes.
    fn engage(
        &mut self,
        config: &Config,
        plane: &Plane,
        kept: Vec<Interface>,
    ) -> Result<(Vec<Interface>, Vec<WantReceiver>), StartError> {
        let locals = plane.locals().into_iter().collect();
        let interfaces = open(config, plane.ports(), &locals, kept)?;
        let its = || readers(plane);
        let started = self.start_workers(config, &interfaces, its, Unserved::Refuse)?;
        let Started { workers, ports, wanted, stats, mtu } = started;
        self.workers = workers;
        self.remaking.set_mtu(mtu);
        let (table, devices) = (table(plane), self.view.device_states());
        self.view.show(Seen { stats, ports, interfaces: interfaces.clone(), table, devices });
        Ok((interfaces, wanted))
    }
}

/// Returns whether an interface that is held is opened as `wanted` wants it.
fn stays(interface: &Interface, wanted: &config::Interface, config: &Config) -> bool {
    // By the name that it has now: the configuration's may be an older one.
    let named = config::Interface { name: interface.name(), ..wanted.clone() };
    let queues = wanted_queues(config, &named).ok();
    wanted.mode == interface.choice()
        && queues == Some(interface.queues())
        && interface.is_attached()
}

/// Compares two configurations: which interfaces differ, which keys, and whether other workers are
/// needed.
fn compare(old: &Config, new: &Config, keys: &ChangedKeys) -> Reloaded {
    let names = |config: &Config| -> Vec<String> {
        config.interfaces.iter().map(|interface| interface.name.clone()).collect()
    };
    let (before, after) = (names(old), names(new));
    let has_changed = |interface: &&config::Interface| {
        let old = old.interfaces.iter().find(|old| old.name == interface.name);
        old.is_some_and(|old| old != *interface)
    };
    let changed = new.interfaces.iter().filter(has_changed);
    let replacing = keys.of(ReloadClass::ReplacesWorkers);
    Reloaded {
        replaced: !replacing.is_empty(),
        added: after.iter().filter(|name| !before.contains(name)).cloned().collect(),
        removed: before.iter().filter(|name| !after.contains(name)).cloned().collect(),
        changed: changed.map(|interface| interface.name.clone()).collect(),
        applied: keys.of(ReloadClass::Live),
        replacing,
    }
}
