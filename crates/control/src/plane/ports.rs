//! The router's ports, as the kernel describes their links.
//!
//! A port is a device of the kernel, identified by its index: the configured name finds it at the
//! start and at a reload, and the port stays with the device when the device is renamed. A
//! port whose device is gone waits for a device with that name, or with the last name of the old
//! device, which replaces it ([`Ports::adopt`]).
//!
//! Until workers have sockets on the device, or where they can have none, packets that would
//! leave by the port are left to the kernel.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use feed::netlink::{InterfaceSettings, Link};

use super::policy::{RuleConflict, RuleResult};
use crate::links;
use config::MAIN;
use datapath::{
    Adjacency, FIRST_STACKED, MOST_STACKED, ReversePathFilter, StackedDevice, VlanTable, VlanTag,
};

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

/// The VLAN of a port that is a VLAN device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortVlan {
    /// The index of the interface that it is over.
    pub over: u32,
    /// Its tags, the outer one first.
    pub tags: Vec<VlanTag>,
    /// The priorities of its packets, by that of their tag.
    pub priorities: [u8; 8],
    /// The MACs of the interfaces below, other than its own: frames to them are its, too.
    pub macs: Vec<[u8; 6]>,
}

/// The members of a port that is a bond.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortBond {
    /// The interfaces of those ports by which its packets leave.
    pub members: Vec<u32>,
}

/// A VLAN device that is left to Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftVlan {
    /// The interface of the port below.
    pub below: u32,
    /// Its name.
    pub name: String,
    /// The reason.
    pub reason: String,
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
    /// The reverse path filter of its packets; `None`: that of the kernel.
    pub sources: Option<ReversePathFilter>,
    /// The MAC-VLAN devices over it, which send and receive by it.
    pub macvlans: Vec<PortMacVlan>,
    /// Its VLAN, if it is a VLAN device: the port has no queues of its own.
    pub vlan: Option<PortVlan>,
    /// Its members, if it is a bond: the port has no queues of its own.
    pub bond: Option<PortBond>,
    /// Whether its master is a bond.
    pub is_bonded: bool,
    /// Whether it is an active member of that.
    pub is_active_member: bool,
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
            sources: None,
            macvlans: Vec::new(),
            vlan: None,
            bond: None,
            is_bonded: false,
            is_active_member: false,
        }
    }

    /// Returns whether it is a member, active or not, of the bond with this interface.
    pub(super) fn is_member_of(&self, bond: u32) -> bool {
        self.is_bonded && self.master == Some(bond)
    }

    /// Lists the MACs of the MAC-VLAN devices over it, and for a VLAN device those of the interfaces
    /// below.
    pub fn secondary_macs(&self) -> Vec<[u8; 6]> {
        let below = self.vlan.iter().flat_map(|vlan| vlan.macs.iter().copied());
        self.macvlans.iter().map(|device| device.mac).chain(below).collect()
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
pub struct Ports {
    ports: Vec<PlanePort>,
    /// The stacked devices by port number, from `FIRST_STACKED` on.
    stacked: Vec<Option<PlanePort>>,
    /// The VLAN devices over them that are left to Linux.
    left_vlans: Vec<LeftVlan>,
    /// The names of the stacked devices that are left to Linux until their table is followed.
    without_table: Vec<String>,
    /// The names of the devices that have an egress queue of their own; the first has number 1.
    egress_queues: Vec<String>,
    /// The kernel's settings by interface, where they differ from the default.
    pub(super) kernel_settings: HashMap<u32, InterfaceSettings>,
    /// The interfaces that forward IPv6 packets even if forwarding is off for all interfaces.
    pub(super) forced_v6: BTreeSet<u32>,
    /// Packets that Linux drops at its input are dropped (`Plane::set_checks_input`).
    pub(super) checks_input: bool,
}

impl Ports {
    /// Takes the ports in the workers' order.
    pub fn new(ports: impl IntoIterator<Item = PlanePort>) -> Self {
        Self { ports: ports.into_iter().collect(), ..Self::default() }
    }

    /// Returns the port of an interface.
    pub fn get(&self, interface: u32) -> Option<&PlanePort> {
        self.all().map(|(_, port)| port).find(|port| port.interface == interface)
    }

    /// Returns whether packets to neighbors of an interface leave by a port: it is one, or a MAC-VLAN
    /// device over one.
    pub(super) fn leads_from(&self, interface: u32) -> bool {
        self.find(interface).is_some()
    }

    /// Iterates over the interfaces whose packets leave by a port.
    pub(super) fn interfaces(&self) -> impl Iterator<Item = u32> {
        self.all().flat_map(|(_, port)| {
            let devices = port.macvlans.iter().map(|device| device.interface);
            std::iter::once(port.interface).chain(devices)
        })
    }

    /// Lists the kernel's tables that they belong to, the first port's first.
    pub(super) fn tables(&self) -> Vec<u32> {
        let mut numbers = Vec::new();
        for (_, port) in self.all() {
            if !numbers.contains(&port.table) {
                numbers.push(port.table);
            }
        }
        numbers
    }

    /// Iterates over the ports in the workers' order.
    pub fn iter(&self) -> impl Iterator<Item = &PlanePort> {
        self.ports.iter()
    }

    /// Iterates over the ports and the stacked devices, with their port numbers.
    pub fn all(&self) -> impl Iterator<Item = (u16, &PlanePort)> {
        let stacked = self.stacked.iter().enumerate();
        let stacked =
            stacked.filter_map(|(slot, port)| Some((stacked_number(slot)?, port.as_ref()?)));
        (0..).zip(&self.ports).chain(stacked)
    }

    /// Returns the port with a number, which may be a stacked device.
    pub fn numbered(&self, number: u16) -> Option<&PlanePort> {
        match number.checked_sub(FIRST_STACKED) {
            None => self.ports.get(usize::from(number)),
            Some(slot) => self.stacked.get(usize::from(slot))?.as_ref(),
        }
    }

    /// Iterates over the VLAN devices over the port of an interface, also those with two tags.
    pub fn vlans_over(&self, interface: u32) -> impl Iterator<Item = &PlanePort> {
        let number =
            self.all().find(|(_, port)| port.interface == interface).map(|(number, _)| number);
        let vlans = self.stacked.iter().flatten().filter(|port| port.vlan.is_some());
        vlans.filter(move |port| {
            number.is_some_and(|number| self.senders(port.interface).contains(&number))
        })
    }

    /// Sets the VLAN devices that are left to Linux; returns whether they have changed.
    pub(super) fn set_left_vlans(&mut self, left: Vec<LeftVlan>) -> bool {
        let changed = self.left_vlans != left;
        self.left_vlans = left;
        changed
    }

    /// Sets the names of the stacked devices whose table is not followed.
    pub(super) fn set_without_table(&mut self, names: Vec<String>) {
        self.without_table = names;
    }

    /// Lists the stacked devices whose table is not followed, which a new plane would do.
    pub fn without_table(&self) -> &[String] {
        &self.without_table
    }

    /// Iterates over the VLAN devices over an interface that are left to Linux.
    pub fn left_vlans(&self, below: u32) -> impl Iterator<Item = &LeftVlan> {
        self.left_vlans.iter().filter(move |left| left.below == below)
    }

    /// Lists the numbers of the ports with queues by which packets from an interface leave: several for
    /// a bond.
    pub fn senders(&self, interface: u32) -> Vec<u16> {
        let port = self.all().find(|(_, port)| port.interface == interface);
        match port {
            None => Vec::new(),
            Some((_, PlanePort { vlan: Some(vlan), .. })) => self.senders(vlan.over),
            Some((_, PlanePort { bond: Some(bond), .. })) => {
                bond.members.iter().flat_map(|member| self.senders(*member)).collect()
            }
            Some((number, _)) => vec![number],
        }
    }

    /// Returns the bond that a port is an active member of, with its number.
    pub fn bond_of(&self, port: &PlanePort) -> Option<(u16, &PlanePort)> {
        let bond = port.master.filter(|_| port.is_bonded && port.is_active_member)?;
        self.all().find(|(_, other)| other.bond.is_some() && other.interface == bond)
    }

    /// Replaces the stacked devices; those with the same interface keep their number and what other
    /// modules have set. Returns whether one has changed.
    pub(super) fn set_stacked(&mut self, mut found: BTreeMap<u32, PlanePort>) -> bool {
        let mut changed = false;
        for slot in &mut self.stacked {
            let Some(port) = slot else { continue };
            let next = found
                .remove(&port.interface)
                .map(|next| PlanePort { macvlans: std::mem::take(&mut port.macvlans), ..next });
            let before = slot.take().map(|before| PlanePort {
                macvlans: next.as_ref().map(|next| next.macvlans.clone()).unwrap_or_default(),
                ..before
            });
            changed |= before != next;
            *slot = next;
        }
        for (_, port) in found {
            let free = self.stacked.iter().position(Option::is_none).unwrap_or(self.stacked.len());
            if stacked_number(free).is_none() {
                break;
            }
            if free == self.stacked.len() {
                self.stacked.push(None);
            }
            self.stacked[free] = Some(port);
            changed = true;
        }
        changed
    }

    /// Sets the names of the stacked devices that have an egress queue of their own.
    pub(super) fn set_egress_queues(&mut self, names: Vec<String>) {
        self.egress_queues = names;
    }

    /// Returns the number of a stacked device's egress queue: its own, or that of the device below it; 0 if
    /// neither has one.
    pub(super) fn queue_of(&self, port: &PlanePort) -> u16 {
        let mut next = Some(port);
        while let Some(port) = next {
            if let Some(at) = self.egress_queues.iter().position(|name| *name == port.name) {
                return at as u16 + 1;
            }
            let below = port.vlan.as_ref().map(|vlan| vlan.over);
            next = below.and_then(|over| {
                let mut stacked = self.stacked.iter().flatten();
                stacked.find(|port| port.interface == over)
            });
        }
        0
    }

    /// Returns the stacked devices as exits, by port number from `FIRST_STACKED` on.
    pub(super) fn stacked_exits(&self) -> Arc<[Option<StackedDevice>]> {
        let exit = |port: &PlanePort| {
            let tags = port.vlan.as_ref().map_or(&[][..], |vlan| &vlan.tags);
            StackedDevice::new(&self.senders(port.interface), tags).with_queue(self.queue_of(port))
        };
        self.stacked.iter().map(|port| port.as_ref().map(exit)).collect()
    }

    /// Returns the tags of the VLAN devices directly over each port that has some, by its number.
    pub(super) fn vlan_tables(&self) -> BTreeMap<u16, VlanTable> {
        let numbers: BTreeMap<u32, u16> =
            self.all().map(|(number, port)| (port.interface, number)).collect();
        let mut tables: BTreeMap<u16, VlanTable> = BTreeMap::new();
        for (number, port) in self.all() {
            let Some(vlan) = &port.vlan else { continue };
            if let (Some(over), Some(tag)) = (numbers.get(&vlan.over), vlan.tags.last()) {
                tables.entry(*over).or_default().insert(tag.protocol, tag.id, number);
            }
        }
        tables
    }

    /// Returns the stacked devices' slots.
    pub(super) fn stacked_slots(&self) -> &[Option<PlanePort>] {
        &self.stacked
    }

    /// Returns the port at an index of the workers' order.
    pub(super) fn at_mut(&mut self, at: usize) -> Option<&mut PlanePort> {
        self.ports.get_mut(at)
    }

    /// Returns whether a port waits for another device.
    pub fn has_gone(&self) -> bool {
        self.ports.iter().any(|port| port.gone)
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
            let Some(port) = self.ports.iter_mut().find(named) else { continue };
            (port.interface, port.gone, port.served) = (index, false, false);
            adopted = true;
            self.update(index, Some(link));
        }
        adopted
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut PlanePort> {
        self.ports.iter_mut()
    }

    /// Iterates over the ports and the stacked devices.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut PlanePort> {
        self.ports.iter_mut().chain(self.stacked.iter_mut().flatten())
    }

    /// Changes the reverse path filters, in the workers' order.
    pub(super) fn set_sources(&mut self, sources: &[Option<ReversePathFilter>]) {
        for (port, sources) in self.ports.iter_mut().zip(sources) {
            port.sources = *sources;
        }
    }

    /// Applies a link message of the kernel; returns whether a port has changed.
    pub(super) fn update(&mut self, interface: u32, link: Option<&Link>) -> bool {
        let Some(port) = self.ports.iter_mut().find(|port| port.interface == interface) else {
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
                next.unfit = links::unfit(link, false);
                next.is_bonded = links::is_bond_member(link);
                next.is_active_member = link.is_active_member;
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
        self.all().find_map(|(at, port)| {
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

/// Returns the port number of the stacked device in a slot.
fn stacked_number(slot: usize) -> Option<u16> {
    let at = u16::try_from(slot).ok().filter(|_| slot < MOST_STACKED)?;
    Some(FIRST_STACKED + at)
}
