//! The access lists: which ports the lists of the configuration examine, as ports come and go.
//!
//! ```text
//!   config::AccessListConfig ─► ActiveList: compiled, with counters ─┐
//!   interface names ─► ports, VLAN devices, bonds ─► port numbers ───┴─► AccessLists, published
//! ```
//!
//! Lists are published before the settings of ports, so that no packet of a new device passes its list. A
//! list of the configuration that has not changed keeps its state; a changed one continues the counters of
//! its equal rules (`acl::InstalledList`).

use std::sync::Arc;

use acl::{AccessList, InstalledList};
use config::{AccessListConfig, FLOWSPEC_LIST};
use datapath::{AccessLists, AppliedList, FIRST_STACKED};
use fib::{Full, Publisher, Reader};

use super::{Plane, PlanePort, Ports};

/// A list of the configuration, compiled, with its state.
#[derive(Clone, Debug)]
pub struct ActiveList {
    /// The list as configured.
    pub config: Arc<AccessListConfig>,
    /// The list that workers use.
    pub installed: Arc<InstalledList>,
    workers: usize,
}

impl ActiveList {
    /// Compiles the lists of a configuration for this number of workers; they replace those of `before`
    /// with the same names.
    ///
    /// # Errors
    ///
    /// [`Full`], if a table has no room for the prefixes of a list.
    pub fn compile(
        configs: &[AccessListConfig],
        before: &[Self],
        workers: usize,
    ) -> Result<Vec<Self>, Full> {
        let compile = |config: &AccessListConfig| {
            let before = before.iter().find(|list| list.config.name == config.name);
            let is_same = |before: &&Self| {
                let AccessListConfig { name: _, permits, rules, inbound: _, outbound: _ } = config;
                let old = &before.config;
                before.workers == workers && old.permits == *permits && old.rules == *rules
            };
            let installed = match before.filter(is_same) {
                Some(same) => Arc::clone(&same.installed),
                None => {
                    let AccessListConfig { name, permits, rules, .. } = config;
                    let list = Arc::new(AccessList::build(name, *permits, rules.clone())?);
                    Arc::new(match before {
                        Some(before) => InstalledList::replacing(list, workers, &before.installed),
                        None => InstalledList::new(list, workers),
                    })
                }
            };
            Ok(Self { config: Arc::new(config.clone()), installed, workers })
        };
        configs.iter().map(compile).collect()
    }
}

/// The lists of a plane.
#[derive(Debug)]
pub(super) struct PlaneAccess {
    lists: Vec<ActiveList>,
    publisher: Publisher<AccessLists>,
    /// The published lists may be others.
    is_stale: bool,
}

impl PlaneAccess {
    pub(super) fn new() -> Self {
        let publisher = Publisher::new(AccessLists::default());
        Self { lists: Vec::new(), publisher, is_stale: false }
    }

    pub(super) fn reader(&self) -> Reader<AccessLists> {
        self.publisher.reader()
    }

    pub(super) fn lists(&self) -> &[ActiveList] {
        &self.lists
    }

    /// Returns whether any list may examine packets.
    pub(super) fn has_lists(&self) -> bool {
        self.lists.iter().any(|list| !is_idle(&list.config))
    }

    /// Replaces the lists; the next publication has them.
    pub(super) fn set(&mut self, lists: Vec<ActiveList>) {
        self.lists = lists;
        self.is_stale = true;
    }

    /// Publishes the lists for the present ports, if one of both has changed.
    pub(super) fn publish(&mut self, ports: &Ports, ports_changed: bool) {
        self.publisher.reclaim();
        if !self.is_stale && (!ports_changed || self.lists.is_empty()) {
            return;
        }
        self.is_stale = false;
        let lists = self.applied(ports, |list| Arc::clone(&list.installed));
        self.publisher.publish(Box::new(lists));
    }

    /// Returns copies of the lists for one worker, with counters and policers of their own.
    pub(super) fn separate(&self, ports: &Ports) -> AccessLists {
        self.applied(ports, |list| Arc::new(list.installed.separate()))
    }

    /// Returns the lists for the present ports, installed as `installed` returns.
    fn applied(
        &self,
        ports: &Ports,
        installed: impl Fn(&ActiveList) -> Arc<InstalledList>,
    ) -> AccessLists {
        let plain = |name: &str| ports.named(name).filter(|number| *number < FIRST_STACKED);
        let applied = self.lists.iter().map(|list| AppliedList::new(installed(list), plain));
        let numbers = |names: fn(&AccessListConfig) -> &[String]| {
            let lists = (0..).zip(&self.lists).filter(move |(_, list)| !is_idle(&list.config));
            lists.flat_map(move |(at, list)| {
                let names = names(&list.config).iter();
                names.filter_map(move |name| Some((ports.named(name)?, at)))
            })
        };
        let inbound = numbers(|config| &config.inbound);
        let outbound = numbers(|config| &config.outbound);
        AccessLists::new(applied.collect(), inbound, outbound)
    }
}

impl Plane {
    /// Returns a reader of the access lists, for a worker.
    pub fn access_lists(&self) -> Reader<AccessLists> {
        self.access.reader()
    }

    /// Returns copies of the access lists for one worker, with counters and policers of their own.
    pub(crate) fn separate_access_lists(&self) -> AccessLists {
        self.access.separate(&self.ports)
    }

    /// Returns the access lists.
    pub fn active_lists(&self) -> &[ActiveList] {
        self.access.lists()
    }

    /// Replaces the access lists; the next commit publishes them.
    pub fn set_active_lists(&mut self, lists: Vec<ActiveList>) {
        self.access.set(lists);
    }
}

impl Ports {
    /// Returns the number of the port or stacked device with a name, its own or the configured one.
    pub fn named(&self, name: &str) -> Option<u16> {
        let is_named = |port: &PlanePort| port.name == name || port.configured == name;
        self.all().find(|(_, port)| is_named(port)).map(|(number, _)| number)
    }
}

/// Returns whether no packet is examined by a list: that of flow specifications while there are none.
fn is_idle(config: &AccessListConfig) -> bool {
    config.name == FLOWSPEC_LIST && config.rules.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(rules: &[&str], inbound: &str) -> AccessListConfig {
        AccessListConfig {
            name: "edge".into(),
            permits: true,
            rules: rules.iter().map(|text| acl::Rule::parse(text, &|_| None).unwrap()).collect(),
            inbound: vec![inbound.into()],
            outbound: Vec::new(),
        }
    }

    #[test]
    fn unchanged_list_keeps_its_state_and_changed_one_its_counters() {
        let first = ActiveList::compile(&[config(&["count", "deny"], "a")], &[], 2).unwrap();
        first[0].installed.counters(1).unwrap().count(1, 60);
        let moved = ActiveList::compile(&[config(&["count", "deny"], "b")], &first, 2).unwrap();
        assert!(Arc::ptr_eq(&first[0].installed, &moved[0].installed));
        assert_eq!(moved[0].config.inbound, ["b"]);
        for workers in [2, 3] {
            let configs = [config(&["deny"], "b")];
            let changed = ActiveList::compile(&configs, &moved, workers).unwrap();
            assert!(!Arc::ptr_eq(&moved[0].installed, &changed[0].installed));
            assert!(changed[0].installed.counters(workers - 1).is_some());
            let packets = changed[0].installed.counts().into_iter().map(|count| count.packets);
            assert_eq!(packets.collect::<Vec<_>>(), [1, 0]);
        }
    }

    #[test]
    fn lists_are_those_of_ports_by_their_own_and_their_configured_name() {
        let mut renamed = PlanePort::new(3, "old");
        renamed.name = "new".into();
        let ports = Ports::new([PlanePort::new(2, "a"), renamed]);
        assert_eq!(
            ["a", "old", "new", "b"].map(|name| ports.named(name)),
            [Some(0), Some(1), Some(1), None]
        );
    }
}
