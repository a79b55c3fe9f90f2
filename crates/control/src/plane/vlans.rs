//! VLAN devices over ports: they are ports without queues, whose frames the port below sends and
//! receives with their tags (`datapath/vlan.rs`).
//!
//! ```text
//!   link eth0.100, over eth0, 8100:100, in VRF red ─► port 0x8000: tags 8100:100, table of red
//!   link eth0.100.7, over eth0.100, 8100:7         ─► port 0x8001: tags 8100:100 8100:7
//! ```
//!
//! No configuration names them: each VLAN device over a port, or over one such device (QinQ), becomes a
//! port when the kernel reports it, and ends when the kernel removes it or sets it down. It has its own MAC,
//! MTU and VRF, and the reverse path filter of the port below. A device keeps its port number as long as
//! it is a port.
//!
//! Left to Linux, with the reason in `show interfaces`: a device whose rules select a table that the
//! router does not follow (the set of tables is fixed at the start), or one that depends on other fields
//! than the interface; one with an `ingress-qos-map`, by which Linux gives priorities to packets; and
//! more than two tags. A gate or a grantor, whose hook their packets would pass, and a router with static
//! routes, whose configuration names all ports, make no ports of VLAN devices.

use std::collections::BTreeMap;

use datapath::{TOS_PRIORITIES, VlanTag};
use feed::netlink::{Link, Rule, Vlan};

use super::Plane;
use super::policy::{RuleResult, evaluate};
use super::ports::{LeftVlan, PlanePort, PortVlan};
use config::MAIN;

/// The VLAN devices that are up, by the index of their interface.
#[derive(Debug, Default)]
pub(super) struct Vlans(BTreeMap<u32, Link>);

impl Vlans {
    /// Applies a link message of the kernel; returns whether a device has changed.
    fn update(&mut self, interface: u32, link: Option<&Link>) -> bool {
        let next = link.filter(|link| link.vlan.is_some() && link.up);
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

/// Returns the table that the rules select for packets of a VLAN device.
///
/// # Errors
///
/// The reason that it cannot be a port.
fn table_of(rules: &[Rule], link: &Link, vrf: Option<u32>) -> Result<(u32, bool), String> {
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
        _ => Err("the rules select no table for all of its packets".to_owned()),
    }
}

/// Returns the tag of a device.
///
/// # Errors
///
/// The reason that it cannot be a port.
fn tag_of(vlan: &Vlan) -> Result<VlanTag, String> {
    if vlan.maps_ingress {
        return Err("it has an ingress-qos-map".to_owned());
    }
    if vlan.id == 0 {
        return Err("it has VLAN 0, which is the interface below".to_owned());
    }
    let mapped = |priority| {
        let pair = vlan.egress_priorities.iter().find(|(from, _)| *from == priority);
        pair.map_or(0, |(_, to)| (to & 7) as u8)
    };
    Ok(VlanTag { protocol: vlan.protocol, id: vlan.id, priorities: TOS_PRIORITIES.map(mapped) })
}

impl Plane {
    /// Applies a link message of the kernel to the VLAN devices.
    pub(super) fn update_vlan(&mut self, interface: u32, link: Option<&Link>) {
        // A trunk may have thousands: the next commit assigns all of them once.
        self.vlans_are_stale |= self.vlan_devices.update(interface, link);
    }

    /// Sets whether VLAN devices over the ports forward; the default is that they are left to Linux.
    pub fn set_forwards_vlans(&mut self, forwards: bool) {
        self.forwards_vlans = forwards;
        self.assign_vlans();
    }

    /// Makes ports of the VLAN devices that can be ports.
    pub(super) fn assign_vlans(&mut self) {
        self.vlans_are_stale = false;
        if !self.forwards_vlans {
            return;
        }
        let mut found: BTreeMap<u32, PlanePort> = BTreeMap::new();
        let mut left = Vec::new();
        // A device over a port, then one over such a device.
        for inner in [false, true] {
            for (&interface, link) in &self.vlan_devices.0 {
                let Some(lower) = link.lower else { continue };
                let below = match inner {
                    false => self.ports.iter().find(|port| port.interface == lower),
                    true => found.get(&lower).filter(|port| port.interface != interface),
                };
                let Some(below) = below.filter(|below| !below.gone && below.unfit.is_none()) else {
                    continue;
                };
                match self.vlan_port(interface, link, below) {
                    Ok(port) => _ = found.insert(interface, port),
                    Err(reason) => {
                        let (below, name) = (lower, link.name.clone());
                        left.push(LeftVlan { below, name, reason });
                    }
                }
            }
        }
        let changed = self.ports.set_vlans(found);
        if changed {
            self.adjacencies.set_vlans(self.ports.vlan_devices());
            self.vlans_changed = true;
            self.ports_changed();
            self.is_changed = true;
            // A MAC-VLAN device may be over one of them.
            self.assign_macvlans();
        }
        self.ports_differ |= self.ports.set_left_vlans(left);
    }

    /// Makes the port of a VLAN device over the port `below`.
    ///
    /// # Errors
    ///
    /// The reason that it cannot be one.
    fn vlan_port(
        &self,
        interface: u32,
        link: &Link,
        below: &PlanePort,
    ) -> Result<PlanePort, String> {
        let vlan = link.vlan.as_ref().ok_or("it is no VLAN device")?;
        let tag = tag_of(vlan)?;
        let vrf = link.master.and_then(|master| self.vrfs.get(&master)).copied();
        if link.master.is_some() && vrf.is_none() {
            return Err(format!("it belongs to a {}", link.member_of));
        }
        let (table, further) = table_of(&self.rules, link, vrf)?;
        if self.has_readers && self.index_of(table).is_none() {
            return Err(format!("table {table} is not followed until a restart"));
        }
        let mut tags = below.vlan.as_ref().map(|vlan| vlan.tags.clone()).unwrap_or_default();
        tags.push(tag);
        if tags.len() > 2 {
            return Err("it has more than two tags".to_owned());
        }
        let mut macs = below.vlan.as_ref().map(|vlan| vlan.macs.clone()).unwrap_or_default();
        macs.push(below.mac);
        let mac = link.mac.unwrap_or(below.mac);
        macs.retain(|below| *below != mac);
        let vlan = PortVlan { over: below.interface, tags, macs };
        Ok(PlanePort {
            mac,
            mtu: u16::try_from(link.mtu).unwrap_or(u16::MAX),
            up: link.up && link.running && below.up,
            enabled: link.up,
            served: below.served,
            master: link.master,
            table,
            follows_rules: true,
            further,
            sources: below.sources,
            vlan: Some(vlan),
            ..PlanePort::new(interface, &link.name)
        })
    }
}
