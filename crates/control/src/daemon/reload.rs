//! The reload: a change from one configuration to another without packet loss.
//!
//! A name in the configuration refers to the device of that name. If there is no such device, and
//! the device to which the name referred before was renamed, it still refers to that device: an
//! unchanged file stays valid after the renaming.
//!
//! The keys that only control how a port checks its packets (`rpf`, `observe`) are changed in
//! place. If a key needs other workers, the daemon builds a second router beside the first, which
//! then replaces it:
//!
//! ```text
//!   new configuration ─► a plane of its own, filled by a dump of its own     (seconds)
//!   ───────────────── workers stop ── kernel forwards ── workers start ──── (milliseconds)
//!                       │ ports receive no more,         │ sockets are bound again,
//!                       │ received packets are sent      │ unchanged interfaces are kept
//!   the old plane is dropped; FRR's connection and the query channel pass to the new one
//! ```
//!
//! While no socket is bound, the steering program leaves every packet to the kernel, which forwards
//! by the same routes. Therefore one code path, that of a start, can change ports, tables, engines
//! and the number of workers. Packets may be reordered in that moment.
//!
//! Steps that can fail come first where possible. If the new workers do not start, workers of the
//! old configuration start again. The counters continue.
//!
//! Static routes are read again from their files, and the tables are changed in place
//! (`static_routes.rs`); a second router has tables of its own, built from the files.
//!
//! Limits: with FRR's routes by FPM, the router applies no route change while the daemon reports
//! FRR's routes to the new plane (about a second for a full table). The control socket, the metrics
//! listener and the FPM listener are fixed for the life of the process.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use port::af_xdp::Interface;

use super::control;
use super::flows::LISTEN_BGP;
use super::{Daemon, Prepared, by_name, compile, learn, publish, readers, system, table};
use crate::block_lists::{self, BlockListThread, BlockState};
use crate::devices::Devices;
use crate::kernel_sync::KernelSync;
use crate::plane::{ActiveList, Plane, PlanePort};
use crate::start::{StartError, Started, Unserved, open, open_one, present, wanted_queues};
use crate::view::Seen;
use config::{self, BlockConfig, ChangedKeys, Config, ConfigError, ReloadClass};
use datapath::WantReceiver;

/// The interval between checks for changed rules.
const LOOK: Duration = Duration::from_secs(1);
/// The longest delay before the daemon tries again to apply changed rules after a failure.
const AGAIN: Duration = Duration::from_secs(30);

/// The result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Whether the workers were replaced; if not, they continued to run.
    pub replaced: bool,
    /// Interfaces that the new configuration adds.
    pub added: Vec<String>,
    /// Interfaces that it removes.
    pub removed: Vec<String>,
    /// Interfaces whose configuration, device or routing table has changed.
    pub changed: Vec<String>,
    /// Keys whose new values the workers use without being replaced.
    pub applied: Vec<&'static str>,
    /// Keys whose new values need new workers.
    pub replacing: Vec<&'static str>,
    /// The number of static routes that were added, changed or removed in place.
    pub routes: u64,
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
        match self.routes {
            0 => {}
            1 => parts.push("1 route changed".to_owned()),
            routes => parts.push(format!("{routes} routes changed")),
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

/// The error of a reload.
#[derive(Debug)]
pub enum ReloadError {
    /// The configuration is invalid; the old one stays in force.
    Config(ConfigError),
    /// These keys cannot change in a running router; the old configuration stays in force.
    Fixed {
        /// The keys.
        keys: Vec<&'static str>,
    },
    /// The new configuration does not start; the old one stays in force.
    Start(StartError),
    /// Neither the new configuration nor the old one starts: the router must end.
    Lost {
        /// The error of the new one.
        new: Box<StartError>,
        /// The error of the old one.
        old: Box<StartError>,
    },
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Fixed { keys } => f.write_str(&config::restart_message(keys, "router")),
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
    /// Reads the configuration file again and applies it.
    ///
    /// # Errors
    ///
    /// [`ReloadError`]; except after [`ReloadError::Lost`], the old configuration stays in force.
    pub fn reload(&mut self) -> Result<Reloaded, ReloadError> {
        let config = Config::load(&self.config.path).map_err(ReloadError::Config)?;
        self.change(config)
    }

    /// Applies a configuration.
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
        self.flows
            .follow(config.flowspec.as_ref())
            .map_err(system(LISTEN_BGP))
            .map_err(ReloadError::Start)?;
        let has_lists = config.block.is_some();
        let prepared = self.prepare_block_lists(config.block.as_ref());
        let applied = prepared.map_err(ReloadError::Start).and_then(|loaded| {
            let applied = self.apply(config, &changed)?;
            self.finish_block_lists(loaded, has_lists).map_err(ReloadError::Start)?;
            Ok(applied)
        });
        if applied.is_err() {
            self.flows.restore(self.config.flowspec.as_ref());
            if let (Some(block), true) = (&self.config.block, self.block_lists.is_some())
                && let Err(error) = self.block_handle.reconfigure(block)
            {
                log::error!("after a reload that failed: {error}");
            }
        }
        applied
    }

    /// Puts other block lists in place of the present ones; loads them if there are none.
    fn prepare_block_lists(
        &self,
        new: Option<&BlockConfig>,
    ) -> Result<Option<BlockState>, StartError> {
        match (&self.config.block, new) {
            (Some(_), Some(new)) => self.block_handle.reconfigure(new).map(|()| None),
            (None, Some(new)) => BlockState::load(new, Arc::clone(&self.view)).map(Some),
            (_, None) => Ok(None),
        }
    }

    /// Starts the lists that were loaded, or ends the present ones if there are to be none.
    fn finish_block_lists(
        &mut self,
        loaded: Option<BlockState>,
        has_lists: bool,
    ) -> Result<(), StartError> {
        let interfaces = self.view.interfaces();
        if let Some(state) = loaded {
            let thread = BlockListThread::start(state, &interfaces)?;
            self.block_handle.set(Some(&thread));
            self.block_lists = Some(thread);
        } else if !has_lists && self.block_lists.take().is_some() {
            self.block_handle.set(None);
            block_lists::detach(&interfaces).map_err(StartError::Port)?;
        }
        Ok(())
    }

    /// Applies a configuration whose keys need no restart, and whose speaker listens.
    fn apply(&mut self, config: Config, changed: &ChangedKeys) -> Result<Reloaded, ReloadError> {
        let mut changes = compare(&self.config, &config, changed);
        for name in self.stale(&config) {
            changes.replaced = true;
            if !changes.added.contains(&name) && !changes.changed.contains(&name) {
                changes.changed.push(name);
            }
        }
        if changes.replaced {
            self.replace(config)?;
            return Ok(changes);
        }
        let routes = self.read_routes(&config).map_err(ReloadError::Start)?;
        let lists =
            compile(&config, &self.flows, &self.active_lists()).map_err(ReloadError::Start)?;
        if changes.changed.is_empty() {
            self.config = config;
        } else {
            self.adjust(config).map_err(ReloadError::Start)?;
        }
        self.handle.call(move |sync| sync.plane.set_active_lists(lists));
        if let Some(routes) = routes {
            changes.routes = self.replace_routes(routes).map_err(ReloadError::Start)?;
        }
        Ok(changes)
    }

    /// Changes to the tables that the kernel's rules select, and follows those of new stacked devices, if they have
    /// changed; checks once a second. After a failure it tries again, with twice the delay each time.
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
        let moved = self.handle.call(|kernel_sync| {
            let ports = kernel_sync.plane.ports();
            ports.iter().any(PlanePort::has_moved) || !ports.without_table().is_empty()
        });
        if moved != Some(true) {
            self.rules_tried = 0;
            return None;
        }
        self.rules_tried += 1;
        Some(self.change(self.config.clone()))
    }

    /// Lists the interfaces whose names in `config` refer to other devices than the open ones, those for
    /// which the rules select another table, and the stacked devices whose table is not followed.
    fn stale(&self, config: &Config) -> Vec<String> {
        let Some(ports) = self.handle.call(|kernel_sync| kernel_sync.plane.ports().clone()) else {
            return Vec::new();
        };
        let held = self.view.interfaces();
        let stale = |wanted: &&config::Interface| {
            let Ok(index) = self.index_of(&wanted.name) else { return true };
            let moved = ports.get(index).is_some_and(PlanePort::has_moved);
            let served = self.view.ports().iter().any(|port| port.index == index);
            moved || !served || held.iter().all(|interface| interface.index() != index)
        };
        let stale = config.interfaces.iter().filter(stale).map(|wanted| wanted.name.clone());
        stale.chain(ports.without_table().iter().cloned()).collect()
    }

    /// Returns the access lists that workers use.
    pub(super) fn active_lists(&self) -> Vec<ActiveList> {
        let lists = self.handle.call(|sync| sync.plane.active_lists().to_vec());
        lists.unwrap_or_default()
    }

    /// Finds the device to which a name in a configuration refers: the one of that name, or else
    /// the one to which it referred before, which was renamed since.
    fn index_of(&self, name: &str) -> io::Result<u32> {
        by_name(name).or_else(|error| {
            let at = self.config.interfaces.iter().position(|wanted| wanted.name == name);
            let index = at.and_then(|at| Some(self.view.interfaces().get(at)?.index()));
            let there = index.filter(|index| nix::net::if_::if_indextoname(*index).is_ok());
            there.ok_or(error)
        })
    }

    /// Changes the packet checks of the ports in place.
    fn adjust(&mut self, config: Config) -> Result<(), StartError> {
        for (interface, wanted) in self.view.interfaces().iter().zip(&config.interfaces) {
            interface.observe(wanted.observe).map_err(system("observe an interface"))?;
        }
        let sources: Vec<_> = config.interfaces.iter().map(|interface| interface.sources).collect();
        self.handle.call(move |following| following.plane.set_sources(&sources));
        self.config = config;
        Ok(())
    }

    /// Replaces the running router by one with `config`.
    fn replace(&mut self, config: Config) -> Result<(), ReloadError> {
        let index_of = |name: &str| self.index_of(name);
        present(&config, self.role.forwards_stacked(), &index_of).map_err(ReloadError::Start)?;
        let learned =
            learn(&config, self.origin, &*self.role, &index_of).map_err(ReloadError::Start)?;
        let Prepared { mut plane, kernel, warnings } = learned;
        let lists =
            compile(&config, &self.flows, &self.active_lists()).map_err(ReloadError::Start)?;
        plane.set_active_lists(lists);
        publish(&mut plane).map_err(ReloadError::Start)?;
        self.warnings.extend(warnings);
        let locals = plane.locals().into_iter().collect();
        // Interfaces that are not open yet can be opened beside the others.
        let held = self.view.interfaces();
        let mut interfaces = Vec::new();
        for (wanted, port) in config.interfaces.iter().zip(plane.ports().iter()) {
            match held.iter().find(|one| one.index() == port.interface) {
                Some(one) if stays(one, wanted, &config) => interfaces.push(one.clone()),
                Some(_) => {}
                None => {
                    let one = open_one(&config, wanted, &locals, &mut None);
                    interfaces.push(one.map_err(ReloadError::Start)?);
                }
            }
        }
        drop(held);

        let Some(control) = self.control.take() else { return Ok(()) };
        let Ok((mut before, requests)) = control.stop() else { return Ok(()) };
        // FRR does not send its routes again.
        if let Some(fpm) = before.fpm_feed() {
            fpm.report_routes(&mut plane);
            if let Err(error) = publish(&mut plane) {
                self.control = control::start(before, requests, &self.turns).ok();
                return Err(ReloadError::Start(error));
            }
        }
        self.suspended = self.workers.suspend();
        // This closes the interfaces that the new configuration does not keep.
        for closing in self.view.interfaces() {
            if !interfaces.iter().any(|kept| kept.is_same(&closing)) {
                self.view.close(&closing);
            }
        }
        before.set_ports(Vec::new(), Vec::new());
        let devices = self.view.device_states();
        self.view.show(Seen { counters: self.view.counters(), devices, ..Seen::default() });
        let (following, result) = match self.engage(&config, &plane, interfaces.clone()) {
            Ok((interfaces, wanted)) => {
                self.config = config;
                let source = before.take_source();
                let guards = self.role.is_guard();
                let devices = Devices::new(interfaces, self.view.device_states(), guards);
                let mut following = KernelSync::new(plane, kernel, source, devices, wanted);
                // Subscribers of the control socket stay subscribed.
                following.succeed(&mut before);
                (following, Ok(()))
            }
            Err(new) => {
                let old = self.config.clone();
                match self.engage(&old, &before.plane, interfaces) {
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
        let control = control::start(following, requests, &self.turns)
            .map_err(system("start the control thread"));
        self.control = Some(control.map_err(ReloadError::Start)?);
        result
    }

    /// Opens the interfaces of `config` that are not among `kept`, and starts workers that read the
    /// published state of `plane`.
    fn engage(
        &mut self,
        config: &Config,
        plane: &Plane,
        kept: Vec<Interface>,
    ) -> Result<(Vec<Interface>, Vec<WantReceiver>), StartError> {
        let locals = plane.locals().into_iter().collect();
        let interfaces = open(config, plane.ports(), &locals, kept, &mut None)?;
        if let Some(block_lists) = &self.block_lists {
            block_lists.attach(&interfaces)?;
        }
        let its = || readers(plane);
        let started = self.start_workers(config, &interfaces, its, Unserved::Refuse)?;
        let Started { workers, ports, wanted, counters, mtu } = started;
        self.workers = workers;
        self.remaking.set_mtu(mtu);
        let (table, devices) = (table(plane), self.view.device_states());
        self.view.show(Seen { counters, ports, interfaces: interfaces.clone(), table, devices });
        Ok((interfaces, wanted))
    }
}

/// Returns whether an open interface already has the settings of `wanted`.
fn stays(interface: &Interface, wanted: &config::Interface, config: &Config) -> bool {
    // By its current name: the configuration may have an older one.
    let named = config::Interface { name: interface.name(), ..wanted.clone() };
    let queues = wanted_queues(config, &named).ok();
    wanted.mode == interface.choice()
        && wanted.queue_setup == interface.queue_setup()
        && queues == Some(interface.queues())
        && interface.is_attached()
}

/// Compares two configurations; returns the interfaces and keys that differ, and whether the change
/// needs new workers.
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
        routes: 0,
    }
}
