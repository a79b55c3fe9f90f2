//! Host routes: each neighbor on a link that the router is on itself has a route of the plane's own.
//!
//! A connected route names no gateway: every destination is its own neighbor. For each neighbor that
//! the kernel knows, and whose longest route is the connected route of its link, the plane adds a host
//! route; a route of the kernel for the same address takes precedence. Every commit of changes updates
//! these routes, with a lookup for each neighbor and table: a link's own route need not be in the table
//! in which its packets are looked up.

use std::net::IpAddr;

use feed::netlink::Target;
use fib::{Family, Hop, Prefix};

use super::hops::Hops;
use super::store::TableView;
use super::{HopTarget, Plane};

impl Plane {
    /// Adds a host route for each neighbor whose longest route is the connected route of its link,
    /// in each table by its own routes, and removes the host routes of the others.
    pub(super) fn update_host_routes(&mut self) {
        for (interface, address) in self.neighbor_table.keys() {
            for at in 0..self.numbers.len() {
                self.update_host_route(interface, address, at);
            }
        }
        self.neighbor_table.remove_unused();
    }

    fn update_host_route(&mut self, interface: u32, address: IpAddr, at: usize) {
        let hops = &mut self.hops;
        let wanted = self.neighbor_table.mac(interface, address).is_some()
            && self.ports.leads_from(interface)
            && match address {
                IpAddr::V4(v4) => is_on_link(self.v4.view(at), hops, u32::from(v4), interface),
                IpAddr::V6(v6) => is_on_link(self.v6.view(at), hops, u128::from(v6), interface),
            };
        if wanted == self.neighbor_table.has_route(interface, address, at) {
            return;
        }
        let mut hop = None;
        if wanted {
            let target = HopTarget::Neighbor { interface, address };
            let Ok((acquired, is_new)) = hops.acquire(&target) else { return };
            self.is_stale |= is_new;
            hop = Some(acquired);
        }
        let old = match address {
            IpAddr::V4(v4) => self.v4.set_route(at, host(u32::from(v4)), hop),
            IpAddr::V6(v6) => self.v6.set_route(at, host(u128::from(v6)), hop),
        };
        hops.release(old.unwrap_or(Hop::NONE));
        self.neighbor_table.set_route(interface, address, at, wanted);
    }

    /// Records that a route of the kernel has replaced the plane's host route to an address, in
    /// the table with index `at`.
    pub(super) fn host_route_replaced(&mut self, at: usize, address: IpAddr) {
        for interface in self.ports.interfaces() {
            self.neighbor_table.set_route(interface, address, at, false);
        }
    }
}

/// Makes the prefix of one address.
fn host<A: Family>(address: A) -> Prefix<A> {
    Prefix::truncate(address, A::BITS)
}

/// Returns whether the longest route to `address`, except a host route, is the connected route of
/// `interface`, and the kernel has no host route to the address.
fn is_on_link<A: Family>(table: TableView<'_, A>, hops: &Hops, address: A, interface: u32) -> bool {
    let host = host(address);
    let mut longest = None;
    for (prefix, hop) in table.rib().covering(host) {
        match hops.get(hop) {
            Some(HopTarget::Route(_)) if prefix == host => return false,
            Some(HopTarget::Route(target))
                if longest.is_none_or(|(len, _)| prefix.len() >= len) =>
            {
                longest = Some((prefix.len(), target));
            }
            _ => {}
        }
    }
    longest.is_some_and(|(_, target)| match &**target {
        Target::Via(vias) => {
            vias.iter().any(|via| via.gateway.is_none() && via.interface == interface)
        }
        _ => false,
    })
}
