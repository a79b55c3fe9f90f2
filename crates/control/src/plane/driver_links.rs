//! The links of forwarding in the driver: the ports and VLAN devices by which packets leave, and those by which they
//! arrive with tags.
//!
//! ```text
//!   port number n             ─► link n                 below STACKED
//!   VLAN device, 0x8000 + n   ─► link STACKED + n       the device of the port below, and its tags
//! ```
//!
//! A link exists for a port whose device sends redirected packets, without an egress queue, and for a VLAN device over
//! such a port whose `egress-qos-map` gives all packets priority 0. Frames with its tags take the path
//! if the device has the settings of the port below: its table, reverse path filters and forwarding. Bonds, devices over
//! them, and MAC-VLAN devices are the workers'.
//!
//! **Order.** A link that becomes that of another device, or gets other tags, is removed before next hops by the new device
//! are published ([`DriverLinks::retract`]), and added after them, once every program has ended that could have read
//! some of its former words ([`DriverLinks::publish`]).
//!
//! Limits: 2048 ports and as many stacked devices. The MTU by two tags is 4 bytes less than that of the port at most: the kernel
//! refuses redirected frames that are longer than the MTU of their device by more than one tag.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use datapath::FIRST_STACKED;
use xdp::Grace;
use xdp::forward::next_hops::MAX_LINKS;
use xdp::forward::{EgressLink, NextHops, Tags};

use super::{PlanePort, Ports};

/// The number of the first link of a stacked device.
const STACKED: u16 = MAX_LINKS / 2;

/// Returns the number of the link of a port, if it may have one.
pub(super) fn link_of(port: u16) -> Option<u16> {
    match port.checked_sub(FIRST_STACKED) {
        None => Some(port).filter(|link| *link < STACKED),
        Some(slot) => slot.checked_add(STACKED).filter(|link| *link < MAX_LINKS),
    }
}

/// Returns the number of the port of a link.
pub(super) fn port_of(link: u16) -> u16 {
    link.checked_sub(STACKED).map_or(link, |slot| FIRST_STACKED + slot)
}

/// The links of some ports.
#[derive(Debug, Default)]
pub(super) struct PortLinks {
    /// By number, those by which packets leave.
    egress: HashMap<u16, EgressLink>,
    /// By the link below and tags, those by which packets arrive.
    ingress: HashMap<(u16, Tags), u16>,
}

impl PortLinks {
    /// Returns the links of these ports, by which packets leave if `sends` is true of the port below.
    pub(super) fn of(ports: &Ports, sends: impl Fn(u16) -> bool) -> Self {
        let mut links = Self::default();
        let by_interface: HashMap<u32, (u16, &PlanePort)> =
            ports.all().map(|(number, port)| (port.interface, (number, port))).collect();
        for (number, port) in ports.all() {
            let below = || {
                let mut below = (number, port);
                while let Some(vlan) = &below.1.vlan {
                    below = *by_interface.get(&vlan.over)?;
                }
                (below.0 < FIRST_STACKED).then_some(below)
            };
            let (Some(link), Some((below_number, below))) = (link_of(number), below()) else {
                continue;
            };
            let vlan_tags = port.vlan.as_ref().map_or(&[][..], |vlan| &vlan.tags);
            let tags = Tags::new(vlan_tags.iter().map(|tag| (tag.protocol, tag.id)));
            let Some(tags) = tags.filter(|_| is_served(port) && is_served(below) && port.up) else {
                continue;
            };
            let has_no_priority =
                vlan_tags.iter().all(|tag| tag.priorities.iter().all(|priority| *priority == 0));
            let mtu = match vlan_tags.len() {
                2.. => port.mtu.min(below.mtu.saturating_sub(4)),
                _ => port.mtu,
            };
            if sends(below_number) && has_no_priority && ports.queue_of(port) == 0 {
                let link_to = EgressLink { device: below.interface, mac: port.mac, mtu, tags };
                links.egress.insert(link, link_to);
            }
            let has_its_settings = port.table == below.table
                && ports.rp_filters(port) == ports.rp_filters(below)
                && ports.forwarding_off(port) == ports.forwarding_off(below);
            if let Some(below_link) = link_of(below_number)
                && !tags.is_empty()
                && has_its_settings
            {
                links.ingress.insert((below_link, tags), link);
            }
        }
        links
    }
}

/// The links as the programs have them.
#[derive(Debug)]
pub(super) struct DriverLinks {
    present: PortLinks,
    /// Removed links that programs may still read, each with what the grace period holds.
    removed: HashMap<u16, Arc<()>>,
    grace: Grace<Arc<()>>,
}

impl DriverLinks {
    /// Makes no links.
    ///
    /// # Errors
    ///
    /// See [`Grace::new`].
    pub(super) fn new() -> io::Result<Self> {
        let (present, removed) = (PortLinks::default(), HashMap::new());
        Ok(Self { present, removed, grace: Grace::new()? })
    }

    /// Removes the links that are not among `wanted`, or there with another device or other tags.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`; the links before the error are removed.
    pub(super) fn retract(&mut self, wanted: &PortLinks, next_hops: &NextHops) -> io::Result<()> {
        for (below, tags) in differing(&self.present.ingress, &wanted.ingress) {
            next_hops.set_vlan(below, tags, None)?;
            self.present.ingress.remove(&(below, tags));
        }
        for link in differing(&self.present.egress, &wanted.egress) {
            let place = |links: &PortLinks| {
                links.egress.get(&link).map(|EgressLink { device, tags, .. }| (*device, *tags))
            };
            if place(&self.present) == place(wanted) {
                continue;
            }
            next_hops.set_link(link, None)?;
            self.present.egress.remove(&link);
            let held = Arc::new(());
            self.grace.retire(Arc::clone(&held));
            self.removed.insert(link, held);
        }
        Ok(())
    }

    /// Adds the links that are missing, after [`retract`](Self::retract), and returns whether all are there: a removed one
    /// that programs may still read is added later.
    ///
    /// # Errors
    ///
    /// Those of `bpf(2)`: `ENODEV` if a device has gone; the links before the error are added.
    pub(super) fn publish(&mut self, wanted: &PortLinks, next_hops: &NextHops) -> io::Result<bool> {
        self.removed.retain(|_, held| Arc::strong_count(held) > 1);
        let mut has_all = true;
        for link in differing(&wanted.egress, &self.present.egress) {
            if self.removed.contains_key(&link) {
                has_all = false;
                continue;
            }
            let link_to = wanted.egress[&link];
            next_hops.set_link(link, Some(link_to))?;
            self.present.egress.insert(link, link_to);
        }
        for (below, tags) in differing(&wanted.ingress, &self.present.ingress) {
            let link = wanted.ingress[&(below, tags)];
            next_hops.set_vlan(below, tags, Some(link))?;
            self.present.ingress.insert((below, tags), link);
        }
        Ok(has_all)
    }
}

/// Returns the keys of `of` that `other` does not have with the same value.
fn differing<K: Copy + Eq + std::hash::Hash, V: PartialEq>(
    of: &HashMap<K, V>,
    other: &HashMap<K, V>,
) -> Vec<K> {
    of.iter().filter(|(key, value)| other.get(key) != Some(*value)).map(|(key, _)| *key).collect()
}

/// Returns whether a port is one by itself, and works.
pub(super) fn is_served(port: &PlanePort) -> bool {
    port.served && !port.gone && port.unfit.is_none() && !port.is_bonded && !port.has_moved()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use datapath::VlanTag;

    use super::super::ports::PortVlan;
    use super::*;

    const TRUNK: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn port(interface: u32, mtu: u16) -> PlanePort {
        let (mac, up, served) = (TRUNK, true, true);
        PlanePort { mac, mtu, up, served, ..PlanePort::new(interface, &format!("p{interface}")) }
    }

    /// A VLAN device over the interface `over`, with these tags.
    fn vlan(interface: u32, over: u32, ids: &[u16]) -> PlanePort {
        let tag =
            |id: &u16| VlanTag { protocol: 0x8100, id: *id, priorities: [0; datapath::PRIORITIES] };
        let (tags, priorities) = (ids.iter().map(tag).collect(), [0; 8]);
        let vlan = PortVlan { over, tags, priorities, macs: Vec::new() };
        PlanePort { vlan: Some(vlan), ..port(interface, 1500) }
    }

    fn tags(ids: &[u16]) -> Tags {
        Tags::new(ids.iter().map(|id| (0x8100, *id))).unwrap()
    }

    /// Returns the links of two ports with these stacked devices, of which the first one sends redirected packets.
    fn links(devices: impl IntoIterator<Item = PlanePort>) -> PortLinks {
        let mut ports = Ports::new([port(2, 1500), port(3, 9000)]);
        let devices = devices.into_iter().map(|device| (device.interface, device));
        ports.set_stacked(devices.collect::<BTreeMap<_, _>>());
        PortLinks::of(&ports, |number| number == 0)
    }

    /// Of the first stacked device: whether packets leave by it, and whether its frames take the path.
    fn first(devices: impl IntoIterator<Item = PlanePort>) -> [bool; 2] {
        let links = links(devices);
        let receives = links.ingress.values().any(|link| *link == STACKED);
        [links.egress.contains_key(&STACKED), receives]
    }

    #[test]
    fn links_are_ports_that_send_and_vlan_devices_over_them() {
        let inner = PlanePort { mac: [2; 6], ..vlan(11, 10, &[100, 7]) };
        let links = links([vlan(10, 2, &[100]), inner, vlan(12, 3, &[100])]);
        let link = |mac, mtu, ids: &[u16]| EgressLink { device: 2, mac, mtu, tags: tags(ids) };
        let egress = HashMap::from([
            (0, link(TRUNK, 1500, &[])),
            (STACKED, link(TRUNK, 1500, &[100])),
            (STACKED + 1, link([2; 6], 1496, &[100, 7])),
        ]);
        assert_eq!(links.egress, egress);
        let ingress = HashMap::from([
            ((0, tags(&[100])), STACKED),
            ((0, tags(&[100, 7])), STACKED + 1),
            // The other port sends nothing redirected, and receives.
            ((1, tags(&[100])), STACKED + 2),
        ]);
        assert_eq!(links.ingress, ingress);
        for link in [0, 1, STACKED, STACKED + 1, MAX_LINKS - 1] {
            assert_eq!(link_of(port_of(link)), Some(link));
        }
        assert_eq!([STACKED, FIRST_STACKED + STACKED].map(link_of), [None; 2]);
    }

    #[test]
    fn devices_with_other_settings_are_the_workers() {
        let device = || vlan(10, 2, &[100]);
        assert_eq!(first([device()]), [true; 2]);
        assert_eq!(first([PlanePort { up: false, ..device() }]), [false; 2]);
        assert_eq!(first([PlanePort { served: false, ..device() }]), [false; 2]);
        assert_eq!(first([PlanePort { table: 100, ..device() }]), [true, false]);
        let strict = Some(datapath::ReversePathFilter::Strict);
        assert_eq!(first([PlanePort { sources: strict, ..device() }]), [true, false]);
        let mut with_priority = device();
        if let Some(vlan) = &mut with_priority.vlan {
            vlan.tags[0].priorities[6] = 5;
        }
        assert_eq!(first([with_priority]), [false, true]);
        // A device that has gone below another one.
        assert_eq!(first([vlan(10, 99, &[100])]), [false; 2]);
    }
}
