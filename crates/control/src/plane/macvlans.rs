//! MAC-VLAN devices over ports: keepalived and FRR give them the MAC address of a virtual router
//! (VRRP; RFC 9568, 7.3).
//!
//! ```text
//!   link vrrp4-2-1, over r2, 00:00:5e:00:01:05 ─┬─► secondary MAC of r2: packets to it are taken
//!                                               └─► routes by vrrp4-2-1 leave by r2, from that MAC
//! ```
//!
//! The kernel receives a frame for such a device on it, and not on the port below. The router takes
//! the frame on the port, so the device must forward like the port: it is up, has the port's
//! VRF, and the rules select the same table for both. The modes private, VEPA and bridge differ only in
//! what the devices of one port send to one another; in the other modes (passthru, source) a device
//! takes other frames than those to its MAC, so these are left to the kernel.

use std::collections::BTreeMap;

use feed::netlink::{Link, Rule};

use super::Plane;
use super::policy::evaluate;
use super::ports::{PlanePort, PortMacVlan};

/// The modes in which a device takes the unicast frames to its MAC (linux/if_link.h): private, VEPA,
/// bridge.
const MODES: [u32; 3] = [1, 2, 4];

/// A MAC-VLAN device that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MacVlan {
    name: String,
    /// The index of the interface below.
    lower: u32,
    mac: [u8; 6],
    mtu: u16,
    running: bool,
    master: Option<u32>,
}

impl MacVlan {
    fn of(link: &Link) -> Option<Self> {
        let is_taken = link.kind == "macvlan"
            && link.up
            && link.macvlan_mode.is_some_and(|mode| MODES.contains(&mode));
        if !is_taken {
            return None;
        }
        Some(Self {
            name: link.name.clone(),
            lower: link.lower?,
            mac: link.mac?,
            mtu: u16::try_from(link.mtu).unwrap_or(u16::MAX),
            running: link.running,
            master: link.master,
        })
    }
}

/// The MAC-VLAN devices by the index of their interface.
#[derive(Debug, Default)]
pub(super) struct MacVlans(BTreeMap<u32, MacVlan>);

impl MacVlans {
    /// Applies a link message of the kernel; returns whether a device has changed.
    fn update(&mut self, interface: u32, link: Option<&Link>) -> bool {
        let next = link.and_then(MacVlan::of);
        if self.0.get(&interface) == next.as_ref() {
            return false;
        }
        match next {
            Some(next) => self.0.insert(interface, next),
            None => self.0.remove(&interface),
        };
        true
    }

    /// Lists the devices that belong to a port, by these rules.
    fn of_port(&self, port: &PlanePort, rules: &[Rule], vrf: Option<u32>) -> Vec<PortMacVlan> {
        let tables = |name: &str| [false, true].map(|v6| evaluate(rules, v6, name, vrf));
        let is_alike = |device: &MacVlan| {
            device.lower == port.interface
                && device.master == port.master
                && tables(&device.name) == tables(&port.name)
        };
        let devices = self.0.iter().filter(|(_, device)| is_alike(device));
        let devices = devices.map(|(&interface, device)| PortMacVlan {
            interface,
            mac: device.mac,
            mtu: device.mtu.min(port.mtu),
            running: device.running,
        });
        devices.collect()
    }
}

impl Plane {
    /// Applies a link message of the kernel to the MAC-VLAN devices.
    pub(super) fn update_macvlan(&mut self, interface: u32, link: Option<&Link>) {
        if self.macvlans.update(interface, link) {
            self.assign_macvlans();
        }
    }

    /// Assigns each MAC-VLAN device to its port.
    pub(super) fn assign_macvlans(&mut self) {
        let mut changed = false;
        let Self { ports, vrfs, macvlans, rules, .. } = self;
        for port in ports.all_mut() {
            let vrf = port.master.and_then(|master| vrfs.get(&master)).copied();
            let devices = macvlans.of_port(port, rules, vrf);
            changed |= port.macvlans != devices;
            port.macvlans = devices;
        }
        if changed {
            self.ports_changed();
            self.is_changed = true;
        }
    }
}
