//! The router's ports, as the kernel describes their links.
//!
//! A port is a device of the kernel's, which is known by its index: the configuration's name
//! finds it at the start and at a reload, and the port stays with the device when that is
//! renamed. A port whose device is gone waits for one of that name, or of the last name that
//! the device had: that one takes its place ([`Ports::adopt`]).
//!
//! Until workers have sockets on the device, or where they can have none, packets that would
//! leave by the port are the kernel's.

use feed::netlink::Link;

use super::policy::{Led, Stray};

use crate::control::links;
use crate::datapath::{Adjacency, SourceCheck};

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
    /// Says whether packets can leave on it.
    pub up: bool,
    /// Returns whether it is up as far as the administrator is concerned.
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
    /// That table is the one that the kernel's rules lead to, and not one that was chosen.
    pub ruled: bool,
    /// What that table has no route for, others may have: it is the host's.
    pub further: bool,
    /// Where the rules lead, if that is not where packets go.
    pub stray: Option<Stray>,
    /// The kernel would forward its packets of IPv4, and of IPv6, by another table than the one
    /// that was chosen: it is handed none to forward.
    pub isolated: [bool; 2],
    /// Which sources they may have.
    pub sources: SourceCheck,
}

impl PlanePort {
    /// Says whether the rules lead its packets to another table than they go by, so that a
    /// new plane would have that.
    pub fn has_moved(&self) -> bool {
        let led = self.stray.as_ref().filter(|stray| !stray.v6).map(|stray| &stray.led);
        matches!(led, Some(Led::Table { number, .. }) if *number != self.table)
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

    /// Walks the ports in the workers' order.
    pub fn iter(&self) -> impl Iterator<Item = &PlanePort> {
        self.0.iter()
    }

    /// Returns the port at a place of the workers' order.
    pub(super) fn at_mut(&mut self, at: usize) -> Option<&mut PlanePort> {
        self.0.get_mut(at)
    }

    /// Returns whether a port waits for another device.
    pub fn has_gone(&self) -> bool {
        self.0.iter().any(|port| port.gone)
    }

    /// Gives ports whose device is gone those among `links` that have their names, and are no
    /// port's; returns whether it gave any.
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

    /// Changes which sources packets may have, in the workers' order.
    pub(super) fn set_sources(&mut self, sources: &[SourceCheck]) {
        for (port, sources) in self.0.iter_mut().zip(sources) {
            port.sources = *sources;
        }
    }

    /// Takes over what the kernel says of a link; says whether a port has changed.
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

    /// Says how a packet leaves by the port of an interface to a neighbor's MAC. Behind
    /// what is no port, or is down, it is the host's.
    pub(super) fn adjacency(&self, interface: u32, mac: [u8; 6]) -> Adjacency {
        match self.place(interface) {
            Some((at, port)) if port.up && port.served => {
                Adjacency::new(at, mac, port.mac, port.mtu)
            }
            Some((at, _)) => Adjacency::HOST.behind(at),
            None => Adjacency::HOST,
        }
    }

    /// Says how a packet waits for a neighbor behind the port of an interface.
    pub(super) fn unresolved(&self, interface: u32) -> Adjacency {
        match self.place(interface) {
            Some((at, port)) if port.up && port.served => Adjacency::unresolved(at),
            Some((at, _)) => Adjacency::HOST.behind(at),
            None => Adjacency::HOST,
        }
    }

    fn place(&self, interface: u32) -> Option<(u16, &PlanePort)> {
        let at = self.0.iter().position(|port| port.interface == interface)?;
        Some((at as u16, &self.0[at]))
    }
}
