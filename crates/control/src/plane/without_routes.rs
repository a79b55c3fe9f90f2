//! The kernel's changes without its routes, where another feed provides those.

use std::net::IpAddr;

use feed::netlink::{
    AddressChange, AddressView, Follower, InterfaceSettings, Link, Neighbor, RouteInfo, Rule,
};
use fib::Prefix;

use super::{LOCAL, Plane};

/// Forwards the kernel's changes to the plane, except routes that another feed provides: own
/// addresses, links, neighbors and rules still come from the kernel.
#[derive(Debug)]
pub(crate) struct WithoutRoutes<'a>(pub(crate) &'a mut Plane);

impl Follower for WithoutRoutes<'_> {
    fn route_v4(&mut self, table: u32, prefix: Prefix<u32>, best: Option<&RouteInfo>) {
        if table == LOCAL {
            self.0.route_v4(table, prefix, best);
        }
    }

    fn route_v6(&mut self, table: u32, prefix: Prefix<u128>, best: Option<&RouteInfo>) {
        if table == LOCAL {
            self.0.route_v6(table, prefix, best);
        }
    }

    fn link(&mut self, index: u32, link: Option<&Link>) {
        self.0.link(index, link);
    }

    fn address(&mut self, view: &AddressView, change: AddressChange) {
        self.0.address(view, change);
    }

    fn neighbor(&mut self, index: u32, address: IpAddr, neighbor: Option<&Neighbor>) {
        self.0.neighbor(index, address, neighbor);
    }

    fn rules(&mut self, rules: &[Rule]) {
        self.0.rules(rules);
    }

    fn settings(&mut self, interface: u32, settings: InterfaceSettings) {
        self.0.settings(interface, settings);
    }
}
