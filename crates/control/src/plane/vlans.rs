//! VLAN devices over ports: they are ports without queues, whose frames the port below sends and
//! receives with their tags (`datapath/vlan.rs`).
//!
//! ```text
//!   link eth0.100, over eth0, 8100:100, in VRF red ─► port 0x8000: tags 8100:100, table of red
//!   link eth0.100.7, over eth0.100, 8100:7         ─► port 0x8001: tags 8100:100 8100:7
//! ```
//!
//! A VLAN device has the reverse path filter of the port below, which may be a bond.
//!
//! Left to Linux, with the reason in `show interfaces`: a device whose rules select a table that the
//! router does not follow (the set of tables is fixed at the start), or one that depends on other fields
//! than the interface; one whose `ingress-qos-map` has priorities beyond those of the router; and more than
//! two tags.

use std::array;

use datapath::{PRIORITIES, VlanTag};
use feed::netlink::{Link, Vlan};

use super::Plane;
use super::ports::{PlanePort, PortVlan};
use super::stacked::Unfit;

/// Returns the tag of a device.
///
/// # Errors
///
/// The reason that it cannot be a port.
fn tag_of(vlan: &Vlan) -> Result<VlanTag, Unfit> {
    if vlan.id == 0 {
        return Err("it has VLAN 0, which is the interface below".into());
    }
    let mapped = |priority: usize| {
        let pair = vlan.egress_priorities.iter().find(|(from, _)| *from as usize == priority);
        pair.map_or(0, |(_, to)| (to & 7) as u8)
    };
    Ok(VlanTag { protocol: vlan.protocol, id: vlan.id, priorities: array::from_fn(mapped) })
}

/// Returns the priorities of packets, by that of their tag.
///
/// # Errors
///
/// The reason that it cannot be a port.
fn priorities_of(vlan: &Vlan) -> Result<[u8; 8], Unfit> {
    let known = |priority: &&u32| (**priority as usize) < PRIORITIES;
    if let Some(priority) = vlan.ingress_priorities.iter().find(|priority| !known(priority)) {
        let most = PRIORITIES - 1;
        let reason = format!("its ingress-qos-map has priority {priority}, above {most}");
        return Err(Unfit { reason, lacks_table: false });
    }
    Ok(vlan.ingress_priorities.map(|priority| priority as u8))
}

impl Plane {
    /// Makes the port of a VLAN device over the port `below`.
    ///
    /// # Errors
    ///
    /// The reason that it cannot be one.
    pub(super) fn vlan_port(
        &self,
        interface: u32,
        link: &Link,
        below: &PlanePort,
    ) -> Result<PlanePort, Unfit> {
        let vlan = link.vlan.as_ref().ok_or("it is no VLAN device")?;
        let (tag, priorities) = (tag_of(vlan)?, priorities_of(vlan)?);
        let port = self.stacked_port(interface, link)?;
        let mut tags = below.vlan.as_ref().map(|vlan| vlan.tags.clone()).unwrap_or_default();
        tags.push(tag);
        if tags.len() > 2 {
            return Err("it has more than two tags".into());
        }
        let mut macs = below.vlan.as_ref().map(|vlan| vlan.macs.clone()).unwrap_or_default();
        macs.push(below.mac);
        let mac = link.mac.unwrap_or(below.mac);
        macs.retain(|below| *below != mac);
        let vlan = PortVlan { over: below.interface, tags, priorities, macs };
        Ok(PlanePort {
            mac,
            up: port.up && below.up,
            served: below.served,
            sources: below.sources,
            vlan: Some(vlan),
            ..port
        })
    }
}
