//! The table of the neighbors on the links: their MACs, and the tables in which the plane has added
//! a host route for them.

use std::collections::HashMap;
use std::net::IpAddr;

/// The state of one neighbor.
#[derive(Clone, Debug, Default)]
struct NeighborEntry {
    mac: Option<[u8; 6]>,
    /// The indexes of the tables to which the plane has added a host route for it.
    routes: Vec<usize>,
}

/// The neighbors by interface and address.
#[derive(Debug, Default)]
pub(super) struct NeighborTable {
    entries: HashMap<(u32, IpAddr), NeighborEntry>,
}

impl NeighborTable {
    /// Sets the MAC of a neighbor; `None` if the neighbor is gone or unreachable. Returns whether
    /// the MAC has changed.
    pub(super) fn update(&mut self, interface: u32, address: IpAddr, mac: Option<[u8; 6]>) -> bool {
        let entry = self.entries.entry((interface, address)).or_default();
        let changed = entry.mac != mac;
        entry.mac = mac;
        changed
    }

    /// Returns a neighbor's MAC.
    pub(super) fn mac(&self, interface: u32, address: IpAddr) -> Option<[u8; 6]> {
        self.entries.get(&(interface, address))?.mac
    }

    /// Returns whether a neighbor has a host route of the plane's in a table.
    pub(super) fn has_route(&self, interface: u32, address: IpAddr, at: usize) -> bool {
        self.entries.get(&(interface, address)).is_some_and(|entry| entry.routes.contains(&at))
    }

    /// Records whether a neighbor has a host route of the plane's in a table.
    pub(super) fn set_route(&mut self, interface: u32, address: IpAddr, at: usize, route: bool) {
        if let Some(entry) = self.entries.get_mut(&(interface, address)) {
            entry.routes.retain(|table| *table != at);
            entry.routes.extend(route.then_some(at));
        }
    }

    /// Lists all neighbors that may need a host route or have one.
    pub(super) fn keys(&self) -> Vec<(u32, IpAddr)> {
        self.entries.keys().copied().collect()
    }

    /// Removes the neighbors without a MAC and without a host route.
    pub(super) fn remove_unused(&mut self) {
        self.entries.retain(|_, entry| entry.mac.is_some() || !entry.routes.is_empty());
    }

    /// Iterates over the neighbors whose MAC is known.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, IpAddr, [u8; 6])> {
        self.entries
            .iter()
            .filter_map(|(&(interface, address), entry)| Some((interface, address, entry.mac?)))
    }
}
