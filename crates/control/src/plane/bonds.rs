//! Bonds of ports: a bond is a port without queues, like a VLAN device, over several ports (`Documentation/
//! networking/bonding.rst` of the kernel).
//!
//! ```text
//!   link bond0, 802.3ad ─┬─ eth0, active ─► port 0 ─┐ packets that they receive arrive on the bond
//!                        ├─ eth1, active ─► port 1 ─┴─► port 0x8000, which sends by both
//!                        └─ eth2, backup ─► port 2     left to Linux, which drops what it receives
//! ```
//!
//! The configuration names the members. Each packet of a flow leaves by the same active member. The kernel
//! decides which members are active, by its monitoring of the links and by LACP, whose frames pass the
//! router, and reports each change; in the modes active-backup, balance-xor and 802.3ad this decides
//! everything. The other modes distribute packets of one flow, or change MAC addresses, and are left to
//! Linux, as is a bond over a bond.
//!
//! A member that is no port of the router sends and receives by the kernel alone.

use std::collections::BTreeMap;

use feed::netlink::Link;

use super::Plane;
use super::ports::{PlanePort, PortBond};

/// The modes of bonds that forward (linux/if_bonding.h), by their names.
const FORWARDED_MODES: [u8; 3] = [1, 2, 4];
/// The names of all modes, as `ip link` writes them.
const MODES: [&str; 7] = [
    "balance-rr",
    "active-backup",
    "balance-xor",
    "broadcast",
    "802.3ad",
    "balance-tlb",
    "balance-alb",
];

impl Plane {
    /// Makes ports of the bonds of ports, and returns them by the index of their interface.
    pub(super) fn assign_bonds(&mut self) -> BTreeMap<u32, PlanePort> {
        let mut bonds = BTreeMap::new();
        let bonded = self.ports.iter().filter(|port| port.is_bonded);
        let down = |port: &PlanePort| {
            let name = &port.name;
            format!("{name} is a member of a bond that is not up: its packets are left to Linux")
        };
        let mut reasons: BTreeMap<u32, Option<String>> =
            bonded.map(|port| (port.interface, Some(down(port)))).collect();
        for (&interface, link) in self.stacked.bonds() {
            let ports = self.ports.iter();
            let members: Vec<_> = ports.filter(|port| port.is_member_of(interface)).collect();
            if members.is_empty() {
                continue;
            }
            let bond = self.bond_port(interface, link, &members);
            for member in members {
                let (name, bond_name) = (&member.name, &link.name);
                let reason = match &bond {
                    Err(reason) => Some(format!("{name} is a member of {bond_name}, and {reason}")),
                    Ok(_) if !member.is_active_member => {
                        Some(format!("{name} is no active member of {bond_name}"))
                    }
                    Ok(_) => None,
                };
                let effect = |reason| format!("{reason}: its packets are left to Linux");
                reasons.insert(member.interface, reason.map(effect));
            }
            bonds.extend(bond.ok().map(|bond| (interface, bond)));
        }
        let mut changed = false;
        for (interface, reason) in reasons {
            let member = self.ports.iter_mut().find(|port| port.interface == interface);
            let Some(member) = member else { continue };
            changed |= member.unfit != reason;
            member.unfit = reason;
        }
        if changed {
            self.ports_changed();
        }
        bonds
    }

    /// Makes the port of a bond of these members.
    ///
    /// # Errors
    ///
    /// The reason that it cannot be one.
    fn bond_port(
        &self,
        interface: u32,
        link: &Link,
        members: &[&PlanePort],
    ) -> Result<PlanePort, String> {
        let mode = link.bond_mode.unwrap_or(u8::MAX);
        if !FORWARDED_MODES.contains(&mode) {
            let name = MODES.get(usize::from(mode)).copied().unwrap_or("unknown");
            return Err(format!("the mode {name} is not forwarded"));
        }
        let active = || members.iter().filter(|member| member.is_active_member && !member.gone);
        let sends = active().filter(|member| member.up && member.served);
        let mut port = self.stacked_port(interface, link)?;
        let bond = PortBond { members: sends.map(|member| member.interface).collect() };
        port.up &= !bond.members.is_empty();
        port.served = active().any(|member| member.served);
        port.sources = members.first().map(|member| member.sources).unwrap_or_default();
        port.bond = Some(bond);
        Ok(port)
    }
}
