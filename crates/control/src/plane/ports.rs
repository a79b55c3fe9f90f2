//! The router's ports, as the kernel describes their links.
//!
//! A port is a device of the kernel, identified by its index: the configured name finds it at the
//! start and at a reload, and the port stays with the device when the device is renamed. A
//! port whose device is gone waits for a device with that name, or with the last name of the old
//! device, which replaces it ([`Ports::adopt`]).
//!
//! Until workers have sockets on the device, or where they can have none, packets that would
//! leave by the port are left to the kernel.

use feed::netlink::Link;

use super::policy::{RuleConflict, RuleResult};
use crate::links;
use config::MAIN;
use datapath::{Adjacency, ReversePathFilter};

/// A MAC-VLAN device that belongs to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortMacVlan {
    /// The index of its interface.
    pub interface: u32,
    /// Its MAC.
    pub mac: [u8; 6],
    /// The largest packet, in bytes.
    pub mtu: u16,
    /// Whether packets can leave by it: a virtual router that is a backup only receives.
    pub running: bool,
}

/// One port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanePort {
    /// The index of its interface.
    pub interface: u32,
    /// Its name.
    pub name: String,
    /// The name that it was configured by.
    pub configured: String,
    /// Its MAC.
    pub mac: [u8; 6],
    /// The largest packet, in bytes.
    pub mtu: u16,
    /// Whether it is up and running: packets can leave on it.
    pub up: bool,
    /// Whether it is administratively up.
    pub enabled: bool,
    /// The device is gone, and no other has taken its place.
    pub gone: bool,
    /// Workers have sockets on the device.
    pub served: bool,
    /// The reason that a device of this kind cannot be a port.
    pub unfit: Option<String>,
    /// The reason that it does not work as a port at the moment.
    pub problem: Option<String>,
    /// The index of the VRF, bridge or bond that it belongs to.
    pub master: Option<u32>,
    /// The kernel's table by which packets from it are forwarded.
    pub table: u32,
    /// Whether the kernel's rules select that table; otherwise the configuration does.
    pub follows_rules: bool,
    /// Whether the rules name a later table: packets without a route are punted to the host.
    pub further: bool,
    /// The table that the rules select, if it is another one.
    pub rule_conflict: Option<RuleConflict>,
    /// The kernel would forward its IPv4 packets, and its IPv6 packets, by another table than the
    /// configured one: none are punted to be forwarded.
    pub isolated: [bool; 2],
    /// The reverse path filter of its packets.
    pub sources: ReversePathFilter,
    /// The MAC-VLAN devices over it, which send and receive by it.
    pub macvlans: Vec<PortMacVlan>,
}

impl PlanePort {
    /// Makes the port of an interface whose link the kernel has not reported yet: it is down, and its
    /// table is the main one, which no rule selects.
    pub fn new(interface: u32, name: &str) -> Self {
        Self {
            interface,
            name: name.to_owned(),
            configured: name.to_owned(),
            mac: [0; 6],
            mtu: 0,
            up: false,
            enabled: false,
            gone: false,
            served: true,
            unfit: None,
            problem: None,
            master: None,
            table: MAIN,
            follows_rules: false,
            further: false,
            rule_conflict: None,
            isolated: [false; 2],
            sources: ReversePathFilter::Off,
            macvlans: Vec::new(),
        }
    }

    /// Lists the MACs of the MAC-VLAN devices over it.
    pub fn secondary_macs(&self) -> Vec<[u8; 6]> {
        self.macvlans.iter().map(|device| device.mac).collect()
    }

    /// Returns whether the rules now select another table, which a new plane would use.
    pub fn has_moved(&self) -> bool {
        let conflict = self.rule_conflict.as_ref().filter(|conflict| !conflict.v6);
        let result = conflict.map(|conflict| &conflict.result);
        matches!(result, Some(RuleResult::Table { number, .. }) if *number != self.table)
    }
}

/// The ports, in the order in which workers number them.
#[derive(Clone, Debug, Default)]
pub struct Ports(Vec<PlanePort>);

impl Ports {
    /// Takes the ports in the workers' order.
    pub fn new(ports: impl IntoIterator<Item = PlanePort>) -> Self {
        Self(ports.into_iter().collect())
    }

    /// Returns the port of an interface.
    pub fn get(&self, interface: u32) -> Option<&PlanePort> {
        self.0.iter().find(|port| port.interface == interface)
    }

    /// Returns whether packets to neighbors of an interface leave by a port: it is one, or a MAC-VLAN
    /// device over one.
    pub(super) fn leads_from(&self, interface: u32) -> bool {
        self.find(interface).is_some()
    }

    /// Iterates over the interfaces whose packets leave by a port.
    pub(super) fn interfaces(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|port| {
            let devices = port.macvlans.iter().map(|device| device.interface);
            std::iter::once(port.interface).chain(devices)
        })
    }

    /// Lists the kernel's tables that they belong to, the first port's first.
    pub(super) fn tables(&self) -> Vec<u32> {
        let mut numbers = Vec::new();
        for port in &self.0 {
            if !numbers.contains(&port.table) {
                numbers.push(port.table);
            }
        }
        numbers
    }

    /// Iterates over the ports in the workers' order.
    pub fn iter(&self) -> impl Iterator<Item = &PlanePort> {
        self.0.iter()
    }

    /// Returns the port at an index of the workers' order.
    pub(super) fn at_mut(&mut self, at: usize) -> Option<&mut PlanePort> {
        self.0.get_mut(at)
    }

    /// Returns whether a port waits for another device.
    pub fn has_gone(&self) -> bool {
        self.0.iter().any(|port| port.gone)
    }

    /// Assigns to ports whose device is gone the links with their names that belong to no port;
    /// returns whether it assigned any.
    pub(super) fn adopt<'l>(&mut self, links: impl Iterator<Item = (u32, &'l Link)>) -> bool {
        let mut adopted = false;
        for (index, link) in links {
            if self.get(index).is_some() {
                continue;
            }
            let named = |port: &&mut PlanePort| {
                port.gone && (port.configured == link.name || port.name == link.name)
            };
            let Some(port) = self.0.iter_mut().find(named) else { continue };
            (port.interface, port.gone, port.served) = (index, false, false);
            adopted = true;
            self.update(index, Some(link));
        }
        adopted
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut PlanePort> {
        self.0.iter_mut()
    }

    /// Changes the reverse path filters, in the workers' order.
    pub(super) fn set_sources(&mut self, sources: &[ReversePathFilter]) {
        for (port, sources) in self.0.iter_mut().zip(sources) {
            port.sources = *sources;
        }
    }

    /// Applies a link message of the kernel; returns whether a port has changed.
    pub(super) fn update(&mut self, interface: u32, link: Option<&Link>) -> bool {
        let Some(port) = self.0.iter_mut().find(|port| port.interface == interface) else {
            return false;
        };
        let mut next = port.clone();
        match link {
            Some(link) => {
                next.name.clone_from(&link.name);
                next.mac = link.mac.unwrap_or(next.mac);
                next.mtu = u16::try_from(link.mtu).unwrap_or(u16::MAX);
                next.up = link.up && link.running;
                next.enabled = link.up;
                next.master = link.master;
                next.unfit = links::unfit(link);
            }
            None => {
                (next.up, next.enabled, next.gone) = (false, false, true);
                next.master = None;
            }
        }
        let changed = *port != next;
        *port = next;
        changed
    }

    /// Returns the adjacency of a neighbor with a MAC behind an interface; the host's, if the
    /// interface is no port or is down.
    pub(super) fn adjacency(&self, interface: u32, mac: [u8; 6]) -> Adjacency {
        match self.find(interface) {
            Some(Exit { at, src_mac, mtu, usable: true }) => Adjacency::new(at, mac, src_mac, mtu),
            Some(exit) => Adjacency::HOST.behind(exit.at),
            None => Adjacency::HOST,
        }
    }

    /// Returns the adjacency of an unresolved neighbor behind an interface.
    pub(super) fn unresolved(&self, interface: u32) -> Adjacency {
        match self.find(interface) {
            Some(Exit { at, usable: true, .. }) => Adjacency::unresolved(at),
            Some(exit) => Adjacency::HOST.behind(exit.at),
            None => Adjacency::HOST,
        }
    }

    /// Finds the port by which packets leave from an interface.
    fn find(&self, interface: u32) -> Option<Exit> {
        self.0.iter().zip(0..).find_map(|(port, at)| {
            let usable = port.up && port.served;
            if port.interface == interface {
                return Some(Exit { at, src_mac: port.mac, mtu: port.mtu, usable });
            }
            let device = port.macvlans.iter().find(|device| device.interface == interface)?;
            let usable = usable && device.running;
            Some(Exit { at, src_mac: device.mac, mtu: device.mtu, usable })
        })
    }
}

/// The port by which packets leave from an interface, with the MAC and MTU of that interface.
struct Exit {
    /// The index of the port in the workers' order.
    at: u16,
    src_mac: [u8; 6],
    mtu: u16,
    /// Whether packets can leave now.
    usable: bool,
}
