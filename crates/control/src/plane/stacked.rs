//! Stacked devices: bonds of ports (`bonds.rs`) and VLAN devices over ports and bonds (`vlans.rs`), which are
//! ports without queues.
//!
//! ```text
//!   link messages ─► StackedDevices ─► commit ─► bonds ─► VLAN devices ─► VLAN devices over those
//!                                                 └────────────┴─────────► Ports, by port number
//! ```
//!
//! No configuration names them: a device becomes a port when the kernel reports it, and ends when the kernel
//! removes it or sets it down. It has its own MAC, MTU and VRF, and keeps its port number as long as it is a
//! port. A gate or a grantor, whose hook their packets would pass, and a router with static routes, whose
//! configuration names all ports, leave them to Linux.

use std::collections::BTreeMap;

use feed::netlink::{Link, Rule};

use super::Plane;
use super::policy::{RuleResult, evaluate};
use super::ports::{LeftVlan, PlanePort};
use config::MAIN;

/// The VLAN devices and bonds that are up, by the index of their interface.
#[derive(Debug, Default)]
pub(super) struct StackedDevices(BTreeMap<u32, Link>);

impl StackedDevices {
    /// Iterates over the bonds.
    pub(super) fn bonds(&self) -> impl Iterator<Item = (&u32, &Link)> {
        self.0.iter().filter(|(_, link)| link.bond_mode.is_some())
    }

    /// Returns the name of a device; empty if there is none.
    pub(super) fn name(&self, interface: u32) -> String {
        self.0.get(&interface).map_or_else(String::new, |link| link.name.clone())
    }

    /// Applies a link message of the kernel; returns whether a device has changed.
    fn update(&mut self, interface: u32, link: Option<&Link>) -> bool {
        let next = link.filter(|link| (link.vlan.is_some() || link.bond_mode.is_some()) && link.up);
        if self.0.get(&interface) == next {
            return false;
        }
        match next {
            Some(next) => self.0.insert(interface, next.clone()),
            None => self.0.remove(&interface),
        };
        true
    }
}

/// The reason that a device cannot be a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    pub(super) reason: String,
    /// It could be one if its table were followed, as a new plane does.
    pub(super) lacks_table: bool,
}

impl From<&str> for Unfit {
    fn from(reason: &str) -> Self {
        Self { reason: reason.to_owned(), lacks_table: false }
    }
}

/// Returns the table that the rules select for packets of a stacked device, and whether they name a later
/// one.
///
/// # Errors
///
/// The reason that it cannot be a port.
fn table_of(rules: &[Rule], link: &Link, vrf: Option<u32>) -> Result<(u32, bool), Unfit> {
    // A kernel without policy rules has one table.
    if rules.is_empty() {
        return Ok((MAIN, false));
    }
    let [v4, v6] = [false, true].map(|v6| evaluate(rules, v6, &link.name, vrf));
    match (&v4, &v6) {
        (RuleResult::Table { number, further }, RuleResult::None) => Ok((*number, *further)),
        (
            RuleResult::Table { number, further },
            RuleResult::Table { number: other, further: also },
        ) if number == other => Ok((*number, *further || *also)),
        _ => Err("the rules select no table for all of its packets".into()),
    }
}

impl Plane {
    /// Applies a link message of the kernel to the VLAN devices and bonds.
    pub(super) fn update_stacked(&mut self, interface: u32, link: Option<&Link>) {
        // A trunk may have thousands: the next commit assigns all of them once.
        self.stacked_are_stale |= self.stacked.update(interface, link);
    }

    /// Sets whether bonds of the ports, and VLAN devices over them, forward; by default they are left to
    /// Linux.
    pub fn set_forwards_stacked(&mut self, forwards: bool) {
        self.forwards_stacked = forwards;
        self.assign_stacked();
    }

    /// Sets the stacked devices that have an egress queue of their own, by name; the first has number 1
    /// (`StackedDevice::with_queue`).
    pub fn set_egress_queues(&mut self, names: Vec<String>) {
        self.ports.set_egress_queues(names);
    }

    /// Makes ports of the bonds, and of the VLAN devices over ports and bonds, that can be ports.
    pub(super) fn assign_stacked(&mut self) {
        self.stacked_are_stale = false;
        if !self.forwards_stacked {
            return;
        }
        let (mut found, mut without_table) = self.assign_bonds();
        let mut left = Vec::new();
        // A device over a port, then one over such a device.
        for inner in [false, true] {
            for (&interface, link) in &self.stacked.0 {
                let Some(lower) = link.lower.filter(|_| link.vlan.is_some()) else { continue };
                let stacked = found.get(&lower).filter(|port| port.vlan.is_some() == inner);
                let port = || self.ports.iter().find(|port| port.interface == lower && !inner);
                let below = stacked.filter(|port| port.interface != interface).or_else(port);
                let Some(below) = below.filter(|below| !below.gone && below.unfit.is_none()) else {
                    continue;
                };
                match self.vlan_port(interface, link, below) {
                    Ok(port) => _ = found.insert(interface, port),
                    Err(Unfit { reason, lacks_table }) => {
                        let (below, name) = (lower, link.name.clone());
                        without_table.extend(lacks_table.then(|| name.clone()));
                        left.push(LeftVlan { below, name, reason });
                    }
                }
            }
        }
        let changed = self.ports.set_stacked(found);
        if changed {
            self.adjacencies.set_stacked(self.ports.stacked_exits());
            self.stacked_changed = true;
            self.ports_changed();
            self.is_changed = true;
            // A MAC-VLAN device may be over one of them.
            self.assign_macvlans();
        }
        self.ports_differ |= self.ports.set_left_vlans(left);
        self.ports.set_without_table(without_table);
    }

    /// Makes the port of a device without queues, by its link alone.
    ///
    /// # Errors
    ///
    /// The reason that it cannot be one.
    pub(super) fn stacked_port(&self, interface: u32, link: &Link) -> Result<PlanePort, Unfit> {
        let vrf = link.master.and_then(|master| self.vrfs.get(&master)).copied();
        if link.master.is_some() && vrf.is_none() {
            return Err(Unfit {
                reason: format!("it belongs to a {}", link.member_of),
                lacks_table: false,
            });
        }
        let (table, further) = table_of(&self.rules, link, vrf)?;
        if self.has_readers && self.index_of(table).is_none() {
            return Err(Unfit {
                reason: format!("table {table} is not followed yet"),
                lacks_table: true,
            });
        }
        Ok(PlanePort {
            mac: link.mac.unwrap_or_default(),
            mtu: u16::try_from(link.mtu).unwrap_or(u16::MAX),
            up: link.up && link.running,
            enabled: link.up,
            master: link.master,
            table,
            follows_rules: true,
            further,
            ..PlanePort::new(interface, &link.name)
        })
    }
}
