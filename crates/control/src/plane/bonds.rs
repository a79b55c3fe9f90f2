//! Bonds of ports: a bond is a port without queues, as a VLAN device is, over several ports.
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
//! A member that is no port of the router sends and receives by the kernel alone. Source: IEEE 802.1AX, and
//! bonding.rst of the kernel's documentation.

use std::collections::BTreeMap;

use feed::netlink::Link;

use super::Plane;
use super::ports::{PlanePort, PortBond};
use super::stacked::Unfit;
use crate::links::LEFT;

/// The modes, by their numbers in linux/if_bonding.h: their names, as `ip link` writes them, and whether
/// the router forwards.
const MODES: [(&str, bool); 7] = [
    ("balance-rr", false),
    ("active-backup", true),
    ("balance-xor", true),
    ("broadcast", false),
    ("802.3ad", true),
    ("balance-tlb", false),
    ("balance-alb", false),
];

impl Plane {
    /// Makes ports of the bonds of ports, and returns them by the index of their interface, with the names of
    /// those whose table is not followed; sets which members are left to Linux.
    pub(super) fn assign_bonds(&mut self) -> (BTreeMap<u32, PlanePort>, Vec<String>) {
        let bonds: BTreeMap<u32, Result<PlanePort, Unfit>> = self
            .stacked
            .bonds()
            .filter_map(|(&interface, link)| Some((interface, self.bond_port(interface, link)?)))
            .collect();
        let mut changed = false;
        for member in self.ports.iter_mut().filter(|port| port.is_bonded) {
            let reason = match member.master.and_then(|bond| bonds.get(&bond)) {
                Some(Ok(_)) if member.is_active_member => None,
                Some(Ok(bond)) => Some(format!("is no active member of {}", bond.name)),
                Some(Err(unfit)) => Some(format!("is a member of {}", unfit.reason)),
                None => Some("is a member of a bond that is down".to_owned()),
            };
            let unfit = reason.map(|reason| format!("{} {reason}: {LEFT}", member.name));
            changed |= member.unfit != unfit;
            member.unfit = unfit;
        }
        if changed {
            self.ports_changed();
        }
        let lacks_table = |(interface, bond): (&u32, &Result<PlanePort, Unfit>)| {
            let lacks = bond.as_ref().is_err_and(|unfit| unfit.lacks_table);
            lacks.then(|| self.stacked.name(*interface))
        };
        let without_table = bonds.iter().filter_map(lacks_table).collect();
        let found =
            |(interface, bond): (u32, Result<PlanePort, Unfit>)| Some((interface, bond.ok()?));
        (bonds.into_iter().filter_map(found).collect(), without_table)
    }

    /// Makes the port of a bond; returns `None` if no port is a member of it.
    ///
    /// # Errors
    ///
    /// The bond's name, and the reason that it cannot be one.
    fn bond_port(&self, interface: u32, link: &Link) -> Option<Result<PlanePort, Unfit>> {
        let members = || self.ports.iter().filter(|port| port.is_member_of(interface));
        let sources = members().next()?.sources;
        let (mode, forwards) = MODES
            .get(usize::from(link.bond_mode.unwrap_or(u8::MAX)))
            .copied()
            .unwrap_or(("unknown", false));
        if !forwards {
            let reason = format!("{}, and the mode {mode} is not forwarded", link.name);
            return Some(Err(Unfit { reason, lacks_table: false }));
        }
        let port = match self.stacked_port(interface, link) {
            Ok(port) => port,
            Err(unfit) => {
                let reason = format!("{}, and {}", link.name, unfit.reason);
                return Some(Err(Unfit { reason, ..unfit }));
            }
        };
        let active = || members().filter(|member| member.is_active_member && !member.gone);
        let sends = active().filter(|member| member.up && member.served);
        let bond = PortBond { members: sends.map(|member| member.interface).collect() };
        Some(Ok(PlanePort {
            up: port.up && !bond.members.is_empty(),
            served: active().any(|member| member.served),
            sources,
            bond: Some(bond),
            ..port
        }))
    }
}
