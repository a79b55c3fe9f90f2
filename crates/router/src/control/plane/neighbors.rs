//! Neighbors: who is on the links, by which MAC, and in which tables they have routes of ours.

use std::collections::HashMap;
use std::net::IpAddr;

/// What is known of one neighbor.
#[derive(Clone, Debug, Default)]
struct One {
    mac: Option<[u8; 6]>,
    /// The places of the tables to which the plane has added a host route for it.
    routes: Vec<usize>,
}

/// The neighbors by interface and address.
#[derive(Debug, Default)]
pub(super) struct NeighborTable {
    all: HashMap<(u32, IpAddr), One>,
}

impl NeighborTable {
    /// Takes over what is said of a neighbor; `None`: it is gone or cannot be used.
    /// Says whether its MAC has changed.
    pub(super) fn update(&mut self, interface: u32, address: IpAddr, mac: Option<[u8; 6]>) -> bool {
        let one = self.all.entry((interface, address)).or_default();
        let changed = one.mac != mac;
        one.mac = mac;
        changed
    }

    /// Returns a neighbor's MAC.
    pub(super) fn mac(&self, interface: u32, address: IpAddr) -> Option<[u8; 6]> {
        self.all.get(&(interface, address))?.mac
    }

    /// Says whether a neighbor has a route of the plane's in a table.
    pub(super) fn has_route(&self, interface: u32, address: IpAddr, at: usize) -> bool {
        self.all.get(&(interface, address)).is_some_and(|one| one.routes.contains(&at))
    }

    /// Notes whether a neighbor has a route of the plane's in a table.
    pub(super) fn set_route(&mut self, interface: u32, address: IpAddr, at: usize, route: bool) {
        if let Some(one) = self.all.get_mut(&(interface, address)) {
            one.routes.retain(|table| *table != at);
            one.routes.extend(route.then_some(at));
        }
    }

    /// Lists all that may want a route or have one.
    pub(super) fn all(&self) -> Vec<(u32, IpAddr)> {
        self.all.keys().copied().collect()
    }

    /// Forgets those that are gone and have no route.
    pub(super) fn forget(&mut self) {
        self.all.retain(|_, one| one.mac.is_some() || !one.routes.is_empty());
    }

    /// Walks those that can be used.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, IpAddr, [u8; 6])> {
        self.all
            .iter()
            .filter_map(|(&(interface, address), one)| one.mac.map(|mac| (interface, address, mac)))
    }
}
