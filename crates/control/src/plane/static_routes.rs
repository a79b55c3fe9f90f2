//! The plane of a daemon with static routes: its tables are built from the configuration's files.
//!
//! ```text
//!   routes.rs: files ─► tables built at once ─► Plane::with_static_routes       at the start
//!              files ─► sorted routes ── compared with the tables' ─► changes   at a reload
//!   kernel: links and own addresses ─► StaticFollower ─► Plane
//! ```
//!
//! A next hop is a port and a MAC of the configuration, so the plane follows no neighbors, no
//! routes and no rules of the kernel. It follows links, because a port may be down or have
//! another MAC, and its own addresses, which are left to the kernel.
//!
//! A hop names its next hop ([`HopTarget::Static`]) and has its adjacency from the list of next
//! hops: a next hop with another MAC or port is a new adjacency of the same hop, as for a neighbor
//! that the kernel has resolved again, and changes no table.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use feed::netlink::{
    AddressChange, AddressView, AnyPrefix, Follower, InterfaceSettings, Link, Neighbor, RouteInfo,
    Rule,
};
use fib::{Choice, Family, Full, Hop, HopTable, Prefix, Updater};

use super::hops::Hops;
use super::store::TableStore;
use super::{HopTarget, LOCAL, Plane, Ports};
use datapath::Adjacency;

/// A next hop of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticNextHop {
    /// The index of its port, in the workers' order.
    pub port: usize,
    /// Its MAC.
    pub mac: [u8; 6],
    /// Its IP address, if the configuration has one.
    pub address: Option<IpAddr>,
}

/// The next hops of the configuration by their names.
pub type StaticNextHops = HashMap<Arc<str>, StaticNextHop>;

/// The tables of a configuration, with the next hops that their hops name.
#[derive(Debug)]
pub struct StaticTables {
    /// The IPv4 routes and their table.
    pub v4: Updater<u32>,
    /// The IPv6 routes and their table.
    pub v6: Updater<u128>,
    /// The target of each hop, with the number of its routes.
    pub hops: HopTable<HopTarget>,
    /// The next hops.
    pub next_hops: StaticNextHops,
}

impl Plane {
    /// Makes a plane with the routes of a configuration for workers with these ports, which must
    /// belong to one table.
    ///
    /// # Errors
    ///
    /// [`Full`] if the engine cannot build an empty table.
    pub fn with_static_routes(ports: Ports, tables: StaticTables) -> Result<Self, Full> {
        let mut plane = Self::new(ports, Choice::Auto, Choice::Auto, false)?;
        let StaticTables { v4, v6, hops, next_hops } = tables;
        plane.v4 = TableStore::Separate(vec![v4]);
        plane.v6 = TableStore::Separate(vec![v6]);
        plane.hops = Hops::from(hops);
        plane.static_next_hops = next_hops;
        plane.is_stale = true;
        Ok(plane)
    }

    /// Replaces the routes and the next hops by those of another configuration with the same
    /// ports; `v4` and `v6` are sorted by prefix, each prefix once. The next commit publishes the
    /// differences. Returns the number of changed routes.
    pub fn replace_static_routes<'t>(
        &mut self,
        next_hops: StaticNextHops,
        v4: impl Iterator<Item = (Prefix<u32>, &'t HopTarget)>,
        v6: impl Iterator<Item = (Prefix<u128>, &'t HopTarget)>,
    ) -> u64 {
        self.is_stale |= self.static_next_hops != next_hops;
        self.static_next_hops = next_hops;
        let Self { v4: tables_v4, v6: tables_v6, hops, .. } = self;
        let (changed_v4, is_new_v4) = replace(tables_v4, hops, v4);
        let (changed_v6, is_new_v6) = replace(tables_v6, hops, v6);
        self.is_stale |= is_new_v4 || is_new_v6;
        let table = self.numbers[0];
        let all = changed_v4.iter().map(|prefix| AnyPrefix::V4(*prefix));
        for prefix in all.chain(changed_v6.iter().map(|prefix| AnyPrefix::V6(*prefix))) {
            self.ages.record(table, prefix);
            self.count_change();
        }
        (changed_v4.len() + changed_v6.len()) as u64
    }

    /// Returns the next hop of the configuration with this name.
    pub fn static_next_hop(&self, name: &str) -> Option<&StaticNextHop> {
        self.static_next_hops.get(name)
    }

    /// Replaces the router's own addresses, broadcast addresses included.
    pub fn set_locals(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        let locals: BTreeSet<_> = addresses.into_iter().map(|address| (address, LOCAL)).collect();
        self.locals_changed |= self.locals != locals;
        self.locals = locals;
    }

    /// Returns whether the kernel has reported a change of an address since the last call.
    pub fn take_address_changes(&mut self) -> bool {
        std::mem::take(&mut self.addresses_differ)
    }

    /// Returns the adjacency of the next hop of the configuration with this name.
    pub(super) fn static_adjacency(&self, name: &str) -> Option<Adjacency> {
        let next = self.static_next_hops.get(name)?;
        let port = self.ports.iter().nth(next.port)?;
        Some(self.ports.adjacency(port.interface, next.mac))
    }
}

/// Changes the routes of the only table to `wanted`; returns the prefixes of the changed ones, and
/// whether a hop is new and has no adjacency yet.
fn replace<'t, A: Family>(
    tables: &mut TableStore<A>,
    hops: &mut Hops,
    wanted: impl Iterator<Item = (Prefix<A>, &'t HopTarget)>,
) -> (Vec<Prefix<A>>, bool) {
    let mut changes: Vec<(Prefix<A>, Option<&HopTarget>)> = Vec::new();
    let mut routes = tables.view(0).rib().iter().peekable();
    for (prefix, target) in wanted {
        while let Some((gone, _)) = routes.next_if(|(known, _)| *known < prefix) {
            changes.push((gone, None));
        }
        let hop = routes.next_if(|(known, _)| *known == prefix).map(|(_, hop)| hop);
        if hop.and_then(|hop| hops.get(hop)) != Some(target) {
            changes.push((prefix, Some(target)));
        }
    }
    changes.extend(routes.map(|(gone, _)| (gone, None)));
    let mut is_new = false;
    for &(prefix, target) in &changes {
        // If no index is left, which takes four billion targets, the route is dropped.
        let hop = target.and_then(|target| hops.acquire(target).ok());
        is_new |= hop.is_some_and(|(_, new)| new);
        let old = tables.set_route(0, prefix, hop.map(|(hop, _)| hop));
        hops.release(old.unwrap_or(Hop::NONE));
    }
    (changes.into_iter().map(|(prefix, _)| prefix).collect(), is_new)
}

/// Forwards the kernel's links to a plane with static routes, and reports that addresses have
/// changed; the plane ignores all else.
#[derive(Debug)]
pub(crate) struct StaticFollower<'a>(pub(crate) &'a mut Plane);

impl Follower for StaticFollower<'_> {
    fn route_v4(&mut self, _: u32, _: Prefix<u32>, _: Option<&RouteInfo>) {}

    fn route_v6(&mut self, _: u32, _: Prefix<u128>, _: Option<&RouteInfo>) {}

    fn link(&mut self, index: u32, link: Option<&Link>) {
        self.0.link(index, link);
    }

    fn address(&mut self, _: &AddressView, _: AddressChange) {
        self.0.addresses_differ = true;
    }

    fn neighbor(&mut self, _: u32, _: IpAddr, _: Option<&Neighbor>) {}

    fn rules(&mut self, _: &[Rule]) {}

    fn settings(&mut self, _: u32, _: InterfaceSettings) {}
}
